"""The only place that chooses a backend."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from detectors.port import (
    BackendUnavailableError,
    Detector,
    DetectorError,
    Options,
    SecondDetector,
    cache_folder,
    is_address,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from detectors.heads.layout import Floats
    from detectors.layer_times import LayerTimes
    from detectors.trt.detector import TrtDetector
    from detectors.trt.engine import EngineStore
Backend = Literal["auto", "trt", "cpu", "ort", "triton", "fake"]
Provider = Literal["cpu", "openvino", "cuda", "webgpu", "nv-tensorrt-rtx"]
"""Of onnxruntime: what runs the model for it."""
# Distribution names of packages whose versions affect decoding or detection.
PACKAGES = ("onnxruntime", "tensorrt", "cuda-python")


_GPUS = Path("/proc/driver/nvidia/gpus")  # one folder per GPU known to the driver


@dataclass(frozen=True)
class Availability:
    """Whether a backend can be used here; the reason names its versions, or the obstacle."""

    backend: str
    available: bool
    reason: str


def availability() -> list[Availability]:
    """All backends for `auto`, the best first. A server is used only where its backend is named."""
    return [_trt(), _cpu()]


def passed_over(backend: str) -> list[Availability]:
    """The better backends than this one that are not available."""
    return [row for row in takewhile(lambda row: row.backend != backend, availability()) if not row.available]


def best_backend() -> Backend:
    """The backend for `auto`.

    Raises:
        BackendUnavailableError: no backend, or an unusable GPU on a machine with TensorRT. The CPU is a hundred times
            slower and never chosen silently.
    """
    rows = availability()
    gpu = rows[0]
    if not gpu.available and find_spec("tensorrt") is not None and gpus() > 0:
        raise BackendUnavailableError(
            f"this machine has an NVIDIA GPU and TensorRT, but they cannot be used: {gpu.reason}; fix that, "
            "or choose the CPU explicitly (model.backend: cpu, or --backend cpu)"
        )
    found = [row for row in rows if row.available]
    if not found:
        reasons = "; ".join(f"{row.backend}: {row.reason}" for row in rows)
        raise BackendUnavailableError(f"no backend is available: {reasons}")
    return cast("Backend", found[0].backend)


def gpus() -> int:
    """Number of NVIDIA GPUs known to the driver, working or not."""
    return len(list(_GPUS.iterdir())) if _GPUS.is_dir() else 0


def open_detector(backend: Backend, options: Options) -> Detector:
    """Open a model on a backend; for `auto` on the best available one.

    Raises:
        BackendUnavailableError: the backend cannot be used here; see also `best_backend`.
        DetectorError: the model cannot be used.
    """
    if backend != "triton" and is_address(options.path):
        raise DetectorError("model.path is an address: set model.backend: triton, or give a file")
    if options.labels is None and backend != "triton":
        from detectors.labels import known_labels

        options = replace(options, labels=known_labels(options.path))
    return _open(_available(backend, options), options)


def open_classifier(backend: Backend, options: Options) -> SecondDetector:
    """Open a classifier on the backend of the first model.

    Raises:
        DetectorError: the model cannot be used.
    """
    return cast("SecondDetector", _open(_available(backend, options), options))


def engine_store(cache: Path | None) -> EngineStore:
    """The engines in a cache folder, None for the default; needs no GPU."""
    from detectors.trt.engine import EngineStore

    return EngineStore(cache_folder(cache) / "engines")


def profile_model(options: Options, batch: int | None, runs: int) -> LayerTimes:
    """Layers and kernel times of a model's engine on this GPU; builds the engine if needed.

    Args:
        batch: number of pictures; None for the largest batch.

    Raises:
        BackendUnavailableError: the GPU is missing.
        DetectorError: the model cannot be used, or not with this batch.
    """
    with closing(open_detector("trt", options)) as detector:
        from detectors.trt.profiling import profile_detector

        return profile_detector(cast("TrtDetector", detector), batch, runs)


def profile_engine(prefix: str, cache: Path | None, batch: int | None, runs: int) -> LayerTimes:
    """Layers and kernel times of the engine whose key starts with a prefix. See `profile_model`.

    Raises:
        BackendUnavailableError: the GPU is missing.
        DetectorError: none or several match, or the engine cannot be loaded on this GPU.
    """
    store = engine_store(cache)
    store.find(prefix)
    require_trt()
    from detectors.trt.profiling import profile_stored

    return profile_stored(store, prefix, 0, batch, runs)


def engine_tensors(options: Options, names: Sequence[str], pixels: Floats) -> dict[str, Floats]:
    """See `detectors.trt.tensors`.

    Raises:
        BackendUnavailableError: the GPU is missing.
        DetectorError: the model cannot be used.
    """
    require_trt()
    from detectors.trt.tensors import tensors

    return tensors(options, names, pixels)


def _available(backend: Backend, options: Options) -> Backend:
    """The backend, which can be used here; for `auto` the one of the provider, or the best one.

    Raises:
        BackendUnavailableError: it cannot be used here; see also `best_backend`.
        DetectorError: the provider is of another backend.
    """
    if options.provider is not None:
        if backend not in ("auto", "ort"):
            raise DetectorError(
                f"model.provider: {options.provider} is of onnxruntime: set model.backend: ort instead of {backend}"
            )
        return "ort"
    if options.provider_device is not None:
        raise DetectorError("model.provider_device needs model.provider, such as openvino")
    if backend == "auto":
        return best_backend()
    for row in availability():
        if row.backend == backend and not row.available:
            raise BackendUnavailableError(f"backend {backend} is not available: {row.reason}; set model.backend: auto")
    return backend


def _open(backend: str, options: Options) -> Detector:
    if backend == "trt":
        from detectors.trt.detector import TrtDetector

        return TrtDetector(options)
    if backend == "triton":
        return _open_remote(options)
    if backend == "fake":
        from detectors.fake.detector import FakeDetector

        return FakeDetector(options)
    from detectors.ort.detector import OrtDetector

    return OrtDetector(options)


def _open_remote(options: Options) -> Detector:
    try:
        from detectors.triton.detector import TritonDetector
    except (ImportError, RuntimeError) as error:  # tritonclient without its http
        raise BackendUnavailableError(
            f"backend triton is not available: tritonclient is not installed, or without http: pip install "
            f"'.[triton]' ({error})"
        ) from error
    return TritonDetector(options)


def _trt() -> Availability:
    for module, package in (("tensorrt", "tensorrt"), ("cuda", "cuda-python"), ("onnx", "onnx")):
        if find_spec(module) is None:
            return Availability("trt", False, f"{package} is not installed: pip install '.[gpu]' tensorrt")
    try:
        from detectors.trt.detector import available

        return Availability("trt", True, available())
    except BackendUnavailableError as error:
        return Availability("trt", False, str(error))


def require_trt() -> None:
    """Raises:
    BackendUnavailableError: engines cannot be built or run here; says why.
    """
    gpu = _trt()
    if not gpu.available:
        raise BackendUnavailableError(f"backend trt is not available: {gpu.reason}")


def _cpu() -> Availability:
    if find_spec("onnxruntime") is None:
        return Availability("cpu", False, "onnxruntime is not installed: pip install onnxruntime")
    return Availability("cpu", True, "onnxruntime")
