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
    from collections.abc import Iterator, Sequence

    from detectors.heads.layout import Floats
    from detectors.layer_times import LayerTimes
    from detectors.trt.detector import TrtDetector
    from detectors.trt.engine import EngineStore
    from detectors.trt.products import Name
Backend = Literal["auto", "trt", "trt-rtx", "cpu", "ort", "triton", "fake"]
Provider = Literal["cpu", "openvino", "cuda", "webgpu", "nv-tensorrt-rtx"]
"""Of onnxruntime: what runs the model for it."""
GPU_BACKENDS: tuple[Name, ...] = ("trt-rtx", "trt")
"""They build engines; the one that `auto` prefers first."""
# Distribution names of packages whose versions affect decoding or detection.
PACKAGES = ("onnxruntime", "tensorrt", "tensorrt-rtx", "cuda-python")


_GPUS = Path("/proc/driver/nvidia/gpus")  # one folder per GPU known to the driver


@dataclass(frozen=True)
class Availability:
    """Whether a backend can be used here; the reason names its versions, or the obstacle."""

    backend: Backend
    available: bool
    reason: str


def availability() -> list[Availability]:
    """All backends for `auto`, the best first. A server is used only where its backend is named."""
    return [*_probed()]


def _probed() -> Iterator[Availability]:
    """Likewise, one by one: a library that comes after the best is not loaded."""
    yield from map(_trt, GPU_BACKENDS)
    yield _cpu()


def passed_over(backend: str) -> list[Availability]:
    """The better backends than this one that are not available."""
    return [row for row in takewhile(lambda row: row.backend != backend, _probed()) if not row.available]


def best_backend() -> Backend:
    """The backend for `auto`.

    Raises:
        BackendUnavailableError: no backend, or an unusable GPU on a machine with TensorRT. The CPU is a hundred times
            slower and never chosen silently.
    """
    passed: list[Availability] = []
    for row in _probed():
        if row.backend == "cpu":
            _refuse_cpu(passed)
        if row.available:
            return row.backend
        passed.append(row)
    reasons = "; ".join(f"{row.backend}: {row.reason}" for row in passed)
    raise BackendUnavailableError(f"no backend is available: {reasons}")


def _refuse_cpu(passed: Sequence[Availability]) -> None:
    """Raises:
    BackendUnavailableError: there is a GPU, and what is installed for it cannot be used.
    """
    installed = [row.reason for row in passed if row.backend in GPU_BACKENDS and _is_installed(row.backend)]
    if installed and gpus() > 0:
        raise BackendUnavailableError(
            f"this machine has an NVIDIA GPU and TensorRT, but they cannot be used: {'; '.join(installed)}; fix that, "
            "or choose the CPU explicitly (model.backend: cpu, or --backend cpu)"
        )


def _is_installed(backend: Name) -> bool:
    from detectors.trt.products import PRODUCTS

    return find_spec(PRODUCTS[backend].module) is not None


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


def check_backend_precision(backend: str, precision: str) -> None:
    """
    Raises:
        DetectorError: a backend computes in this precision on no machine.
    """
    if (backend, precision) == ("trt-rtx", "int8"):
        from detectors.trt.cards import check_precision

        check_precision(precision, "")


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
    with closing(open_detector(engine_backend(), options)) as detector:
        from detectors.trt.profiling import profile_detector

        return profile_detector(cast("TrtDetector", detector), batch, runs)


def profile_engine(prefix: str, cache: Path | None, batch: int | None, runs: int) -> LayerTimes:
    """Layers and kernel times of the engine whose key starts with a prefix. See `profile_model`.

    Raises:
        BackendUnavailableError: the GPU is missing.
        DetectorError: none or several match, or the engine cannot be loaded on this GPU.
    """
    store = engine_store(cache)
    entry = store.find(prefix)
    from detectors.trt.library import load
    from detectors.trt.products import backend_of

    backend = backend_of(entry.manifest.recipe["builder"]) if entry.manifest else engine_backend()
    _usable(backend)
    from detectors.trt.profiling import profile_stored

    return profile_stored(load(backend), store, prefix, 0, batch, runs)


def engine_tensors(options: Options, names: Sequence[str], pixels: Floats) -> dict[str, Floats]:
    """See `detectors.trt.tensors`.

    Raises:
        BackendUnavailableError: the GPU is missing.
        DetectorError: the model cannot be used.
    """
    backend = engine_backend()
    from detectors.trt.library import load
    from detectors.trt.tensors import tensors

    return tensors(load(backend), options, names, pixels)


def engine_backend() -> Name:
    """The backend that builds engines for this GPU, and runs them.

    Raises:
        BackendUnavailableError: none does; says why.
    """
    rows = {name: _trt(name) for name in GPU_BACKENDS}
    for name, row in rows.items():
        if row.available:
            return name
    reasons = "; ".join(f"{name}: {row.reason}" for name, row in rows.items())
    raise BackendUnavailableError(f"engines cannot be built or run here: {reasons}")


def build_engine_for(cards: Sequence[str], options: Options) -> str:
    """Build a model's engine for cards that are elsewhere, without a GPU; returns its key.

    Args:
        cards: names of `detectors.trt.cards.CARDS`.

    Raises:
        BackendUnavailableError: TensorRT RTX is missing, which alone does that.
        DetectorError: the model cannot be used, or not on these cards.
    """
    _require("trt-rtx", ("cuda", "onnx"))
    from detectors.trt.ahead import build_ahead
    from detectors.trt.cards import architectures_of
    from detectors.trt.library import load

    return build_ahead(load("trt-rtx"), options, architectures_of(cards))


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
    return best_backend() if backend == "auto" else _usable(backend)


def _usable(backend: Backend) -> Backend:
    """
    Raises:
        BackendUnavailableError: it cannot be used here.
    """
    if backend in GPU_BACKENDS or backend == "cpu":
        row = _cpu() if backend == "cpu" else _trt(backend)
        if not row.available:
            raise BackendUnavailableError(f"backend {backend} is not available: {row.reason}; set model.backend: auto")
    return backend


def _open(backend: str, options: Options) -> Detector:
    if backend in ("trt", "trt-rtx"):
        from detectors.trt.detector import TrtDetector
        from detectors.trt.library import load

        return TrtDetector(options, load(cast("Name", backend)))
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
            f"'lookoutd[triton]' ({error})"
        ) from error
    return TritonDetector(options)


def _trt(backend: Name) -> Availability:
    try:
        _require(backend, ("cuda", "onnx"))
        from detectors.trt.library import load
        from detectors.trt.loading import available

        return Availability(backend, True, available(load(backend)))
    except BackendUnavailableError as error:
        return Availability(backend, False, str(error))


def _require(backend: Name, modules: Sequence[str]) -> None:
    """Raises:
    BackendUnavailableError: one of a GPU backend's modules is not installed.
    """
    from detectors.trt.products import PRODUCTS

    product = PRODUCTS[backend]
    for module in (product.module, *modules):
        if find_spec(module) is None:
            package = {"cuda": "cuda-python", "tensorrt_rtx": "tensorrt-rtx"}.get(module, module)
            raise BackendUnavailableError(f"{package} is not installed: pip install {product.package}")


def _cpu() -> Availability:
    if find_spec("onnxruntime") is None:
        return Availability("cpu", False, "onnxruntime is not installed: pip install onnxruntime")
    return Availability("cpu", True, "onnxruntime")
