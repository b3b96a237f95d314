"""Models that do what no user wants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

_TURNS = 10**12  # at a nanosecond each, a quarter of an hour


def endless_model(path: Path) -> Path:
    """A model whose first run does not return: ONNX may hold a loop of any length."""
    scalar, value = TensorProto.FLOAT, helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes_on"]),
            helper.make_node("Add", ["before", "one"], ["after"]),
        ],
        "body",
        [value("turn", TensorProto.INT64, []), value("going", TensorProto.BOOL, []), value("before", scalar, [])],
        [value("goes_on", TensorProto.BOOL, []), value("after", scalar, [])],
        [numpy_helper.from_array(np.ones((), np.float32), "one")],
    )
    graph = helper.make_graph(
        [
            helper.make_node("ReduceMean", ["images"], ["mean"], keepdims=0),
            helper.make_node("Loop", ["turns", "true", "mean"], ["sum"], body=body),
            helper.make_node("Mul", ["sum", "zero"], ["nothing"]),
            helper.make_node("Add", ["rows", "nothing"], ["output"]),
        ],
        "endless",
        [value("images", scalar, [1, 3, 64, 64])],
        [value("output", scalar, [1, 300, 6])],
        [
            numpy_helper.from_array(np.array(_TURNS, np.int64), "turns"),
            numpy_helper.from_array(np.array(True), "true"),
            numpy_helper.from_array(np.zeros((), np.float32), "zero"),
            numpy_helper.from_array(np.zeros((1, 300, 6), np.float32), "rows"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    for key, text in {"names": "{0: 'thing'}", "task": "detect"}.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, text
    path.write_bytes(model.SerializeToString())
    return path
