"""YOLO through TensorRT: one engine, shared by lanes."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import cv2
import numpy as np
import structlog

from detectors.accuracy_record import note
from detectors.cuda import CudaError, Device, DeviceBuffer, Module, Stream
from detectors.decoding_check import decodes_alike
from detectors.heads.candidates import MOST_CANDIDATES
from detectors.heads.layout import Head, ModelFacts, Outputs
from detectors.heads.recognise import recognise_at
from detectors.model import fixed_batch, within_nms
from detectors.nvrtc import compile_cubin
from detectors.opening import Opened, open_heads
from detectors.port import (
    BackendUnavailableError,
    DetectorError,
    DeviceImage,
    HostImage,
    ModelInfo,
    Options,
    Size,
    cache_folder,
)
from detectors.ranges import wanted_ranges
from detectors.trt import compat, kernels
from detectors.trt.cutter import TrtCutter
from detectors.trt.engine import EngineStore
from detectors.trt.host_copies import HostCopyPool
from detectors.trt.kernels.decoding import kernels_of, scratch_of
from detectors.trt.lane import TrtLane
from detectors.trt.library import Library, load
from detectors.trt.loaded import AtSize, Decoding, Tensor
from detectors.trt.memory_plan import CAPACITY, Needs, shrink
from detectors.trt.owner import EngineOwner
from detectors.trt.products import PRODUCTS
from detectors.trt.recipe import Manifest
from detectors.trt.runtime_cache import cache_file
from detectors.trt.sized import bytes_of_outputs
from detectors.trt.staging import H
from detectors.trt.tensor_names import TensorNames, TensorRow, tensor_names

try:
    from detectors.trt.builder import builder
    from detectors.trt.model_file import ModelFile
except ModuleNotFoundError as error:
    raise BackendUnavailableError(f"{error.name} is not installed: pip install 'lookoutd[gpu]'") from error

if TYPE_CHECKING:
    from collections.abc import Sequence


log = structlog.get_logger(__name__)
_MAX_COPY_THREADS = 8

_UNLIKE = "{} is decoded on the CPU: its kernels find other boxes than the reference, on this GPU. Please report it"


class TrtDetector:
    """See `detectors.port.Detector`.

    Args:
        library: None for TensorRT.

    Attributes:
        info: facts about the opened model.
        manifest: of the engine.
        needs: inputs of the memory plan.
        owner: of the engine.

    Raises:
        BackendUnavailableError: no driver, no GPU, or no supported TensorRT.
        DetectorError: the model cannot be used, or does not fit into memory.
    """

    info: ModelInfo
    manifest: Manifest
    needs: Needs
    tensors: TensorNames
    head: Head
    sizes: Sequence[AtSize]
    decoding: Decoding | None

    def __init__(self, options: Options, library: Library | None = None) -> None:
        library = library or load("trt")
        cache = cache_folder(options.cache)
        with ExitStack() as undo:
            watch = _Stopwatch()
            self.device = Device(options.device)
            undo.callback(self.device.close)
            watch.lap("CUDA context")
            model = ModelFile(options)
            options, limit = within_nms(options, model.metadata, model.graph)
            limit += fixed_batch(model.batch, options)
            watch.lap("model file")
            self.preprocess = _own(self._compiled(kernels.PREPROCESS, cache), undo)
            watch.lap("kernels")
            self.owner = _own(EngineOwner(library), undo)
            self.ranges = wanted_ranges()
            watch.lap(PRODUCTS[library.backend].name)
            self.options, notes = self._load_within_limit(model, options, cache)
            options, self.max_batch, self.dynamic = self.options, self.options.max_batch, model.batch is None
            watch.lap("engine")
            threads = options.threads or min(_MAX_COPY_THREADS, os.cpu_count() or 1)
            self.copy_pool = _own(HostCopyPool(self.device, threads), undo)
            opened = self._run_trial(model)
            watch.lap("trial")
            found = kernels_of(self.head)
            self.decoding = found and Decoding(_own(self._compiled(found.source, cache), undo), found.name)
            watch.lap("kernels of the head")
            self._compare_decoding()
            watch.lap("comparison of the kernels")
            self._samples: dict[tuple[int, int], DeviceImage] = {}
            self._undo = undo.pop_all()
        notes += limit + opened.notes
        if model.integers:
            notes += note(options.path, model.precision, model.digest)
        if found and not self.decoding:
            notes.append(_UNLIKE.format(self.head.name))
        elif not self.decoding:
            notes.append(f"{self.head.name} is decoded on the CPU: its raw outputs are copied from the GPU")
        self.info = ModelInfo(
            name=options.path.stem,
            digest=model.digest[:12],
            precision=model.precision,
            backend=library.backend,
            head=self.head.name,
            input_size=model.sizes[0],
            further_sizes=model.sizes[1:],
            labels=opened.labels,
            max_batch=options.max_batch,
            notes=tuple(notes),
            lanes=options.lanes,
            memory=self.needs.rows(options.lanes, options.max_batch),
            startup=watch.laps,
            gpu=options.device,
            facts=opened.facts,
        )

    def _compiled(self, source: Path, cache: Path) -> Module:
        return Module(compile_cubin(source, self.device.architecture, cache / "kernels"))

    @property
    def input(self) -> str:
        """Name of the input for pictures."""
        return self.tensors.pictures

    @property
    def engine(self) -> Any:
        return self.owner.engine

    def lane(self) -> TrtLane:
        self.device.make_current()
        lane = TrtLane(self)
        if self.owner.compiled:
            self.owner.compiled.save()  # all batch sizes have run
        return lane

    def cutter(self, room: int) -> TrtCutter:
        self.device.make_current()
        return TrtCutter(self, room)

    def make_context(self) -> Any:
        """An execution context without memory for activations; None if there is not enough memory for the rest."""
        return compat.make_context(self.owner.trt, self.engine, self.owner.compiled)

    def sample(self, width: int, height: int) -> DeviceImage:
        if (width, height) not in self._samples:
            self._samples[width, height] = self._sample(width, height)
        return self._samples[width, height]

    def place(self, picture: HostImage) -> DeviceImage:
        """Upload a picture as NV12, without an odd last row or column; valid until `close`."""
        self.device.make_current()
        bgr = picture.bgr[: picture.height // 2 * 2, : picture.width // 2 * 2]
        height, width = bgr.shape[:2]
        planes = np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2YUV_I420)).reshape(-1)
        luma, chroma = planes[: height * width], planes[height * width :].reshape(2, -1).T
        rows = np.concatenate((luma, chroma.reshape(-1)))
        placed = _own(DeviceBuffer(rows.nbytes), self._undo)
        with closing(Stream()) as stream:
            placed.upload(rows, stream)
            stream.synchronize()
        return DeviceImage(placed.pointer, placed.pointer + luma.nbytes, width, width, height, bt709=False)

    def _sample(self, width: int, height: int) -> DeviceImage:
        self.device.make_current()
        pitch = width + width % 2  # chroma rows have whole pairs
        picture = _own(DeviceBuffer(pitch * (height + (height + 1) // 2)), self._undo)
        with closing(Stream()) as stream:
            picture.clear(stream)
            stream.synchronize()
        return DeviceImage(picture.pointer, picture.pointer + pitch * height, pitch, width, height)

    def close(self) -> None:
        try:
            self.device.make_current()  # the calling thread is that of the last lane
        finally:
            self._undo.close()

    def _load_within_limit(self, model: ModelFile, options: Options, cache: Path) -> tuple[Options, list[str]]:
        """Load the engine, or one for smaller batches if memory requires it."""
        free, reserved = self.device.free_memory(), options.reserved
        beside = f" beside {reserved >> 20} MiB of other models" if reserved else ""
        notes = []
        if model.batch is not None:
            options = replace(options, max_batch=model.batch)
        while True:
            self._load(model, options, cache)
            allowed = free if options.memory_limit is None else min(options.memory_limit, free)
            limit = max(0, allowed - reserved)
            fits = shrink(options.lanes, options.max_batch, limit, self.needs.total)
            if fits is None or (fits[1] < options.max_batch and model.batch is not None):
                needed = self.needs.total(1, model.batch or 1) >> 20
                raise DetectorError(
                    f"{options.path} needs {needed} MiB of GPU memory with one lane and its smallest batch, "
                    f"{limit >> 20} MiB are {'free' if allowed == free else 'allowed by gpu.memory_limit_mib'}{beside}"
                )
            lanes, batch = fits
            if lanes < options.lanes:
                notes.append(f"{lanes} of {options.lanes} lanes: more do not fit into {limit >> 20} MiB of GPU memory")
            if batch == options.max_batch:
                return replace(options, lanes=lanes), notes
            notes.append(
                f"batches up to {batch}, not {options.max_batch}: {limit >> 20} MiB of GPU memory allow no more"
            )
            options = replace(options, lanes=lanes, max_batch=batch)

    def _run_trial(self, model: ModelFile) -> Opened:
        """See `detectors.opening`. The host decodes meanwhile: the trial may show another head."""
        self.decoding, self.labels = None, 0
        try:
            with closing(_TrialLane(self)) as lane:
                heads = [at.head for at in self.sizes]
                batch = self.max_batch
                opened = open_heads(heads, lane.run, self.options, model.metadata, model.precision, batch)
        except CudaError:
            raise
        except DetectorError as error:
            raise DetectorError(f"{self.options.path}: {error}") from error
        self.sizes = [replace(at, head=head) for at, head in zip(self.sizes, opened.heads)]
        self.head, self.labels = opened.heads[0], len(opened.labels)
        return opened

    def _compare_decoding(self) -> None:
        """Let the host decode if the kernels find other boxes."""
        if not self.decoding:
            return
        with closing(TrtLane(self, [1] if self.dynamic else None)) as lane:
            alike = all(decodes_alike(lane.at(at.size).decoded, at.head.spec, self.options.wanted) for at in self.sizes)
        if not alike:
            log.error("kernels do not decode as the reference does", head=self.head.name)
            self.decoding = None

    def _load(self, model: ModelFile, options: Options, cache: Path) -> None:
        self.owner.drop()  # frees one of another batch size first
        recipe = model.recipe(options, self.owner.library.target(self.device))
        store = EngineStore(cache / "engines")
        build = builder(store.folder, options.device)
        _, self.manifest = store.get_or_build(options.path, recipe, build, self._loaded)
        self.owner.keep_compiled(cache_file(store.folder, self.manifest.plan_sha256, self.device.name))
        self.tensors = tensor_names(self.owner.trt, [self._row(number) for number in range(self.engine.num_io_tensors)])
        own = self._at_size(0, model, options, None)
        self.head = own.head
        further = (self._at_size(number, model, options, own.head) for number in range(1, len(model.sizes)))
        self.sizes = (own, *further)
        self.needs = Needs(
            weights=self.manifest.plan_bytes,
            activations=compat.context_bytes(self.engine),
            largest=options.max_batch,
            spec=max((at.head.spec for at in self.sizes), key=lambda spec: spec.width * spec.height),
            half=self.engine.get_tensor_dtype(self.tensors.pictures) == self.owner.trt.float16,
            outputs=sum(bytes_of_outputs(self.sizes).values()),
            scratch=sum(scratch_of(self.head, options.wanted.max_detections, MOST_CANDIDATES, CAPACITY).values()),
            frame=options.frame_size[0] * options.frame_size[1] * 3,
            parts=options.parts,
            sizes=len(self.sizes),
        )

    def _at_size(self, profile: int, model: ModelFile, options: Options, own: Head | None) -> AtSize:
        """The engine at one input size, which has an optimisation profile.

        Args:
            own: see `recognise_at`.

        Raises:
            DetectorError: the outputs are not those of a known head, or of another one than at the model's own size.
        """
        size = model.sizes[profile]
        tensors = self._tensors_at(size, profile)
        shapes = [(tensor.name, (1, *tensor.shape)) for tensor in tensors]
        facts = ModelFacts(shapes, size, model.metadata, self.tensors.further, graph=model.graph)
        head = recognise_at(facts, options, own)
        constants = {
            name: row.astype(self.owner.trt.nptype(self.engine.get_tensor_dtype(name)))
            for name, row in head.constants.items()
        }
        return AtSize(profile, head, constants, tensors)

    def _loaded(self, plan: bytes) -> Literal[True] | None:
        return True if self.owner.load(plan, self.device) else None

    def _row(self, number: int) -> TensorRow:
        name = self.engine.get_tensor_name(number)
        is_input = self.engine.get_tensor_mode(name) == self.owner.trt.TensorIOMode.INPUT
        return TensorRow(name, is_input, len(self.engine.get_tensor_shape(name)), self.engine.get_tensor_dtype(name))

    def _tensors_at(self, size: Size, profile: int) -> list[Tensor]:
        """The outputs for an input size, which the file may leave dynamic."""
        shapes = [tuple(self.engine.get_tensor_shape(name))[1:] for name in self.tensors.outputs]
        # An engine for several sizes may give the shapes of the first alone, as TensorRT 8.6.0 does.
        if profile > 0 or any(min(shape, default=0) < 0 for shape in shapes):
            shapes = self._dynamic_shapes(size, profile)
        types = [np.dtype(self.owner.trt.nptype(self.engine.get_tensor_dtype(name))) for name in self.tensors.outputs]
        return [Tensor(*row) for row in zip(self.tensors.outputs, shapes, types)]

    def _dynamic_shapes(self, size: Size, profile: int) -> list[tuple[int, ...]]:
        """The shapes of the outputs for an input size, without the batch.

        Raises:
            DetectorError: TensorRT refuses the size, or has no memory.
        """
        context = self.make_context()
        try:
            if context is None:
                raise DetectorError("no memory for an execution context: see the log above")
            with closing(Stream()) as stream:
                taken = compat.use_profile(context, profile, stream.handle)
                stream.synchronize()
            batch = max(1, self.engine.get_tensor_shape(self.tensors.pictures)[0])
            taken = taken and context.set_input_shape(self.tensors.pictures, (batch, 3, size[1], size[0]))
            for name in self.tensors.further:
                shape = tuple(self.engine.get_tensor_shape(name))[1:]
                taken = taken and context.set_input_shape(name, (batch, *shape))
            if not taken:
                raise DetectorError(f"TensorRT refuses an input of {size[0]}x{size[1]}: see the log above")
            return [tuple(context.get_tensor_shape(name))[1:] for name in self.tensors.outputs]
        finally:
            context = None  # an error's traceback must not keep it


class _TrialLane:
    """The lane of a trial. It is made again where the trial shows another input than the outputs' shapes did."""

    def __init__(self, detector: TrtDetector) -> None:
        self._detector = detector
        self._sizes = [min(2, detector.max_batch)] if detector.dynamic else None
        self._lane: TrtLane | None = None

    def run(self, head: Head, pictures: Sequence[HostImage]) -> Outputs:
        """See `detectors.trial.Run`."""
        size = head.spec.width, head.spec.height
        if self._lane is None or all(at.head.spec != head.spec for at in self._detector.sizes):
            self.close()
            sizes = [replace(at, head=head) if at.size == size else at for at in self._detector.sizes]
            self._detector.sizes = sizes
            self._lane = TrtLane(self._detector, self._sizes)
        return self._lane.at(size).raw_batch(pictures)

    def close(self) -> None:
        if self._lane:
            self._lane.close()
            self._lane = None


def _own(handle: H, undo: ExitStack) -> H:
    undo.callback(handle.close)
    return handle


class _Stopwatch:
    """Seconds of each step."""

    def __init__(self) -> None:
        self._last = monotonic()
        self.laps: tuple[tuple[str, float], ...] = ()

    def lap(self, name: str) -> None:
        now = monotonic()
        self.laps, self._last = (*self.laps, (name, round(now - self._last, 3))), now
