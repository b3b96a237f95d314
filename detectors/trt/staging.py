"""Buffers of a lane around the engine: the description of a batch for the kernels, and the boxes that they write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import structlog

from detectors.cuda import DeviceBuffer, PinnedBuffer, Stream
from detectors.detections import Detections
from detectors.heads.nms import MOST_CANDIDATES
from detectors.letterbox import InputSpec, Letterbox, fit
from detectors.port import DeviceImage, HostImage, Image, PostprocessParams
from detectors.trt import kernels
from detectors.trt.host_copies import HostCopyPool, Slot
from detectors.trt.loaded import AtSize, Loaded
from detectors.trt.memory_plan import CAPACITY

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


class Results(Protocol):
    """The detections of a batch, from the model's raw outputs."""

    def launch(self, size: int, stream: Stream) -> None:
        """Enqueue the work for a batch."""
        ...

    def results(self, count: int) -> list[Detections]:
        """The detections of each picture, once the stream has passed."""
        ...


class HostRows:
    """Raw outputs of a batch in host memory, decoded by the head's reference: for heads without kernels.

    Args:
        at: the engine at the batch's input size.
        raw: the model's outputs.
        hosts: buffers for copies of them.
        boxes: the place of each picture of the batch.
    """

    def __init__(
        self,
        at: AtSize,
        wanted: PostprocessParams,
        raw: Mapping[str, DeviceBuffer],
        hosts: Mapping[str, PinnedBuffer],
        boxes: Sequence[Letterbox],
    ) -> None:
        self._head, self._wanted, self._boxes = at.head, wanted, boxes
        self._copies: list[tuple[int, int, int]] = []  # host and device address, bytes of a picture
        self._views: dict[str, npt.NDArray[Any]] = {}
        max_batch = len(boxes)
        for tensor in at.outputs:
            host = hosts[tensor.name]
            self._copies.append((host.pointer, raw[tensor.name].pointer, tensor.bytes))
            self._views[tensor.name] = host.view((max_batch, *tensor.shape), tensor.dtype)

    def launch(self, size: int, stream: Stream) -> None:
        for host, device, count in self._copies:
            stream.copy(host, device, size * count)

    def results(self, count: int) -> list[Detections]:
        outputs = {name: view[:count].astype(np.float32) for name, view in self._views.items()}
        return self._head.batch_detections(outputs, self._boxes[:count], self._wanted)


class BoxBuffers:
    """Buffers of `Boxes`, which those of all input sizes share.

    Attributes:
        scratch: candidates, keys, slots and marks.
        counts: of candidates.
        boxes: (max_batch, max_detections, 6) kept boxes in host memory.
        counts_of_each: kept, left out and implausible boxes of each picture, likewise.
        targets: addresses of both.
    """

    def __init__(self, max_batch: int, wanted: PostprocessParams, own: Own) -> None:
        sizes = (kernels.CANDIDATE.itemsize, 8, 4, 1)
        self.scratch = [own(DeviceBuffer(max_batch * CAPACITY * size)) for size in sizes]
        self.counts = own(DeviceBuffer(4 * max_batch))
        found = max_batch * wanted.max_detections * 24
        self._results = own(PinnedBuffer(found + 12 * max_batch))
        self.boxes = self._results.view((max_batch, wanted.max_detections, 6), np.float32)
        self.boxes[...] = 0
        columns = [found + 4 * max_batch * part for part in range(3)]
        self.counts_of_each = [self._results.view((max_batch,), np.int32, column) for column in columns]
        begin = self._results.pointer
        self.targets = np.array([(begin, *(begin + column for column in columns))], dtype=kernels.RESULTS)


class Boxes:
    """Decoding, thresholds and NMS on the device, and the kept boxes of a batch in host memory.

    Args:
        at: the engine at the batch's input size.
        raw: the model's output.
        places: address of the batch's placements.
    """

    def __init__(self, loaded: Loaded, at: AtSize, raw: DeviceBuffer, places: np.uint64, buffers: BoxBuffers) -> None:
        head, shape, wanted = at.head, at.outputs[0].shape, loaded.options.wanted
        self._module, self._collect, self._select = loaded.postprocess, f"collect_{head.name}", f"select_{head.name}"
        self._rows = shape[1] if head.name == "yolov8" else shape[0]
        self._counts, self._buffers = buffers.counts, buffers
        self._boxes, self._counts_of_each, self._targets = buffers.boxes, buffers.counts_of_each, buffers.targets
        pointers = [buffer.pointer for buffer in (raw, *buffers.scratch, buffers.counts)]
        classes = head.classes or 1  # an end-to-end row names its class instead
        row = (*pointers, self._rows, classes, head.spec.width, head.spec.height)
        self._output = np.array([row], dtype=kernels.OUTPUT)
        requested = (wanted.confidence, wanted.iou, wanted.multi_label, wanted.max_detections)
        limits = (*requested, int(head.name != "end2end"), MOST_CANDIDATES, CAPACITY, loaded.labels)
        self._limits = np.array([limits], dtype=kernels.LIMITS)
        self._places = places

    def launch(self, size: int, stream: Stream) -> None:
        self._counts.clear(stream)
        output, limits = self._output, self._limits
        self._module.launch(self._collect, *kernels.collect_grid(self._rows, size), stream, (output, limits))
        arguments = (output, limits, self._places, self._targets)
        self._module.launch(self._select, *kernels.select_grid(size), stream, arguments)

    def results(self, count: int) -> list[Detections]:
        """See `Results`. In one copy for the batch, because the next batch writes here again."""
        kept, left_out, implausible = (counts[:count].tolist() for counts in self._counts_of_each)
        rows = self._boxes[:count, : max(kept)].copy()
        boxes, confidences, classes = rows[..., :4], rows[..., 4], rows[..., 5].astype(np.int32)
        return [
            Detections(boxes[i, :found], confidences[i, :found], classes[i, :found], left_out[i], implausible[i] == 0)
            for i, found in enumerate(kept)
        ]


EnqueueStage = Callable[[int, Stream], None]
"""Enqueues one stage of a batch of some size."""
