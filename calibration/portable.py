"""Whether TensorRT 8.6, 10 and 11 read a quantised file alike, by rules: their own errors differ too much to rely on.

8.6 reads the file as it is, and takes every scale for FP32. 10 and 11 read the output of `detectors.half` and take each
tensor's type from it: a mismatch is refused or, worse, computed in FP32.
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
from detectors.port import DetectorError
from detectors.tensor_types import types_of

Reader = Literal["8.6", "10", "11"]
READERS: tuple[Reader, ...] = ("8.6", "10", "11")
_STRONG_OPSET = 19
_INT8 = TensorProto.INT8
_FP8 = TensorProto.FLOAT8E4M3FN
_ACTIVATIONS = ("Sigmoid", "Relu", "LeakyRelu", "HardSwish", "Clip", "Tanh", "HardSigmoid")


def problems(model: onnx.ModelProto, reader: Reader) -> list[str]:
    """Problems of a file for a version of TensorRT: misread, refused or slow. One line each; empty for a good file.

    Args:
        model: from `calibration.quantize` or another quantiser; not changed.
    """
    found = [*_operators(model), *_pairs(model), *_places(model)]
    if reader == "8.6":
        found += _check_8_6(model)
    elif not found:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        try:
            found += _check_strongly_typed(to_half(copy))
        except DetectorError as error:
            found.append(str(error))
    return list(dict.fromkeys(found))


def _operators(model: onnx.ModelProto) -> Iterator[str]:
    for node in model.graph.node:
        if node.op_type in INTEGER_OPS:
            yield f"{_name(node)}: {node.op_type} is onnxruntime's own; TensorRT reads Q/DQ pairs only"


def _pairs(model: onnx.ModelProto) -> Iterator[str]:
    """Problems of scales and zero points."""
    graph = Graph(model)
    axes = {name: axis for node in graph.nodes if node.op_type in WEIGHTED for name, axis in _weight_axis(graph, node)}
    for node in graph.nodes:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        name = _name(node)
        scale = graph.value(node.input[1])
        if scale is None:
            yield f"{name}: its scale is computed, but must be a constant"
            continue
        if scale.dtype not in (np.float32, np.float16):
            yield f"{name}: its scale is {scale.dtype}"
        if not np.isfinite(scale).all() or not (np.asarray(scale, np.float64) > 0).all():
            yield f"{name}: its scale must be positive and finite"
        yield from _zero_point(graph, node)
        weight = node.output[0] in axes if node.op_type == "DequantizeLinear" else graph.is_weight(node.input[0])
        if scale.size > 1 and not weight:
            yield f"{name}: an activation has {scale.size} scales; only one is allowed"
        elif scale.size > 1:
            axis = next((int(row.i) for row in node.attribute if row.name == "axis"), 1)
            channel_axis = axes.get(node.output[0])
            if channel_axis is not None and axis != channel_axis:
                yield f"{name}: its scales lie along axis {axis}, but output channels along axis {channel_axis}"
        if node.op_type == "DequantizeLinear":
            before = graph.producer.get(node.input[0])
            if before is None or before.op_type != "QuantizeLinear":
                yield f"{name}: reads integers stored in the file; 8.6 needs float weights and a full Q/DQ pair"
            elif not _same(graph.value(before.input[1]), scale):
                yield f"{name}: its scale differs from that of {_name(before)} before it"


def _zero_point(graph: Graph, node: onnx.NodeProto) -> Iterator[str]:
    if len(node.input) < 3 or not node.input[2]:
        yield f"{_name(node)}: has no zero point, which makes it UINT8"
        return
    tensor = next((row for row in graph.model.graph.initializer if row.name == node.input[2]), None)
    if tensor is None:
        yield f"{_name(node)}: its zero point is computed, but must be a constant"
    elif tensor.data_type not in (_INT8, _FP8):
        yield f"{_name(node)}: its zero point is {TensorProto.DataType.Name(tensor.data_type)}, but must be INT8 or FP8"
    elif tensor.data_type == _INT8 and np.asarray(graph.value(node.input[2])).any():
        yield f"{_name(node)}: its zero point is not 0"


def _places(model: onnx.ModelProto) -> Iterator[str]:
    """Problems of places: pairs that prevent fusion or round boxes."""
    graph = Graph(model)
    head = {node.output[0]: node for node in graph.head}
    after = _downstream(graph, set(head))
    for node in graph.nodes:
        if node.op_type != "QuantizeLinear":
            continue
        source = graph.producer.get(node.input[0])
        if (
            source is not None
            and source.op_type in WEIGHTED
            and any(reader.op_type in _ACTIVATIONS for reader in _pair_readers(graph, node))
        ):
            yield f"{_name(node)}: lies between {_name(source)} and its activation, and prevents their fusion"
        if source is not None and source.op_type == "Sigmoid" and len(graph.readers.get(source.output[0], ())) > 1:
            yield f"{_name(node)}: quantises a sigmoid, which is fused only with the product it feeds"
        if node.input[0] in after:
            yield f"{_name(node)}: quantises outputs of the head: one scale for pixels and scores rounds scores to 0"
    for node in head.values():
        if graph.origin(node.input[0]) != node.input[0]:
            yield f"{_name(node)}: belongs to the head but reads integers, which rounds boxes"


def _check_8_6(model: onnx.ModelProto) -> Iterator[str]:
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
                yield f"{_name(node)}: is FP8, which 8.6 does not support"


def _check_strongly_typed(model: onnx.ModelProto) -> Iterator[str]:
    """Faults that a strongly typed network would compute with; `to_half` has checked that types agree."""
    if any(node.op_type == "QuantizeLinear" for node in model.graph.node) and _opset(model) < _STRONG_OPSET:
        yield f"opset {_opset(model)}: quantising FP16 needs {_STRONG_OPSET}"
    types = types_of(model)
    for node in model.graph.node:
        kinds = [types.get(name, 0) for name in node.input]
        if unknown := [name for name in node.output if name and not types.get(name)]:
            yield f"{_name(node)}: the type of {unknown[0]} is unknown"
        if node.op_type == "QuantizeLinear" and kinds[0] != kinds[1]:
            yield f"{_name(node)}: its scale and its input have different types"
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
    """The tensors between a layer's weights and the layer, with the axis of its output channels."""
    if len(node.input) < 2 or not graph.is_weight(node.input[1]):
        return
    transposed = any(row.name == "transB" and row.i for row in node.attribute)
    rank = np.ndim(graph.value(graph.origin(node.input[1])))  # type: ignore[arg-type]
    axis = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0 if transposed else 1}.get(node.op_type, rank - 1)
    name = node.input[1]
    while name in graph.producer and graph.producer[name].op_type in ("DequantizeLinear", "QuantizeLinear"):
        yield name, axis
        name = graph.producer[name].input[0]


def _pair_readers(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The nodes that read a Q/DQ pair's output."""
    return [
        reader
        for second in graph.readers.get(node.output[0], ())
        for reader in (graph.readers.get(second.output[0], ()) if second.op_type == "DequantizeLinear" else (second,))
    ]


def _downstream(graph: Graph, names: set[str]) -> set[str]:
    """These tensors and all tensors computed from them."""
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
