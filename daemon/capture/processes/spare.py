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
        self.refill()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Within, there are descriptors to be had, even where the process has come to its limit."""
        self.close()
        try:
            yield
        finally:
            self.refill()

    def refill(self) -> None:
        """Take what is missing, as far as there is any."""
        with suppress(OSError):  # later, then
            while len(self._fds) < self._count:
                self._fds.append(os.open(os.devnull, os.O_RDONLY))

    def close(self) -> None:
        """All of them, until they are refilled."""
        while self._fds:
            os.close(self._fds.pop())
