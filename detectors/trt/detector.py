"""YOLO through TensorRT: one engine, and lanes that each own a stream, a context, buffers and CUDA graphs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from detectors.detections import Detections
from detectors.heads import Head, recognise
from detectors.labels import resolve
from detectors.letterbox import Letterbox, fit
from detectors.port import BackendUnavailableError, DetectorError, Image, ModelInfo, Options, StageTimes
from detectors.trt import kernels, seam
from detectors.trt.builder import builder
from detectors.trt.cuda import Device, DeviceBuffer, Event, Graph, Module, PinnedBuffer, Stream, compile_cubin
from detectors.trt.engine import EngineStore, Recipe

try:
    import onnx
    import tensorrt as trt
except ImportError as error:
    raise BackendUnavailableError(f"{error.name} is not installed: pip install 'lookoutd[gpu]' tensorrt") from error

log = structlog.get_logger(__name__)
_CAPACITY = 1 << 14  # candidates a picture has room for; only a threshold near zero meets it
_STAGED = 1920 * 1080 * 3  # bytes of a picture there is room for from the start


class _Logger(trt.ILogger):  # type: ignore[misc]
    """TensorRT's words in our log; what it warns of is not for an operator."""

    def log(self, severity: Any, text: str) -> None:
        if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
            log.error("tensorrt", said=text)
        else:
            log.debug("tensorrt", said=text)


class TrtDetector:
    """An engine that lanes share.

    Raises:
        BackendUnavailableError: no driver, no GPU, or no TensorRT.
        DetectorError: the model cannot be used.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        precision: seam.Precision = "fp16" if options.precision == "auto" else options.precision
        cache = options.cache or Path.home() / ".cache" / "lookout"
        with ExitStack() as undo:
            self.device = Device()
            undo.callback(self.device.close)
            model = _Model(options)
            recipe = Recipe(
                onnx_sha256=model.digest,
                tensorrt=seam.version_of(trt),
                gpu=self.device.name,
                architecture=self.device.architecture,
                precision=precision,
                max_batch=options.max_batch,
                input_size=model.size,
                level=options.builder_level,
            )
            self._logger = _Logger()
            plan = EngineStore(cache / "engines", builder(trt, self._logger)).obtain(options.path, recipe)
            self._runtime = trt.Runtime(self._logger)
            self.engine = self._runtime.deserialize_cuda_engine(plan)
            if self.engine is None:
                raise DetectorError(f"TensorRT {recipe.tensorrt} cannot load the engine of {options.path}: see the log")
            self.input, self.output, shape = _tensors(self.engine)
            self.head: Head = recognise([(self.output, (1, *shape))], model.size, model.metadata, options.head)
            self.output_shape = shape
            cubins = [compile_cubin(source, self.device.architecture, cache / "kernels") for source in kernels.SOURCES]
            self.modules = [Module(cubin) for cubin in cubins]
            for module in self.modules:
                undo.callback(module.close)
            labels, notes = resolve(options.labels, model.metadata, self.head.classes)
            undo.pop_all()
        self.info = ModelInfo(
            name=options.path.stem,
            digest=model.digest[:12],
            precision=precision,
            backend="trt",
            head=self.head.name,
            input_size=model.size,
            labels=labels,
            max_batch=options.max_batch,
            notes=notes,
        )

    def lane(self) -> TrtLane:
        self.device.use()
        return TrtLane(self)

    def close(self) -> None:
        if self.modules:
            for module in self.modules:
                module.close()
            self.modules = []
            self.engine = self._runtime = None
            self.device.close()


class _Model:
    """What the ONNX file says of itself."""

    def __init__(self, options: Options) -> None:
        try:
            content = options.path.read_bytes()
            model = onnx.load_model_from_string(content)
        except OSError as error:
            raise DetectorError(f"model {options.path} cannot be read: {error.strerror}; set model.path") from error
        except Exception as error:  # protobuf's own
            raise DetectorError(f"{options.path} is not a complete ONNX model") from error
        self.digest = hashlib.sha256(content).hexdigest()
        self.metadata = {prop.key: prop.value for prop in model.metadata_props}
        if not model.graph.input:
            raise DetectorError(f"{options.path} is not a complete ONNX model")
        shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
        size = options.input_size or (shape[3], shape[2]) if len(shape) == 4 else (0, 0)
        if min(size) < 1:
            raise DetectorError(f"{options.path}: the model's input size is dynamic: set model.input_size")
        self.size: tuple[int, int] = size


def _tensors(engine: Any) -> tuple[str, str, tuple[int, ...]]:
    """Names of the one input and the one output, and the output's shape without the batch."""
    names = [engine.get_tensor_name(number) for number in range(engine.num_io_tensors)]
    inputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
    outputs = [name for name in names if name not in inputs]
    if len(inputs) != 1 or len(outputs) != 1:
        raise DetectorError(f"one input and one output are wanted, the model has {inputs} and {outputs}")
    return inputs[0], outputs[0], tuple(engine.get_tensor_shape(outputs[0]))[1:]


