"""The lanes of a detector, and the swap to another detector while frames keep coming."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

import structlog

from daemon.config.sources import SourceConfig
from daemon.pipeline.lane import LaneThread, Pipeline
from daemon.pipeline.stages import BoxFilter, Defaults, FilterStage, filter_of
from daemon.system import memory
from daemon.system.stop_token import StoppedError, StopToken
from detectors.port import Detector, DetectorError, ModelInfo, Remote

log = structlog.get_logger(__name__)
_POLL_S = 0.05


class LaneSet:
    """A detector and its lanes. The last lane that ends closes the detector, so that none is closed under a lane.

    Args:
        number: of the detector, from 0.

    Attributes:
        threads: its lanes.
        closed: set when the lanes have ended and the detector is closed.

    Raises:
        ConfigError: the model does not have a label of a source.
    """

    def __init__(
        self,
        number: int,
        detector: Detector,
        sources: Sequence[SourceConfig],
        defaults: Defaults,
        pipeline: Pipeline,
    ) -> None:
        self._detector, self._defaults = detector, defaults
        self._filter = FilterStage(self.filters_of(sources))
        self._retired = StopToken()
        self._lock = threading.Lock()
        self._started = False
        self.closed = StopToken()
        labels, analytics = detector.info.labels, pipeline.analytics
        model, prefix = pipeline.model, f"{pipeline.model}-" if pipeline.model else ""
        before, after = analytics.before_filter(labels, model), analytics.after_filter(labels, model)
        stages = [*before, self._filter, *after]
        names = [f"{prefix}{lane}.{number}" if number else f"{prefix}{lane}" for lane in range(detector.info.lanes)]
        self._left = len(names)  # lanes that have not ended
        self.threads = [
            LaneThread(name, detector, stages, pipeline, self._retired, self._on_lane_end) for name in names
        ]

    @property
    def info(self) -> ModelInfo:
        return self._detector.info

    @property
    def unavailable(self) -> str | None:
        """Why the model's server gives no results now; None if it does, or there is none."""
        return self._detector.unavailable if isinstance(self._detector, Remote) else None

    def start(self) -> None:
        """Start to warm the lanes up; a second call does nothing.

        Raises:
            DetectorError: no thread can be started.
        """
        with self._lock:
            if self._started or self._retired.is_set:
                return
            self._started = True
            for number, thread in enumerate(self.threads):
                try:
                    thread.start()
                except RuntimeError as error:
                    self._left -= len(self.threads) - number
                    raise DetectorError(
                        f"no thread can be started for a lane: {error}; see the limits of the process"
                    ) from error

    def wait_ready(self, stop: StopToken, seconds: float) -> None:
        """Wait until all lanes are warmed up.

        Raises:
            DetectorError: a lane fails, or the time limit is over.
            StoppedError: `stop` is set.
        """
        left = seconds
        for thread in self.threads:
            while not thread.ready.wait(_POLL_S):
                left -= _POLL_S
                self._raise_failure()  # a lane that fails at the start sets the stop itself
                if stop.is_set:
                    raise StoppedError
                if left <= 0:
                    raise DetectorError(f"the model's lanes are not ready after {seconds:g} s")
        self._raise_failure()

    def _raise_failure(self) -> None:
        for thread in self.threads:
            if thread.failure:
                raise DetectorError(thread.failure)

    def go(self) -> None:
        """Let the lanes take batches."""
        for thread in self.threads:
            thread.go.set()

    def retire(self) -> None:
        """End the lanes after their batches, then close the detector. A second call does nothing."""
        with self._lock:
            if self._retired.is_set:
                return
            self._retired.set()
            closes = self._left == 0 or not self._started
        self.go()
        if closes:
            self._close()

    def join(self, seconds: float) -> bool:
        """Wait until the detector is closed, with a time limit; returns whether it is."""
        return self.closed.wait(seconds)

    def filters_of(self, sources: Sequence[SourceConfig]) -> dict[str, BoxFilter]:
        """The filters of these sources for this model.

        Raises:
            ConfigError: the model does not have a label of a source.
        """
        labels = self._detector.info.labels
        return {source.id: filter_of(source, labels, self._defaults) for source in sources}

    def update_filters(self, filters: Mapping[str, BoxFilter]) -> None:
        """Replace the filters of these sources."""
        self._filter.update(filters)

    def forget(self, source: str) -> None:
        self._filter.forget(source)

    def _on_lane_end(self) -> None:
        with self._lock:
            self._left -= 1
            closes = self._left == 0 and self._retired.is_set
        if closes:
            self._close()

    def _close(self) -> None:
        try:
            with suppress(DetectorError):  # the reason is logged already
                self._detector.close()
        except Exception:
            log.exception("a detector cannot be closed")
        memory.trim()
        self.closed.set()


