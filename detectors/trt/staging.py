"""Buffers of a lane before the engine: the description of a batch for the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol, TypeVar

import numpy as np
import structlog

from detectors.cuda import DeviceBuffer, PinnedBuffer, Stream
from detectors.letterbox import InputSpec, Letterbox, fit
from detectors.port import HostImage, Image
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
        self._spec = spec
        # Of each picture in the buffers what was described, but for its addresses, and its place.
        self._described: list[tuple[tuple[int, ...], Letterbox] | None] = [None] * max_batch
        self.pictures, self.places = np.uint64(self._device.pointer), np.uint64(self._device.pointer + pictures)

    def fill(self, images: Sequence[Image], size: int, spec: InputSpec, stream: Stream) -> None:
        """Enqueue the copies of host pictures and of the descriptions; pictures up to `size` repeat the last one."""
        staged: list[tuple[Slot, HostImage]] = []
        planes0, planes1 = [], []
        if spec is not self._spec:
            self._spec, self._described = spec, [None] * len(self._described)
        for number, image in enumerate(images):
            if isinstance(image, HostImage):
                slot = self._slots[number]
                if image.bgr.nbytes > slot.device.size:
                    self._grow(slot, image, stream)
                staged.append((slot, image))
                plane0, plane1 = slot.device.pointer, 0
            else:
                if image.ready:
                    stream.wait(image.ready)
                plane0, plane1 = image.luma, image.chroma
            planes0.append(plane0)
            planes1.append(plane1)
            self._describe(number, image)
        count = len(images)
        self._planes[0][:count], self._planes[1][:count] = planes0, planes1  # faster than one by one
        if count < size:
            self._repeat_last(count, size)
        self._copy_pool.copy(staged, stream)
        self._device.upload(self._host, stream)

    def _grow(self, slot: Slot, image: HostImage, stream: Stream) -> None:
        """Grow a slot for a larger picture, which is rare: it waits, and takes memory beyond the plan."""
        if not self._grown:
            log.warning("pictures larger than gpu.frame_size take more memory", width=image.width, height=image.height)
        self._grown = True
        stream.synchronize()
        slot.grow(image.bgr.nbytes)

    def _describe(self, number: int, image: Image) -> None:
        """Describe a picture but for its addresses, unless the one before at its place was alike."""
        if isinstance(image, HostImage):
            kind: tuple[int, ...] = image.width, image.height
        else:
            kind = (
                image.width, image.height, image.pitch, image.bt709, image.full_range, image.turns, image.odd_x,
                image.odd_y,
            )  # fmt: skip
        known = self._described[number]
        if known is None or known[0] != kind:
            box = _fit(image.width, image.height, self._spec)
            if isinstance(image, HostImage):
                self._pictures[number] = kernels.bgr_picture(0, image.width * 3, box)
            else:
                self._pictures[number] = kernels.nv12_picture(image, box)
            self._places[number] = kernels.placements([box])[0]
            known = self._described[number] = kind, box
        self.boxes[number] = known[1]

    def _repeat_last(self, count: int, size: int) -> None:
        """Describe the pictures from `count` up to `size` as the one before them."""
        last = count - 1
        self._pictures[count:size], self._places[count:size] = self._pictures[last], self._places[last]
        self._described[count:size] = [self._described[last]] * (size - count)
