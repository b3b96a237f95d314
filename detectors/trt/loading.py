"""Whether a TensorRT can be used here."""

from __future__ import annotations

from detectors.cuda import Device
from detectors.port import BackendUnavailableError
from detectors.trt import compat
from detectors.trt.cards import capability, numbers
from detectors.trt.library import Library

_TESTED = "TensorRT 8.6"  # others were checked against their bindings, and TensorRT RTX's builder, only


def available(library: Library, device: int = 0) -> str:
    """GPU and version, such as "NVIDIA H200, TensorRT 8.6.0", with a warning if Lookout was never run on it.

    Raises:
        BackendUnavailableError: something is missing, or the GPU is none that this TensorRT runs on.
    """
    name, supported = Device.name_of(device), compat.architectures_of(library.trt)
    if supported is not None and (own := Device.architecture_of(device)) not in supported:
        others = ", ".join(map(capability, sorted(supported, key=numbers)))
        raise BackendUnavailableError(
            f"{name} has compute capability {capability(own)}, {library.builder} runs on {others}: install TensorRT "
            "for it"
        )
    doubt = "" if library.builder.startswith(f"{_TESTED}.") else f" (never run on a GPU by us: {_TESTED} was)"
    return f"{name}, {library.builder}{doubt}"
