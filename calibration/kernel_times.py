"""Kernel times of an engine, mapped back to layers of the ONNX graph."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import onnx

from calibration.graph import Graph

_END = r"(?=_(?:shared|projected|Quantize|Dequantize)|[^\w./]|$)"


def by_layer(model: onnx.ModelProto, kernels: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Milliseconds of each weighted layer, with the nodes fused into it or following it up to the next layer.
    The time of a kernel of several layers is divided evenly.

    Args:
        model: the float model; its nodes are named.
        kernels: names and milliseconds. Kernels without a name from the graph belong to no layer.
    """
    graph = Graph(model)
    owners = _owners(graph)
    weighted = {graph.layer_of(node) for node in graph.weighted}
    found: dict[str, float] = defaultdict(float)
    for kernel, took in kernels:
        named = sorted(_names_in(kernel, owners), key=len, reverse=True)
        layers = [layer for layer in named if layer in weighted] or [owners[name] or "" for name in named[:1]]
        for layer in filter(None, layers):
            found[layer] += took / len(layers)
    return dict(found)


def slower(floats: Mapping[str, float], integers: Mapping[str, float], margin: float) -> set[str]:
    """Layers that take at margin `margin` milliseconds longer as integers."""
    return {layer for layer, took in integers.items() if layer in floats and took - floats[layer] >= margin}


def _owners(graph: Graph) -> dict[str, str | None]:
    """The layer of each node and tensor, by name: itself, the last layer before it, or the first to read it."""
    weighted = {graph.layer_of(node): node for node in graph.weighted}
    owners: dict[str, str | None] = {node.input[0]: name for name, node in reversed(weighted.items())}
    for node in graph.nodes:
        name = graph.layer_of(node)
        before = (owners.get(tensor) for tensor in node.input)
        owner = name if name in weighted else next((layer for layer in before if layer), None)
        owners.update(dict.fromkeys((name, *node.output), owner))
    return owners


def _names_in(kernel: str, names: Iterable[str]) -> list[str]:
    """Graph names in a kernel's name, except prefixes of longer ones; a Q/DQ pair has its tensor's name."""
    return [name for name in names if name in kernel and re.search(re.escape(name) + _END, kernel)]
