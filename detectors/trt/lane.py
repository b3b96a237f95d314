"""One thread's way through the engine: a stream, execution contexts, buffers and CUDA graphs of its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from detectors.cuda import CudaError, Device, DeviceBuffer, Event, Graph, Module, Stream
from detectors.detections import Detections
from detectors.heads import Floats, Head
from detectors.port import DetectorError, Fetch, HostImage, Image, Options, StageTimes, at_hand
from detectors.trt import compat, kernels
from detectors.trt.fetching import Fetcher
from detectors.trt.memory import Needs, batch_sizes
from detectors.trt.staging import Batch, Boxes, H, HostCopyPool, Stage


class Loaded(Protocol):
    """What lanes share of an engine that is loaded; `detectors.trt.detector.TrtDetector` is one.

    Attributes:
        labels: how many the model has.
        input, output: names of the engine's tensors.
        output_shape: without the batch.
        dynamic: batches of all sizes up to `max_batch`; otherwise of that one.
        preprocess, postprocess: kernels.
    """

    device: Device
    options: Options
    head: Head
    labels: int
    needs: Needs
    copiers: HostCopyPool
    preprocess: Module
    postprocess: Module
    input: str
    output: str
    output_shape: tuple[int, ...]
    max_batch: int
    dynamic: bool

    def make_context(self) -> Any: ...


@dataclass(frozen=True)
class _Graphs:
    """The stages of one batch size, each a graph, so that each can be timed."""

    preprocess: Graph
    infer: Graph
    postprocess: Graph


class TrtLane:
    """See `detectors.port.Lane`.

    A batch costs the copies of its host pictures, three graph launches and one wait. Sizes without graphs of their own
    are padded to the next that has them. Everything is allocated here.

    Each size has an execution context of its own, because a context whose shape changes invalidates what was captured
    from it. One runs at a time, so that all share one memory for activations.

    Args:
        sizes: of batches; None for all that the detector may take.
    """

    def __init__(self, loaded: Loaded, sizes: Sequence[int] | None = None) -> None:
        self._loaded = loaded
        sizes = sizes or (batch_sizes(loaded.max_batch) if loaded.dynamic else [loaded.max_batch])
        with ExitStack() as undo:
            self._undo = undo
            self._stream = self._keep(Stream())
            try:
                self._allocate(sizes[-1])
                self._graphs = {size: self._capture(size) for size in sizes}
            except BaseException:
                self._settle()
                raise
            undo.callback(self._stream.synchronize)  # before anything is released
            self._undo = undo.pop_all()
        self._next = [min(size for size in sizes if size >= count) for count in range(sizes[-1] + 1)]

    def _allocate(self, most: int) -> None:
        """For batches of up to so many."""
        loaded, needs = self._loaded, self._loaded.needs
        self._events = [self._keep(Event(timed=True, awaited=last)) for last in (False, False, False, True)]
        self._input = self._keep(DeviceBuffer(needs.input(most)))
        self._raw = self._keep(DeviceBuffer(needs.output(most)))
        self._activations = self._keep(DeviceBuffer(needs.activations))
        self._batch = Batch(most, needs.frame, loaded.head.spec, loaded.copiers, self._keep)
        self._boxes = Boxes(
            loaded.postprocess,
            loaded.head,
            loaded.labels,
            loaded.output_shape,
            loaded.options.wanted,
            most,
            self._raw,
            self._batch.places,
            self._keep,
        )
        self._fetcher = self._keep(Fetcher(loaded.device, loaded.preprocess))
        self._contexts: dict[int, Any] = {}
        self._undo.callback(self._release_contexts)

    def detect(self, images: Sequence[Image]) -> tuple[list[Detections], StageTimes]:
        try:
            return self._detect(images)
        except BaseException:
            self._settle()  # whoever has the pictures may release them now
            raise

    def _detect(self, images: Sequence[Image]) -> tuple[list[Detections], StageTimes]:
        size = self._next[len(images)]
        graphs, stream = self._graphs[size], self._stream
        begun, placed, inferred, ended = self._events
        begun.record(stream)
        self._batch.fill(images, size, stream)
        graphs.preprocess.launch(stream)
        placed.record(stream)
        graphs.infer.launch(stream)
        inferred.record(stream)
        graphs.postprocess.launch(stream)
        ended.record(stream)
        ended.synchronize()
        times = [
            round(later.milliseconds_since(earlier) * 1e6)
            for earlier, later in ((begun, placed), (placed, inferred), (inferred, ended))
        ]
        self._fetcher.let_go()
        return self._boxes.results(len(images)), StageTimes(*times)

    def raw(self, image: Image) -> Floats:
        """What the model gives for one picture, without the batch dimension; slow, for a look at the model."""
        size = self._next[1]
        output = np.empty(self._loaded.output_shape, np.float32)
        self._batch.fill([image], size, self._stream)
        self._graphs[size].preprocess.launch(self._stream)
        self._graphs[size].infer.launch(self._stream)
        self._raw.download(output, self._stream)
        self._stream.synchronize()
        return output

    def replay(self, size: int, times: int) -> float:
        """Seconds for so many replays of the engine's graph alone: what `detect` can never be faster than.

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
        return at_hand(image) if isinstance(image, HostImage) else self._fetcher.fetch(image)

    def close(self) -> None:
        self._undo.close()

    def _keep(self, handle: H) -> H:
        self._undo.callback(handle.close)
        return handle

    def _settle(self) -> None:
        """After a failure, before anything is released that what is enqueued would use."""
        with suppress(CudaError):
            self._stream.synchronize()

    def _capture(self, size: int) -> _Graphs:
        """After a run that lets TensorRT do its lazy work."""
        self._make_context(size)
        self._batch.fill([HostImage(np.zeros((1, 1, 3), np.uint8))], size, self._stream)
        return _Graphs(*(self._captured(stage, size) for stage in (self._preprocess, self._infer, self._boxes.launch)))

    def _release_contexts(self) -> None:
        self._contexts = {}

    def _make_context(self, size: int) -> None:
        """In `_contexts` alone: an error's traceback must not keep it beyond what it was made from."""
        loaded, spec = self._loaded, self._loaded.head.spec
        self._contexts[size] = loaded.make_context()
        if self._contexts[size] is None:
            raise DetectorError("no memory for another execution context: fewer lanes, or a smaller max_batch")
        compat.give_memory(self._contexts[size], self._activations.pointer, self._activations.size)
        taken = self._contexts[size].set_input_shape(loaded.input, (size, 3, spec.height, spec.width))
        for name, buffer in ((loaded.input, self._input), (loaded.output, self._raw)):
            taken = taken and self._contexts[size].set_tensor_address(name, buffer.pointer)
        if not taken:
            raise DetectorError(f"TensorRT refuses batches of {size}: see the log above")

    def _captured(self, stage: Stage, size: int) -> Graph:
        """Launched once, so that the first batch of this size is as fast as all others."""
        stage(size, self._stream)
        self._stream.synchronize()
        with self._stream.capture() as captured:
            stage(size, self._stream)
        graph = self._keep(captured[0])
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
