"""Takes parts of decoded pictures as the model reads them, so that their surfaces go back to the decoder at once."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache

import numpy as np

from detectors.cuda import CudaError, DeviceBuffer, Event, PinnedBuffer, Stream
from detectors.host_input import cut_on_host
from detectors.letterbox import fit
from detectors.port import HostImage, Image, Part, PreparedImage, Region
from detectors.trt import kernels
from detectors.trt.loaded import Loaded
from detectors.trt.memory_plan import slots

_fit = lru_cache(maxsize=4096)(fit)


class _Lease:
    """Of a slot: it is free when nothing refers to the lease."""

    __slots__ = ("__weakref__",)


class TrtCutter:
    """See `detectors.port.Cutter`.

    One kernel preprocesses the parts of a call into slots of device memory, each as large as one input of the model.
    The slots form a ring, because parts are released about in the order in which they were taken. Parts of pictures in
    host memory are copied there, and a lane preprocesses them.

    Args:
        room: number of parts that may wait at once.
    """

    def __init__(self, loaded: Loaded, room: int) -> None:
        self._loaded, self._slots = loaded, slots(room)
        self._bytes = loaded.needs.input(1)
        with ExitStack() as undo:
            self._stream = Stream()
            undo.callback(self._stream.close)
            self._inputs = DeviceBuffer(self._slots * self._bytes)
            undo.callback(self._inputs.close)
            self._host = PinnedBuffer(self._slots * kernels.PICTURE.itemsize)
            undo.callback(self._host.close)
            self._device = DeviceBuffer(self._host.size)
            undo.callback(self._device.close)
            self._events: list[Event] = []  # those that nobody needs now
            undo.callback(self._close_events)
            undo.callback(self._stream.synchronize)
            self._undo = undo.pop_all()
        self._pictures = self._host.view((self._slots,), kernels.PICTURE)
        self._constants = kernels.preprocess_constants(loaded.head.spec)
        self._pending: deque[tuple[Event, list[object]]] = deque()  # with the leases of pictures and slots
        self._leases: list[weakref.ref[_Lease] | None] = [None] * self._slots
        self._next = 0
        self._lock = threading.Lock()
        self._closed = False

    def cut(self, parts: Sequence[Part]) -> list[Image | PreparedImage | None]:
        with self._lock:
            if self._closed:
                return [None] * len(parts)
            self._release()
            event = self._events.pop() if self._events else Event(awaited=False)
            used: list[object] = []
            try:
                images, slots = self._describe(parts, event, used)
                for begin, end in _runs(slots):
                    self._prepare(begin, end)
                event.record(self._stream)
            except BaseException:
                self._events.append(event)
                with suppress(CudaError):  # the caller may release the pictures now
                    self._stream.synchronize()
                raise
            self._pending.append((event, used))
            return images

    def release_done(self) -> None:
        with self._lock:
            if not self._closed:
                self._release()

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._loaded.device.make_current()
                self._undo.close()

    def _close_events(self) -> None:
        for event in (*self._events, *(event for event, _ in self._pending)):
            event.close()
        self._events, self._pending = [], deque()

    def _release(self) -> None:
        """Release the pictures that are preprocessed."""
        while self._pending and self._pending[0][0].passed:
            event, _ = self._pending.popleft()
            self._events.append(event)

    def _describe(
        self, parts: Sequence[Part], event: Event, used: list[object]
    ) -> tuple[list[Image | PreparedImage | None], list[int]]:
        """The result for each part, and the slots that are to be filled. The kernel's table has a row for each slot."""
        images: list[Image | PreparedImage | None] = []
        slots: list[int] = []
        waited: set[int] = set()
        for image, (left, top, right, bottom) in parts:
            if isinstance(image, HostImage):
                images.append(cut_on_host(Part(image, (left, top, right, bottom))))
                continue
            slot = self._acquire()
            if slot is None:
                images.append(None)
                continue
            if image.ready and image.ready not in waited:
                waited.add(image.ready)
                self._stream.wait(image.ready)
            lease = _Lease()
            self._leases[slot] = weakref.ref(lease)
            slots.append(slot)
            box = _fit(right - left, bottom - top, self._loaded.head.spec)
            self._pictures[slot] = kernels.nv12_picture(
                image.cropped(Region(left, top, right - left, bottom - top)), box
            )
            used += (image.lease, lease)  # the slot is in use until the kernel is done, whoever drops the part
            images.append(PreparedImage(self._inputs.pointer + slot * self._bytes, box, event.handle, lease))
        return images, slots

    def _acquire(self) -> int | None:
        """The next slot of the ring, or None if it is in use."""
        lease = self._leases[self._next]
        if lease is not None and lease() is not None:
            return None
        slot, self._next = self._next, (self._next + 1) % self._slots
        return slot

    def _prepare(self, begin: int, end: int) -> None:
        """Enqueue the kernel for slots of the ring."""
        row, half = kernels.PICTURE.itemsize, self._loaded.needs.half
        self._device.mirror(self._host, begin * row, (end - begin) * row, self._stream)
        table = np.uint64(self._device.pointer + begin * row)
        target = np.uint64(self._inputs.pointer + begin * self._bytes)
        grid, block = kernels.preprocess_grid(self._loaded.head.spec, end - begin)
        name = "preprocess_f16" if half else "preprocess_f32"
        self._loaded.preprocess.launch(name, grid, block, self._stream, (table, target, *self._constants))


def _runs(slots: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges of slots that follow each other: one, or two where the ring begins again."""
    begin = 0
    for end in range(1, len(slots) + 1):
        if end == len(slots) or slots[end] != slots[end - 1] + 1:
            yield slots[begin], slots[end - 1] + 1
            begin = end
