"""Buffers of a lane before the engine: the description of a batch for the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol, TypeVar

import numpy as np
import structlog

from detectors.cuda import DeviceBuffer, PinnedBuffer, Stream
from detectors.letterbox import InputSpec, Letterbox, fit
from detectors.port import DeviceImage, HostImage, Image
from detectors.trt import kernels
from detectors.trt.host_copies import HostCopyPool, Slot

log = structlog.get_logger(__name__)
_fit = lru_cache(maxsize=1024)(fit)


class Handle(Protocol):
    def close(self) -> None: ...


H = TypeVar("H", bound=Handle)


class Own(Protocol):
    """Registers a handle that the lane closes, and returns it."""

    def __call__(self, handle: H) -> H: ...


class Batch:
    """The pictures of a batch as preprocess reads them: address, format, and place in the input.

    Args:
        max_batch: maximum number of pictures.
        frame: bytes reserved for each host picture.
        copy_pool: copies host pictures.
    """

    def __init__(self, max_batch: int, frame: int, spec: InputSpec, copy_pool: HostCopyPool, own: Own) -> None:
        self._copy_pool = copy_pool
        self._slots = [own(Slot(frame)) for _ in range(max_batch)]
        pictures, places = max_batch * kernels.PICTURE.itemsize, max_batch * kernels.PLACEMENT.itemsize
        self._host = own(PinnedBuffer(pictures + places))
        self._device = own(DeviceBuffer(pictures + places))
        self._pictures = self._host.view((max_batch,), kernels.PICTURE)
        self._places = self._host.view((max_batch,), kernels.PLACEMENT, pictures)
        self._planes = self._pictures["plane0"], self._pictures["plane1"]
        self._grown = False
        self.boxes = [_fit(1, 1, spec)] * max_batch
        self._described: list[tuple[object, ...] | None] = [None] * max_batch
        self.pictures, self.places = np.uint64(self._device.pointer), np.uint64(self._device.pointer + pictures)

    def fill(self, images: Sequence[Image], size: int, spec: InputSpec, stream: Stream) -> None:
        """Enqueue the copies of host pictures and of the descriptions; pictures up to `size` repeat the last one."""
        staged: list[tuple[Slot, HostImage]] = []
        for number, image in enumerate(images):
            box = self.boxes[number] = _fit(image.width, image.height, spec)
            if isinstance(image, HostImage):
                slot = self._slots[number]
                if image.bgr.nbytes > slot.device.size:
                    self._grow(slot, image, stream)
                staged.append((slot, image))
                self._describe_bgr(number, slot.device.pointer, box)
            else:
                if image.ready:
                    stream.wait(image.ready)
                self._describe_nv12(number, image, box)
        count = len(images)
        if count < size:
            self._pictures[count:size] = self._pictures[count - 1]
            self._places[count:size] = self._places[count - 1]
            self._described[count:size] = [None] * (size - count)
        self._copy_pool.copy(staged, stream)
        self._device.upload(self._host, stream)

    def _grow(self, slot: Slot, image: HostImage, stream: Stream) -> None:
        """Grow a slot for a larger picture, which is rare: it waits, and takes memory beyond the plan."""
        if not self._grown:
            log.warning("pictures larger than gpu.frame_size take more memory", width=image.width, height=image.height)
        self._grown = True
        stream.synchronize()
        slot.grow(image.bgr.nbytes)

    def _describe_bgr(self, number: int, pointer: int, box: Letterbox) -> None:
        known = (box, pointer)
        if known != self._described[number]:
            self._pictures[number] = kernels.bgr_picture(pointer, box.source[0] * 3, box)
            self._describe_placement(number, box, known)

    def _describe_nv12(self, number: int, image: DeviceImage, box: Letterbox) -> None:
        known = (box, image.pitch, image.bt709, image.full_range, image.turns, image.odd_x, image.odd_y)
        if known != self._described[number]:
            self._pictures[number] = kernels.nv12_picture(image, box)
            self._describe_placement(number, box, known)
        self._planes[0][number], self._planes[1][number] = image.luma, image.chroma

    def _describe_placement(self, number: int, box: Letterbox, known: tuple[object, ...]) -> None:
        self._places[number] = kernels.placements([box])[0]
        self._described[number] = known
