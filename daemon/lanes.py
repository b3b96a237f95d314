"""The lanes of a detector, and how another detector takes over from them while frames keep coming."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import structlog

from daemon.board import FrameBoard
from daemon.clock import Clock
from daemon.config import SourceConfig
from daemon.lane import Keep, LaneThread, Look, keep_of
from daemon.metrics import Ledger
from daemon.outbox import Outbox
from detectors.port import Detector, DetectorError

log = structlog.get_logger(__name__)
_POLL_S = 0.05
_PATIENCE_S = 30.0  # with lanes that finish a batch


class Lanes:
    """Lanes of one detector at a time.

    Args:
        default: confidence, of sources that do not name their own.
        least: below it the detector gives nothing.
        look: sees what each frame gave, see `daemon.lane.LaneThread`.

    Attributes:
        detector: that they are of.
    """

    def __init__(
        self,
        detector: Detector,
        sources: Sequence[SourceConfig],
        default: float,
        least: float,
        board: FrameBoard,
        outbox: Outbox,
        ledger: Ledger,
        on_failure: Callable[[str], None],
        clock: Clock,
        look: Look,
    ) -> None:
        self.detector = detector
        self._board, self._outbox, self._ledger = board, outbox, ledger
        self._on_failure, self._clock, self._look = on_failure, clock, look
        self._default, self._least = default, least
        self._generation = 0
        self._keep = self._wishes(detector, sources, default, least)
        self.threads = self._make(detector, self._keep)

    def start(self, stopping: threading.Event) -> None:
        """Warm all up; returns when they are, or when that is not wanted any more."""
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            while not thread.ready.wait(_POLL_S) and not stopping.is_set():
                """Warming up."""

    def wish(self, sources: Sequence[SourceConfig]) -> None:
        """What these sources want from here on.

        Raises:
            ConfigError: a label the model does not have. Nothing has changed.
        """
        self._keep |= self._wishes(self.detector, sources, self._default, self._least)

    def forget(self, source: str) -> None:
        self._keep.pop(source, None)

    def swap(self, detector: Detector, sources: Sequence[SourceConfig], default: float, least: float) -> None:
        """Another detector's lanes take the next batches; the old ones finish theirs, and their detector is closed.

        Raises:
            ConfigError: a source wants a label that the model does not have. Nothing has changed.
            DetectorError: a lane of it does not work. Nothing has changed.
        """
        keep = self._wishes(detector, sources, default, least)
        failures: list[str] = []
        self._generation += 1
        fresh = self._make(detector, keep, failures.append)
        for thread in fresh:
            thread.go.clear()
            thread.start()
        for thread in fresh:
            while not thread.ready.wait(_POLL_S) and thread.is_alive():
                """Warming up, beside those that work."""
        if failures or not all(thread.ready.is_set() for thread in fresh):
            for thread in fresh:
                thread.retire()
                thread.join(_PATIENCE_S)
            raise DetectorError(failures[0] if failures else "a lane of the new model ended while it was opened")
        for thread in fresh:
            thread.on_failure = self._on_failure
        old, old_detector = self.threads, self.detector
        self.threads, self.detector, self._keep = fresh, detector, keep
        self._default, self._least = default, least
        for thread in fresh:
            thread.go.set()
        for thread in old:
            thread.retire()
        for thread in old:
            thread.join(_PATIENCE_S)
        if not any(thread.is_alive() for thread in old):
            with suppress(DetectorError):
                old_detector.close()

    def _wishes(
        self, detector: Detector, sources: Sequence[SourceConfig], default: float, least: float
    ) -> dict[str, Keep | None]:
        return {source.id: keep_of(source, detector.info.labels, default, least) for source in sources}

    def _make(
        self, detector: Detector, keep: Mapping[str, Keep | None], on_failure: Callable[[str], None] | None = None
    ) -> list[LaneThread]:
        names = [f"{number}.{self._generation}" if self._generation else str(number)
                 for number in range(detector.info.lanes)]  # fmt: skip
        return [
            LaneThread(
                name,
                detector,
                self._board,
                self._outbox,
                self._ledger,
                keep,
                on_failure or self._on_failure,
                self._clock,
                self._look,
            )
            for name in names
        ]
