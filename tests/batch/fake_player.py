"""A player whose clips end when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from daemon.batch.sink import Ended
from daemon.batch.writer import ResultWriter
from daemon.pipeline.ledger import Counts
from lookout.messages import Dropped, Model, VideoFormat

MODEL = Model("fake", "0" * 12, "none", "fake")
FORMAT = VideoFormat("h264", 8, 8, 15.0, "cpu")


class FakePlayer:
    """Implements `daemon.batch.player.Player`. All playing clips end at each `take_ended` while `plays_by_itself`.

    Attributes:
        playing: file name by source.
        faults: reason by file name: these clips have no result.
        on_play: called after each `play`.
        largest: number of clips that have played at a time.
        played: names, in order.
    """

    def __init__(self, *, plays_by_itself: bool = True) -> None:
        self.plays_by_itself = plays_by_itself
        self.playing: dict[str, str] = {}
        self.faults: dict[str, str] = {}
        self.on_play: Callable[[], None] = lambda: None
        self.on_end: Callable[[], None] = lambda: None
        self.largest = 0
        self.played: list[str] = []
        self.failure: int | None = None
        self.is_open, self.is_closed = False, False
        self._writers: dict[str, ResultWriter] = {}
        self._ended: list[Ended] = []

    def open(self, clips: Mapping[str, Path]) -> dict[str, Model]:
        assert clips
        assert not self.is_open
        self.is_open = True
        return {"": MODEL}

    def play(self, clips: Mapping[str, Path], writers: Mapping[str, ResultWriter]) -> None:
        self.playing |= {source: path.name for source, path in clips.items()}
        self.played += [path.name for path in clips.values()]
        self._writers |= writers
        self.largest = max(self.largest, len(self.playing))
        self.on_play()

    def drop(self, sources: list[str]) -> None:
        for source in sources:
            self.playing.pop(source, None)
            self._writers.pop(source, None)

    def end(self, source: str, *, is_fatal: bool = False) -> None:
        """A clip has been played."""
        name, writer = self.playing.pop(source), self._writers.pop(source)
        fault = self.faults.get(name)
        if fault is None:
            writer.finish(None, FORMAT, {"": Counts(0, 0, Dropped())})
        self._ended.append(Ended(source, fault, is_fatal))

    def take_ended(self) -> list[Ended]:
        if self.plays_by_itself:
            for source in [*self.playing]:
                self.end(source)
            self.on_end()
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> int | None:
        self.is_closed = True
        return self.failure
