"""Whether a quantised file means the same to TensorRT 8.6, 10 and 11: by rule, because no two of them complain alike.

8.6 reads the file as it is and takes scales for FP32 whatever they are. 10 and 11 read what `detectors.half` makes of
it, and take every tensor's type from there: what does not agree is refused, or worse, computed in FP32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto

from calibration.graph import WEIGHTED, Graph
from calibration.quantize import INTEGER_OPS, OPSET
from detectors.half import to_half

Reader = Literal["8.6", "10", "11"]
READERS: tuple[Reader, ...] = ("8.6", "10", "11")
_STRONG_OPSET = 19
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
_INT8 = TensorProto.INT8
_FP8 = TensorProto.FLOAT8E4M3FN
_MIXED = ("Cast", "Resize", "QuantizeLinear", "DequantizeLinear", "Where", "Range", "Shape")
_ACTIVATIONS = ("Sigmoid", "Relu", "LeakyRelu", "HardSwish", "Clip", "Tanh", "HardSigmoid")


def problems(model: onnx.ModelProto, reader: Reader) -> list[str]:
    """What a version would misread, refuse or run slowly, a line each; empty for a good file.

    Args:
        model: as `calibration.quantize` or another quantiser made it. It is not changed.
    """
    found = [*_operators(model), *_pairs(model), *_places(model)]
    if reader == "8.6":
        found += _eight(model)
    elif not found:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        found += _strong(to_half(copy))
    return list(dict.fromkeys(found))


def _operators(model: onnx.ModelProto) -> Iterator[str]:
    for node in model.graph.node:
        if node.op_type in INTEGER_OPS:
            yield f"{_name(node)}: {node.op_type} is onnxruntime's own: only pairs of quantise and dequantise are read"


def _pairs(model: onnx.ModelProto) -> Iterator[str]:
    """Scales and zero points, and whose they are."""
    graph = Graph(model)
    axes = {name: axis for node in graph.nodes if node.op_type in WEIGHTED for name, axis in _weight_axis(graph, node)}
    for node in graph.nodes:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        name = _name(node)
        scale = graph.value(node.input[1])
        if scale is None:
            yield f"{name}: its scale is computed, and must be a value in the file"
            continue
        if scale.dtype not in (np.float32, np.float16):
            yield f"{name}: its scale is {scale.dtype}"
        if not np.isfinite(scale).all() or not (np.asarray(scale, np.float64) > 0).all():
            yield f"{name}: its scale must be positive and finite"
        yield from _zero_point(graph, node)
        weight = node.output[0] in axes if node.op_type == "DequantizeLinear" else graph.is_weight(node.input[0])
        if scale.size > 1 and not weight:
            yield f"{name}: an activation has {scale.size} scales, and may have one"
        elif scale.size > 1:
            axis = next((int(row.i) for row in node.attribute if row.name == "axis"), 1)
            wanted = axes.get(node.output[0])
            if wanted is not None and axis != wanted:
                yield f"{name}: its scales lie along axis {axis}, and output channels along {wanted}"
        if node.op_type == "DequantizeLinear":
            before = graph.producer.get(node.input[0])
            if before is None or before.op_type != "QuantizeLinear":
                yield f"{name}: reads integers stored in the file: 8.6 wants float weights and both of the pair"
            elif not _same(graph.value(before.input[1]), scale):
                yield f"{name}: its scale is not that of {_name(before)} before it"


def _zero_point(graph: Graph, node: onnx.NodeProto) -> Iterator[str]:
    if len(node.input) < 3 or not node.input[2]:
        yield f"{_name(node)}: has no zero point, which makes it UINT8"
        return
    tensor = next((row for row in graph.model.graph.initializer if row.name == node.input[2]), None)
    if tensor is None:
        yield f"{_name(node)}: its zero point is computed, and must be a value in the file"
    elif tensor.data_type not in (_INT8, _FP8):
        yield f"{_name(node)}: its zero point is {TensorProto.DataType.Name(tensor.data_type)}, and must be INT8 or FP8"
    elif tensor.data_type == _INT8 and np.asarray(graph.value(node.input[2])).any():
        yield f"{_name(node)}: its zero point is not 0"


def _places(model: onnx.ModelProto) -> Iterator[str]:
    """Where pairs keep layers from being fused, or round boxes."""
    graph = Graph(model)
    head = {node.output[0]: node for node in graph.head}
    after = _after(graph, set(head))
    for node in graph.nodes:
        if node.op_type != "QuantizeLinear":
            continue
        source = graph.producer.get(node.input[0])
        if (
            source is not None
            and source.op_type in WEIGHTED
            and any(reader.op_type in _ACTIVATIONS for reader in _through(graph, node))
        ):
            yield f"{_name(node)}: lies between {_name(source)} and its activation, which are then not fused"
        if source is not None and source.op_type == "Sigmoid" and len(graph.readers.get(source.output[0], ())) > 1:
            yield f"{_name(node)}: quantises a sigmoid, which is fused only with what it multiplies"
        if node.input[0] in after:
            yield f"{_name(node)}: quantises what the head computes: one scale for pixels and scores rounds scores to 0"
    for node in head.values():
        if graph.origin(node.input[0]) != node.input[0]:
            yield f"{_name(node)}: is of the head and reads integers: boxes are rounded by it"


def _eight(model: onnx.ModelProto) -> Iterator[str]:
    version = _opset(model)
    if version > OPSET:
        yield f"opset {version}: 8.6 reads up to {OPSET}"
    graph = Graph(model)
    for node in graph.nodes:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            scale = graph.value(node.input[1])
            if scale is not None and scale.dtype == np.float16:
                yield f"{_name(node)}: its scale is FP16, which 8.6 reads as if it were FP32"
            zero = next((row for row in graph.model.graph.initializer if row.name in node.input[2:]), None)
            if zero is not None and zero.data_type == _FP8:
                yield f"{_name(node)}: is FP8, which 8.6 does not know"


def _strong(model: onnx.ModelProto) -> Iterator[str]:
    """Types of every tensor of a strongly typed network."""
    if any(node.op_type == "QuantizeLinear" for node in model.graph.node) and _opset(model) < _STRONG_OPSET:
        yield f"opset {_opset(model)}: quantising FP16 needs {_STRONG_OPSET}"
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except Exception as error:  # noqa: BLE001 - onnx's own have no base class
        yield f"types do not agree: {' '.join(str(error).split())[:200]}"
        return
    entries = (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
    types = {entry.name: entry.type.tensor_type.elem_type for entry in entries}
    types |= {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    for node in model.graph.node:
        unknown = [name for name in node.output if name and name not in types]
        if unknown:
            yield f"{_name(node)}: the type of {unknown[0]} cannot be told"
        kinds = {types.get(name) for name in node.input if name} & set(_FLOATS)
        if node.op_type not in _MIXED and len(kinds) > 1:
            names = ", ".join(sorted(TensorProto.DataType.Name(kind) for kind in kinds if kind is not None))
            yield f"{_name(node)}: reads {names} at once, and nothing is converted by itself"
        if node.op_type == "QuantizeLinear" and types.get(node.input[0]) != types.get(node.input[1]):
            yield f"{_name(node)}: its scale has not the type of what it quantises"
        if node.op_type in WEIGHTED and TensorProto.FLOAT in kinds:
            yield f"{_name(node)}: computes in FP32"
    for entry in model.graph.output:
        if entry.type.tensor_type.elem_type != TensorProto.FLOAT:
            yield f"output {entry.name} is not FP32"
    graph = Graph(model)
    for node in graph.nodes:
        if node.op_type == "QuantizeLinear":
            scale = graph.value(node.input[1])
            if scale is not None and (np.asarray(scale, np.float64) < 2.0**-14).any():
                yield f"{_name(node)}: its scale is too small for FP16"


def _weight_axis(graph: Graph, node: onnx.NodeProto) -> Iterator[tuple[str, int]]:
    """The tensors of a layer's weights on their way to it, and the axis of its output channels."""
    if len(node.input) < 2 or not graph.is_weight(node.input[1]):
        return
    transposed = any(row.name == "transB" and row.i for row in node.attribute)
    rank = np.ndim(graph.value(graph.origin(node.input[1])))  # type: ignore[arg-type]
    axis = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0 if transposed else 1}.get(node.op_type, rank - 1)
    name = node.input[1]
    while name in graph.producer and graph.producer[name].op_type in ("DequantizeLinear", "QuantizeLinear"):
        yield name, axis
        name = graph.producer[name].input[0]


def _through(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The nodes that read a pair's result."""
    return [
        reader
        for second in graph.readers.get(node.output[0], ())
        for reader in (graph.readers.get(second.output[0], ()) if second.op_type == "DequantizeLinear" else (second,))
    ]


def _after(graph: Graph, names: set[str]) -> set[str]:
    """Everything computed from some tensors, themselves included."""
    reached = set(names)
    for node in graph.nodes:
        if reached.intersection(node.input):
            reached.update(node.output)
    return reached


def _same(a: object, b: object) -> bool:
    return a is not None and bool(np.array_equal(np.asarray(a), np.asarray(b)))


def _opset(model: onnx.ModelProto) -> int:
    return next((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def _name(node: onnx.NodeProto) -> str:
    return str(node.name or node.output[0])
