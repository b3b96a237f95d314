"""Which layers are integer, and where integers go from layer to layer without becoming floats between.

A concatenation of floats is quantised after it, by a kernel of its own. Where all its inputs have one scale they are
quantised by the layers that make them, and the concatenation moves integers, a half of the bytes. The same goes for
splits, for pooling by the maximum and for copies of the nearest pixel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
import onnx

from calibration.graph import (
    Graph,
    add_pair,
    copy_of,
    drop_unused,
    quantised_layers,
    sort_nodes,
    with_float_layers,
)

Kind = Literal["layers", "shared"]
KINDS: tuple[Kind, ...] = ("layers", "shared")
_PASSING = ("Concat", "Split", "MaxPool", "Slice", "Resize")


@dataclass(frozen=True)
class Placement:
    """Where pairs stand.

    Attributes:
        kind: layers: in front of each layer, each with its own scale. shared: what is joined has one scale.
        floats: layers that are faster as they were.
    """

    kind: Kind = "layers"
    floats: frozenset[str] = frozenset()

    def of(self, model: onnx.ModelProto, floats: Iterable[str] = ()) -> onnx.ModelProto:
        """A copy of a model that is placed so.

        Args:
            model: as `calibration.quantize` makes it.
            floats: more layers to put back to float.
        """
        placed = with_float_layers(model, self.floats.union(floats))
        return share_scales(placed) if self.kind == "shared" else placed


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
            fresh = add_pair(copy, name, scale, "shared")
            for node in graph.readers.get(name, ()):
                if node in passing:
                    _replace(node, name, fresh)
            if name in pairs:
                for node in graph.readers[pairs[name]]:
                    _replace(node, pairs[name], fresh)
    sort_nodes(copy)
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


def _replace(node: onnx.NodeProto, old: str, new: str) -> None:
    node.input[:] = [new if name == old else name for name in node.input]
