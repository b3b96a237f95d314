"""Copies pictures from the GPU to host memory, beside a lane's inference."""

from __future__ import annotations

import threading
import weakref
from contextlib import ExitStack

import numpy as np

from detectors.cuda import Device, DeviceBuffer, Event, Module, PinnedBuffer, Stream
from detectors.letterbox import Letterbox
from detectors.port import DetectorError, DeviceImage, HostImage
from detectors.trt import kernels


class Fetcher:
    """A lane's copier: the lane's thread calls `fetch`, any thread may call its result.

    Pictures are converted and copied in a stream of their own. Buffers are reused, because freeing GPU memory waits for
    all its work.

    Args:
        module: the kernels of preprocess.cu.
    """

    def __init__(self, device: Device, module: Module) -> None:
        self._device, self._module = device, module
        self._stream: Stream | None = None
        self._slots: list[_Slot] = []
        self._pending: list[_Slot] = []  # slots with a leased picture

    def fetch(self, image: DeviceImage) -> Fetched:
        """See `detectors.port.Lane.fetch`."""
        stream = self._stream = self._stream or Stream()
        slot = self._free_slot(3 * image.width * image.height)
        if image.ready:
            stream.wait(image.ready)
        whole = Letterbox((image.width, image.height), 0, 0, image.width, image.height)
        picture = np.array([kernels.nv12_picture(image, whole)], dtype=kernels.PICTURE)
        grid = kernels.picture_grid(image.width, image.height)
        self._module.launch("to_bgr", *grid, stream, (picture, np.uint64(slot.device.pointer)))
        slot.device.download(slot.rows, stream)
        slot.event.record(stream)
        self._pending.append(slot)
        return slot.start(image, self._device)

    def release_done(self) -> None:
        """Release the leases of copied pictures."""
        if self._pending:
            self._pending = [slot for slot in self._pending if not slot.release_done()]

    def close(self) -> None:
        """Pictures that nobody waited for become unavailable."""
        with ExitStack() as stack:
            if self._stream:
                stack.callback(self._stream.close)
            for slot in self._slots:
                stack.callback(slot.close)
            if self._stream:
                stack.callback(self._stream.synchronize)
            self._stream = None

    def _free_slot(self, size: int) -> _Slot:
        for slot in self._slots:
            if slot.is_free and slot.device.size >= size:
                return slot
        self._slots.append(_Slot(size))
        return self._slots[-1]


class _Slot:
    """Buffers for one picture at a time."""

    def __init__(self, size: int) -> None:
        with ExitStack() as undo:
            self.device = DeviceBuffer(size)
            undo.callback(self.device.close)
            self.pinned = PinnedBuffer(size)
            undo.callback(self.pinned.close)
            self.event = Event()
            undo.callback(self.event.close)
            self._undo = undo.pop_all()
        self.rows = self.pinned.view((size,), np.uint8)
        self.lock = threading.Lock()
        self.closed = False
        self._lease: object = None
        self._pending: weakref.ref[Fetched] | None = None

    @property
    def is_free(self) -> bool:
        """Whether the last picture has arrived and its result was fetched or dropped."""
        pending = self._pending() if self._pending else None
        return (pending is None or pending.has_arrived) and self.event.passed

    def start(self, image: DeviceImage, device: Device) -> Fetched:
        self._lease = image.lease
        fetched = Fetched(self, image.width, image.height, device)
        self._pending = weakref.ref(fetched)
        return fetched

    def release_done(self) -> bool:
        """Release the lease if the picture has been read; returns whether it has."""
        if not self.event.passed:
            return False
        self._lease = None
        return True

    def close(self) -> None:
        with self.lock:
            self.closed, self._lease = True, None
            self._undo.close()


class Fetched:
    """A picture being copied; see `detectors.port.Fetch`."""

    def __init__(self, slot: _Slot, width: int, height: int, device: Device) -> None:
        self._slot, self._shape, self._device = slot, (height, width, 3), device
        self._picture: HostImage | None = None

    @property
    def has_arrived(self) -> bool:
        return self._picture is not None

    def __call__(self) -> HostImage:
        slot = self._slot
        with slot.lock:
            if self._picture is None:
                if slot.closed:
                    raise DetectorError("the model changed while the picture was being copied: try again")
                self._device.make_current()
                slot.event.synchronize()
                self._picture = HostImage(slot.pinned.view(self._shape, np.uint8).copy())
            return self._picture
