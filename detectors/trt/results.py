"""A lane after the engine: from the raw outputs of a batch to its detections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from detectors.cuda import DeviceBuffer, PinnedBuffer, Stream
from detectors.detections import Detections
from detectors.heads.candidates import MOST_CANDIDATES
from detectors.heads.masks import placed
from detectors.heads.rows import RowHead
from detectors.letterbox import Letterbox
from detectors.port import PostprocessParams
from detectors.trt import kernels
from detectors.trt.kernels.decoding import Raw, extras_of, fields_of, limits_of, scratch_of
from detectors.trt.loaded import AtSize, Decoding, Loaded
from detectors.trt.memory_plan import CAPACITY
from detectors.trt.staging import Batch, Own

_ROW_BYTES = 24  # of a kept box: four corners, confidence, class

EnqueueStage = Callable[[int, Stream], None]
"""Enqueues one stage of a batch of some size."""


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
        decoding: the kernels.
        labels: number of labels of the model.
        scratch: memory of the kernels by field of OUTPUT, and `counts`.
        boxes: (max_batch, max_detections, 6) kept boxes in host memory.
        counts_of_each: kept, left out and implausible boxes of each picture, likewise.
        extras: (max_batch, max_detections, n) what the kernels write for a kept row beside its box, likewise.
        full: (max_batch, max_detections) whether a box has a mask, likewise.
        bits: masks, likewise.
        targets: addresses of all in host memory.
    """

    def __init__(self, loaded: Loaded, decoding: Decoding, max_batch: int, own: Own) -> None:
        head, limit = loaded.head, loaded.options.wanted.max_detections
        self.decoding, self.labels = decoding, loaded.labels
        scratch = scratch_of(head, limit, MOST_CANDIDATES, CAPACITY)
        self.scratch = {name: own(DeviceBuffer(max_batch * size)) for name, size in scratch.items()}
        self.counts = self.scratch["counts"] = own(DeviceBuffer(4 * max_batch))
        rows = max_batch * limit
        mask = max(map(bytes_of_mask, loaded.sizes))
        sizes = [rows * _ROW_BYTES, *[4 * max_batch] * 3, rows * 4 * extras_of(head), rows if mask else 0, rows * mask]
        begins = [sum(sizes[:number]) for number in range(len(sizes))]
        self._results = own(PinnedBuffer(sum(sizes)))
        view = self._results.view
        self.boxes = view((max_batch, limit, 6), np.float32)
        self.boxes[...] = 0
        self.counts_of_each = [view((max_batch,), np.int32, begin) for begin in begins[1:4]]
        self.extras = view((max_batch, limit, extras_of(head)), np.float32, begins[4])
        self.full = view((max_batch, limit if mask else 0), np.uint8, begins[5])
        self.bits = view((rows * mask,), np.uint8, begins[6])
        names = ("boxes", "kept", "left_out", "implausible", "extras", "full", "bits")
        ends = {name: self._results.pointer + begin for name, begin in zip(names, begins)}
        self.targets = kernels.struct(kernels.RESULTS, **ends)