class Lanes:
    """The current generation, and retired ones that still finish a batch.

    Implements `daemon.lifecycle.Part`: it has ended when no lane is in a batch. `retire` then closes the model.

    Args:
        stop: of the daemon.

    Attributes:
        info: of the current detector.
        threads: all lanes that have not ended.
    """

    def __init__(
        self,
        detector: Detector,
        sources: Sequence[SourceConfig],
        defaults: Defaults,
        pipeline: Pipeline,
        stop: StopToken,
    ) -> None:
        self.name = f"lanes of {pipeline.model}" if pipeline.model else "lanes"
        self._pipeline, self._runtime, self._stop = pipeline, pipeline.runtime, stop
        self._made = 0
        self._now = LaneSet(0, detector, sources, defaults, pipeline)
        self._retired: list[LaneSet] = []
        self._started = self._stopped = False
        self._lock = threading.Lock()

    @property
    def info(self) -> ModelInfo:
        return self._now.info

    @property
    def unavailable(self) -> str | None:
        """Why the current model's server gives no results now; None if it does, or there is none."""
        return self._now.unavailable

    @property
    def threads(self) -> list[LaneThread]:
        """All lanes that have not ended."""
        return [thread for row in (*self._retired, self._now) for thread in row.threads if thread.is_alive()]

    def start(self) -> None:
        """Start all lanes and wait until each is warmed up.

        Raises:
            StoppedError: the daemon is stopping.
            DetectorError: a lane fails.
        """
        with self._lock:
            self._started = True
            generation = self._now
            generation.go()
            generation.start()
        generation.wait_ready(self._stop, self._runtime.limits.lane_start)

    def request_stop(self) -> None:
        """The board takes no more frames."""
        self._pipeline.board.close()

    def join(self, seconds: float) -> Sequence[str]:
        until = self._runtime.clock.monotonic_ns() + round(seconds * 1e9)
        for thread in self.threads:
            thread.join(max(0.0, (until - self._runtime.clock.monotonic_ns()) / 1e9))
        self._pipeline.board.abandon()
        return [thread.name for thread in self.threads]

    def prepare(
        self, detector: Detector, sources: Sequence[SourceConfig], defaults: Defaults, stop: StopToken
    ) -> LaneSet:
        """Make lanes of another detector and warm them up beside the current ones. The caller adopts or retires them.

        Raises:
            ConfigError: the model does not have a label of a source; the caller still owns the detector.
            DetectorError: a lane fails; the detector is closed when its lanes return.
            StoppedError: `stop` is set; likewise.
        """
        with self._lock:
            self._made += 1
            number = self._made
        fresh = LaneSet(number, detector, sources, defaults, self._pipeline)
        try:
            fresh.start()
            fresh.wait_ready(stop, self._runtime.limits.lane_start)
        except BaseException:
            fresh.retire()
            raise
        return fresh

    def adopt(self, fresh: LaneSet) -> None:
        """Let another detector's lanes take the next batches; the old lanes finish theirs and close their detector.

        The old lanes retire first, so that a source's frames change models once.
        """
        with self._lock:
            old, self._now = self._now, fresh
            self._retired = [row for row in self._retired if not row.closed.is_set] + [old]
        old.retire()
        self._pipeline.ledger.boxes.begin_model(self._pipeline.model)
        with self._lock:
            if self._started:
                fresh.go()
            if self._stopped:
                fresh.retire()

    def filters_of(self, sources: Sequence[SourceConfig]) -> dict[str, BoxFilter]:
        """See `LaneSet.filters_of`."""
        return self._now.filters_of(sources)

    def update_filters(self, filters: Mapping[str, BoxFilter]) -> None:
        self._now.update_filters(filters)

    def forget(self, source: str) -> None:
        self._now.forget(source)

    def retire(self) -> None:
        """End all lanes after their batches, and close their detectors."""
        with self._lock:
            self._stopped = True
            now = self._now
        now.retire()

    def await_closed(self, seconds: float) -> None:
        """Wait until all detectors are closed, with a time limit."""
        until = self._runtime.clock.monotonic_ns() + round(seconds * 1e9)
        rows = (*self._retired, self._now)
        if not all(row.join((until - self._runtime.clock.monotonic_ns()) / 1e9) for row in rows):
            log.warning("the detector is left open: a lane is still inside it")
