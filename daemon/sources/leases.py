"""Places for pictures, lent one at a time, which come home when nobody holds them any more."""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from daemon.errors import DecodeError

T = TypeVar("T")
_LEASE_TIMEOUT_S = 5.0


class Lease(Generic[T]):
    """A place, for as long as this is held: by a picture on the board, in a lane's hands, in a variable.

    Pictures are dropped in many places; that each of them gives back what it held could be forgotten in one.
    """

    __slots__ = ("_free", "slot")

    def __init__(self, slot: T, free: SimpleQueue[T]) -> None:
        self.slot, self._free = slot, free

    def __del__(self) -> None:
        self._free.put(self.slot)  # SimpleQueue may be called from anywhere, garbage collection included


class BufferPool(Generic[T]):
    """Places of one size."""

    def __init__(self, places: Sequence[T]) -> None:
        self._all = tuple(places)
        self._free: SimpleQueue[T] = SimpleQueue()
        for place in places:
            self._free.put(place)

    def acquire(self) -> Lease[T]:
        """One that nobody reads any more.

        Raises:
            DecodeError: all are held, for longer than anybody should.
        """
        try:
            return Lease(self._free.get(timeout=_LEASE_TIMEOUT_S), self._free)
        except Empty:
            raise DecodeError(
                f"all {len(self._all)} places for pictures are held by lanes, for {_LEASE_TIMEOUT_S:g} s"
            ) from None

    def try_acquire(self) -> Lease[T] | None:
        """The same without waiting; None if all are held."""
        try:
            return Lease(self._free.get_nowait(), self._free)
        except Empty:
            return None

    @property
    def all_free(self) -> bool:
        """Nobody holds any."""
        return self._free.qsize() == len(self._all)

    @property
    def all(self) -> tuple[T, ...]:
        return self._all
