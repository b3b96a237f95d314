"""Calls to the coordinator, one at a time in a thread of their own: a coordinator that hangs holds up nothing else."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from daemon.clock import Bell
from daemon.errors import LookoutError
from daemon.system.runtime import Runtime
from daemon.system.stop_token import StopToken

log = structlog.get_logger(__name__)
T = TypeVar("T")
_REST_S = 60.0


class Call(Generic[T]):
    """Work for the coordinator, and where its result goes.

    Args:
        work: blocks, within the coordinator's time limits.
        on_result: called by `CoordinatorCaller.deliver` with the result.
        on_error: likewise with the error.
    """

    def __init__(
        self, work: Callable[[], T], on_result: Callable[[T], None], on_error: Callable[[LookoutError], None]
    ) -> None:
        self._work, self._on_result, self._on_error = work, on_result, on_error
        self._result: T | None = None
        self._error: LookoutError | None = None

    def run(self) -> None:
        try:
            self._result = self._work()
        except LookoutError as error:
            self._error = error

    def deliver(self) -> None:
        if self._error:
            self._on_error(self._error)
        else:
            self._on_result(self._result)  # type: ignore[arg-type]


class CoordinatorCaller(threading.Thread):
    """Runs calls. Results are delivered in the thread that asks for them.

    Args:
        wake: called when a call has ended.
        close: closes the connection; called at the end of this thread.
    """

    def __init__(self, wake: Callable[[], None], close: Callable[[], None], runtime: Runtime) -> None:
        super().__init__(name="fleet-calls", daemon=True)
        self._wake, self._close, self._runtime = wake, close, runtime
        self._next: Call[object] | None = None
        self._ended: deque[Call[object]] = deque()
        self._bell, self._ending = Bell(), StopToken()
        self._ending.on_set(self._bell.ring)
        self.is_busy = False

    def begin(self, call: Call[T]) -> None:
        """Run a call; only while none is under way."""
        self.is_busy, self._next = True, call  # type: ignore[assignment]
        self._bell.ring()

    def deliver(self) -> None:
        """Deliver the result of the call that has ended, if there is one."""
        while self._ended:
            call = self._ended.popleft()
            self.is_busy = False
            call.deliver()

    def stop(self) -> None:
        """End after the call that is under way; does not wait for it."""
        self._ending.set()
        if self.ident is None:
            self._close()

    def run(self) -> None:
        try:
            while not self._ending.is_set:
                self._bell.wait(_REST_S)
                call, self._next = self._next, None
                if call is not None:
                    call.run()
                    self._ended.append(call)
                    self._wake()
        except Exception as error:
            log.exception("calls to the coordinator have failed")
            self._runtime.on_failure(f"the fleet's calls failed: {error}")
        finally:
            self._close()
