"""The two libraries that build and run engines, by the names of their backends; asked for without loading anything."""

from __future__ import annotations

from typing import Literal, NamedTuple

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
    "trt-rtx": Product("TensorRT RTX", "tensorrt_rtx", "'lookoutd[rtx]'", (1, 7), "1.7 is"),
    "trt": Product("TensorRT", "tensorrt", "'lookoutd[gpu]' tensorrt", (8, 6), "8.6, 10 and 11 are"),
}
"""By name of the backend, the one that `auto` prefers first."""


def backend_of(built_with: str) -> Name:
    """The backend of an engine, from the builder that its manifest names."""
    return "trt-rtx" if built_with.startswith(f"{PRODUCTS['trt-rtx'].name} ") else "trt"
