"""The lane thread: take, detect, hand over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import structlog

from daemon.board import FrameBoard
from daemon.clock import Clock
from daemon.config import SourceConfig
from daemon.errors import ConfigError
from daemon.frames import Frame
from daemon.messages import Model
from daemon.metrics import Ledger
from daemon.outbox import Outbox, Result, Served
from detectors.detections import Detections
from detectors.port import Detector, DetectorError, Lane

log = structlog.get_logger(__name__)
_IDLE_S = 0.5

Look = Callable[[Frame, Detections, Lane], None]


class LaneThread(threading.Thread):
    """Owns one lane of the detector.

    Args:
        number: for its name.
        keep: what each source wants of what is found; others may change it.
        look: sees each batch and what was found in it, before it is handed over.

    Attributes:
        ready: set when the lane is warmed up.
        go: it waits for this before it takes its first batch.
        on_failure: told why it cannot go on.
        beat_ns: monotonic time of the last turn of the loop, for the watchdog.
        step: what it is at.
    """

    def __init__(
        self,
        number: str,
        detector: Detector,
        board: FrameBoard,
        outbox: Outbox,
        ledger: Ledger,
        keep: Mapping[str, Keep | None],
        on_failure: Callable[[str], None],
        clock: Clock,
        look: Look = lambda _frame, _found, _lane: None,
    ) -> None:
        super().__init__(name=f"lane-{number}", daemon=True)
        info = detector.info
        self._served = Served(Model(info.name, info.digest, info.precision, info.backend), info.labels)
        self._look = look
        self._retired = False
        self.step = "open"
        self._detector, self._board, self._outbox, self._ledger = detector, board, outbox, ledger
        self._keep, self.on_failure, self._clock = keep, on_failure, clock
        self.ready, self.go = threading.Event(), threading.Event()
        self.go.set()
        self.beat_ns = clock.monotonic_ns()

    def retire(self) -> None:
        """Take no more batches: others do."""
        self._retired = True
        self.go.set()

    def run(self) -> None:
        lane: Lane | None = None
        try:
            lane = self._detector.lane()
            if not self.go.is_set():  # it takes over from others, and must be known to work
                lane.detect([self._detector.sample(640, 360)])
            self.ready.set()
            self.step = "wait for its turn"
            while not self.go.wait(_IDLE_S) and not self._board.drained:
                self.beat_ns = self._clock.monotonic_ns()
            while not (self._retired or self._board.drained):
                self.run_once(lane)
                self.beat_ns = self._clock.monotonic_ns()
        except Exception as error:
            log.exception("detector failed", lane=self.name)
            self.on_failure(f"{self.name} failed: {error}")
        finally:
            if lane:
                with suppress(DetectorError):  # what failed on a poisoned device fails again when it is released
                    lane.close()

    def run_once(self, lane: Lane) -> None:
        """One batch, if there is one: take, detect, hand over, release."""
        self.step = "take"
        batch = self._board.take(self._detector.info.max_batch, _IDLE_S)
        if not batch:
            return
        taken = self._clock.monotonic_ns()
        self.step = "detect"
        try:
            found, times = lane.detect([frame.image for frame in batch])
        except Exception:
            for frame in batch:
                self._ledger.drop(frame.info, "detector_error")
            raise
        self.step = "hand over"
        results = []
        for frame, seen in zip(batch, found):
            keep = self._keep.get(frame.info.source)  # none if the source has gone meanwhile
            kept = keep(seen) if keep else seen
            self._look(frame, kept, lane)
            results.append(Result(frame.info, kept, taken, times, self._served))
        self._outbox.put(results)
        self._board.release(batch)


@dataclass(frozen=True)
class Keep:
    """A source's own wishes: a higher threshold, some labels only. NMS is class-wise and greedy by confidence, so
    filtering after it gives what filtering before would.

    Attributes:
        confidence: weaker boxes are left out.
        classes: (c,) bool, which class ids to keep, or None for all.
    """

    confidence: float
    classes: npt.NDArray[np.bool_] | None

    def __call__(self, detections: Detections) -> Detections:
        keep = detections.confidence >= self.confidence
        if self.classes is not None:
            keep &= self.classes[detections.class_id]
        return detections if keep.all() else detections[keep]


def keep_of(source: SourceConfig, labels: tuple[str, ...], default: float, detectors: float) -> Keep | None:
    """What a source wants of a model with these labels; None if it wants all that the detector gives.

    Args:
        default: confidence, of sources that do not name their own.
        detectors: the confidence below which the detector gives none.

    Raises:
        ConfigError: a label the model does not have.
    """
    classes = None
    if source.labels is not None:
        unknown = sorted(set(source.labels) - set(labels))
        if unknown:
            raise ConfigError(
                f"sources, id {source.id}: the model has no label {unknown[0]!r}; it has {', '.join(labels)}"
            )
        classes = np.array([label in source.labels for label in labels])
    confidence = default if source.confidence is None else source.confidence
    return None if classes is None and confidence <= detectors else Keep(confidence, classes)
