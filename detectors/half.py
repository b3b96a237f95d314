"""Converts a graph to FP16, for backends that read precision from the graph."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from detectors.port import DetectorError

_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_FLOAT_INPUTS = (("Resize", 1), ("Resize", 2))  # region and scales are FP32
_FP16_MAX = float(np.finfo(np.float16).max)
_MIN_SCALE = 2.0**-14  # of quantisation; smaller scales lose digits in FP16
_QUANTISING = ("QuantizeLinear", "DequantizeLinear")
_QUANTISING_OPSET = 19  # the first that quantises FP16
_BOUNDED = ("Clip", "Max", "Min", "Where")  # their bounds are clipped to FP16's range: a larger bound has no effect
_FP32_NODES_KEY = "lookout.fp32_nodes"  # of the file's metadata


def to_half(model: onnx.ModelProto, keep: frozenset[str] = frozenset()) -> onnx.ModelProto:
    """Convert a model in place to FP16 input, weights and arithmetic, with FP32 outputs.

    Nodes after the last weighted layer stay FP32: they compute boxes in pixels, and above 512 FP16 has a resolution of
    half a pixel. Nodes with a weight beyond FP16's range stay FP32, and so do those listed in the file.

    Args:
        keep: names of further nodes that stay FP32, see `fp32_nodes`.

    Raises:
        DetectorError: the model has branches or loops, or lacks a node to keep.
    """
    graph = model.graph
    keep |= fp32_nodes(model)
    if unknown := keep - {node.name for node in graph.node}:
        raise DetectorError(f"the model has no node {min(unknown)!r} to keep in FP32")
    if any(attribute.HasField("g") for node in graph.node for attribute in node.attribute):
        raise DetectorError("a model with branches or loops cannot be converted to FP16: set model.precision: fp32")
    types = _types(model)
    _constants_to_initializers(graph)
    _raise_opset(model)
    large = _beyond_half(graph)
    full = tail(graph)
    full |= {number for number, node in enumerate(graph.node) if node.name in keep or large.intersection(node.input)}
    body = [node for number, node in enumerate(graph.node) if number not in full]
    _halve_weights(graph, body)
    halved = {name for node in body for name in node.output if types.get(name) == TensorProto.FLOAT}
    for entry in graph.input:
        if entry.type.tensor_type.elem_type == TensorProto.FLOAT:
            entry.type.tensor_type.elem_type = TensorProto.FLOAT16
            halved.add(entry.name)
    for node in body:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    floats = {name for number in full for name in graph.node[number].output if types.get(name) == TensorProto.FLOAT}
    _cast_between(graph, full, halved, floats)
    del graph.value_info[:]
    return model


def keep_in_fp32(model: onnx.ModelProto, nodes: frozenset[str]) -> None:
    """Write into a float model's metadata which nodes `to_half` leaves FP32."""
    entry = next((row for row in model.metadata_props if row.key == _FP32_NODES_KEY), None)
    entry = entry or model.metadata_props.add(key=_FP32_NODES_KEY)
    entry.value = "\n".join(sorted(nodes))


def fp32_nodes(model: onnx.ModelProto) -> frozenset[str]:
    """The nodes that stay FP32, from the file's metadata."""
    rows = (row.value.split("\n") for row in model.metadata_props if row.key == _FP32_NODES_KEY)
    return frozenset(name for names in rows for name in names if name)


def tail(graph: onnx.GraphProto) -> set[int]:
    """Indices of the nodes after the last weighted layer on every path to an output."""
    before_weights: set[str] = set()  # tensors that a weighted layer depends on
    after: set[int] = set()
    for number in reversed(range(len(graph.node))):  # ONNX keeps nodes in topological order
        node = graph.node[number]
        if node.op_type in _WEIGHTED or before_weights.intersection(node.output):
            before_weights.update(node.input)
        else:
            after.add(number)
    return after


