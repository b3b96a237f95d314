"""All sources of the daemon: started together, then added, changed and removed one by one.

Each source has counters in the ledger, a slot on the board, and a capture in a thread of this process or in a capture
process.
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
from daemon.control.plan import processes_of, remote_sources, surfaces_of
from daemon.errors import SourceError
from daemon.sources.decode import DecoderBackend, DecoderPool, NoHardwareDecoder
from daemon.sources.port import Source
from daemon.system.runtime import Runtime
from daemon.system.stop import StopToken
from lookoutd.messages import State, VideoFormat

log = structlog.get_logger(__name__)
MakeSource = Callable[[SourceConfig, DecoderPool], Source]
_POLL_S = 0.05
_FINAL_WAIT_S = 0.5  # more for a removed source when the daemon stops
_NO_DECODER = NoHardwareDecoder("only to check the configuration")


class AnyCapture(Protocol):
    """A capture in this or in another process."""

    config: SourceConfig
    failure: str | None
    format: VideoFormat | None
    end: StopToken

    @property
    def id(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def ended(self) -> bool: ...


class SourceManager:
    """Owns all sources. One thread changes them at a time; other threads read, start and stop.

    Implements `daemon.lifecycle.Part`: it has ended when all captures have, and their processes.

    Attributes:
        captures: replaced as a whole at each change.
        decoder_pool: the decoders of this process.
    """

    def __init__(
        self,
        config: Config,
        backend: DecoderBackend | NoHardwareDecoder,
        make_source: MakeSource,
        sinks: DaemonSinks,
        runtime: Runtime,
    ) -> None:
        self.name = "sources"
        self._config, self._backend, self._make_source = config, backend, make_source
        self._sinks, self._runtime = sinks, runtime
        self._clock, self._limits = runtime.clock, runtime.limits
        self._stop = StopToken()
        self._lock = threading.Lock()
        self._changing = 0
        self._not_started: list[Capture] = []  # no thread was available
        in_workers = config.capture_processes != 0
        self.decoder_pool = (NoHardwareDecoder("capture processes have it") if in_workers else backend).open()
        self._pool = WorkerPool(
            self._worker_config(),
            lambda sources: processes_of(config, sources, on_gpu=not isinstance(backend, NoHardwareDecoder)),
            sinks,
            runtime,
        )
        self._threads: CaptureThreads | None = None
        self.captures: list[AnyCapture] = [self.make(source) for source in config.active]

    @property
    def memory(self) -> int:
        """GPU memory reserved for decoders, bytes."""
        return self._pool.memory + self.decoder_pool.memory

    @property
    def pids(self) -> list[int]:
        """Process ids of the capture processes."""
        return self._pool.pids

    @property
    def formats(self) -> dict[str, VideoFormat]:
        """Formats of the connected sources."""
        return {capture.id: capture.format for capture in self.captures if capture.format}

    @property
    def failures(self) -> dict[str, str]:
        """Recordings that were not played to their end, and why."""
        return {capture.id: capture.failure for capture in self.captures if capture.failure}

    @property
    def captures_locally(self) -> bool:
        """Whether this process captures sources itself."""
        return any(isinstance(capture, Capture) for capture in self.captures)

    @property
    def finished(self) -> bool:
        """Whether there are sources and all have ended by themselves; False during a change."""
        with self._lock:
            return bool(self.captures) and not self._changing and all(capture.ended for capture in self.captures)

    @property
    def threads(self) -> list[threading.Thread]:
        """Capture threads that have not ended."""
        return [
            *(self._threads.threads if self._threads else ()),
            *([self._pool] if self._pool.is_alive() else []),
        ]

    def make(self, source: SourceConfig) -> AnyCapture:
        """Make a source's capture. It is not started, and needs no closing.

        Raises:
            LookoutError: it cannot be made.
        """
        if self._config.capture_processes != 0 and remote_sources([source]):
            return RemoteCapture(source, plays_once=self._make_source(source, _NO_DECODER).plays_once)
        return self._capture(source, 0)

    def start(self) -> None:
        """Start all sources.

        Raises:
            SourceError: the system has no thread left.
        """
        with self._lock:
            if self._stop.is_set or self._threads:
                return
            here = [capture for capture in self.captures if isinstance(capture, Capture)]
            self._threads = CaptureThreads(
                here,
                self.decoder_pool.threads,
                ThreadContext(self._clock, self._runtime.on_failure, self.decoder_pool.make_current),
            )
            self._threads.start()
            self._start_remote(self.captures)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """During a change `finished` is False, even if all sources have ended."""
        with self._lock:
            self._changing += 1
        try:
            yield
        finally:
            with self._lock:
                self._changing -= 1

    def add(self, captures: Sequence[AnyCapture]) -> None:
        """Add captures that `make` made; they start now, or at `start`."""
        for capture in captures:
            seq = self._sinks.ledger.add(capture.id)
            self._sinks.board.add(capture.id, patient=capture.config.is_patient)
            if isinstance(capture, RemoteCapture):
                capture.first_seq = capture.seq = seq
            elif isinstance(capture, Capture):
                capture.count_from(seq)
        with self._lock:
            self.captures = [*self.captures, *captures]
            if self._stop.is_set:
                _cancel(captures)
            elif self._threads:
                self._start_remote(captures)
                self._start_local(captures)

    def remove(self, sources: Sequence[str]) -> None:
        """End sources and forget them; returns when they have ended, or after a time limit."""
        with self._lock:
            leaving = [capture for capture in self.captures if capture.id in sources]
            self.captures = [capture for capture in self.captures if capture not in leaving]
            _cancel([capture for capture in leaving if capture in self._not_started or not self._threads])
            self._not_started = [capture for capture in self._not_started if capture not in leaving]
        for capture in leaving:
            self._request_end(capture)
        self._wait_for(leaving, self._limits.remove)
        if self._stop.is_set:  # most end at once
            self._wait_for(leaving, _FINAL_WAIT_S, ignore_stop=True)
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

    def retry(self) -> None:
        """Connect the sources that are down at once."""
        for capture in self.captures:
            if capture.state != "down":
                continue
            if isinstance(capture, Capture):
                capture.retry()
            elif isinstance(capture, RemoteCapture):
                self._pool.retry(capture)

    def housekeeping(self, stall_after_s: float) -> None:
        """Every second: report sources that have stalled, and replace those whose library blocks for much longer.
        Capture processes do this themselves."""
        for capture in self.captures:
            if isinstance(capture, Capture) and capture.check_stalled(stall_after_s):
                self._replace(capture)
        with self._lock:
            unbegun, self._not_started = self._not_started, []
            if not self._stop.is_set:
                self._start_local(unbegun)

    def request_stop(self) -> None:
        """Ask all sources to end; a source that is added later ends at once."""
        with self._lock:
            self._stop.set()
            _cancel(self.captures if not self._threads else self._not_started)
            capture_threads = self._threads
        if capture_threads:
            capture_threads.stop()
        self._pool.stop()

    def join(self, seconds: float) -> Sequence[str]:
        """Join the threads within the time, and leave the others behind; then end the capture processes."""
        until = self._clock.monotonic_ns() + round(seconds * 1e9)
        for thread in self._threads.threads if self._threads else ():
            if thread.ident is not None:
                thread.join(max(0.0, (until - self._clock.monotonic_ns()) / 1e9))
        for capture in self.captures:
            if isinstance(capture, Capture) and not capture.ended:
                capture.abandon()
        if self._pool.ident is not None and not self._pool.ended.wait((until - self._clock.monotonic_ns()) / 1e9):
            self._pool.kill()
            self._pool.ended.wait(self._limits.close)
        return [thread.name for thread in self.threads if thread.is_alive()]

    def close_processes(self) -> None:
        """Release the memory of capture processes, once nobody uses their pictures."""
        if self._pool.ident is None:
            self._pool.close()
        else:
            self._pool.join()

    def close_decoders(self) -> None:
        """Close the decoders of this process, unless a library is still inside one: its capture closes them."""
        if not self.threads:
            self.decoder_pool.close()

    # ---------------------------------------------------------------------------------------------------------------

    def _start_local(self, captures: Sequence[AnyCapture]) -> None:
        """Requires the lock."""
        for capture in captures:
            if isinstance(capture, Capture) and self._threads:
                try:
                    self._threads.add(capture)
                except SourceError as error:  # retried by `housekeeping`
                    self._sinks.announce(capture.id, None, "down", str(error), None, None)
                    self._not_started.append(capture)

    def _start_remote(self, captures: Sequence[AnyCapture]) -> None:
        """Requires the lock."""
        if rows := [capture for capture in captures if isinstance(capture, RemoteCapture)]:
            self._pool.add(rows)
            if self._pool.ident is None:
                try:
                    self._pool.start()
                except RuntimeError as error:
                    self._runtime.on_failure(f"no thread can be started for capture processes: {error}")

    def _request_end(self, capture: AnyCapture) -> None:
        if isinstance(capture, RemoteCapture):
            self._pool.remove(capture)
        elif isinstance(capture, Capture):
            capture.stop("removed")
            capture.wake()

    def _wait_for(self, captures: Sequence[AnyCapture], seconds: float, *, ignore_stop: bool = False) -> None:
        """Wait until captures have ended, for so many seconds at most, or until all sources are stopped.

        Args:
            ignore_stop: wait even if all sources are stopped.
        """
        until = self._clock.monotonic_ns() + round(seconds * 1e9)
        for capture in captures:
            while not (capture.ended or (self._stop.is_set and not ignore_stop) or self._clock.monotonic_ns() >= until):
                self._clock.wait(capture.end, _POLL_S)

    def _replace(self, capture: Capture) -> None:
        with self._lock:
            if self._threads and capture in self.captures and (by := self._threads.take_over(capture, self._capture)):
                self.captures = [by if other is capture else other for other in self.captures]
                self._start_local([by])

    def _capture(self, source: SourceConfig, seq: int) -> Capture:
        made = self._make_source(source, self.decoder_pool)
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
            backend=self._backend,
            live=config.board.mode == "live",
            depth=config.board.depth,
            slots=surfaces_of(config),
            reconnect=config.reconnect,
            has_admission=config.admission != "off",
            stall_after_s=config.monitor.stall_after_s,
            settle_s=self._limits.settle,
            log=config.log,
        )


def _cancel(captures: Sequence[AnyCapture]) -> None:
    """End captures that have not started."""
    for capture in captures:
        if isinstance(capture, Capture):
            capture.abandon("stopped")
        elif isinstance(capture, RemoteCapture):
            capture.cancel()
