"""Work that may take minutes, or never come to an end, in a thread that can be left behind: opening a model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from daemon.clock import Clock
from daemon.system.stop import Stop, StoppedError

log = structlog.get_logger(__name__)
T = TypeVar("T")
_POLL_S = 0.05
_TELL_NS = 10_000_000_000  # between two lines that say it takes long


class BackgroundTask(Generic[T]):
    """One piece of such work.

    Args:
        what: name of the work, for the log.
        work: gets a token that is set when its result is not wanted any more.
        discard: closes a result that nobody takes.
        on_done: called in the work's thread when it has come to an end in time.

    Attributes:
        stop: set when nobody wants the result any more.
        done: set when there is a result, or an error.
        given_up: its result will be discarded.
        began_ns: monotonic time of its start.
    """

    def __init__(
        self,
        what: str,
        work: Callable[[Stop], T],
        discard: Callable[[T], None],
        clock: Clock,
        on_done: Callable[[], None] = lambda: None,
    ) -> None:
        self.stop, self.done = Stop(), Stop()
        self.given_up = False
        self._what, self._work, self._discard, self._on_done, self._clock = what, work, discard, on_done, clock
        self._result: T | None = None
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self.began_ns = self._told_ns = clock.monotonic_ns()
        self._thread = threading.Thread(target=self._run, name=what.replace(" ", "-"), daemon=True)

    def start(self) -> BackgroundTask[T]:
        self._thread.start()
        return self

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def seconds(self) -> float:
        """Since its start."""
        return (self._clock.monotonic_ns() - self.began_ns) / 1e9

    def give_up(self) -> None:
        """Nobody wants its result any more."""
        with self._lock:
            self.given_up = True
        self.stop.set()
        if self.done.is_set:
            self._dispose()

    def result(self) -> T:
        """The result, once `done` is set. Raises the work's own error."""
        if self._error:
            raise self._error
        return self._result  # type: ignore[return-value]

    def tell(self) -> None:
        """Say in the log, every ten seconds, that it takes long."""
        now = self._clock.monotonic_ns()
        if now - self._told_ns >= _TELL_NS:
            self._told_ns = now
            log.info(f"{self._what} takes long", seconds=round(self.seconds))

    def wait(self, stop: Stop, limit_s: float, on_late: Callable[[], Exception]) -> T:
        """Its result.

        Raises:
            StoppedError: the daemon is to end.
            Exception: what the work raises, or `on_late` gives when it takes longer than so many seconds.
        """
        while not self.done.wait(_POLL_S):
            self.tell()
            if stop.is_set or self.seconds > limit_s:
                self.give_up()
                raise StoppedError if stop.is_set else on_late()
        # A terminal's Ctrl-C ends programs that the work has started, and they may be quicker than this process.
        if stop.wait(_POLL_S if self._error else 0):
            self.give_up()
            raise StoppedError
        return self.result()

    def _run(self) -> None:
        try:
            self._result = self._work(self.stop)
        except Exception as error:  # noqa: BLE001 - it is for whoever waits
            self._error = error
        with self._lock:
            self.done.set()
            given_up = self.given_up
        if given_up:
            self._dispose()
        else:
            self._on_done()

    def _dispose(self) -> None:
        with self._lock:
            found, self._result = self._result, None
        if found is not None:
            try:
                self._discard(found)
            except Exception:
                log.exception(f"what came of {self._what} too late cannot be closed")
