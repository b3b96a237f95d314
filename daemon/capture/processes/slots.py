"""In a capture process: slots of shared memory for the pictures of one source."""

from __future__ import annotations

from collections.abc import Callable

from daemon.sources.buffers import HostMemory, HostSlot, view
from daemon.sources.leases import BufferLease, BufferPool
from detectors.port import HostImage


class SharedSlots:
    """
    Args:
        count: of slots.
        on_retired: closes a pool's memory once all its slots are returned.
    """

    def __init__(self, count: int, on_retired: Callable[[BufferPool[HostSlot]], None]) -> None:
        self._count, self._on_retired = count, on_retired
        self._buffers: BufferPool[HostSlot] | None = None
        self._picture_bytes = 0

    def copy(self, image: HostImage) -> BufferLease[HostSlot] | None:
        """Copy a picture to shared memory; None if no slot is free.

        Raises:
            OSError: the system has no memory for slots of its size.
        """
        size = image.bgr.nbytes
        if self._buffers is None or self._picture_bytes != size:
            self.retire()
            memory = HostMemory(size * self._count)
            self._buffers = BufferPool([HostSlot(memory, size * number) for number in range(self._count)])
            self._picture_bytes = size
        lease = self._buffers.try_acquire()
        if lease:
            view(lease.slot.memory.pointer + lease.slot.offset, image.bgr.shape)[:] = image.bgr
        return lease

    def retire(self) -> None:
        """Give up all slots; those that are lent stay until they are returned."""
        if self._buffers:
            self._on_retired(self._buffers)
            self._buffers = None
