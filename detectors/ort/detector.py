"""YOLO through onnxruntime: on the CPU, or on what another of its providers runs on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from detectors.detections import Detections
from detectors.heads.layout import Head, ModelFacts, Outputs
from detectors.heads.recognise import recognise_at
from detectors.host_input import HostCutter, HostInput
from detectors.letterbox import preprocess
from detectors.model import digest_of, fixed_batch, input_sizes, quantised, read, within_nms
from detectors.onnx_graph import graph_of
from detectors.opening import open_heads
from detectors.ort import CPU_PROVIDER, Placement, first_line
from detectors.port import (
    DetectorError,
    Fetch,
    HostImage,
    Image,
    ModelInfo,
    Options,
    PreparedImage,
    Size,
    StageTimes,
    fetched,
    on_host,
)

_DTYPES: dict[str, np.dtype[Any]] = {"tensor(float)": np.dtype(np.float32), "tensor(float16)": np.dtype(np.float16)}

_FEW_CORES = 4
_BATCHES = (1, 2, 4, 8)  # that may be fixed inside of a model
_OUTPUTS = {f"tensor({kind})" for kind in ("float", "float16", "double", "int64", "int32", "uint8", "int8", "bool")}


class OrtDetector:
    """An ONNX model in one onnxruntime session, which is thread-safe and shared by the lanes.

    Raises:
        DetectorError: Lookout cannot run the file.
    """

    def __init__(self, options: Options) -> None:
        content = read(options.path)
        digest = digest_of(options.path, content)
        session, placed = _session(options)
        metadata = session.get_modelmeta().custom_metadata_map
        self._graph = graph_of(content)
        options, limit = within_nms(options, metadata, self._graph)
        self._options = options
        self._session: ort.InferenceSession | None = session
        image = self._image_input(session.get_inputs())
        self.input = image.name
        self.dtype: np.dtype[Any] = _DTYPES[image.type]
        self.fixed_batch = image.shape[0] if isinstance(image.shape[0], int) else None
        notes = (*fixed_batch(self.fixed_batch, options), *limit)
        self._outputs = [node.name for node in session.get_outputs()]
        for node in session.get_outputs():
            if node.type not in _OUTPUTS:
                raise DetectorError(
                    f"{options.path}: the output {node.name} is {node.type}, and Lookout reads tensors of numbers"
                )
        integers = quantised(content, metadata)
        own = integers or ("fp16" if self.dtype == np.float16 else "fp32")
        precision = placed.precision(own, options.precision)
        if precision is None:
            raise DetectorError(
                f"{options.path} is {own}, and the {placed.device} does not convert: set model.precision: auto"
            )
        sizes = input_sizes(image.shape, metadata, options)
        batch = self.fixed_batch or options.max_batch
        try:
            first = self._head(sizes[0], batch, None)
            heads = (first, *(self._head(size, batch, first) for size in sizes[1:]))
            opened = open_heads(heads, self._raw, options, metadata, own, batch)
            if placed.nodes and not self.fixed_batch:
                self._prepare(heads, batch)
        except DetectorError as error:
            raise DetectorError(f"{options.path}: {error}") from error
        self.head = opened.heads[0]
        self.heads = dict(zip(sizes[1:], opened.heads[1:]))
        self.info = ModelInfo(
            name=options.path.stem,
            digest=digest[:12],
            precision=precision,
            backend=placed.provider,
            head=self.head.name,
            input_size=sizes[0],
            further_sizes=sizes[1:],
            labels=opened.labels,
            max_batch=batch,
            notes=(
                *opened.notes,
                *notes,
                *placed.notes,
                *(_accuracy(options.path, integers, digest) if integers else ()),
            ),
            lanes=options.lanes,
            facts=opened.facts,
            device=placed.device if placed.nodes else "",
            nodes=placed.nodes,
        )

    def _head(self, size: Size, batch: int, own: Head | None) -> Head:
        """The head at an input size.

        A run with zeros shows the output shapes where they are symbolic, and warms the session up. It has a full batch,
        so that memory does not grow under load.

        Args:
            own: see `recognise_at`.
        """
        session = self._opened()
        further = [node.name for node in session.get_inputs() if node.name != self.input]
        probe = self._probe(size, batch, {name: np.array(size, np.int64) for name in further})
        shapes = [(name, tuple(array.shape)) for name, array in probe.items()]
        metadata = session.get_modelmeta().custom_metadata_map
        facts = ModelFacts(shapes, size, metadata, further, batch, self._graph)
        return recognise_at(facts, self._options, own)

    def _probe(
        self, size: Size, batch: int, constants: Mapping[str, npt.NDArray[np.int64]]
    ) -> dict[str, npt.NDArray[np.float32]]:
        """The outputs for zeros.

        Raises:
            DetectorError: the model does not run, or not with a batch.
        """

        def zeros(count: int) -> npt.NDArray[Any]:
            return np.zeros((count, 3, size[1], size[0]), self.dtype)

        try:
            return self.run(zeros(batch), constants)
        except DetectorError as error:
            if self.fixed_batch:
                raise
            found = next((count for count in _BATCHES if count != batch and self._runs(zeros(count), constants)), None)
            if found is None:
                raise
            pictures, remedy = f"{found} pictures", "Export"
            if found == 1:
                pictures, remedy = "one picture", "Set model.max_batch: 1, or export"
            raise DetectorError(
                f"the model runs with {pictures}, and not with {batch}: a batch of {found} is fixed inside, such as in "
                f"a Reshape. {remedy} it with a dynamic batch (dynamic=True)"
            ) from error

    def _prepare(self, heads: Sequence[Head], batch: int) -> None:
        """Run each number of pictures once: providers prepare for a shape when it first comes, in up to a second."""
        for head in heads:
            for count in range(1, batch):
                self.run(np.zeros((count, 3, head.spec.height, head.spec.width), self.dtype), head.constants)

    def _runs(self, pictures: npt.NDArray[Any], constants: Mapping[str, npt.NDArray[np.int64]]) -> bool:
        try:
            self.run(pictures, constants)
        except DetectorError:
            return False
        return True

    def _opened(self) -> ort.InferenceSession:
        if self._session is None:
            raise DetectorError(f"{self._options.path} is closed")
        return self._session

    def _image_input(self, inputs: Sequence[ort.NodeArg]) -> ort.NodeArg:
        """The input for pictures."""
        images = [node for node in inputs if len(node.shape) == 4 and node.type in _DTYPES and node.shape[1] == 3]
        others = [node for node in inputs if node not in images]
        if len(images) != 1 or not all(map(_is_size, others)):
            from detectors.heads.refusals import Input, likely_of_inputs

            seen = ", ".join(f"{node.name} {node.type} {node.shape}" for node in inputs) or "none"
            rows = [Input(node.name, node.type, _numbers(node.shape)) for node in inputs]
            raise DetectorError(
                f"{self._options.path}: needs one float input of (batch, 3, height, width), but has {seen}"
                f"{likely_of_inputs(rows)}"
            )
        return images[0]

    def lane(self) -> OrtLane:
        cv2.setNumThreads(1)  # decoders and onnxruntime use all cores; OpenCV's threads would spin beside them
        return OrtLane(self, self._options)

    def run(
        self, batch: npt.NDArray[Any], constants: Mapping[str, npt.NDArray[np.int64]] | None = None
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Raw outputs by name for (b, 3, height, width); releases the GIL while computing.

        Args:
            constants: further inputs, a row each; None for those of the model's own size.
        """
        session = self._opened()
        rows = self.head.constants if constants is None else constants
        feeds = {name: np.repeat(row[None], len(batch), axis=0) for name, row in rows.items()}
        try:
            outputs = session.run(None, {self.input: batch, **feeds})
        except Exception as error:  # onnxruntime's own exceptions have no public base class
            size = "x".join(map(str, batch.shape[:1:-1]))
            raise DetectorError(f"onnxruntime failed on {self._options.path} at {size}: {first_line(error)}") from error
        return {name: np.asarray(array, np.float32) for name, array in zip(self._outputs, outputs)}

    def _raw(self, head: Head, pictures: Sequence[HostImage]) -> Outputs:
        """Raw outputs of one or two pictures."""
        planes = [preprocess(picture.bgr, head.spec).astype(self.dtype) for picture in pictures]
        planes += planes[-1:] * ((self.fixed_batch or 1) - len(planes))
        return self.run(np.stack(planes), head.constants)

    def cutter(self, room: int) -> HostCutter:  # noqa: ARG002 - each part has memory of its own
        return HostCutter()

    def sample(self, width: int, height: int) -> HostImage:
        return HostImage(np.full((height, width, 3), 114, np.uint8))

    def close(self) -> None:
        """Free the session now, even if this object is still referenced; a running inference completes first."""
        self._session = None


