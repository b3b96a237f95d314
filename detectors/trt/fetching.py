"""Pictures on their way from the GPU into host memory, beside the lane's work."""

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
    """A lane's own: `fetch` is called by the lane's thread, and what it gives by any.

    Pictures are converted and copied in a stream beside the lane's, into buffers that are kept: freeing memory would
    wait for all that the GPU does.

    Args:
        module: the kernels of preprocess.cu.
    """

    def __init__(self, device: Device, module: Module) -> None:
        self._device, self._module = device, module
        self._stream: Stream | None = None
        self._slots: list[_Slot] = []
        self._lent: list[_Slot] = []  # that hold a picture of somebody's

    def fetch(self, image: DeviceImage) -> Fetched:
        """See `detectors.port.Lane.fetch`."""
        stream = self._stream = self._stream or Stream()
        slot = self._free_slot(3 * image.width * image.height)
        if image.ready:
            stream.wait(image.ready)
        whole = Letterbox((image.width, image.height), 0, 0, image.width, image.height)
        planes, kind = (image.luma, image.chroma, image.pitch), {"bt709": image.bt709, "full_range": image.full_range}
        picture = np.array([kernels.nv12_picture(*planes, whole, turns=image.turns, **kind)], dtype=kernels.PICTURE)
        grid = kernels.picture_grid(image.width, image.height)
        self._module.launch("to_bgr", *grid, stream, (picture, np.uint64(slot.device.pointer)))
        slot.device.download(slot.rows, stream)
        slot.event.record(stream)
        self._lent.append(slot)
        return slot.lend(image, self._device)

    def let_go(self) -> None:
        """Of pictures that have arrived, whether anybody waits for them or not."""
        if self._lent:
            self._lent = [slot for slot in self._lent if not slot.let_go()]

    def close(self) -> None:
        """What was not waited for by now cannot be had any more."""
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
    """Where one picture at a time goes."""

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
        self._lent: weakref.ref[Fetched] | None = None

    @property
    def is_free(self) -> bool:
        """Nobody will ask for the picture that went here last, and it has arrived."""
        lent = self._lent() if self._lent else None
        return (lent is None or lent.has_arrived) and self.event.passed

    def lend(self, image: DeviceImage, device: Device) -> Fetched:
        self._lease = image.lease
        fetched = Fetched(self, image.width, image.height, device)
        self._lent = weakref.ref(fetched)
        return fetched

    def let_go(self) -> bool:
        """Of what keeps the picture as it is, if it has been read; returns whether that is so."""
        if not self.event.passed:
            return False
        self._lease = None
        return True

    def close(self) -> None:
        with self.lock:
            self.closed, self._lease = True, None
            self._undo.close()


class Fetched:
    """A picture on its way; see `detectors.port.Fetch`."""

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
                    raise DetectorError("the model was changed while the picture was on its way: ask again")
                self._device.make_current()
                slot.event.synchronize()
                self._picture = HostImage(slot.pinned.view(self._shape, np.uint8).copy())
            return self._picture
