"""One thread's way through the engine: a stream, execution contexts, buffers and CUDA graphs of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from time import perf_counter

import numpy as np

from detectors.cuda import CudaError, Event, Stream
from detectors.detections import Detections
from detectors.heads.layout import Outputs
from detectors.port import (
    DetectorError,
    Fetch,
    HostImage,
    Image,
    PostprocessParams,
    PreparedImage,
    Size,
    StageTimes,
    fetched,
)
from detectors.trt.fetching import Fetcher
from detectors.trt.loaded import Loaded
from detectors.trt.memory_plan import batch_sizes
from detectors.trt.sized import Buffers, SizedGraphs
from detectors.trt.staging import H


class TrtLane:
    """See `detectors.port.SizedLane`.

    A batch costs the copies of its host pictures, three graph launches and one wait. A batch is padded to the next size
    with graphs. The constructor allocates everything.

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
                self._allocate(sizes)
            except BaseException:
                self._settle()
                raise
            undo.callback(self._stream.synchronize)  # before buffers are released
            self._undo = undo.pop_all()
        self._next = [min(size for size in sizes if size >= count) for count in range(sizes[-1] + 1)]

    def _allocate(self, sizes: Sequence[int]) -> None:
        """Allocate everything for batches of these sizes."""
        loaded, stream, own = self._loaded, self._stream, self._own_handle
        self._events = [own(Event(timed=True, awaited=last)) for last in (False, False, False, True)]
        self._buffers = Buffers(loaded, sizes, own)
        self._batch = self._buffers.batch
        self._fetcher = own(Fetcher(loaded.device, loaded.preprocess))
        made = [SizedGraphs(loaded, at, self._buffers, stream, own) for at in loaded.sizes]
        self._own = made[0]
        self._further = {sized.at.size: TrtLaneAt(self, sized) for sized in made[1:]}

    def at(self, size: Size) -> TrtLane | TrtLaneAt:
        """See `detectors.port.SizedLane`."""
        if size == self._own.at.size:
            return self
        if size not in self._further:
            raise DetectorError(f"the model is not open at {size[0]}x{size[1]}")
        return self._further[size]

    def detect(self, images: Sequence[Image | PreparedImage]) -> tuple[list[Detections], StageTimes]:
        return self.detect_at(self._own, images)

    def detect_at(
        self, sized: SizedGraphs, images: Sequence[Image | PreparedImage]
    ) -> tuple[list[Detections], StageTimes]:
        """`detect` at an input size."""
        try:
            return self._detect(sized, images)
        except BaseException:
            self._settle()  # the caller may release the pictures now
            raise

    def _detect(
        self, sized: SizedGraphs, images: Sequence[Image | PreparedImage]
    ) -> tuple[list[Detections], StageTimes]:
        pictures = [image for image in images if not isinstance(image, PreparedImage)]
        prepared = [image for image in images if isinstance(image, PreparedImage)]
        size = self._next[len(images)]
        graphs, stream = sized.graphs[size], self._stream
        begun, placed, inferred, ended = self._events
        preprocess, infer, postprocess = self._ranges
        begun.record(stream)
        with preprocess:
            if pictures:
                self._batch.fill(pictures, size, sized.spec, stream)
                graphs.preprocess.launch(stream)
            self._add(prepared, len(pictures), sized.input_bytes)
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
        found = sized.results.results(len(images))
        return _in_order(images, found, len(pictures)) if prepared else found, StageTimes(*times)

    def _add(self, prepared: Sequence[PreparedImage], number: int, size: int) -> None:
        """Enqueue the copies of what a cutter has prepared to the inputs from this number on.

        Args:
            size: bytes of an input.
        """
        for event in {image.ready for image in prepared}:
            self._stream.wait(event)
        for image in prepared:
            self._batch.boxes[number] = image.place
            self._stream.copy(self._buffers.input.pointer + number * size, image.pointer, size)
            number += 1

    def raw(self, image: Image) -> Outputs:
        """The model's outputs for one picture, without the batch dimension; slow, for checks of the model."""
        return self.raw_at(self._own, image)

    def raw_at(self, sized: SizedGraphs, image: Image) -> Outputs:
        """`raw` at an input size."""
        return {name: values[0] for name, values in self.raw_batch_at(sized, [image]).items()}

    def raw_batch(self, images: Sequence[Image]) -> Outputs:
        """The model's outputs for a batch, likewise."""
        return self.raw_batch_at(self._own, images)

    def raw_batch_at(self, sized: SizedGraphs, images: Sequence[Image]) -> Outputs:
        """`raw_batch` at an input size."""
        size, count = self._next[len(images)], len(images)
        graphs = sized.graphs[size]
        outputs = {tensor.name: np.empty((count, *tensor.shape), tensor.dtype) for tensor in sized.at.outputs}
        self._batch.fill(images, size, sized.spec, self._stream)
        graphs.preprocess.launch(self._stream)
        graphs.infer.launch(self._stream)
        for name, values in outputs.items():
            self._buffers.raw[name].download(values, self._stream)
        self._stream.synchronize()
        return {name: values.astype(np.float32) for name, values in outputs.items()}

    def decoded(self, image: Image, wanted: PostprocessParams) -> tuple[Detections, Detections]:
        """Boxes of one picture by the kernels, and by the reference from the same raw outputs; for checks."""
        return self.decoded_at(self._own, image, wanted)

    def decoded_at(self, sized: SizedGraphs, image: Image, wanted: PostprocessParams) -> tuple[Detections, Detections]:
        """`decoded` at an input size."""
        raw = self.raw_at(sized, image)  # the outputs stay on the device
        results = self._buffers.results(sized.at, wanted)
        results.launch(self._next[1], self._stream)
        self._stream.synchronize()
        outputs = {name: values[None] for name, values in raw.items()}
        return results.results(1)[0], sized.at.head.batch_detections(outputs, self._batch.boxes[:1], wanted)[0]

    def replay(self, size: int, times: int) -> float:
        """Seconds for replays of the engine's graph alone: a lower bound for `detect`.

        Args:
            size: a batch size with a graph of its own.
        """
        graph = self._own.graphs[size].infer
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


class TrtLaneAt:
    """A lane at a further input size; see `detectors.port.SizedLane`."""

    def __init__(self, lane: TrtLane, sized: SizedGraphs) -> None:
        self._lane, self._sized = lane, sized

    def detect(self, images: Sequence[Image | PreparedImage]) -> tuple[list[Detections], StageTimes]:
        return self._lane.detect_at(self._sized, images)

    def raw(self, image: Image) -> Outputs:
        """See `TrtLane.raw`."""
        return self._lane.raw_at(self._sized, image)

    def raw_batch(self, images: Sequence[Image]) -> Outputs:
        """See `TrtLane.raw_batch`."""
        return self._lane.raw_batch_at(self._sized, images)

    def decoded(self, image: Image, wanted: PostprocessParams) -> tuple[Detections, Detections]:
        """See `TrtLane.decoded`."""
        return self._lane.decoded_at(self._sized, image, wanted)

    def fetch(self, image: Image) -> Fetch:
        return self._lane.fetch(image)

    def close(self) -> None:
        """The lane itself releases everything."""


def _in_order(images: Sequence[Image | PreparedImage], found: Sequence[Detections], pictures: int) -> list[Detections]:
    """The results in the order of the images, from those of all pictures and then of all that was prepared."""
    own, other = iter(found[:pictures]), iter(found[pictures:])
    return [next(other) if isinstance(image, PreparedImage) else next(own) for image in images]
