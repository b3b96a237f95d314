"""Runs work that may take minutes, or never end, in a thread that can be left behind: opening a model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from daemon.clock import Clock
from daemon.system.stop_token import StoppedError, StopToken

log = structlog.get_logger(__name__)
T = TypeVar("T")
_POLL_S = 0.05
_LOG_INTERVAL_NS = 10_000_000_000  # between log lines


class BackgroundTask(Generic[T]):
    """One piece of work in a thread of its own.

    Args:
        name: name of the work, for the log.
        work: gets a token that is set when its result is not wanted any more.
        discard: closes a result that is not wanted.
        on_done: called in the work's thread when the work ends in time.

    Attributes:
        stop: set when the result is not wanted any more.
        done: set when there is a result or an error.
        abandoned: the result will be discarded.
        began_ns: monotonic start time.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[StopToken], T],
        discard: Callable[[T], None],
        clock: Clock,
        on_done: Callable[[], None] | None = None,
    ) -> None:
        self.stop, self.done = StopToken(), StopToken()
        self.abandoned = False
        self._name, self._work, self._discard, self._on_done, self._clock = name, work, discard, on_done, clock
        self._result: T | None = None
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self.began_ns = self._logged_ns = clock.monotonic_ns()
        self._thread = threading.Thread(target=self._run, name=name.replace(" ", "-"), daemon=True)

    def start(self) -> BackgroundTask[T]:
        self._thread.start()
        return self

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def seconds(self) -> float:
        """Time since the start, seconds."""
        return (self._clock.monotonic_ns() - self.began_ns) / 1e9

    def abandon(self) -> None:
        """Discard the result."""
        with self._lock:
            self.abandoned = True
        self.stop.set()
        if self.done.is_set:
            self._dispose()

    def result(self) -> T:
        """The result, once `done` is set. Raises the work's own error."""
        if self._error:
            raise self._error
        return self._result  # type: ignore[return-value]

    def log_progress(self) -> None:
        """Log every ten seconds that the work takes long."""
        now = self._clock.monotonic_ns()
        if now - self._logged_ns >= _LOG_INTERVAL_NS:
            self._logged_ns = now
            log.info(f"{self._name} takes long", seconds=round(self.seconds))

    def wait(self, stop: StopToken, limit_s: float, on_late: Callable[[], Exception]) -> T:
        """Wait for the result.

        Raises:
            StoppedError: the daemon is stopping.
            Exception: the work's own error, or that of `on_late` after the time limit.
        """
        while not self.done.wait(_POLL_S):
            self.log_progress()
            if stop.is_set or self.seconds > limit_s:
                self.abandon()
                raise StoppedError if stop.is_set else on_late()
        # A terminal's Ctrl-C also ends programs that the work has started; they may be faster than this process.
        if stop.wait(_POLL_S if self._error else 0):
            self.abandon()
            raise StoppedError
        return self.result()

    def _run(self) -> None:
        try:
            self._result = self._work(self.stop)
        except Exception as error:  # noqa: BLE001 - `result` raises it
            self._error = error
        with self._lock:
            self.done.set()
            abandoned = self.abandoned
        if abandoned:
            self._dispose()
        elif self._on_done is not None:
            self._on_done()

    def _dispose(self) -> None:
        with self._lock:
            found, self._result = self._result, None
        if found is not None:
            try:
                self._discard(found)
            except Exception:
                log.exception(f"the late result of {self._name} cannot be closed")
