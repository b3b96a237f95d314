"""Comparison of two backends, tensor by tensor."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from calibration.comparison import TensorDifference, compare, compared_tensors, exact_values


def _model() -> ModelProto:
    """Twice the input, its root, and the root's negative."""
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


def test_differences_are_in_order_of_computation() -> None:
    model, pixels = _model(), np.full((1, 3, 2, 2), 2, np.float32)
    names = compared_tensors(model, everything=True)
    exact = exact_values(model, names, pixels)
    other = {name: np.asarray(array, np.float32) for name, array in exact.items()}
    other["root"] = other["root"] * np.float32(1.5)
    rows = compare(model, exact, dict(reversed(other.items())))
    assert [row.name for row in rows] == ["twice", "root", "output"]
    assert [row.made_by for row in rows] == ["Add doubling", "Sqrt rooting", "Neg turning"]
    assert [row.error for row in rows] == pytest.approx([0, 0.5, 0])
    assert rows[0].largest == 4


def test_nans_and_infinities_are_counted() -> None:
    model, pixels = _model(), np.ones((1, 3, 2, 2), np.float32)
    pixels[0, 0, 0, 0] = -1  # its root is NaN on both
    exact = exact_values(model, compared_tensors(model, everything=True), pixels)
    other = {name: np.array(array, np.float32) for name, array in exact.items()}
    other["output"][0, 1, 0, 0], other["output"][0, 2] = np.nan, np.inf
    rows = {row.name: row for row in compare(model, exact, other)}
    root = float(np.nanmax(exact["root"]))
    assert rows["root"] == TensorDifference("root", "Sqrt rooting", root, 0.0, 0, 0)
    assert root == pytest.approx(2**0.5)
    assert (rows["output"].nans, rows["output"].infinities) == (1, 4)
    assert rows["output"].error == float("inf")


def test_inputs_of_weighted_layers_and_outputs_are_compared() -> None:
    assert compared_tensors(_model()) == ["output"]
