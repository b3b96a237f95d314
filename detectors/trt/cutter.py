"""Copies parts of decoded pictures within the GPU, so that their surfaces go back to the decoder at once."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

from detectors.cuda import CudaError, Device, DeviceBuffer, Event, Stream
from detectors.cutting import cut_on_host
from detectors.port import DeviceImage, HostImage, Image, Part

_ALIGNMENT = 256  # bytes
_PITCH = 64  # bytes


class _Region:
    """The lease of a copy: its memory is free when nothing refers to it."""

    __slots__ = ("__weakref__",)


class _Rectangle(NamedTuple):
    """Of samples of luma, from an even column and row."""

    left: int
    top: int
    width: int
    height: int

    @property
    def pitch(self) -> int:
        """Bytes of a row of the copy; chroma has whole pairs."""
        return -(-(self.width + self.width % 2) // _PITCH) * _PITCH

    @property
    def chroma_rows(self) -> int:
        return (self.height + 1) // 2

    @property
    def bytes(self) -> int:
        return self.pitch * (self.height + self.chroma_rows)


class TrtCutter:
    """See `detectors.port.Cutter`.

    All copies lie in one ring of device memory, because freeing memory waits for all work of the GPU. They are released
    about in the order in which they were made. Pictures in host memory are copied there.

    Args:
        size: bytes of the ring.
    """

    def __init__(self, device: Device, size: int) -> None:
        with ExitStack() as undo:
            self._stream = Stream()
            undo.callback(self._stream.close)
            self._memory = DeviceBuffer(size)
            undo.callback(self._memory.close)
            self._events: list[Event] = []  # those that nobody needs now
            undo.callback(self._close_events)
            undo.callback(self._stream.synchronize)
            self._undo = undo.pop_all()
        self._device = device
        self._pending: deque[tuple[Event, list[object]]] = deque()  # with the leases of their pictures
        self._regions: deque[tuple[int, int, weakref.ref[_Region]]] = deque()  # begin and end, oldest first
        self._lock = threading.Lock()
        self._closed = False

    def cut(self, parts: Sequence[Part]) -> list[Image | None]:
        with self._lock:
            if self._closed:
                return [None] * len(parts)
            self._release()
            event = self._events.pop() if self._events else Event(awaited=False)
            leases: list[object] = []
            try:
                images = [self._one(part, event, leases) for part in parts]
                event.record(self._stream)
            except BaseException:
                self._events.append(event)
                with suppress(CudaError):  # the caller may release the pictures now
                    self._stream.synchronize()
                raise
            self._pending.append((event, leases))
            return images

    def release_done(self) -> None:
        with self._lock:
            if not self._closed:
                self._release()

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._device.make_current()
                self._undo.close()

    def _close_events(self) -> None:
        for event in (*self._events, *(event for event, _ in self._pending)):
            event.close()
        self._events, self._pending = [], deque()

    def _release(self) -> None:
        """Release the pictures that are copied."""
        while self._pending and self._pending[0][0].passed:
            event, _ = self._pending.popleft()
            self._events.append(event)

    def _one(self, part: Part, event: Event, leases: list[object]) -> Image | None:
        image = part.image
        if isinstance(image, HostImage):
            return cut_on_host(part)
        where = in_planes(image, part.box)
        region = _Region()
        begin = self._reserve(where.bytes, region)
        if begin is None:
            return None
        luma = self._memory.pointer + begin
        chroma = luma + where.pitch * where.height
        if image.ready:
            self._stream.wait(image.ready)
        source = image.luma + where.top * image.pitch + where.left
        self._stream.copy_rows((luma, where.pitch), (source, image.pitch), where.width, where.height)
        source = image.chroma + where.top // 2 * image.pitch + where.left
        pairs = where.width + where.width % 2
        self._stream.copy_rows((chroma, where.pitch), (source, image.pitch), pairs, where.chroma_rows)
        leases.append(image.lease)
        size = (where.height, where.width) if image.turns % 2 else (where.width, where.height)
        return DeviceImage(luma, chroma, where.pitch, *size, image.bt709, image.full_range, event.handle, region,
                           image.turns)  # fmt: skip

    def _reserve(self, size: int, region: _Region) -> int | None:
        """Find room in the ring; its first byte, or None."""
        while self._regions and self._regions[0][2]() is None:
            self._regions.popleft()
        size = -(-size // _ALIGNMENT) * _ALIGNMENT
        begin = self._regions[-1][1] if self._regions else 0
        oldest = self._regions[0][0] if self._regions else self._memory.size
        if begin <= oldest and self._regions:  # the ring has wrapped
            if begin + size > oldest:
                return None
        elif begin + size > self._memory.size:
            begin = 0
            if size > (oldest if self._regions else self._memory.size):
                return None
        self._regions.append((begin, begin + size, weakref.ref(region)))
        return begin


def in_planes(image: DeviceImage, box: tuple[int, int, int, int]) -> _Rectangle:
    """The samples of a box, which is in pixels of the upright picture: grown to whole pairs, as chroma has them."""
    left, top, right, bottom = box
    width, height = image.width, image.height
    if image.turns == 1:
        left, top, right, bottom = top, width - right, bottom, width - left
    elif image.turns == 2:
        left, top, right, bottom = width - right, height - bottom, width - left, height - top
    elif image.turns == 3:
        left, top, right, bottom = height - bottom, left, height - top, right
    if image.turns % 2:
        width, height = height, width
    left, top = left // 2 * 2, top // 2 * 2
    right, bottom = min(width, right + right % 2), min(height, bottom + bottom % 2)
    return _Rectangle(left, top, right - left, bottom - top)
