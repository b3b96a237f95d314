"""All sources of the daemon: started together, then added, changed and removed one by one.

Each source has counters in the ledger, a slot on the board, and a capture in a thread of this process or in a capture
process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import structlog

from daemon.capture.host import CaptureHost, HostedCapture
from daemon.capture.local_host import LocalHost
from daemon.capture.processes.host import ProcessHost
from daemon.capture.processes.main import WorkerConfig
from daemon.capture.sinks import DaemonSinks
from daemon.config.root import Config
from daemon.config.sources import SourceConfig
from daemon.control.plan import processes_of, remote_sources, surfaces_of
from daemon.control.source_states import SourceStates
from daemon.sources.decode import DecoderBackend, NoHardwareDecoder
from daemon.sources.factory import MakeSource
from daemon.system.runtime import Runtime
from daemon.system.stop_token import StopToken
from daemon.system.time_limits import Limits
from lookout.messages import VideoFormat

log = structlog.get_logger(__name__)
_POLL_S = 0.05
_FINAL_WAIT_S = 0.5  # more for a removed source when the daemon stops


class SourceManager:
    """Owns all sources. One thread changes them at a time; other threads read, start and stop.

    Implements `daemon.lifecycle.Part`: it has ended when all captures have, and their processes.

    Attributes:
        captures: replaced as a whole at each change.
        states: as they were announced last.
    """

    def __init__(
        self,
        config: Config,
        backend: DecoderBackend | NoHardwareDecoder,
        make_source: MakeSource,
        sinks: DaemonSinks,
        runtime: Runtime,
        states: SourceStates,
    ) -> None:
        self.name, self.states = "sources", states
        self._config, self._sinks = config, sinks
        self._clock, self._limits = runtime.clock, runtime.limits
        self._stop = StopToken()
        self._lock = threading.Lock()
        self._changing, self._has_started = 0, False
        in_processes = config.capture_processes != 0
        decoders = (NoHardwareDecoder("capture processes have it") if in_processes else backend).open()
        self._local = LocalHost(make_source, decoders, sinks, config.reconnect, runtime)
        self._remote = ProcessHost(
            make_source,
            _worker_config(config, backend, make_source, self._limits),
            lambda sources: processes_of(config, sources, on_gpu=not isinstance(backend, NoHardwareDecoder)),
            sinks,
            runtime,
        )
        self._hosts: Sequence[CaptureHost[Any]] = (self._local, self._remote)
        self.captures: list[HostedCapture] = [self.make(source) for source in config.active]

    @property
    def memory(self) -> int:
        """GPU memory reserved for decoders, bytes."""
        return sum(host.memory for host in self._hosts)

    @property
    def pids(self) -> list[int]:
        """Process ids of the capture processes."""
        return [pid for host in self._hosts for pid in host.pids]

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
        return bool(self._of(self._local))

    @property
    def finished(self) -> bool:
        """Whether there are sources and all have ended by themselves; False during a change."""
        with self._lock:
            return bool(self.captures) and not self._changing and all(capture.ended for capture in self.captures)

    @property
    def threads(self) -> list[threading.Thread]:
        """Capture threads that have not ended."""
        return [thread for host in self._hosts for thread in host.threads]

    def make(self, source: SourceConfig) -> HostedCapture:
        """Make a source's capture. It has not begun, and needs no closing.

        Raises:
            LookoutError: it cannot be made.
        """
        made: HostedCapture = self._host_of(source).make(source)
        return made

    def start(self) -> None:
        """Start all sources.

        Raises:
            SourceError: the system has no thread left.
        """
        with self._lock:
            if self._stop.is_set or self._has_started:
                return
            self._has_started = True
            self._begin(self.captures)

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

    def add(self, captures: Sequence[HostedCapture]) -> None:
        """Add captures that `make` made; they start now, or at `start`."""
        for capture in captures:
            accounts = self._config.accounts_of(capture.config)
            capture.count_from(self._sinks.ledger.add(capture.id, accounts))
            self._sinks.board.add(capture.id, patient=capture.config.is_patient)
        with self._lock:
            self.captures = [*self.captures, *captures]
            if self._stop.is_set:
                for capture in captures:
                    capture.cancel()
            elif self._has_started:
                self._begin(captures)

    def remove(self, sources: Sequence[str]) -> None:
        """End sources and forget them; returns when they have ended, or after a time limit."""
        with self._lock:
            leaving = [capture for capture in self.captures if capture.id in sources]
            self.captures = [capture for capture in self.captures if capture not in leaving]
            self._cancel_waiting(leaving)
        for capture in leaving:
            capture.request_end()
        self._wait_for(leaving, self._limits.remove)
        if self._stop.is_set:  # most end at once
            self._wait_for(leaving, _FINAL_WAIT_S, ignore_stop=True)
        for capture in (late := [capture for capture in leaving if not capture.ended]):
            if not self._stop.is_set:
                log.warning("a source does not end: left behind", source=capture.id)
            capture.leave_behind(stopping=self._stop.is_set)
        self._wait_for(late, self._limits.settle)
        for capture in leaving:
            self._sinks.board.remove(capture.id)
            self._sinks.ledger.remove(capture.id)
            self._sinks.forget(capture.id)

    def retry(self) -> None:
        """Connect the sources that are down at once."""
        for capture in self.captures:
            if capture.state == "down":
                capture.retry()

    def housekeeping(self, stall_after_s: float) -> None:
        """Every second: report sources that have stalled, and replace those whose library blocks for much longer."""
        for host in self._hosts:
            blocked = host.report_stalled(self._of(host), stall_after_s)
            with self._lock:
                replaced = host.replace([capture for capture in blocked if capture in self.captures])
                if replaced:
                    self.captures = [replaced.get(capture, capture) for capture in self.captures]

    def request_stop(self) -> None:
        """Ask all sources to end; a source that is added later ends at once."""
        with self._lock:
            self._stop.set()
            self._cancel_waiting(self.captures)
            for host in self._hosts:
                host.request_stop()

    def join(self, seconds: float) -> Sequence[str]:
        """Join the threads within the time, and leave the others behind; then end the capture processes."""
        until = self._clock.monotonic_ns() + round(seconds * 1e9)
        for host in self._hosts:
            host.join(self._of(host), max(0.0, (until - self._clock.monotonic_ns()) / 1e9))
        return [thread.name for thread in self.threads if thread.is_alive()]

    def close_processes(self) -> None:
        """Release the memory of capture processes, once nobody uses their pictures."""
        self._remote.close()

    def close_decoders(self) -> None:
        """Close the decoders of this process."""
        self._local.close()

    # ---------------------------------------------------------------------------------------------------------------

    def _host_of(self, source: SourceConfig) -> CaptureHost[Any]:
        is_remote = self._config.capture_processes != 0 and bool(remote_sources([source]))
        return self._remote if is_remote else self._local

    def _of(self, host: CaptureHost[Any]) -> list[Any]:
        """The captures of a host."""
        return [capture for capture in self.captures if self._host_of(capture.config) is host]

    def _begin(self, captures: Sequence[HostedCapture]) -> None:
        """Requires the lock."""
        for host in self._hosts:
            host.begin([capture for capture in captures if self._host_of(capture.config) is host])

    def _cancel_waiting(self, captures: Sequence[HostedCapture]) -> None:
        """End captures that have not begun. Requires the lock."""
        for capture in captures:
            if not self._host_of(capture.config).has_begun(capture):
                capture.cancel()

    def _wait_for(self, captures: Sequence[HostedCapture], seconds: float, *, ignore_stop: bool = False) -> None:
        """Wait until captures have ended, for so many seconds at most, or until all sources are stopped.

        Args:
            ignore_stop: wait even if all sources are stopped.
        """
        until = self._clock.monotonic_ns() + round(seconds * 1e9)
        for capture in captures:
            while not (capture.ended or (self._stop.is_set and not ignore_stop) or self._clock.monotonic_ns() >= until):
                self._clock.wait(capture.end, _POLL_S)


def _worker_config(
    config: Config, backend: DecoderBackend | NoHardwareDecoder, make_source: MakeSource, limits: Limits
) -> WorkerConfig:
    return WorkerConfig(
        make_source=make_source,
        backend=backend,
        live=config.board.mode == "live",
        depth=config.board.depth,
        slots=surfaces_of(config),
        reconnect=config.reconnect,
        has_admission=config.admission != "off",
        stall_after_s=config.monitor.stall_after_s,
        settle_s=limits.settle,
        log=config.log,
    )
