"""Where integers go from layer to layer without becoming floats between: one scale for all that is joined.

A concatenation of floats is quantised after it, by a kernel of its own. Where all its inputs have one scale they are
quantised by the layers that make them, and the concatenation moves integers, a half of the bytes. The same goes for
splits, for pooling by the maximum and for copies of the nearest pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import onnx
from onnx import helper, numpy_helper

from calibration.graph import Graph, copy_of, drop_unused, quantised_layers

_PASSING = ("Concat", "Split", "MaxPool", "Slice", "Resize")


def share_scales(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose concatenations and the like pass integers on where a quantised layer reads them.

    Args:
        model: as `calibration.quantize` makes it, with or without layers in float.
    """
    copy = copy_of(model)
    graph = Graph(copy)
    pairs = {graph.origin(node.input[0]): node.input[0] for node in quantised_layers(graph)}
    passing = _passing(graph, set(pairs))
    for group in _groups(passing):
        scale = max(_scale(graph, pairs[name]) for name in group if name in pairs)
        for name in sorted(group):
            fresh = _add_pair(copy, name, scale)
            for node in graph.readers.get(name, ()):
                if node in passing:
                    _replace(node, name, fresh)
            if name in pairs:
                for node in graph.readers[pairs[name]]:
                    _replace(node, pairs[name], fresh)
    _sort(copy)
    drop_unused(copy)
    return copy


def _passing(graph: Graph, integers: set[str]) -> list[onnx.NodeProto]:
    """The nodes whose result a quantised layer reads, at once or through others of them."""
    found = []
    wanted = set(integers)
    for node in reversed(graph.nodes):
        if _passes(node) and wanted.intersection(node.output):
            found.append(node)
            wanted.update(_data(node))
    return found


def _passes(node: onnx.NodeProto) -> bool:
    if node.op_type == "Resize":
        return any(row.name == "mode" and row.s == b"nearest" for row in node.attribute)
    return node.op_type in _PASSING


def _data(node: onnx.NodeProto) -> Sequence[str]:
    """What a node passes on, without sizes and the like."""
    return list(node.input if node.op_type == "Concat" else node.input[:1])


def _groups(nodes: Sequence[onnx.NodeProto]) -> list[set[str]]:
    """Tensors that must have one scale."""
    groups: list[set[str]] = []
    for node in nodes:
        together = set(chain(_data(node), node.output))
        apart = []
        for group in groups:
            if group & together:
                together |= group
            else:
                apart.append(group)
        groups = [*apart, together]
    return groups


def _scale(graph: Graph, dequantised: str) -> float:
    return float(np.asarray(graph.value(graph.producer[dequantised].input[1])))


def _add_pair(model: onnx.ModelProto, name: str, scale: float) -> str:
    """Quantise and dequantise a tensor; returns what comes of it."""
    constants = {f"{name}_shared_scale": np.float32(scale), f"{name}_shared_zero": np.int8(0)}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items())
    integer, result = f"{name}_shared_integer", f"{name}_shared"
    for kind, source, target in (("QuantizeLinear", name, integer), ("DequantizeLinear", integer, result)):
        model.graph.node.append(helper.make_node(kind, [source, *constants], [target], f"{name}_shared_{kind}"))
    return result


def _replace(node: onnx.NodeProto, old: str, new: str) -> None:
    node.input[:] = [new if name == old else name for name in node.input]


def _sort(model: onnx.ModelProto) -> None:
    """Each node after those that it reads."""
    known = {entry.name for entry in (*model.graph.input, *model.graph.initializer)} | {""}
    left, sorted_nodes = list(model.graph.node), []
    while left:
        ready = [node for node in left if known.issuperset(node.input)]
        for node in ready:
            known.update(node.output)
        sorted_nodes += ready
        left = [node for node in left if not known.issuperset(node.output)]
    del model.graph.node[:]
    model.graph.node.extend(sorted_nodes)
