"""A lane after the engine: from the raw outputs of a batch to its detections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from detectors.cuda import DeviceBuffer, PinnedBuffer, Stream
from detectors.detections import Detections
from detectors.heads.nms import MOST_CANDIDATES
from detectors.letterbox import Letterbox
from detectors.port import PostprocessParams
from detectors.trt import kernels
from detectors.trt.kernels.decoding import Raw, fields_of, limits_of
from detectors.trt.loaded import AtSize, Decoding, Loaded
from detectors.trt.memory_plan import CAPACITY
from detectors.trt.staging import Own

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
        scratch: candidates, keys, slots and marks.
        counts: of candidates.
        boxes: (max_batch, max_detections, 6) kept boxes in host memory.
        counts_of_each: kept, left out and implausible boxes of each picture, likewise.
        targets: addresses of both.
    """

    def __init__(self, max_batch: int, wanted: PostprocessParams, own: Own) -> None:
        self.scratch = {name: own(DeviceBuffer(max_batch * CAPACITY * size)) for name, size in kernels.SCRATCH.items()}
        self.counts = own(DeviceBuffer(4 * max_batch))
        found = max_batch * wanted.max_detections * 24
        self._results = own(PinnedBuffer(found + 12 * max_batch))
        self.boxes = self._results.view((max_batch, wanted.max_detections, 6), np.float32)
        self.boxes[...] = 0
        columns = [found + 4 * max_batch * part for part in range(3)]
        self.counts_of_each = [self._results.view((max_batch,), np.int32, column) for column in columns]
        begin = self._results.pointer
        each = dict(zip(("kept", "left_out", "implausible"), (begin + column for column in columns)))
        self.targets = kernels.struct(kernels.RESULTS, boxes=begin, **each)


class Boxes:
    """Decoding, thresholds and NMS on the device, and the kept boxes of a batch in host memory.

    Args:
        at: the engine at the batch's input size.
        raw: the model's outputs.
        places: address of the batch's placements.
    """

    def __init__(
        self,
        loaded: Loaded,
        decoding: Decoding,
        at: AtSize,
        raw: Mapping[str, DeviceBuffer],
        places: np.uint64,
        buffers: BoxBuffers,
    ) -> None:
        self._decoding = decoding
        self._counts, self._buffers = buffers.counts, buffers
        self._boxes, self._counts_of_each, self._targets = buffers.boxes, buffers.counts_of_each, buffers.targets
        outputs = {tensor.name: Raw(raw[tensor.name].pointer, tensor.shape, tensor.dtype) for tensor in at.outputs}
        fields = fields_of(at.head, outputs) | {name: buffer.pointer for name, buffer in buffers.scratch.items()}
        self._output = kernels.struct(kernels.OUTPUT, counts=buffers.counts.pointer, **fields)
        self._rows = fields["rows"]
        self._limits = limits_of(at.head, loaded.options.wanted, self._rows, loaded.labels, MOST_CANDIDATES, CAPACITY)
        self._places = places

    def launch(self, size: int, stream: Stream) -> None:
        self._counts.clear(stream)
        (module, name), output, limits = self._decoding, self._output, self._limits
        module.launch(f"collect_{name}", *kernels.collect_grid(self._rows, size), stream, (output, limits))
        arguments = (output, limits, self._places, self._targets)
        module.launch(f"select_{name}", *kernels.select_grid(size), stream, arguments)

    def results(self, count: int) -> list[Detections]:
        """See `Results`. In one copy for the batch, because the next batch writes here again."""
        kept, left_out, implausible = (counts[:count].tolist() for counts in self._counts_of_each)
        rows = self._boxes[:count, : max(kept)].copy()
        boxes, confidences, classes = rows[..., :4], rows[..., 4], rows[..., 5].astype(np.int32)
        return [
            Detections(boxes[i, :found], confidences[i, :found], classes[i, :found], left_out[i], implausible[i] == 0)
            for i, found in enumerate(kept)
        ]
