"""Structure of a model's graph: its head, its residual additions, its quantised layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_SHAPING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten")


class Graph:
    """An index of a graph; build a new one after adding or removing nodes.

    Attributes:
        nodes: in topological order.
        constants: names of initializers and of Constant nodes' outputs.
        producer: the node that outputs a tensor.
        readers: the nodes that read a tensor.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.nodes: Sequence[onnx.NodeProto] = model.graph.node
        self.constants = {tensor.name for tensor in model.graph.initializer}
        self.constants |= {node.output[0] for node in self.nodes if node.op_type == "Constant"}
        self.producer = {name: node for node in self.nodes for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    @property
    def weighted(self) -> list[onnx.NodeProto]:
        """Layers with weights of their own, in order; a product of two activations is not one."""
        return [node for node in self.nodes if node.op_type in WEIGHTED and self.is_weight(node.input[1])]

    def is_weight(self, name: str) -> bool:
        """Whether a tensor is a constant, directly or behind a Q/DQ pair."""
        return self.origin(name) in self.constants

    def origin(self, name: str) -> str:
        """The tensor before any Q/DQ pairs; the tensor itself if there are none."""
        node = self.producer.get(name)
        while node is not None and node.op_type in ("DequantizeLinear", "QuantizeLinear"):
            name = node.input[0]
            node = self.producer.get(name)
        return name

    @property
    def head(self) -> list[onnx.NodeProto]:
        """The weighted layers that only arithmetic follows. Their outputs are boxes and scores: a quantisation step of
        1/127 of the range is several pixels. A layer that takes an expectation over a softmax counts as arithmetic
        and belongs to the head, and so do the layers before it.
        """
        weights = {node.output[0] for node in self.weighted}
        found: dict[str, onnx.NodeProto] = {}
        pending = [entry.name for entry in self.model.graph.output]
        seen: set[str] = set()
        while pending:
            name = pending.pop()
            node = self.producer.get(name)
            if node is None or name in seen:
                continue
            seen.add(name)
            if node.output[0] in weights:
                found[node.output[0]] = node
                if not self._follows_softmax(node):
                    continue
            pending.extend(node.input)
        return [node for node in self.nodes if node.output and node.output[0] in found]

    @property
    def residuals(self) -> list[tuple[onnx.NodeProto, int]]:
        """Additions of a tensor and a tensor computed from it, with the index of the former among the inputs."""
        found = []
        for node in self.nodes:
            if node.op_type == "Add" and not any(self.is_weight(name) for name in node.input):
                places = [place for place in (0, 1) if self._is_before(node.input[place], node.input[1 - place])]
                found += [(node, places[0])] if places else []
        return found

    @property
    def projections(self) -> list[tuple[onnx.NodeProto, int]]:
        """Additions of two layers' outputs, with the index of the input whose layer reads the older tensor: a residual
        with a layer of its own, because the other branch changes the shape.
        """
        place = {name: number for number, node in enumerate(self.nodes) for name in node.output}
        weights = {node.output[0]: node for node in self.weighted}
        found = []
        for node in self.nodes:
            layers = [weights.get(self.origin(name)) for name in node.input]
            if node.op_type == "Add" and len(layers) == 2 and layers[0] is not None and layers[1] is not None:
                read = [place.get(self.origin(layer.input[0]), -1) for layer in layers if layer is not None]
                found.append((node, int(read[1] < read[0])))
        return found

    @staticmethod
    def layer_of(node: onnx.NodeProto) -> str:
        """The node's name, or that of its output."""
        return str(node.name or node.output[0])

    def value(self, name: str) -> npt.NDArray[np.generic] | None:
        """The value of a constant; None for other tensors."""
        for tensor in self.model.graph.initializer:
            if tensor.name == name:
                return np.asarray(numpy_helper.to_array(tensor))
        node = self.producer.get(name)
        if node is not None and node.op_type == "Constant" and node.attribute[0].name == "value":
            return np.asarray(numpy_helper.to_array(node.attribute[0].t))
        return None

    def _follows_softmax(self, node: onnx.NodeProto) -> bool:
        before = self.producer.get(node.input[0])
        while before is not None and before.op_type in _SHAPING:
            before = self.producer.get(before.input[0])
        return before is not None and before.op_type == "Softmax"

    def _is_before(self, tensor: str, later: str, limit: int = 64) -> bool:
        """Whether `later` is computed from `tensor`; looks at at most `limit` tensors."""
        tensor = self.origin(tensor)
        pending = [later]
        seen: set[str] = set()
        while pending and len(seen) < limit:
            name = self.origin(pending.pop(0))
            if name == tensor:
                return name != self.origin(later)
            node = self.producer.get(name)
            if node is not None and name not in seen:
                seen.add(name)
                pending.extend(node.input)
        return False


def copy_of(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that may be changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def quantised_layers(graph: Graph) -> list[onnx.NodeProto]:
    """The weighted layers that read integers."""
    return [node for node in graph.weighted if graph.origin(node.input[0]) != node.input[0]]


def with_float_layers(model: onnx.ModelProto, layers: Iterable[str]) -> onnx.ModelProto:
    """A copy in which the named layers read float inputs and weights."""
    wanted = set(layers)
    copy = copy_of(model)
    graph = Graph(copy)
    for node in graph.weighted:
        if graph.layer_of(node) in wanted:
            node.input[:] = [graph.origin(name) for name in node.input]
    # An addition reads an integer only where a quantised layer reads the same one.
    kept = {name for node in quantised_layers(Graph(copy)) for name in node.input}
    for node, place in graph.residuals:
        if node.input[place] not in kept:
            node.input[place] = graph.origin(node.input[place])
    left = {node.output[0] for node in quantised_layers(Graph(copy))}
    for node, place in graph.projections:
        if not left.issuperset(map(graph.origin, node.input)):
            node.input[place] = graph.origin(node.input[place])
    drop_unused(copy)
    return copy


def add_pair(model: onnx.ModelProto, name: str, scale: float, suffix: str) -> str:
    """Add a Q/DQ pair behind a tensor; returns the pair's output. The nodes must be sorted afterwards."""
    result = f"{name}_{suffix}"
    constants = {f"{result}_scale": np.float32(scale), f"{result}_zero": np.int8(0)}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items())
    for kind, source, target in (("Quantize", name, f"{result}_integer"), ("Dequantize", f"{result}_integer", result)):
        node = helper.make_node(f"{kind}Linear", [source, *constants], [target], f"{result}_{kind}Linear")
        model.graph.node.append(node)
    return result


def sort_nodes(model: onnx.ModelProto) -> None:
    """Sort nodes topologically."""
    known = {entry.name for entry in (*model.graph.input, *model.graph.initializer)} | {""}
    left, done = list(model.graph.node), []
    while left:
        ready = [node for node in left if known.issuperset(node.input)]
        if not ready:
            raise ValueError(f"no node makes the input of {Graph.layer_of(left[0])}")
        for node in ready:
            known.update(node.output)
        done += ready
        left = [node for node in left if not known.issuperset(node.output)]
    del model.graph.node[:]
    model.graph.node.extend(done)


def drop_unused(model: onnx.ModelProto) -> None:
    """Remove nodes and values that nothing reads."""
    wanted = {entry.name for entry in model.graph.output}
    kept = []
    for node in reversed(model.graph.node):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            kept.append(node)
    values = [tensor for tensor in model.graph.initializer if tensor.name in wanted]
    del model.graph.node[:]
    model.graph.node.extend(reversed(kept))
    del model.graph.initializer[:]
    model.graph.initializer.extend(values)
