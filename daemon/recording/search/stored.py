"""The analysed pictures of a source as its files have them, file by file, and why some cannot be had."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from daemon.errors import LookoutError
from daemon.recording.index_reader import IndexReader
from daemon.recording.records import FileFacts
from daemon.recording.search.answers import Blind
from daemon.recording.search.asked import Asked
from daemon.recording.store import Store
from daemon.recording.tracks.records import SeenFrame, StateChange, TracksHead
from daemon.recording.tracks.track_records import TracksError, read_tracks, tracks_head

_SETTLE_NS = 10_000_000_000  # until the source's time is as it was
_QUIET_FRAMES = 8  # and those that confirm a track: without a track in them, none goes on from before


class Opened(NamedTuple):
    """The boxes beside a recording begin."""

    facts: FileFacts
    head: TracksHead


class Problem(NamedTuple):
    """From here on the boxes beside a recording cannot be had."""

    facts: FileFacts
    cause: Blind
    detail: str


Item = Opened | SeenFrame | StateChange | Problem


class StoredTracks:
    """The boxes that a store has for a question.

    Attributes:
        files: those whose boxes are read, by their begin. Those before the time are for the tracks that go on in it.

    Raises:
        LookoutError: the store has nothing of the source, or cannot be read.
    """

    def __init__(self, store: Store, index: IndexReader, asked: Asked) -> None:
        self._store, self._asked = store, asked
        if index.newest(asked.source) is None and index.open_gap(asked.source) is None:
            raise LookoutError(f"the store has no source {asked.source}: there are {', '.join(index.sources()[:20])}")
        files = index.files_with_open(asked.source, asked.begin - asked.look_back_ns, asked.end)
        self.files: Sequence[FileFacts] = files[self._first(files) :]

    def items(self) -> Iterator[Item]:
        """All of them in their order."""
        for facts in self.files:
            try:
                head = tracks_head(self._store, facts)
            except (OSError, TracksError) as error:
                yield self._problem(facts, error)
                continue
            if head.video != facts.id or head.source != facts.source:
                yield Problem(facts, "other_video", f"they are of {head.source}, {head.video}")
                continue
            yield Opened(facts, head)
            yield from self._of(facts)

    def _of(self, facts: FileFacts) -> Iterator[SeenFrame | StateChange | Problem]:
        problem = None
        rows: list[SeenFrame | StateChange] = []
        try:
            for row in read_tracks(self._store, facts):
                rows.append(row)
        except (OSError, TracksError) as error:
            problem = self._problem(facts, error)
        if len({row.frame.account for row in rows if isinstance(row, SeenFrame)}) > 1:
            rows.sort(key=_time_of)  # each model has its own order in the file
        yield from rows
        if problem is not None:
            yield problem

    def _problem(self, facts: FileFacts, error: Exception) -> Problem:
        if isinstance(error, TracksError):
            return Problem(facts, "damaged", str(error))
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            return Problem(facts, "damaged", f"{facts.path}: {error.strerror or error}")
        if (self._store.path / facts.path).exists():
            return Problem(facts, "no_tracks", "the file of tracks is not there")
        return Problem(facts, "no_tracks", "the recording was deleted meanwhile")

    def _first(self, files: Sequence[FileFacts]) -> int:
        """The file to begin with: none of the tracks in the time that is asked is older, if possible."""
        place = next((place for place, facts in enumerate(files) if self._asked.overlaps(facts)), len(files))
        while 0 < place < len(files) and not self._is_fresh(files[place]):
            place -= 1
        return place

    def _is_fresh(self, facts: FileFacts) -> bool:
        """No track goes on from before this file into the time that is asked."""
        try:
            head = tracks_head(self._store, facts)
            rows = read_tracks(self._store, facts)
            frames = (row for row in rows if isinstance(row, SeenFrame) and row.tracks is not None)
            confirm = head.tracking.confirm_hits if head.tracking else 0
            first = [*islice(frames, _QUIET_FRAMES + confirm)]
        except (OSError, TracksError):
            return False
        if first and first[0].index == 0:  # the daemon has begun
            return True
        if not first or self._asked.begin - facts.begin < _SETTLE_NS:
            return False
        return not any(row.tracks is not None and (row.tracks.id > 0).any() for row in first)


def _time_of(row: SeenFrame | StateChange) -> int:
    return row.frame.captured_ns if isinstance(row, SeenFrame) else row.monotonic