class OrtLaneAt:
    """A lane at one input size; see `detectors.port.Lane`."""

    def __init__(self, detector: OrtDetector, head: Head, options: Options) -> None:
        self._detector, self._head, self._wanted = detector, head, options.wanted
        spec = head.spec
        shape = (detector.info.max_batch, 3, spec.height, spec.width)
        self._input = HostInput(np.empty(shape, detector.dtype), spec)

    def detect(self, images: Sequence[Image | PreparedImage]) -> tuple[list[Detections], StageTimes]:
        started = perf_counter_ns()
        batch = self.preprocess(images)
        placed = perf_counter_ns()
        outputs = self._detector.run(batch, self._head.constants)
        inferred = perf_counter_ns()
        results = self._head.batch_detections(outputs, self._input.boxes[: len(images)], self._wanted)
        return results, StageTimes(placed - started, inferred - placed, perf_counter_ns() - inferred)

    def preprocess(self, images: Sequence[Image | PreparedImage]) -> npt.NDArray[Any]:
        """The pictures as model input, (b, 3, height, width): the lane's buffer, valid until the next call."""
        for slot, image in enumerate(images):
            self._input.place(slot, on_host(image).bgr)
        return self._input.buffer[: self._detector.fixed_batch or len(images)]

    def fetch(self, image: Image) -> Fetch:
        return fetched(image)

    def close(self) -> None:
        """Free the buffer now, even if this object is still referenced."""
        self._input.close()