def _types(model: onnx.ModelProto) -> dict[str, int]:
    """Element type of every tensor."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    entries = (*graph.value_info, *graph.input, *graph.output)
    return {entry.name: entry.type.tensor_type.elem_type for entry in entries}


def _constants_to_initializers(graph: onnx.GraphProto) -> None:
    """Replace Constant nodes by initializers."""
    kept = []
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensor = TensorProto()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
            graph.initializer.append(tensor)
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)


def _raise_opset(model: onnx.ModelProto) -> None:
    """Raise a quantised model to the first opset that quantises FP16, and rewrite operators that changed."""
    version = next(entry for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    graph = model.graph
    if version.version >= _QUANTISING_OPSET or not any(node.op_type in _QUANTISING for node in graph.node):
        return
    for node in graph.node:
        if node.op_type == "Split" and len(node.input) < 2:
            node.attribute.append(helper.make_attribute("num_outputs", len(node.output)))
        axes = next((row for row in node.attribute if row.name == "axes"), None)
        if node.op_type.startswith("Reduce") and axes is not None:
            name = f"{node.output[0]}_axes"
            graph.initializer.append(numpy_helper.from_array(np.array(axes.ints, np.int64), name))
            node.input.append(name)
            node.attribute.remove(axes)
    version.version = _QUANTISING_OPSET
    model.ir_version = max(model.ir_version, 9)


def _beyond_half(graph: onnx.GraphProto) -> set[str]:
    """Constants beyond FP16's range that a node computes with, except bounds."""
    bounds = {name for node in graph.node if node.op_type in _BOUNDED for name in node.input}
    found = set()
    for weight in graph.initializer:
        if weight.data_type == TensorProto.FLOAT and weight.name not in bounds:
            values = np.abs(numpy_helper.to_array(weight))
            if not values.max(initial=0.0) <= _FP16_MAX:
                found.add(weight.name)
    return found


def _halve_weights(graph: onnx.GraphProto, body: list[onnx.NodeProto]) -> None:
    """Give these nodes FP16 copies of their constants."""
    floats = {weight.name: weight for weight in graph.initializer if weight.data_type == TensorProto.FLOAT}
    halves: dict[str, str] = {}
    scales = {node.input[1] for node in body if node.op_type in _QUANTISING}
    for node in body:
        for place, name in enumerate(node.input):
            if name in floats and (node.op_type, place) not in _FLOAT_INPUTS:
                halves.setdefault(name, f"{name}_fp16")
                node.input[place] = halves[name]
    for name, half in halves.items():
        values = np.clip(numpy_helper.to_array(floats[name]), -_FP16_MAX, _FP16_MAX).astype(np.float16)
        if name in scales:
            values = np.maximum(values, np.float16(_MIN_SCALE))
        graph.initializer.append(numpy_helper.from_array(values, half))
    used = {name for node in graph.node for name in node.input}
    kept = [weight for weight in graph.initializer if weight.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _cast_between(graph: onnx.GraphProto, full: set[int], halved: set[str], floats: set[str]) -> None:
    """Add a cast for each tensor that is FP16 but read as FP32, or the reverse; the model's outputs become FP32.

    Args:
        full: indices of the FP32 nodes.
        halved, floats: FP16 tensors, and outputs of FP32 nodes.
    """
    nodes = list(graph.node)
    outputs = {entry.name for entry in graph.output} & halved
    up = {name for number in full for name in nodes[number].input if name in halved} - outputs
    down = {name for number, node in enumerate(nodes) if number not in full for name in node.input if name in floats}
    # An output keeps its name as FP32 and is renamed before its cast; other tensors are renamed after their cast.
    before = {name: f"{name}_fp16" for name in outputs}
    wide, narrow = {name: f"{name}_fp32" for name in up}, {name: f"{name}_fp16" for name in down}
    casts = {half: _cast(half, name, TensorProto.FLOAT) for name, half in sorted(before.items())}
    casts |= {name: _cast(name, float32, TensorProto.FLOAT) for name, float32 in sorted(wide.items())}
    casts |= {name: _cast(name, half, TensorProto.FLOAT16) for name, half in sorted(narrow.items())}
    ordered: list[onnx.NodeProto] = []
    for number, node in enumerate(nodes):
        names = wide if number in full else before | narrow
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [before.get(name, name) for name in node.output]
        ordered.append(node)
        ordered.extend(casts.pop(name) for name in node.output if name in casts)
    del graph.node[:]
    graph.node.extend([*casts.values(), *ordered])  # the remaining casts read the model's input


def _cast(name: str, result: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [name], [result], to=to)


def with_float_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """Convert FP16 outputs of a model to FP32, in place."""
    graph = model.graph
    halves = [entry for entry in graph.output if entry.type.tensor_type.elem_type == TensorProto.FLOAT16]
    names = {entry.name: f"{entry.name}_fp16" for entry in halves}
    for node in graph.node if names else ():
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for entry in halves:
        graph.node.append(_cast(names[entry.name], entry.name, TensorProto.FLOAT))
        entry.type.tensor_type.elem_type = TensorProto.FLOAT
    return model
