"""Spare descriptors for the memory of capture processes: without one their frames would wait."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class SpareDescriptors:
    """Keeps a number of descriptors open. One thread uses and closes it."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._fds: list[int] = []
        self.refill()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Free the descriptors, so that others can be opened at the process's limit."""
        self.close()
        try:
            yield
        finally:
            self.refill()

    def refill(self) -> None:
        """Open the missing descriptors, as far as possible."""
        with suppress(OSError):  # retried later
            while len(self._fds) < self._count:
                self._fds.append(os.open(os.devnull, os.O_RDONLY))

    def close(self) -> None:
        """Free all descriptors, until `refill`."""
        while self._fds:
            os.close(self._fds.pop())