class OrtLane(OrtLaneAt):
    """A lane, with input buffers for each size; see `detectors.port.SizedLane`."""

    def __init__(self, detector: OrtDetector, options: Options) -> None:
        super().__init__(detector, detector.head, options)
        self._further = {size: OrtLaneAt(detector, head, options) for size, head in detector.heads.items()}

    def at(self, size: Size) -> OrtLaneAt:
        """See `detectors.port.SizedLane`."""
        if size == self._detector.info.input_size:
            return self
        if size not in self._further:
            raise DetectorError(f"the model is not open at {size[0]}x{size[1]}")
        return self._further[size]

    def close(self) -> None:
        for lane in self._further.values():
            lane.close()
        super().close()


def _accuracy(model: Path, precision: str, digest: str) -> tuple[str, ...]:
    """Notes on the accuracy record of a quantised model."""
    from detectors.accuracy_record import note

    return note(model, precision, digest)


def _is_size(node: ort.NodeArg) -> bool:
    """Whether a further input is for the size of the picture, which some of DETR's exports have."""
    return node.type == "tensor(int64)" and len(node.shape) == 2 and "size" in node.name


def _numbers(shape: Sequence[int | str | None]) -> tuple[int, ...]:
    """A shape with 0 for each side without a number."""
    return tuple(side if isinstance(side, int) else 0 for side in shape)


def _session(options: Options) -> tuple[ort.InferenceSession, Placement]:
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = options.threads
    # Memory patterns keep memory per batch size: 540 instead of 300 MiB for YOLOv8n at 8, and save 2 % of the time.
    settings.enable_mem_pattern = False
    # Threads that wait by spinning are faster on many idle cores. On few they take the core of the thread that they
    # wait for. They never spin between runs.
    if (options.threads or len(os.sched_getaffinity(0))) > _FEW_CORES:
        settings.add_session_config_entry("session.force_spinning_stop", "1")
    else:
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    settings.log_severity_level = 4  # errors are raised; warnings do not help an operator
    if options.provider not in (None, "cpu"):
        from detectors.ort.providers import open_session

        return open_session(options, options.provider, settings)
    try:
        return ort.InferenceSession(str(options.path), settings, providers=[CPU_PROVIDER]), Placement()
    except Exception as error:  # onnxruntime's own exceptions have no public base class
        raise DetectorError(
            f"{options.path} is not a complete ONNX model onnxruntime can load: {first_line(error)}"
        ) from error
