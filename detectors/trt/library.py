"""TensorRT, or TensorRT RTX: the module that the backend calls, by the backend's name.

Both have one interface, and `compat` knows the differences. Nothing else imports either of them: the module is given
through, so that a process can hold both.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from detectors.port import BackendUnavailableError
from detectors.trt.products import PRODUCTS, Name
from detectors.trt.recipe import Target

if TYPE_CHECKING:
    from detectors.cuda import Device


@dataclass(frozen=True)
class Library:
    """An imported TensorRT.

    Attributes:
        trt: the module.
        version: such as "8.6.0".
    """

    backend: Name
    trt: Any
    version: str

    @property
    def builder(self) -> str:
        """Such as "TensorRT 8.6.0"."""
        return f"{PRODUCTS[self.backend].name} {self.version}"

    def target(self, device: Device) -> Target:
        """An engine for a device of this machine: it alone, or all cards of its architecture."""
        name = "" if self.backend == "trt-rtx" else device.name
        return Target(self.builder, name, device.architecture)


def load(backend: Name) -> Library:
    """Import a backend's TensorRT.

    Raises:
        BackendUnavailableError: it is not installed, does not load, or is too old.
    """
    product = PRODUCTS[backend]
    try:
        trt = import_module(product.module)
    except ModuleNotFoundError as error:
        raise BackendUnavailableError(f"{error.name} is not installed: pip install {product.package}") from error
    except ImportError as error:  # a missing library
        raise BackendUnavailableError(
            f"{product.name} does not load: {error}; install it again, or set LD_LIBRARY_PATH to its libraries"
        ) from error
    version = str(trt.__version__)
    if tuple(int(part) for part in version.split(".")[:2]) < product.oldest:
        raise BackendUnavailableError(f"{product.name} {version} is too old: {product.supported} supported")
    return Library(backend, trt, version)
