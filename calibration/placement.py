"""Which layers are quantised, and where tensors stay integer between layers.

A concatenation of floats is quantised after it, by a kernel of its own. If all its inputs share one scale, the layers
that make them quantise them, and the concatenation moves integers: half of the bytes. The same goes for splits, max
pooling and nearest-neighbour resizing.
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
    """A placement of Q/DQ pairs.

    Attributes:
        kind: layers: before each layer, with its own scale. shared: one scale for tensors that are joined.
        floats: names of layers that stay float because they are faster so.
    """

    kind: Kind = "layers"
    floats: frozenset[str] = frozenset()

    def of(self, model: onnx.ModelProto, floats: Iterable[str] = ()) -> onnx.ModelProto:
        """A copy of a model with this placement.

        Args:
            model: as `calibration.quantize` makes it.
            floats: more layers to restore to float.
        """
        placed = with_float_layers(model, self.floats.union(floats))
        return share_scales(placed) if self.kind == "shared" else placed


def share_scales(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which concatenations and the like pass integers where a quantised layer reads them.

    Args:
        model: from `calibration.quantize`, with or without float layers.
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
    """The passing nodes whose output a quantised layer reads, directly or through other passing nodes."""
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
    """The inputs that a node passes on, without sizes and the like."""
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
