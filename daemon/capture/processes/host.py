"""Runs captures in processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from daemon.capture.processes.main import WorkerConfig
from daemon.capture.processes.pool import WorkerPool
from daemon.capture.processes.remote import RemoteCapture
from daemon.capture.sinks import DaemonSinks
from daemon.config.sources import SourceConfig
from daemon.sources.decode import NoHardwareDecoder
from daemon.sources.factory import MakeSource
from daemon.system.runtime import Runtime

_NO_DECODER = NoHardwareDecoder("only to check the configuration")


class ProcessHost:
    """Implements `daemon.capture.host.CaptureHost`. Its processes look for stalled captures themselves.

    Args:
        processes: see `WorkerPool`.
    """

    def __init__(
        self,
        make_source: MakeSource,
        config: WorkerConfig,
        processes: Callable[[int], int],
        sinks: DaemonSinks,
        runtime: Runtime,
    ) -> None:
        self._make_source, self._runtime = make_source, runtime
        self._pool = WorkerPool(config, processes, sinks, runtime)
        self._has_begun = self._is_killed = False

    @property
    def memory(self) -> int:
        return self._pool.memory

    @property
    def pids(self) -> list[int]:
        return self._pool.pids

    @property
    def threads(self) -> Sequence[threading.Thread]:
        return [self._pool] if self._pool.is_alive() else []

    def make(self, source: SourceConfig) -> RemoteCapture:
        plays_once = self._make_source(source, _NO_DECODER).plays_once
        return RemoteCapture(source, self._pool, plays_once=plays_once)

    def begin(self, captures: Sequence[RemoteCapture]) -> None:
        self._has_begun = True
        if not captures:
            return
        self._pool.add(captures)
        if self._pool.ident is None:
            try:
                self._pool.start()
            except RuntimeError as error:
                self._runtime.on_failure(f"no thread can be started for capture processes: {error}")

    def has_begun(self, capture: RemoteCapture) -> bool:  # noqa: ARG002 - the pool takes all
        return self._has_begun

    def report_stalled(self, captures: Sequence[RemoteCapture], after_s: float) -> Sequence[RemoteCapture]:  # noqa: ARG002
        return ()  # the processes do it

    def replace(self, blocked: Sequence[RemoteCapture]) -> Mapping[RemoteCapture, RemoteCapture]:  # noqa: ARG002
        return {}

    def request_stop(self) -> None:
        self._pool.stop()

    def join(self, captures: Sequence[RemoteCapture], seconds: float) -> None:  # noqa: ARG002 - the pool ends all
        if self._pool.ident is None or self._pool.ended.wait(seconds) or self._is_killed:
            return
        self._is_killed = True
        self._pool.kill()
        self._pool.ended.wait(self._runtime.limits.close)

    def close(self) -> None:
        if self._pool.ident is None:
            self._pool.close()
        else:
            self._pool.join()
