"""One thread's way through the engine: a stream, an execution context, buffers and CUDA graphs of its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from detectors.cuda import DeviceBuffer, Event, Graph, Stream
from detectors.detections import Detections
from detectors.port import DetectorError, HostImage, Image, StageTimes
from detectors.trt import kernels
from detectors.trt.memory import batch_sizes
from detectors.trt.staging import Batch, Boxes, H, Stage

if TYPE_CHECKING:
    from detectors.trt.detector import TrtDetector


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
    """

    def __init__(self, detector: TrtDetector) -> None:
        self._detector = detector
        head, most, needs = detector.head, detector.info.max_batch, detector.needs
        with ExitStack() as undo:
            self._undo = undo
            self._stream = self._keep(Stream())
            self._events = [self._keep(Event(timed=True, awaited=last)) for last in (False, False, False, True)]
            self._input = self._keep(DeviceBuffer(needs.input(most)))
            self._raw = self._keep(DeviceBuffer(needs.output(most)))
            self._batch = Batch(most, needs.frame, head.spec, detector.copiers, self._keep)
            self._boxes = Boxes(
                detector.postprocess,
                head,
                detector.output_shape,
                detector.options.wanted,
                most,
                self._raw,
                self._batch.places,
                self._keep,
            )
            self._context: Any = detector.engine.create_execution_context()
            if self._context is None:
                raise DetectorError("no memory for another execution context: fewer lanes, or a smaller max_batch")
            self._context.set_tensor_address(detector.input, self._input.pointer)
            self._context.set_tensor_address(detector.output, self._raw.pointer)
            sizes = batch_sizes(most) if detector.dynamic else [most]
            self._graphs = {size: self._capture(size) for size in sizes}
            self._next = [min(size for size in sizes if size >= count) for count in range(most + 1)]
            self._undo = undo.pop_all()

    def detect(self, images: Sequence[Image]) -> tuple[list[Detections], StageTimes]:
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
        return self._boxes.results(len(images)), StageTimes(*times)

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

    def fetch(self, image: Image) -> HostImage:
        if isinstance(image, HostImage):
            return image
        if image.ready:
            self._stream.wait(image.ready)
        width, height = (image.height, image.width) if image.turns % 2 else (image.width, image.height)
        luma, chroma = image.pitch * height, image.pitch * ((height + 1) // 2)
        planes = np.empty((luma + chroma) // image.pitch * image.pitch, np.uint8).reshape(-1, image.pitch)
        with closing(DeviceBuffer(planes.nbytes)) as both:
            self._stream.copy(both.pointer, image.luma, luma)
            self._stream.copy(both.pointer + luma, image.chroma, chroma)
            both.download(planes, self._stream)
            self._stream.synchronize()
        rows = np.ascontiguousarray(planes[: height // 2 * 3, : width // 2 * 2])
        bgr = np.rot90(cv2.cvtColor(rows, cv2.COLOR_YUV2BGR_NV12), -image.turns)
        return HostImage(np.ascontiguousarray(bgr, np.uint8))

    def close(self) -> None:
        self._context = None
        self._undo.close()

    def _keep(self, handle: H) -> H:
        self._undo.callback(handle.close)
        return handle

    def _capture(self, size: int) -> _Graphs:
        """After a run that lets TensorRT do its lazy work."""
        spec = self._detector.head.spec
        self._context.set_input_shape(self._detector.input, (size, 3, spec.height, spec.width))
        self._batch.fill([HostImage(np.zeros((1, 1, 3), np.uint8))], size, self._stream)
        return _Graphs(*(self._captured(stage, size) for stage in (self._preprocess, self._infer, self._boxes.launch)))

    def _captured(self, stage: Stage, size: int) -> Graph:
        stage(size, self._stream)
        self._stream.synchronize()
        with self._stream.capture() as captured:
            stage(size, self._stream)
        return self._keep(captured[0])

    def _preprocess(self, size: int, stream: Stream) -> None:
        spec = self._detector.head.spec
        arguments = (self._batch.pictures, np.uint64(self._input.pointer), *kernels.preprocess_constants(spec))
        name = "preprocess_f16" if self._detector.needs.half else "preprocess_f32"
        self._detector.preprocess.launch(name, *kernels.preprocess_grid(spec, size), stream, arguments)

    def _infer(self, size: int, stream: Stream) -> None:
        if not self._context.execute_async_v3(stream.handle):
            raise DetectorError(f"TensorRT failed on a batch of {size}: see the log above")