class TrtLane:
    """One thread's stream, context, buffers and graphs; see `detectors.port.Lane`.

    A batch costs one copy for each picture, three graph launches and one wait. Sizes without a graph of their own are
    padded to the next that has one.
    """

    def __init__(self, detector: TrtDetector) -> None:
        self._detector = detector
        spec, most = detector.head.spec, detector.info.max_batch
        self._stack = ExitStack()
        with ExitStack() as undo:
            self._held = undo
            self._stream = self._keep(Stream())
            self._context = detector.engine.create_execution_context()
            if self._context is None:
                raise DetectorError("no memory for another execution context: fewer lanes, or a smaller max_batch")
            self._events = [self._keep(Event(timed=True)) for _ in range(4)]
            self._input = self._keep(DeviceBuffer(most * 3 * spec.height * spec.width * 4))
            self._raw = self._keep(DeviceBuffer(most * int(np.prod(detector.output_shape)) * 4))
            self._slots = [_Slot() for _ in range(most)]
            for slot in self._slots:
                self._keep(slot)
            self._tables = _Tables(self, most)
            self._context.set_tensor_address(detector.input, self._input.pointer)
            self._context.set_tensor_address(detector.output, self._raw.pointer)
            self._graphs = {size: self._capture(size) for size in _sizes(most)}
            self._stack = undo.pop_all()

    def detect(self, images: Sequence[Image]) -> tuple[list[Detections], StageTimes]:
        count = len(images)
        size = min(size for size in self._graphs if size >= count)
        spec = self._detector.head.spec
        boxes = [fit(image.width, image.height, spec) for image in images]
        pre, infer, post = self._graphs[size]
        begun, placed, inferred, ended = self._events
        begun.record(self._stream)
        for slot, image in zip(self._slots, images):
            slot.upload(image, self._stream)
        self._tables.fill(self._slots, boxes, size)
        self._tables.upload(self._stream)
        pre.launch(self._stream)
        placed.record(self._stream)
        infer.launch(self._stream)
        inferred.record(self._stream)
        post.launch(self._stream)
        ended.record(self._stream)
        ended.synchronize()
        times = [
            round(later.milliseconds_since(earlier) * 1e6)
            for earlier, later in ((begun, placed), (placed, inferred), (inferred, ended))
        ]
        return self._tables.results(count), StageTimes(*times)

    def close(self) -> None:
        self._context = None
        self._stack.close()

    def _keep(self, handle: Any) -> Any:
        self._held.callback(handle.close)
        return handle

    def _capture(self, size: int) -> tuple[Graph, Graph, Graph]:
        """Preprocess, inference and postprocess of one batch size, after a run that lets TensorRT do its lazy work."""
        spec = self._detector.head.spec
        self._tables.fill(self._slots, [fit(1, 1, spec)], size)
        self._tables.upload(self._stream)
        self._context.set_input_shape(self._detector.input, (size, 3, spec.height, spec.width))
        steps = (self._preprocess, self._infer, self._postprocess)
        graphs = []
        for step in steps:
            step(size)
            self._stream.synchronize()
            with self._stream.capture() as captured:
                step(size)
            graphs.append(self._keep(captured[0]))
        return graphs[0], graphs[1], graphs[2]

    def _preprocess(self, size: int) -> None:
        spec = self._detector.head.spec
        grid, block = kernels.preprocess_grid(spec, size)
        pointers = (np.uint64(self._tables.pictures), np.uint64(self._input.pointer))
        arguments = (*pointers, *kernels.preprocess_constants(spec))
        self._detector.modules[0].launch("preprocess_f32", grid, block, self._stream, arguments)

    def _infer(self, size: int) -> None:
        if not self._context.execute_async_v3(self._stream.handle):
            raise DetectorError(f"TensorRT failed on a batch of {size}: see the log above")

    def _postprocess(self, size: int) -> None:
        self._tables.launch(self._detector.modules[1], self._raw, size, self._stream)


