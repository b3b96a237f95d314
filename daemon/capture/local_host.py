"""Runs captures in threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from daemon.capture.camera import ThreadContext
from daemon.capture.capture import Capture
from daemon.capture.sinks import CaptureSinks
from daemon.capture.threads import CaptureThreads, capture_kind
from daemon.config.sources import ReconnectConfig, SourceConfig
from daemon.errors import SourceError
from daemon.sources.decode import DecoderPool
from daemon.sources.factory import MakeSource
from daemon.system.runtime import Runtime


class LocalHost:
    """Implements `daemon.capture.host.CaptureHost`.

    Args:
        decoders: of this process.
    """

    def __init__(
        self,
        make_source: MakeSource,
        decoders: DecoderPool,
        sinks: CaptureSinks,
        reconnect: ReconnectConfig,
        runtime: Runtime,
    ) -> None:
        self._make_source, self._decoders, self._sinks, self._reconnect = make_source, decoders, sinks, reconnect
        self._runtime, self._clock = runtime, runtime.clock
        self._threads: CaptureThreads | None = None
        self._without_thread: list[Capture] = []  # the system had none
        self._is_stopped = False

    @property
    def memory(self) -> int:
        return self._decoders.memory

    @property
    def pids(self) -> list[int]:
        return []

    @property
    def threads(self) -> Sequence[threading.Thread]:
        return self._threads.threads if self._threads else ()

    def make(self, source: SourceConfig) -> Capture:
        return self._make(source, 0)

    def begin(self, captures: Sequence[Capture]) -> None:
        if self._threads is None:
            context = ThreadContext(self._clock, self._runtime.on_failure, self._decoders.make_current)
            self._threads = CaptureThreads(captures, self._decoders.threads, context)
            self._threads.start()
            return
        for capture in captures:
            try:
                self._threads.add(capture)
            except SourceError as error:  # retried by `replace`
                self._sinks.announce(capture.id, None, "down", str(error), None, None)
                self._without_thread.append(capture)

    def has_begun(self, capture: Capture) -> bool:
        return self._threads is not None and capture not in self._without_thread

    def report_stalled(self, captures: Sequence[Capture], after_s: float) -> Sequence[Capture]:
        self._decoders.tidy()
        return [capture for capture in captures if capture.check_stalled(after_s)]

    def replace(self, blocked: Sequence[Capture]) -> Mapping[Capture, Capture]:
        threads = self._threads
        if threads is None:
            return {}
        replaced = {capture: by for capture in blocked if (by := threads.take_over(capture, self._make))}
        waiting = [capture for capture in self._without_thread if not capture.ended]
        self._without_thread = []
        if not self._is_stopped:
            self.begin([*replaced.values(), *waiting])
        return replaced

    def request_stop(self) -> None:
        self._is_stopped = True
        if self._threads:
            self._threads.stop()

    def join(self, captures: Sequence[Capture], seconds: float) -> None:
        until = self._clock.monotonic_ns() + round(seconds * 1e9)
        for thread in self.threads:
            if thread.ident is not None:
                thread.join(max(0.0, (until - self._clock.monotonic_ns()) / 1e9))
        for capture in captures:
            if not capture.ended:
                capture.abandon()

    def close(self) -> None:
        """Unless a library is still inside one of the decoders: its capture closes them."""
        if not self.threads:
            self._decoders.close()

    def _make(self, source: SourceConfig, seq: int) -> Capture:
        made = self._make_source(source, self._decoders)
        settle_s = self._runtime.limits.settle
        return capture_kind(made)(source, made, self._sinks, self._clock, self._reconnect, seq, settle_s)
