"""Descriptors kept back for the memory that capture processes hand over: without one their frames would wait."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class SpareDescriptors:
    """So many of them. One thread uses and closes it."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._fds: list[int] = []
        self._refill()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Within, there are descriptors to be had, even where the process has come to its limit."""
        if self._is_short():
            self.close()
        try:
            yield
        finally:
            if len(self._fds) < self._count:
                self._refill()

    def close(self) -> None:
        """All of them; those that are missing come back with what is `lent` next."""
        while self._fds:
            os.close(self._fds.pop())

    def _is_short(self) -> bool:
        try:
            if self._fds:
                os.close(os.dup(self._fds[0]))
        except OSError:
            return True
        return False

    def _refill(self) -> None:
        with suppress(OSError):  # later, then
            while len(self._fds) < self._count:
                self._fds.append(os.open(os.devnull, os.O_RDONLY))