class _Slot:
    """Where one picture of a batch is staged: pinned here, and on the device. Grows with the first larger picture."""

    def __init__(self) -> None:
        self._pinned, self.device = PinnedBuffer(_STAGED), DeviceBuffer(_STAGED)

    def upload(self, image: Image, stream: Stream) -> None:
        size = image.bgr.nbytes
        if size > self.device.size:
            stream.synchronize()
            self.close()
            self._pinned, self.device = PinnedBuffer(size), DeviceBuffer(size)
        staged = self._pinned.view(image.bgr.shape, np.uint8)
        np.copyto(staged, image.bgr)
        self.device.upload(staged, stream)

    def close(self) -> None:
        self._pinned.close()
        self.device.close()


class _Tables:
    """What the kernels read of each picture, what they need in between, and where they leave the boxes."""

    def __init__(self, lane: TrtLane, most: int) -> None:
        detector = lane._detector
        keep, wanted = lane._keep, detector.options.wanted
        self._head, self._shape, self._classes = detector.head, detector.output_shape, _classes_of(detector)
        pictures, places = most * kernels.PICTURE.itemsize, most * kernels.PLACEMENT.itemsize
        self._host: PinnedBuffer = keep(PinnedBuffer(pictures + places))
        self._device: DeviceBuffer = keep(DeviceBuffer(pictures + places))
        self._pictures = self._host.view((most,), kernels.PICTURE)
        self._places = self._host.view((most,), kernels.PLACEMENT, pictures)
        self.pictures, self._places_at = self._device.pointer, self._device.pointer + pictures
        self._scratch = [keep(DeviceBuffer(most * _CAPACITY * size)) for size in (kernels.CANDIDATE.itemsize, 8, 4, 1)]
        self._counts: DeviceBuffer = keep(DeviceBuffer(4 * most))
        found = most * wanted.max_detections * 24
        self._results: PinnedBuffer = keep(PinnedBuffer(found + 4 * most))
        self._boxes = self._results.view((most, wanted.max_detections, 6), np.float32)
        self._kept = self._results.view((most,), np.int32, found)
        self._arguments = (np.uint64(self._results.pointer), np.uint64(self._results.pointer + found))
        row = (wanted.confidence, wanted.iou, wanted.multi_label, wanted.max_detections)
        self._limits = np.array(
            [(*row, int(detector.head.name != "end2end"), 8192, _CAPACITY, 0)], dtype=kernels.LIMITS
        )

    def fill(self, slots: Sequence[_Slot], boxes: Sequence[Letterbox], size: int) -> None:
        """Describe the batch; places that pad it out repeat the last picture."""
        for number in range(size):
            box = boxes[min(number, len(boxes) - 1)]
            slot = slots[min(number, len(boxes) - 1)]
            self._pictures[number] = kernels.bgr_picture(slot.device.pointer, box.source[0] * 3, box)
        self._places[: len(boxes)] = kernels.placements(boxes)
        self._places[len(boxes) : size] = self._places[len(boxes) - 1]

    def upload(self, stream: Stream) -> None:
        self._device.upload(self._host, stream)

    def launch(self, module: Module, raw: DeviceBuffer, size: int, stream: Stream) -> None:
        """Enqueue decoding, thresholds and NMS."""
        rows = self._shape[1] if self._head.name == "yolov8" else self._shape[0]
        pointers = [buffer.pointer for buffer in (raw, *self._scratch, self._counts)]
        spec = self._head.spec
        output = np.array([(*pointers, rows, self._classes, spec.width, spec.height)], dtype=kernels.OUTPUT)
        self._counts.clear(stream)
        module.launch(f"collect_{self._head.name}", *kernels.collect_grid(rows, size), stream, (output, self._limits))
        arguments = (output, self._limits, np.uint64(self._places_at), *self._arguments)
        module.launch("select_boxes", *kernels.select_grid(size), stream, arguments)

    def results(self, count: int) -> list[Detections]:
        """Copies, because the next batch writes here again."""
        found = []
        for number in range(count):
            rows = self._boxes[number, : self._kept[number]].copy()
            found.append(Detections(rows[:, :4], rows[:, 4], rows[:, 5].astype(np.int32)))
        return found


def _classes_of(detector: TrtDetector) -> int:
    """How many classes a row of the output has; an end-to-end row names its class instead."""
    return detector.head.classes or 1


def _sizes(most: int) -> list[int]:
    """1, 2, 4, ... and the largest."""
    return sorted({1 << power for power in range(most.bit_length()) if 1 << power <= most} | {most})
