"""The one place that picks a backend. Nobody else asks which one it is."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from detectors.port import BackendUnavailableError, Detector, Options

Backend = Literal["auto", "trt", "cpu", "fake"]


@dataclass(frozen=True)
class Availability:
    """Whether a backend can be used here, and why not.

    Attributes:
        by_name: it can be, but only when it is asked for by its name.
    """

    backend: str
    available: bool
    reason: str
    by_name: bool = False


def availability() -> list[Availability]:
    """Each backend that a model can run on, best first."""
    return [_trt(), _cpu()]


def open_detector(backend: Backend, options: Options) -> Detector:
    """Open a model on a backend; `auto` takes the first that is available.

    Raises:
        BackendUnavailableError: the backend asked for cannot be used here; says why.
        DetectorError: the model cannot be used.
    """
    rows = availability()
    if backend == "auto":
        found = [row for row in rows if row.available and not row.by_name]
        if not found:
            reasons = "; ".join(f"{row.backend}: {row.reason}" for row in rows)
            raise BackendUnavailableError(f"no backend is available: {reasons}")
        return _open(found[0].backend, options)
    for row in rows:
        if row.backend == backend and not row.available:
            raise BackendUnavailableError(f"backend {backend} is not available: {row.reason}; set model.backend: auto")
    return _open(backend, options)


def _open(backend: str, options: Options) -> Detector:
    if backend == "trt":
        from detectors.trt.detector import TrtDetector

        return TrtDetector(options)
    if backend == "fake":
        from detectors.fake.detector import FakeDetector

        return FakeDetector(options)
    from detectors.cpu.detector import CpuDetector

    return CpuDetector(options)


def _trt() -> Availability:
    for module, package in (("tensorrt", "tensorrt"), ("cuda", "cuda-python"), ("onnx", "onnx")):
        if find_spec(module) is None:
            return Availability("trt", False, f"{package} is not installed: pip install 'lookoutd[gpu]' tensorrt")
    try:
        from detectors.trt.detector import available

        return Availability("trt", True, available())
    except BackendUnavailableError as error:
        return Availability("trt", False, str(error))


def _cpu() -> Availability:
    if find_spec("onnxruntime") is None:
        return Availability("cpu", False, "onnxruntime is not installed: pip install onnxruntime")
    return Availability("cpu", True, "onnxruntime")
