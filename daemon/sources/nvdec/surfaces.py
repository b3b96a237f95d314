"""GPU memory of pictures between a source and a lane."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from daemon.sources.leases import BufferLease, BufferPool
from detectors.cuda import DeviceBuffer, Event, SharedBuffer
from detectors.port import DeviceImage

_ALIGNMENT = 256

Allocate = Callable[[int], DeviceBuffer | SharedBuffer]
"""Allocates a number of bytes on the GPU."""


class Surface:
    """Device memory of one NV12 picture, and the event that marks it complete."""

    def __init__(self, memory: DeviceBuffer | SharedBuffer, offset: int) -> None:
        self.memory, self.offset = memory, offset
        self.pointer = memory.pointer + offset
        self.event = Event(awaited=False)

    @property
    def is_ready(self) -> bool:
        """See `daemon.sources.buffers.Slot`."""
        return self.event.passed


class Surfaces:
    """A pool of surfaces of one size.

    Attributes:
        size: width and height, pixels.
        pitch: bytes of a row.
        rows: of luma and chroma together.
        bytes: of a picture; chroma follows luma.
        acquire: see `BufferPool.acquire`.
    """

    def __init__(self, allocate: Allocate, count: int, width: int, height: int) -> None:
        self.size = self._width, self._height = width, height
        self.pitch = -(-width // 2) * 2
        self.rows = height + -(-height // 2)
        self.bytes = self.pitch * self.rows
        step = -(-self.bytes // _ALIGNMENT) * _ALIGNMENT
        with ExitStack() as undo:
            memory = allocate(step * count)
            undo.callback(memory.close)
            surfaces = [Surface(memory, step * number) for number in range(count)]
            for surface in surfaces:
                undo.callback(surface.event.close)
            self._undo = undo.pop_all()
        self._buffers = BufferPool(surfaces)
        self.acquire = self._buffers.acquire

    def image(self, lease: BufferLease[Surface], bt709: bool, full_range: bool) -> DeviceImage:
        """The picture in a surface; complete once the surface's event has passed."""
        luma, pitch, ready = lease.slot.pointer, self.pitch, lease.slot.event.handle
        chroma = luma + pitch * self._height
        return DeviceImage(luma, chroma, pitch, self._width, self._height, bt709, full_range, ready, lease)

    @property
    def all_free(self) -> bool:
        return self._buffers.all_free

    def close(self) -> None:
        self._undo.close()
