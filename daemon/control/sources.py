"""The sources there are: begun together, and then one by one as they are added, changed and removed.

Each has an account, a place on the board and a capture; the capture is served by a thread of this process, or by a
capture process. What happens to one is not felt by another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import structlog

from daemon.capture.camera import ThreadContext
from daemon.capture.capture import Capture
from daemon.capture.processes.main import WorkerConfig
from daemon.capture.processes.pool import WorkerPool
from daemon.capture.processes.remote import RemoteCapture
from daemon.capture.sinks import DaemonSinks
from daemon.capture.threads import CaptureThreads, capture_kind
from daemon.config import Config, SourceConfig
from daemon.control.plan import processes_of, remote, surfaces_of
from daemon.errors import SourceError
from daemon.messages import State, VideoFormat
from daemon.sources.decode import DecoderBackend, DecoderPool, NoHardwareDecoder
from daemon.sources.port import Source
from daemon.system.runtime import Runtime
from daemon.system.stop import Stop

log = structlog.get_logger(__name__)
MakeSource = Callable[[SourceConfig, DecoderPool], Source]
_POLL_S = 0.05
_LAST_S = 0.5  # that a source which was to end has where all are to
_TRIED = NoHardwareDecoder("this is only to see whether it can be made")


class AnyCapture(Protocol):
    """A capture here or in another process."""

    config: SourceConfig
    failure: str | None
    format: VideoFormat | None
    end: Stop

    @property
    def id(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def ended(self) -> bool: ...


class SourceManager:
    """All sources. One thread changes them at a time; others look, start and stop.

    Args:
        config: its sources are the first.
        offer: what decodes on the GPU.

    Attributes:
        captures: of the sources there are, replaced as a whole.
        hardware: of this process.
    """

    def __init__(
        self,
        config: Config,
        offer: DecoderBackend | NoHardwareDecoder,
        make_source: MakeSource,
        sinks: DaemonSinks,
        runtime: Runtime,
    ) -> None:
        self._config, self._offer, self._make_source = config, offer, make_source
        self._sinks, self._runtime = sinks, runtime
        self._clock, self._limits = runtime.clock, runtime.limits
        self._stop = Stop()
        self._lock = threading.Lock()
        self._changing = 0
        self._unbegun: list[Capture] = []  # the system had no thread for them
        in_workers = config.capture_processes != 0
        self.hardware = (NoHardwareDecoder("capture processes have it") if in_workers else offer).open()
        self._pool = WorkerPool(
            self._worker_config(),
            lambda sources: processes_of(config, sources, on_gpu=not isinstance(offer, NoHardwareDecoder)),
            sinks,
            runtime,
        )
        self._threads: CaptureThreads | None = None
        self.captures: list[AnyCapture] = [self.make(source) for source in config.active]

    @property
    def memory(self) -> int:
        """Bytes of the GPU that decoders are planned to take."""
        return self._pool.memory + self.hardware.memory

    @property
    def pids(self) -> list[int]:
        """Of the capture processes."""
        return self._pool.pids

    @property
    def formats(self) -> dict[str, VideoFormat]:
        """Of the sources that are connected."""
        return {capture.id: capture.format for capture in self.captures if capture.format}

    @property
    def failures(self) -> dict[str, str]:
        """Recordings that could not be played to their end, and why."""
        return {capture.id: capture.failure for capture in self.captures if capture.failure}

    @property
    def captures_here(self) -> bool:
        """Sources are captured in this process."""
        return any(isinstance(capture, Capture) for capture in self.captures)

    @property
    def finished(self) -> bool:
        """There are sources, and all have ended by themselves; not while they are being changed."""
        with self._lock:
            return bool(self.captures) and not self._changing and all(capture.ended for capture in self.captures)

    @property
    def threads(self) -> list[threading.Thread]:
        """Those that capture and have not come to their end."""
        return [
            *(self._threads.threads if self._threads else ()),
            *([self._pool] if self._pool.is_alive() else []),
        ]

    def make(self, source: SourceConfig) -> AnyCapture:
        """Make a source's capture. It has not begun, and needs no closing.

        Raises:
            LookoutError: it cannot be made.
        """
        if self._config.capture_processes != 0 and remote([source]):
            return RemoteCapture(source, once=self._make_source(source, _TRIED).plays_once)
        return self._capture(source, 0)

    def start(self) -> None:
        """Begin with all sources, those that were added meanwhile too.

        Raises:
            SourceError: the system gives no thread for one.
        """
        with self._lock:
            if self._stop.is_set or self._threads:
                return
            here = [capture for capture in self.captures if isinstance(capture, Capture)]
            self._threads = CaptureThreads(
                here,
                self.hardware.threads,
                ThreadContext(self._clock, self._runtime.on_failure, self.hardware.make_current),
            )
            self._threads.start()
            self._begin_remote(self.captures)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Within, sources come and go: that there are none, or only ended ones, is not the end."""
        with self._lock:
            self._changing += 1
        try:
            yield
        finally:
            with self._lock:
                self._changing -= 1

    def begin(self, captures: Sequence[AnyCapture]) -> None:
        """Begin with sources that were made; with all others, if `start` is still to come."""
        for capture in captures:
            seq = self._sinks.ledger.add(capture.id)
            self._sinks.board.add(capture.id, patient=capture.config.is_patient)
            if isinstance(capture, RemoteCapture):
                capture.first = capture.seq = seq
            elif isinstance(capture, Capture):
                capture.count_from(seq)
        with self._lock:
            self.captures = [*self.captures, *captures]
            if self._stop.is_set:
                _cancel(captures)
            elif self._threads:
                self._begin_remote(captures)
                self._begin_here(captures)

    def remove(self, sources: Sequence[str]) -> None:
        """End sources and forget them; returns when they have ended, or when the time for that is over."""
        with self._lock:
            leaving = [capture for capture in self.captures if capture.id in sources]
            self.captures = [capture for capture in self.captures if capture not in leaving]
            _cancel([capture for capture in leaving if capture in self._unbegun or not self._threads])
            self._unbegun = [capture for capture in self._unbegun if capture not in leaving]
        for capture in leaving:
            self._ask_to_end(capture)
        self._wait_for(leaving, self._limits.remove)
        if self._stop.is_set:  # most end at once all the same
            self._wait_for(leaving, _LAST_S, whatever=True)
        for capture in (late := [capture for capture in leaving if not capture.ended]):
            if not self._stop.is_set:
                log.warning("a source does not end: left behind", source=capture.id)
            if isinstance(capture, Capture):
                capture.abandon("stopped" if self._stop.is_set else None)
            elif isinstance(capture, RemoteCapture):
                self._pool.abandon(capture)
        self._wait_for(late, self._limits.settle)
        for capture in leaving:
            self._sinks.board.remove(capture.id)
            self._sinks.ledger.remove(capture.id)
            self._sinks.forget(capture.id)

    def housekeeping(self, stall_after_s: float) -> None:
        """Every second or so: say which sources have given no frame for so long, and begin anew with those that block
        for much longer; capture processes do it themselves."""
        for capture in self.captures:
            if isinstance(capture, Capture) and capture.check_stalled(stall_after_s):
                self._renew(capture)
        with self._lock:
            unbegun, self._unbegun = self._unbegun, []
            if not self._stop.is_set:
                self._begin_here(unbegun)

    def stop(self) -> None:
        """Ask all to end; what is added from here on ends at once."""
        with self._lock:
            self._stop.set()
            _cancel(self.captures if not self._threads else self._unbegun)
            capture_threads = self._threads
        if capture_threads:
            capture_threads.stop()
        self._pool.stop()

    def join(self, seconds: Callable[[], float]) -> None:
        """Wait for the threads, each for as long as is left; then end the processes."""
        for thread in self._threads.threads if self._threads else ():
            if thread.ident is not None:
                thread.join(seconds())
        for capture in self.captures:
            if isinstance(capture, Capture) and not capture.ended:
                capture.abandon()
        if self._pool.ident is not None and not self._pool.ended.wait(seconds()):
            self._pool.kill()
            self._pool.ended.wait(self._limits.close)

    def close(self) -> None:
        """Release the memory of capture processes, when nobody looks at their pictures any more."""
        if self._pool.ident is None:
            self._pool.close()
        else:
            self._pool.join()

    # ---------------------------------------------------------------------------------------------------------------

    def _begin_here(self, captures: Sequence[AnyCapture]) -> None:
        """With the lock held."""
        for capture in captures:
            if isinstance(capture, Capture) and self._threads:
                try:
                    self._threads.add(capture)
                except SourceError as error:  # tried again at the next `housekeeping`
                    self._sinks.announce(capture.id, None, "down", str(error), None, None)
                    self._unbegun.append(capture)

    def _begin_remote(self, captures: Sequence[AnyCapture]) -> None:
        """With the lock held."""
        if rows := [capture for capture in captures if isinstance(capture, RemoteCapture)]:
            self._pool.add(rows)
            if self._pool.ident is None:
                try:
                    self._pool.start()
                except RuntimeError as error:
                    self._runtime.on_failure(f"no thread can be started for capture processes: {error}")

    def _ask_to_end(self, capture: AnyCapture) -> None:
        if isinstance(capture, RemoteCapture):
            self._pool.remove(capture)
        elif isinstance(capture, Capture):
            capture.stop("removed")
            capture.wake()

    def _wait_for(self, captures: Sequence[AnyCapture], seconds: float, *, whatever: bool = False) -> None:
        """Until they have ended, for so many seconds at most, or until all sources are told to end.

        Args:
            whatever: even if they are.
        """
        until = self._clock.monotonic_ns() + round(seconds * 1e9)
        for capture in captures:
            while not (capture.ended or (self._stop.is_set and not whatever) or self._clock.monotonic_ns() >= until):
                self._clock.wait(capture.end, _POLL_S)

    def _renew(self, capture: Capture) -> None:
        with self._lock:
            if self._threads and capture in self.captures and (by := self._threads.take_over(capture, self._capture)):
                self.captures = [by if other is capture else other for other in self.captures]
                self._begin_here([by])

    def _capture(self, source: SourceConfig, seq: int) -> Capture:
        made = self._make_source(source, self.hardware)
        return capture_kind(made)(
            source,
            made,
            self._sinks,
            self._clock,
            self._config.reconnect,
            seq,
            self._limits.settle,
        )

    def _worker_config(self) -> WorkerConfig:
        config = self._config
        return WorkerConfig(
            make_source=self._make_source,
            offer=self._offer,
            live=config.board.mode == "live",
            depth=config.board.depth,
            places=surfaces_of(config),
            reconnect=config.reconnect,
            asks=config.admission != "off",
            stall_after_s=config.monitor.stall_after_s,
            settle_s=self._limits.settle,
            log=config.log,
        )


def _cancel(captures: Sequence[AnyCapture]) -> None:
    """They have not begun, and will not."""
    for capture in captures:
        if isinstance(capture, Capture):
            capture.abandon("stopped")
        elif isinstance(capture, RemoteCapture):
            capture.cancel()
