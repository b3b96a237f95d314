"""One token for "end now": threads wait on it instead of sleeping, and it is never taken back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress


class Stop:
    """A request to end. It is set once, and everything that waits on it goes on at once.

    `set` takes no lock of its own, so that it may be called from anywhere, a signal handler or a finaliser included.

    Attributes:
        is_set: whether it is; a plain attribute, cheap enough to be read for every frame.
    """

    def __init__(self) -> None:
        self.is_set = False
        # A turnstile: the lock is held until `set`, and whoever gets it then passes it on.
        self._gate = threading.Lock()
        self._gate.acquire()
        self._wakers: list[Callable[[], None]] = []

    def set(self) -> None:
        """A second call does nothing."""
        if self.is_set:
            return
        self.is_set = True
        self._open()
        for wake in [*self._wakers]:
            wake()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, for so many seconds at most; returns whether it is."""
        if not self.is_set and self._gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            self._open()
        return self.is_set

    def on_set(self, wake: Callable[[], None]) -> None:
        """Call `wake` when it is set, in the thread that sets it; at once if it is set already.

        A waker may be called twice, and must return at once.
        """
        self._wakers.append(wake)
        if self.is_set:
            wake()

    def _open(self) -> None:
        with suppress(RuntimeError):  # it is open
            self._gate.release()


class StoppedError(Exception):
    """What was waited for will not come: the process was asked to end."""
