"""Calls of a source's library, which may never return."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class DetachedError(Exception):
    """The library has returned after the capture was replaced or abandoned."""


class LibraryCalls:
    """
    Args:
        lock: the capture's; others hold it to read the attributes.

    Attributes:
        is_active: a call has not returned.
        is_detached: the source does not belong to this capture any more.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self.is_active = self.is_detached = False

    def call(self, work: Callable[[], T], discard: Callable[[T], object] | None = None) -> T:
        """Call the library.

        Args:
            discard: takes a result that comes too late.

        Raises:
            DetachedError: another capture has the source.
        """
        self.is_active, result = True, None
        try:
            result = work()
        finally:
            with self._lock:
                self.is_active = False
            if self.is_detached:
                if discard and result is not None:
                    discard(result)
                raise DetachedError
        return result

    def detach(self) -> None:
        """Let go of the source. Requires the lock."""
        self.is_detached = True
