"""Whose time a kernel's is: layers of an engine, as the runtime names them, back to layers of the graph."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import onnx

from calibration.graph import Graph

_END = r"(?=_(?:shared|projected|Quantize|Dequantize)|[^\w./]|$)"


def by_layer(model: onnx.ModelProto, kernels: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Milliseconds of each weighted layer, with what was fused with it and what follows it before the next.
    Layers that are one kernel have equal parts of it.

    Args:
        model: the float model; its nodes have names.
        kernels: names and milliseconds. What names nothing of the graph belongs to no layer.
    """
    graph = Graph(model)
    owners = _owners(graph)
    weighted = {graph.layer_of(node) for node in graph.weighted}
    found: dict[str, float] = defaultdict(float)
    for name, took in kernels:
        named = sorted(_named(name, owners), key=len, reverse=True)
        layers = [word for word in named if word in weighted] or [owners[word] or "" for word in named[:1]]
        for layer in filter(None, layers):
            found[layer] += took / len(layers)
    return dict(found)


def slower(floats: Mapping[str, float], integers: Mapping[str, float], least: float) -> set[str]:
    """The layers that take longer as integers, by at least so many milliseconds."""
    return {layer for layer, took in integers.items() if layer in floats and took - floats[layer] >= least}


def _owners(graph: Graph) -> dict[str, str | None]:
    """The layer of each node and each tensor by name: itself, or the last one before it, or the first to read it."""
    weighted = {graph.layer_of(node): node for node in graph.weighted}
    owners: dict[str, str | None] = {node.input[0]: name for name, node in reversed(weighted.items())}
    for node in graph.nodes:
        name = graph.layer_of(node)
        before = (owners.get(tensor) for tensor in node.input)
        owner = name if name in weighted else next((layer for layer in before if layer), None)
        owners.update(dict.fromkeys((name, *node.output), owner))
    return owners


def _named(kernel: str, names: Iterable[str]) -> list[str]:
    """The names that stand in a kernel's and are not the beginning of longer ones; that of a pair is its tensor's."""
    return [name for name in names if name in kernel and re.search(re.escape(name) + _END, kernel)]
