"""A token for "end now", set once: threads wait on it instead of sleeping."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress


class StopToken:
    """A request to end. Setting it wakes everything that waits on it.

    `set` takes no contended lock, so that a signal handler or a finaliser may call it.

    Attributes:
        is_set: a plain attribute, cheap enough to be read for every frame.
    """

    def __init__(self) -> None:
        self.is_set = False
        # A turnstile: held until `set`; each waiter acquires and releases it.
        self._turnstile = threading.Lock()
        self._turnstile.acquire()
        self._wakers: list[Callable[[], None]] = []

    def set(self) -> None:
        """A second call does nothing."""
        if self.is_set:
            return
        self.is_set = True
        self._open_turnstile()
        for wake in [*self._wakers]:
            wake()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most `timeout` seconds; returns whether it is set."""
        if not self.is_set and self._turnstile.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            self._open_turnstile()
        return self.is_set

    def on_set(self, wake: Callable[[], None]) -> None:
        """Call `wake` in the thread that sets the token; at once if it is set already.

        `wake` may be called twice, and must return at once.
        """
        self._wakers.append(wake)
        if self.is_set:
            wake()

    def _open_turnstile(self) -> None:
        with suppress(RuntimeError):  # already open
            self._turnstile.release()


class StoppedError(Exception):
    """The process was asked to end while something waited."""
