"""Models that do what no user wants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

_TURNS = 10**12  # at a nanosecond each, a quarter of an hour
_MEAN = helper.make_node("ReduceMean", ["images"], ["mean"], keepdims=0)
_FLOAT, _VALUE = TensorProto.FLOAT, helper.make_tensor_value_info


def endless_model(path: Path) -> Path:
    """A model whose first run does not return: ONNX may hold a loop of any length."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes_on"]),
            helper.make_node("Add", ["before", "one"], ["after"]),
        ],
        "body",
        [_VALUE("turn", TensorProto.INT64, []), _VALUE("going", TensorProto.BOOL, []), _VALUE("before", _FLOAT, [])],
        [_VALUE("goes_on", TensorProto.BOOL, []), _VALUE("after", _FLOAT, [])],
        [numpy_helper.from_array(np.ones((), np.float32), "one")],
    )
    loop = helper.make_node("Loop", ["turns", "true", "mean"], ["seen"], body=body)
    more = {"turns": np.array(_TURNS, np.int64), "true": np.array(True)}
    return _written(path, [_MEAN, loop], np.zeros((1, 300, 6), np.float32), {"0": "thing"}, more)


def constant_model(path: Path, row: Sequence[float], names: dict[str, str] | None = None) -> Path:
    """A model that finds the same boxes in every picture.

    Args:
        row: x1, y1, x2, y2, confidence and class of each of its 300 boxes, in its input of 64x64.
        names: its labels, by number.
    """
    rows = np.tile(np.array(row, np.float32), (1, 300, 1))
    seen = helper.make_node("Identity", ["mean"], ["seen"])
    return _written(path, [_MEAN, seen], rows, names or {"0": "thing", "1": "other"}, {})


def _written(
    path: Path, nodes: Sequence[NodeProto], rows: np.ndarray, names: dict[str, str], more: dict[str, np.ndarray]
) -> Path:
    """A model that gives `rows`, whatever `seen` is that the nodes make of `images`."""
    given = {"rows": rows, "zero": np.zeros((), np.float32), **more}
    graph = helper.make_graph(
        [*nodes, helper.make_node("Mul", ["seen", "zero"], ["nothing"]),
         helper.make_node("Add", ["rows", "nothing"], ["output"])],
        "model",
        [_VALUE("images", _FLOAT, [1, 3, 64, 64])],
        [_VALUE("output", _FLOAT, [1, 300, 6])],
        [numpy_helper.from_array(array, name) for name, array in given.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    labels = "{" + ", ".join(f"{number}: {label!r}" for number, label in names.items()) + "}"
    for key, text in {"names": labels, "task": "detect"}.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, text
    path.write_bytes(model.SerializeToString())
    return path
