"""Has TensorRT's parser read a model file, as its network wants it."""

from __future__ import annotations

from typing import Any

import onnx

from detectors.half import to_half, with_float_outputs
from detectors.tensor_types import check_types

_OF_NMS = ("NonMaxSuppression", "NonZero")


def read_model(parser: Any, path: str, *, in_graph: bool) -> str:
    """Parse the file, with FP32 outputs; converted to FP16 if the graph must have that precision.

    Returns:
        Why the parser refuses it, in one line; empty if it does not.

    Raises:
        DetectorError: types do not agree.
    """
    model = with_float_outputs(onnx.load(path))
    if in_graph:
        to_half(model, file=path)
    else:
        check_types(model, path)
    return "" if parser.parse(model.SerializeToString()) else refusal_of(parser, model.graph)


def refusal_of(parser: Any, graph: onnx.GraphProto) -> str:
    """The first complaint of a parser, in one line, with a remedy where one is known."""
    problem = parser.get_error(0)
    reason = " ".join(str(problem.desc()).partition("\n[")[0].split())  # what follows is that there is no GPU
    if not 0 <= problem.node() < len(graph.node):
        return reason
    node = graph.node[problem.node()]
    reason = "it has no such operation" if "plugin registry" in reason else reason
    advice = ": export the model without NMS, which Lookout then does itself" if node.op_type in _OF_NMS else ""
    return f"node {node.name or node.output[0]} ({node.op_type}): {reason}{advice}"
