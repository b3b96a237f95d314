"""FP16 written into the graph, for a TensorRT that takes precision from there alone."""

from __future__ import annotations

import onnx
from onnxruntime.transformers.float16 import convert_float_to_float16

_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def to_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with FP16 input, weights and arithmetic, and FP32 outputs. The one given is changed.

    What follows the last weighted layer stays FP32: it computes boxes in pixels, and above 512 FP16 knows every
    second half pixel only.
    """
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"node_{number}"
    outputs = [output.name for output in model.graph.output]
    half: onnx.ModelProto = convert_float_to_float16(model, keep_io_types=outputs, node_block_list=tail(model))
    return half


def tail(model: onnx.ModelProto) -> list[str]:
    """Names of the nodes after the last weighted layer on every way to an output."""
    before_weights: set[str] = set()  # tensors that some weighted layer depends on
    names = []
    for node in reversed(model.graph.node):  # ONNX keeps them in topological order
        weighted = node.op_type in _WEIGHTED
        if weighted or any(output in before_weights for output in node.output):
            before_weights.update(node.input)
        else:
            names.append(node.name)
    return names