def bytes_of_mask(at: AtSize) -> int:
    """Bytes of a mask at an input size; 0 for heads without."""
    if not isinstance(at.head, RowHead) or not at.head.protos:
        return 0
    height, width = next(tensor.shape[1:] for tensor in at.outputs if tensor.name == at.head.protos)
    return height * -(-width // 8)


class Boxes:
    """Decoding, thresholds and NMS on the device, and the kept boxes of a batch in host memory.

    Args:
        at: the engine at the batch's input size.
        raw: the model's outputs.
        batch: the batch's description.
    """

    def __init__(
        self,
        at: AtSize,
        wanted: PostprocessParams,
        raw: Mapping[str, DeviceBuffer],
        batch: Batch,
        buffers: BoxBuffers,
    ) -> None:
        self._decoding, self._counts, self._buffers = buffers.decoding, buffers.counts, buffers
        self._boxes, self._counts_of_each, self._targets = buffers.boxes, buffers.counts_of_each, buffers.targets
        self._bytes = memoryview(self._boxes).cast("B")  # type: ignore[arg-type]
        self._head, self._places, self._batch = at.head, batch.places, batch
        outputs = {tensor.name: Raw(raw[tensor.name].pointer, tensor.shape, tensor.dtype) for tensor in at.outputs}
        fields = fields_of(at.head, outputs)
        self._output = kernels.struct(
            kernels.OUTPUT, **fields, **{n: own.pointer for n, own in buffers.scratch.items()}
        )
        self._rows = fields["rows"]
        self._limits = limits_of(at.head, wanted, self._rows, buffers.labels, MOST_CANDIDATES, CAPACITY)

    def launch(self, size: int, stream: Stream) -> None:
        self._counts.clear(stream)
        (module, name), output, limits = self._decoding, self._output, self._limits
        module.launch(f"collect_{name}", *kernels.collect_grid(self._rows, size), stream, (output, limits))
        arguments = (output, limits, self._places, self._targets)
        module.launch(f"select_{name}", *kernels.select_grid(size), stream, arguments)

    def results(self, count: int) -> list[Detections]:
        """See `Results`. In one copy for the batch, because the next batch writes here again."""
        kept, left_out, implausible = (counts[:count].tolist() for counts in self._counts_of_each)
        rows = self._copied(kept)
        # In one piece each, so that they can be joined; `copy` and `astype` release the GIL, too.
        boxes, confidences, classes = np.positive(rows[:, :4]), np.positive(rows[:, 4]), np.empty(len(rows), np.int32)
        np.add(rows[:, 5], 0, out=classes, casting="unsafe")
        return [
            Detections(boxes[end - n : end], confidences[end - n : end], classes[end - n : end], left, bad == 0)
            for n, end, left, bad in zip(kept, accumulate(kept), left_out, implausible)
        ]

    def _copied(self, kept: Sequence[int]) -> npt.NDArray[np.float32]:
        """(sum of kept, 6) the kept rows of all pictures. A copy by numpy would release the GIL, and a lane would wait
        to get it back."""
        memory, stride = self._bytes, self._boxes.strides[0]
        parts = [memory[at * stride : at * stride + _ROW_BYTES * found] for at, found in enumerate(kept)]
        return np.frombuffer(bytearray().join(parts), np.float32).reshape(-1, 6)


class WithExtras(Boxes):
    """Boxes with what a task adds to them, which is None where there are no boxes, as the reference has it."""

    def results(self, count: int) -> list[Detections]:
        """See `Results`."""
        extras = self._buffers.extras[:count, : self._counts_of_each[0][:count].max()].copy()
        return [
            replace(found, **self._added(extras[number, : len(found)])) if len(found) else found
            for number, found in enumerate(super().results(count))
        ]

    def _added(self, extras: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]:
        if self._head.task == "obb":
            return {"obb": extras}
        return {"keypoints": extras.reshape(len(extras), -1, 3)}


class WithMasks(Boxes):
    """Boxes with their masks. A box without a mask is none."""

    def __init__(
        self,
        at: AtSize,
        wanted: PostprocessParams,
        raw: Mapping[str, DeviceBuffer],
        batch: Batch,
        buffers: BoxBuffers,
    ) -> None:
        super().__init__(at, wanted, raw, batch, buffers)
        max_batch, limit = buffers.full.shape
        height, self._width = (int(self._output[name][0]) for name in ("proto_height", "proto_width"))
        used = buffers.bits[: max_batch * limit * bytes_of_mask(at)]
        self._bits, self._full = used.reshape(max_batch, limit, height, -1), buffers.full

    def launch(self, size: int, stream: Stream) -> None:
        super().launch(size, stream)
        grid = kernels.masks_grid(self._full.shape[1], size)
        self._decoding.module.launch("masks", *grid, stream, (self._output, self._limits, self._targets))

    def results(self, count: int) -> list[Detections]:
        """See `Results`."""
        found = enumerate(super().results(count))
        return [self._masked(number, one) if len(one) else one for number, one in found]

    def _masked(self, number: int, found: Detections) -> Detections:
        full = self._full[number, : len(found)] != 0
        bits = self._bits[number, : len(found)][full]  # a copy
        masks = placed(bits, self._width, self._head.spec, self._batch.boxes[number])
        return replace(found if full.all() else found[full], masks=masks)
