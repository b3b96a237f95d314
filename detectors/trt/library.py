"""TensorRT, or TensorRT RTX: the module that the backend calls, by the backend's name.

Both have one interface, and `compat` knows the differences. Nothing else imports either of them: the module is given
through, so that a process can hold both.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from detectors.port import BackendUnavailableError
from detectors.trt.recipe import Target

if TYPE_CHECKING:
    from detectors.cuda import Device

Name = Literal["trt", "trt-rtx"]


class Product(NamedTuple):
    """Attributes:
    module: that Python imports.
    package: what brings it.
    oldest: version, of which the calls were checked.
    supported: versions, in words, with their verb.
    """

    name: str
    module: str
    package: str
    oldest: tuple[int, int]
    supported: str


PRODUCTS: dict[Name, Product] = {
    "trt-rtx": Product("TensorRT RTX", "tensorrt_rtx", "'.[rtx]'", (1, 7), "1.7 is"),
    "trt": Product("TensorRT", "tensorrt", "'.[gpu]' tensorrt", (8, 6), "8.6, 10 and 11 are"),
}
"""By name of the backend, the one that `auto` prefers first."""


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


def backend_of(built_with: str) -> Name:
    """The backend of an engine, from the builder that its manifest names."""
    return "trt-rtx" if built_with.startswith(f"{PRODUCTS['trt-rtx'].name} ") else "trt"
