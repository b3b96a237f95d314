"""One thread's way through the engine: a stream, execution contexts, buffers and CUDA graphs of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from detectors.cuda import CudaError, DeviceBuffer, Event, Graph, Stream
from detectors.detections import Detections
from detectors.heads.layout import Outputs
from detectors.port import DetectorError, Fetch, HostImage, Image, PreparedImage, StageTimes, fetched
from detectors.trt import compat, kernels
from detectors.trt.fetching import Fetcher
from detectors.trt.loaded import Loaded
from detectors.trt.memory_plan import batch_sizes
from detectors.trt.staging import Batch, Boxes, EnqueueStage, H, HostRows, Results


@dataclass(frozen=True)
class _Graphs:
    """One CUDA graph for each stage of a batch size, so that each can be timed."""

    preprocess: Graph
    infer: Graph
    postprocess: Graph


class TrtLane:
    """See `detectors.port.Lane`.

    A batch costs the copies of its host pictures, three graph launches and one wait. A batch is padded to the next size
    with graphs. The constructor allocates everything.

    Each size has its own execution context, because a context that changes its shape invalidates graphs captured from
    it. Only one runs at a time, so all share one memory for activations.

    Args:
        sizes: of batches; None for all sizes of the detector.
    """

    def __init__(self, loaded: Loaded, sizes: Sequence[int] | None = None) -> None:
        self._loaded = loaded
        name = threading.current_thread().name  # the lane's: one thread makes and uses it
        self._ranges = [loaded.ranges.named(f"{name} {stage}") for stage in ("preprocess", "infer", "postprocess")]
        sizes = sizes or (batch_sizes(loaded.max_batch) if loaded.dynamic else [loaded.max_batch])
        with ExitStack() as undo:
            self._undo = undo
            self._stream = self._own_handle(Stream())
            try:
                self._allocate(sizes[-1])
                self._graphs = {size: self._capture(size) for size in sizes}
            except BaseException:
                self._settle()
                raise
            undo.callback(self._stream.synchronize)  # before buffers are released
            self._undo = undo.pop_all()
        self._next = [min(size for size in sizes if size >= count) for count in range(sizes[-1] + 1)]

    def _allocate(self, max_batch: int) -> None:
        """Allocate buffers for batches up to this size."""
        loaded, needs = self._loaded, self._loaded.needs
        self._events = [self._own_handle(Event(timed=True, awaited=last)) for last in (False, False, False, True)]
        self._input = self._own_handle(DeviceBuffer(needs.input(max_batch)))
        self._raw = {tensor.name: self._own_handle(DeviceBuffer(max_batch * tensor.bytes)) for tensor in loaded.outputs}
        self._constants = {name: self._constant(row, max_batch) for name, row in loaded.constants.items()}
        self._activations = self._own_handle(DeviceBuffer(needs.activations))
        self._batch = Batch(max_batch, needs.frame, loaded.head.spec, loaded.copy_pool, self._own_handle)
        self._results = self._make_results(max_batch)
        self._fetcher = self._own_handle(Fetcher(loaded.device, loaded.preprocess))
        self._contexts: dict[int, Any] = {}
        self._undo.callback(self._release_contexts)

    def _constant(self, row: npt.NDArray[Any], max_batch: int) -> DeviceBuffer:
        """An input that is the same for every picture."""
        values = np.repeat(row[None], max_batch, axis=0)
        buffer = self._own_handle(DeviceBuffer(values.nbytes))
        buffer.upload(values, self._stream)
        self._stream.synchronize()
        return buffer

    def _make_results(self, max_batch: int) -> Results:
        loaded = self._loaded
        if loaded.head.name in kernels.HEADS:
            raw = self._raw[loaded.outputs[0].name]
            return Boxes(loaded, max_batch, raw, self._batch.places, self._own_handle)
        return HostRows(loaded, max_batch, self._raw, self._batch.boxes, self._own_handle)

    def detect(self, images: Sequence[Image | PreparedImage]) -> tuple[list[Detections], StageTimes]:
        try:
            return self._detect(images)
        except BaseException:
            self._settle()  # the caller may release the pictures now
            raise

    def _detect(self, images: Sequence[Image | PreparedImage]) -> tuple[list[Detections], StageTimes]:
        pictures = [image for image in images if not isinstance(image, PreparedImage)]
        prepared = [image for image in images if isinstance(image, PreparedImage)]
        size = self._next[len(images)]
        graphs, stream = self._graphs[size], self._stream
        begun, placed, inferred, ended = self._events
        preprocess, infer, postprocess = self._ranges
        begun.record(stream)
        with preprocess:
            if pictures:
                self._batch.fill(pictures, size, stream)
                graphs.preprocess.launch(stream)
            self._add(prepared, len(pictures))
        placed.record(stream)
        with infer:
            graphs.infer.launch(stream)
        inferred.record(stream)
        with postprocess:
            graphs.postprocess.launch(stream)
        ended.record(stream)
        ended.synchronize()
        times = [
            round(later.milliseconds_since(earlier) * 1e6)
            for earlier, later in ((begun, placed), (placed, inferred), (inferred, ended))
        ]
        self._fetcher.release_done()
        found = self._results.results(len(images))
        return _in_order(images, found, len(pictures)) if prepared else found, StageTimes(*times)

    def _add(self, prepared: Sequence[PreparedImage], number: int) -> None:
        """Enqueue the copies of what a cutter has prepared to the inputs from this number on."""
        for event in {image.ready for image in prepared}:
            self._stream.wait(event)
        size = self._loaded.needs.input(1)
        for image in prepared:
            self._batch.boxes[number] = image.place
            self._stream.copy(self._input.pointer + number * size, image.pointer, size)
            number += 1

    def raw(self, image: Image) -> Outputs:
        """The model's outputs for one picture, without the batch dimension; slow, for checks of the model."""
        size = self._next[1]
        outputs = {tensor.name: np.empty(tensor.shape, tensor.dtype) for tensor in self._loaded.outputs}
        self._batch.fill([image], size, self._stream)
        self._graphs[size].preprocess.launch(self._stream)
        self._graphs[size].infer.launch(self._stream)
        for name, values in outputs.items():
            self._raw[name].download(values, self._stream)
        self._stream.synchronize()
        return {name: values.astype(np.float32) for name, values in outputs.items()}

    def replay(self, size: int, times: int) -> float:
        """Seconds for replays of the engine's graph alone: a lower bound for `detect`.

        Args:
            size: a batch size with a graph of its own.
        """
        graph = self._graphs[size].infer
        self._stream.synchronize()
        begun = perf_counter()
        for _ in range(times):
            graph.launch(self._stream)
        self._stream.synchronize()
        return perf_counter() - begun

    def fetch(self, image: Image) -> Fetch:
        return fetched(image) if isinstance(image, HostImage) else self._fetcher.fetch(image)

    def close(self) -> None:
        self._undo.close()

    def _own_handle(self, handle: H) -> H:
        self._undo.callback(handle.close)
        return handle

    def _settle(self) -> None:
        """After a failure, wait for enqueued work before its buffers are released."""
        with suppress(CudaError):
            self._stream.synchronize()

    def _capture(self, size: int) -> _Graphs:
        """Make the graphs of one batch size."""
        self._make_context(size)
        self._batch.fill([HostImage(np.zeros((1, 1, 3), np.uint8))], size, self._stream)
        return _Graphs(
            *(self._captured(stage, size) for stage in (self._preprocess, self._infer, self._results.launch))
        )

    def _release_contexts(self) -> None:
        self._contexts = {}

    def _make_context(self, size: int) -> None:
        """Keep the context only in `_contexts`: a traceback must not keep it longer than its engine."""
        loaded, spec = self._loaded, self._loaded.head.spec
        self._contexts[size] = loaded.make_context()
        if self._contexts[size] is None:
            raise DetectorError("no memory for another execution context: fewer lanes, or a smaller max_batch")
        compat.give_memory(self._contexts[size], self._activations.pointer, self._activations.size)
        taken = self._contexts[size].set_input_shape(loaded.input, (size, 3, spec.height, spec.width))
        for name, row in loaded.constants.items():
            taken = taken and self._contexts[size].set_input_shape(name, (size, *row.shape))
        for name, buffer in ({loaded.input: self._input} | self._constants | self._raw).items():
            taken = taken and self._contexts[size].set_tensor_address(name, buffer.pointer)
        if not taken:
            raise DetectorError(f"TensorRT refuses batches of {size}: see the log above")

    def _captured(self, stage: EnqueueStage, size: int) -> Graph:
        """A stage as a graph. It runs once before the capture, for TensorRT's lazy work, and once after it, so that the
        first batch is as fast as all others."""
        stage(size, self._stream)
        self._stream.synchronize()
        with self._stream.capture() as captured:
            stage(size, self._stream)
        graph = self._own_handle(captured[0])
        graph.launch(self._stream)
        self._stream.synchronize()
        return graph

    def _preprocess(self, size: int, stream: Stream) -> None:
        spec = self._loaded.head.spec
        arguments = (self._batch.pictures, np.uint64(self._input.pointer), *kernels.preprocess_constants(spec))
        name = "preprocess_f16" if self._loaded.needs.half else "preprocess_f32"
        self._loaded.preprocess.launch(name, *kernels.preprocess_grid(spec, size), stream, arguments)

    def _infer(self, size: int, stream: Stream) -> None:
        if not self._contexts[size].execute_async_v3(stream.handle):
            raise DetectorError(f"TensorRT failed on a batch of {size}: see the log above")


def _in_order(images: Sequence[Image | PreparedImage], found: Sequence[Detections], pictures: int) -> list[Detections]:
    """The results in the order of the images, from those of all pictures and then of all that was prepared."""
    own, other = iter(found[:pictures]), iter(found[pictures:])
    return [next(other) if isinstance(image, PreparedImage) else next(own) for image in images]
