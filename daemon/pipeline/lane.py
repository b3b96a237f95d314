"""The lane thread: take a batch, detect, hand the results over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from msgspec import UNSET

from daemon.pipeline.batch import Batch
from daemon.pipeline.frame_board import FrameBoard
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.outbox import Outbox, Result, Served, Work
from daemon.pipeline.stages import Analytics, NoAnalytics, Stage
from daemon.pipeline.views import SourceViews
from daemon.system.runtime import Runtime
from daemon.system.stop_token import StopToken
from detectors.detections import Detections, plausible
from detectors.port import Detector, DetectorError, DetectorUnavailableError, Lane, ModelInfo, Size, StageTimes, lane_at
from lookout.messages import Model

log = structlog.get_logger(__name__)
_IDLE_S = 0.5
_RETRY_S = 0.1  # while a server is away and sources wait for it


class Observer(Protocol):
    """Sees pictures with their detections, while the pixels are at hand. Lanes call it.

    Attributes:
        is_waiting: it wants some picture.
    """

    @property
    def is_waiting(self) -> bool: ...
    def on_result(self, frame: Frame, found: Detections, lane: Lane, labels: tuple[str, ...]) -> None: ...


class Follower(Protocol):
    """Sees each batch after its results are handed over, and before its pictures are released. Lanes call it."""

    def on_batch(self, frames: Sequence[Frame], found: Sequence[Detections], served: Served) -> None:
        """
        Args:
            served: the model that has found it, with its labels; the same object for each batch of a lane.
        """
        ...


@dataclass(frozen=True)
class Pipeline:
    """The parts that a lane takes from and hands over to.

    Attributes:
        observers: called with each frame, its detections, the lane and the labels, before the result is handed over.
        analytics: makes the stages around the filter.
        followers: called with each batch, after its results are handed over.
        views: what the model sees of each source.
        model: its name, where there are several.
    """

    board: FrameBoard
    outbox: Outbox
    ledger: Ledger
    runtime: Runtime
    observers: Sequence[Observer] = ()
    analytics: Analytics = field(default_factory=NoAnalytics)
    followers: Sequence[Follower] = ()
    views: SourceViews = field(default_factory=SourceViews)
    model: str = ""


class LaneThread(threading.Thread):
    """Owns one lane of the detector.

    Args:
        name: of the lane.
        stages: run on the detections, in order.
        retired: if set, the lane ends after its batch.
        on_end: called when the lane is closed.

    Attributes:
        ready: set when the lane is warmed up, or has failed.
        go: the lane waits for this before its first batch.
        failure: the reason of its end; None if it was asked to end.
    """

    def __init__(
        self,
        name: str,
        detector: Detector,
        stages: Sequence[Stage],
        pipeline: Pipeline,
        retired: StopToken,
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(name=f"lane-{name}", daemon=True)
        info = detector.info
        model = Model(info.name, info.digest, info.precision, info.backend, pipeline.model or UNSET)
        self._served = Served(model, info.labels, _device(info))
        self._detector, self._to = detector, pipeline
        named = pipeline.runtime.ranges.named
        self._stages = [(stage, named(f"{self.name} {type(stage).__name__}")) for stage in stages]
        self._detecting, self._handing_over = named(f"{self.name} detect"), named(f"{self.name} outbox")
        self._retired, self._on_end = retired, on_end
        self.ready, self.go = StopToken(), StopToken()
        self.failure: str | None = None
        self._is_away = False  # the model's server, for the log

    def run(self) -> None:
        lane: Lane | None = None
        try:
            lane = self._detector.lane()
            if not self.go.is_set:  # a lane that replaces others must work
                lane.detect([self._detector.sample(640, 360)])
            self.ready.set()
            self.go.wait()
            self._serve(lane)
        except Exception as error:
            log.exception("detector failed", lane=self.name)
            self.failure = f"{self.name} failed: {error}"
            if self.go.is_set and not self._retired.is_set:
                self._to.runtime.on_failure(self.failure)
        finally:
            self.ready.set()
            if lane:
                self._close(lane)
            self._on_end()

    def _serve(self, lane: Lane) -> None:
        with self._to.runtime.watchdog.pulse(self.name) as pulse:
            while not (self._retired.is_set or self._to.board.drained):
                self.run_once(lane, pulse.beat)
                pulse.beat()
        self._to.board.call_lane()  # for frames that this lane was woken for

    def run_once(self, lane: Lane, beat: Callable[[], None] | None = None) -> None:
        """Process one batch, if there is one.

        Args:
            beat: called while the batch waits for a server that is away.
        """
        board = self._to.board
        batch = board.take_batch(self._detector.info.max_batch, _IDLE_S, self._retired)
        frames = batch.frames
        if not frames:
            return
        taken = self._to.runtime.clock.monotonic_ns()
        infos = [frame.info for frame in frames]
        try:
            with self._detecting:
                seen, times = self._detect(lane if batch.size is None else self._at(lane, batch.size), batch, beat)
            detected = self._to.runtime.clock.monotonic_ns()
            if self._is_away:
                self._is_away = False
                log.info("the server of the model is back", lane=self.name)
            if not board.claim(batch):
                return  # the frames are counted: the time to stop was over
            found = self._plausible(infos, seen)
            for stage, running in self._stages:
                with running:
                    found = stage(infos, found)
            for observer in self._to.observers:
                for frame, one in zip(frames, found) if observer.is_waiting else ():
                    observer.on_result(frame, one, lane, self._served.labels)
        except DetectorUnavailableError as error:
            self._note_away(error)
            self._drop(batch, "detector_unavailable")
            return
        except Exception:
            self._drop(batch, "detector_error")
            raise
        with self._handing_over:
            work = Work(self.name, len(frames), detected, self._to.runtime.clock.monotonic_ns())
            served = self._served
            self._to.outbox.put([Result(info, seen, taken, times, served, work) for info, seen in zip(infos, found)])
        try:
            for follower in self._to.followers:
                follower.on_batch(frames, found, self._served)
        finally:
            board.release(batch)

    def _at(self, lane: Lane, size: Size) -> Lane:
        """The lane at an input size. The model's own size stands in for one that only another model has, which is
        possible for a moment while models change."""
        return lane_at(lane, size) if size in self._detector.info.further_sizes else lane

    def _detect(self, lane: Lane, batch: Batch, beat: Callable[[], None] | None) -> tuple[list[Detections], StageTimes]:
        """Detections of a batch. It is tried again while a server is away and its sources wait."""
        while True:
            try:
                if self._to.views.active:
                    return self._to.views.detect(lane, batch.frames, self._detector.info)
                return lane.detect([frame.image for frame in batch.frames])
            except DetectorUnavailableError as error:
                self._note_away(error)
                if self._retired.wait(_RETRY_S if self._to.board.is_waited_for(batch) else 0):
                    raise
                if not self._to.board.is_waited_for(batch):
                    raise
                if beat is not None:
                    beat()

    def _note_away(self, error: DetectorUnavailableError) -> None:
        if not self._is_away:
            log.warning("the server of the model is away: frames are dropped", lane=self.name, reason=str(error))
        self._is_away = True

    def _drop(self, batch: Batch, cause: str) -> None:
        """Count the frames of a batch as dropped, unless they are counted, and release it."""
        for frame in batch.frames if self._to.board.claim(batch) else ():
            self._to.ledger.drop(frame.info, cause)
        self._to.board.release(batch)  # for other lanes, or those of another model

    def _plausible(self, frames: Sequence[FrameInfo], found: Sequence[Detections]) -> Sequence[Detections]:
        """Remove and count implausible boxes; count candidates beyond the limit. The first of each is logged."""
        if left_out := sum([one.left_out for one in found]):
            if self._to.ledger.left_out == 0:
                log.warning("the model gives more candidates than the limit: the weakest are left out", lane=self.name)
            self._to.ledger.add_left_out(left_out)
        good, bad = plausible(found, len(self._served.labels))
        if bad:
            if self._to.ledger.bad_boxes == 0:
                log.error("the model gives boxes that no picture has: they are left out", lane=self.name, first=bad)
            for frame, before, after in zip(frames, found, good):
                if removed := len(before) - len(after):
                    self._to.ledger.add_bad_boxes(frame, removed)
        self._to.ledger.note_boxes([frame for frame, one in zip(frames, good) if len(one)])
        return good

    def _close(self, lane: Lane) -> None:
        try:
            with suppress(DetectorError):  # on a poisoned device the release fails, too
                lane.close()
        except Exception:
            log.exception("a lane cannot be closed", lane=self.name)


def _device(info: ModelInfo) -> str:
    """Where a model works, as traces name it."""
    if info.gpu is not None:
        return f"gpu{info.gpu}"
    return info.device or ("server" if info.transport else "cpu")
