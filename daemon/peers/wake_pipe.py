"""Wakes a thread that polls sockets."""

from __future__ import annotations

import os
import threading
from contextlib import suppress


class WakePipe:
    """Any thread may ring it at any time: after `close` that does nothing, and no other file gets what was meant for
    the pipe.

    Attributes:
        end: descriptor that can be read when it rang.
    """

    def __init__(self) -> None:
        self.end, self._ringer = os.pipe()
        os.set_blocking(self.end, False)
        os.set_blocking(self._ringer, False)
        self._guard = threading.Lock()
        self._is_open = True

    def ring(self) -> None:
        with self._guard, suppress(BlockingIOError):  # full: the thread will wake
            if self._is_open:
                os.write(self._ringer, b".")

    def drain(self) -> None:
        """By the thread that was woken."""
        with suppress(BlockingIOError):
            os.read(self.end, 4096)

    def close(self) -> None:
        """A second call does nothing."""
        with self._guard:
            if self._is_open:
                self._is_open = False
                os.close(self.end)
                os.close(self._ringer)
