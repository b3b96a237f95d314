"""A lane at one input size: its execution contexts and its CUDA graphs. The buffers belong to the lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from detectors.cuda import DeviceBuffer, Graph, PinnedBuffer, Stream
from detectors.port import DetectorError, HostImage, PostprocessParams
from detectors.trt import compat, kernels
from detectors.trt.loaded import AtSize, Loaded
from detectors.trt.results import BoxBuffers, Boxes, EnqueueStage, HostRows, Results, WithExtras, WithMasks
from detectors.trt.staging import Batch, Own

_KINDS: Mapping[str, type[Boxes]] = {"pose": WithExtras, "obb": WithExtras, "segment": WithMasks}


class Buffers:
    """Buffers of a lane, for batches of every input size. One batch is in flight, so all sizes share them.

    Args:
        sizes: of batches, ascending.

    Attributes:
        input, raw: of the engine, as large as the largest size needs.
        activations: of all execution contexts.
        batch: the description of a batch.
    """

    def __init__(self, loaded: Loaded, sizes: Sequence[int], own: Own) -> None:
        needs, max_batch = loaded.needs, sizes[-1]
        self.sizes, self.max_batch = sizes, max_batch
        self.input = own(DeviceBuffer(needs.input(max_batch)))
        self._bytes = bytes_of_outputs(loaded.sizes)
        self.raw = {name: own(DeviceBuffer(max_batch * size)) for name, size in self._bytes.items()}
        self.activations = own(DeviceBuffer(needs.activations))
        self.batch = Batch(max_batch, needs.frame, loaded.head.spec, loaded.copy_pool, own)
        self._make_results(loaded, own)

    def _make_results(self, loaded: Loaded, own: Own) -> None:
        self._boxes: BoxBuffers | None = None
        self._hosts: Mapping[str, PinnedBuffer] = {}
        if loaded.decoding:
            self._boxes = BoxBuffers(loaded, loaded.decoding, self.max_batch, own)
        else:
            self._hosts = {name: own(PinnedBuffer(self.max_batch * size)) for name, size in self._bytes.items()}

    def results(self, at: AtSize, wanted: PostprocessParams) -> Results:
        """The results of batches of one size.

        Args:
            wanted: with the `max_detections` of the options.
        """
        if self._boxes:
            return _KINDS.get(at.head.task, Boxes)(at, wanted, self.raw, self.batch, self._boxes)
        return HostRows(at, wanted, self.raw, self._hosts, self.batch.boxes)


def bytes_of_outputs(sizes: Sequence[AtSize]) -> dict[str, int]:
    """The largest number of bytes of each output per picture."""
    found: dict[str, int] = {}
    for at in sizes:
        for tensor in at.outputs:
            found[tensor.name] = max(found.get(tensor.name, 0), tensor.bytes)
    return found


@dataclass(frozen=True)
class Graphs:
    """One CUDA graph for each stage of a batch size, so that each can be timed."""

    preprocess: Graph
    infer: Graph
    postprocess: Graph


class SizedGraphs:
    """Contexts and graphs of one input size.

    Each batch size has its own execution context, because a context that changes its shape invalidates graphs captured
    from it. Only one runs at a time, so all share one memory for activations.

    Attributes:
        at: the engine at this size.
        graphs: of each batch size.
        results: of a batch.
        input_bytes: of one picture.
    """

    def __init__(self, loaded: Loaded, at: AtSize, buffers: Buffers, stream: Stream, own: Own) -> None:
        self.at, self.spec = at, at.head.spec
        self._loaded, self._buffers, self._stream, self._own = loaded, buffers, stream, own
        self.results = buffers.results(at, loaded.options.wanted)
        self.input_bytes = 3 * self.spec.width * self.spec.height * (2 if loaded.needs.half else 4)
        self._contexts: dict[int, Any] = {}
        own(self)
        self._constants = {name: self._constant(row) for name, row in at.constants.items()}
        self.graphs = {size: self._capture(size) for size in buffers.sizes}

    def close(self) -> None:
        """Release the contexts, after the lane has released the graphs."""
        self._contexts = {}

    def _constant(self, row: npt.NDArray[Any]) -> DeviceBuffer:
        """An input that is the same for every picture."""
        values = np.repeat(row[None], self._buffers.max_batch, axis=0)
        buffer = self._own(DeviceBuffer(values.nbytes))
        buffer.upload(values, self._stream)
        self._stream.synchronize()
        return buffer

    def _capture(self, size: int) -> Graphs:
        """Make the graphs of one batch size."""
        self._make_context(size)
        self._buffers.batch.fill([HostImage(np.zeros((1, 1, 3), np.uint8))], size, self.spec, self._stream)
        stages = (self._preprocess, self._infer, self.results.launch)
        return Graphs(*(self._captured(stage, size) for stage in stages))

    def _make_context(self, size: int) -> None:
        """Keep the context only in `_contexts`: a traceback must not keep it longer than its engine."""
        loaded, spec, buffers = self._loaded, self.spec, self._buffers
        self._contexts[size] = loaded.make_context()
        if self._contexts[size] is None:
            raise DetectorError("no memory for another execution context: fewer lanes, or a smaller max_batch")
        taken = compat.use_profile(self._contexts[size], self.at.profile, self._stream.handle)
        compat.give_memory(self._contexts[size], buffers.activations.pointer, buffers.activations.size)
        taken = taken and self._contexts[size].set_input_shape(loaded.input, (size, 3, spec.height, spec.width))
        for name, row in self.at.constants.items():
            taken = taken and self._contexts[size].set_input_shape(name, (size, *row.shape))
        for name, buffer in ({loaded.input: buffers.input} | self._constants | buffers.raw).items():
            taken = taken and self._contexts[size].set_tensor_address(name, buffer.pointer)
        if not taken:
            at = f" at {spec.width}x{spec.height}" if self.at.profile else ""
            raise DetectorError(f"TensorRT refuses batches of {size}{at}: see the log above")

    def _captured(self, stage: EnqueueStage, size: int) -> Graph:
        """A stage as a graph. It runs once before the capture, for TensorRT's lazy work, and once after it, so that the
        first batch is as fast as all others."""
        stage(size, self._stream)
        self._stream.synchronize()
        if not compat.can_capture(self._contexts[size], self._stream.handle):
            raise DetectorError("TensorRT cannot run this model in a CUDA graph: see the log above")
        with self._stream.capture() as captured:
            stage(size, self._stream)
        graph = self._own(captured[0])
        graph.launch(self._stream)
        self._stream.synchronize()
        return graph

    def _preprocess(self, size: int, stream: Stream) -> None:
        arguments = (
            self._buffers.batch.pictures,
            np.uint64(self._buffers.input.pointer),
            *kernels.preprocess_constants(self.spec),
        )
        name = "preprocess_f16" if self._loaded.needs.half else "preprocess_f32"
        self._loaded.preprocess.launch(name, *kernels.preprocess_grid(self.spec, size), stream, arguments)

    def _infer(self, size: int, stream: Stream) -> None:
        if not self._contexts[size].execute_async_v3(stream.handle):
            raise DetectorError(f"TensorRT failed on a batch of {size}: see the log above")
