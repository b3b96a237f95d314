"""Two backends, tensor by tensor."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from calibration.comparison import Compared, compare, exact_values, watched


def _model() -> ModelProto:
    """Twice the input, its root, and that negative."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Add", ["images", "images"], ["twice"], "doubling"),
        helper.make_node("Sqrt", ["twice"], ["root"], "rooting"),
        helper.make_node("Neg", ["root"], ["output"], "turning"),
    ]
    shape = [1, 3, 2, 2]
    graph = helper.make_graph(nodes, "model", [value("images", TensorProto.FLOAT, shape)],
                              [value("output", TensorProto.FLOAT, shape)])  # fmt: skip
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def test_rows_are_in_the_order_of_computing_and_tell_by_how_much() -> None:
    model, pixels = _model(), np.full((1, 3, 2, 2), 2, np.float32)
    names = watched(model, everything=True)
    exact = exact_values(model, names, pixels)
    other = {name: np.asarray(array, np.float32) for name, array in exact.items()}
    other["root"] = other["root"] * np.float32(1.5)
    rows = compare(model, exact, dict(reversed(other.items())))
    assert [row.name for row in rows] == ["twice", "root", "output"]
    assert [row.made_by for row in rows] == ["Add doubling", "Sqrt rooting", "Neg turning"]
    assert [row.error for row in rows] == pytest.approx([0, 0.5, 0])
    assert rows[0].largest == 4


def test_what_is_no_number_is_counted_where_the_exact_value_is_one() -> None:
    model, pixels = _model(), np.ones((1, 3, 2, 2), np.float32)
    pixels[0, 0, 0, 0] = -1  # whose root is no number in either
    exact = exact_values(model, watched(model, everything=True), pixels)
    other = {name: np.array(array, np.float32) for name, array in exact.items()}
    other["output"][0, 1, 0, 0], other["output"][0, 2] = np.nan, np.inf
    rows = {row.name: row for row in compare(model, exact, other)}
    assert rows["root"] == Compared("root", "Sqrt rooting", float(np.sqrt(np.float32(2))), 0.0, 0, 0)
    assert (rows["output"].nans, rows["output"].infinities) == (1, 4)
    assert rows["output"].error == float("inf")


def test_what_is_watched_is_what_layers_with_weights_read_and_the_outputs() -> None:
    assert watched(_model()) == ["output"]
