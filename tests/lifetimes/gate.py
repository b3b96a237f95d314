"""A gate that holds threads for a test, and releases them."""

from __future__ import annotations

import threading

_TIMEOUT_S = 60.0


class Gate:
    """Open at first. A thread that calls a closed gate waits until it is opened."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._closed, self._held = False, 0

    def __call__(self) -> None:
        with self._lock:
            self._held += 1
            self._lock.notify_all()
            try:
                assert self._lock.wait_for(lambda: not self._closed, _TIMEOUT_S), "a gate was never opened"
            finally:
                self._held -= 1

    def close(self) -> None:
        with self._lock:
            self._closed = True

    def open(self) -> None:
        with self._lock:
            self._closed = False
            self._lock.notify_all()

    @property
    def holds(self) -> bool:
        """Whether a thread is held."""
        with self._lock:
            return self._closed and self._held > 0

    def wait_for_one(self) -> None:
        """Wait until a thread is held."""
        with self._lock:
            assert self._lock.wait_for(lambda: self._held > 0, _TIMEOUT_S), "nobody came to the gate"
