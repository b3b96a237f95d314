"""A pool of slots for pictures. A lease returns its slot when the last reference to it dies."""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from daemon.errors import DecodeError

T = TypeVar("T")
_LEASE_TIMEOUT_S = 5.0


class BufferLease(Generic[T]):
    """Holds a slot for as long as the lease is referenced: by a picture on the board, by a lane, by a variable.

    Pictures are dropped in many places; none of them has to remember to return the slot.
    """

    __slots__ = ("_free", "slot")

    def __init__(self, slot: T, free: SimpleQueue[T]) -> None:
        self.slot, self._free = slot, free

    def __del__(self) -> None:
        self._free.put(self.slot)  # SimpleQueue is reentrant: a finaliser may call it


class BufferPool(Generic[T]):
    """Slots of one size."""

    def __init__(self, slots: Sequence[T]) -> None:
        self._all = tuple(slots)
        self._free: SimpleQueue[T] = SimpleQueue()
        for slot in slots:
            self._free.put(slot)

    def acquire(self) -> BufferLease[T]:
        """Wait for a free slot.

        Raises:
            DecodeError: none became free in time.
        """
        try:
            return BufferLease(self._free.get(timeout=_LEASE_TIMEOUT_S), self._free)
        except Empty:
            raise DecodeError(
                f"all {len(self._all)} picture buffers have been in use by lanes for {_LEASE_TIMEOUT_S:g} s"
            ) from None

    def try_acquire(self) -> BufferLease[T] | None:
        """A free slot, None if there is none."""
        try:
            return BufferLease(self._free.get_nowait(), self._free)
        except Empty:
            return None

    @property
    def all_free(self) -> bool:
        """Whether no slot is leased."""
        return self._free.qsize() == len(self._all)

    @property
    def all(self) -> tuple[T, ...]:
        return self._all
