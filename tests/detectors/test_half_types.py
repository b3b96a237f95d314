"""Operands of converted graphs: each node gets the type that it asks for, and computes what it did."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import NodeProto as Node
from onnx import TensorProto, helper, numpy_helper

from detectors.half import to_half
from detectors.port import DetectorError
from detectors.tensor_types import types_of
from tests.frameworks.expected import load
from tests.frameworks.runtime import pictures
from tests.support.daemon import ROOT

HALF, FLOAT = TensorProto.FLOAT16, TensorProto.FLOAT
FOLDER = ROOT / "tests" / "data" / "heads"
_SHAPE = (1, 2, 4, 4)
_CONSTANTS = {
    "one": np.float32(1),
    "eight": np.float32(8),
    "tenth": np.float32(0.1),
    "large": np.float32(1e6),
    "four": np.array([4], np.int64),
    "side": np.array([4, 4], np.int64),
    "true": np.array(True),
    "weights": np.ones((2, 2, 1, 1), np.float32),
}


def _node(operation: str, inputs: str, output: str, **attributes: object) -> Node:
    return helper.make_node(operation, inputs.split(","), [output], output, **attributes)


def _model(*nodes: Node, opset: int = 17) -> onnx.ModelProto:
    """From x to y, which is a convolution of z with weights of 1."""
    last = _node("Conv", "z,weights", "y")
    infos = [helper.make_tensor_value_info(name, FLOAT, _SHAPE) for name in "xy"]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in _CONSTANTS.items()]
    graph = helper.make_graph([*nodes, last], "g", infos[:1], infos[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _outputs(model: onnx.ModelProto, value: np.ndarray) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 3  # not that constants are not used
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, {session.get_inputs()[0].name: value})]


def _run(model: onnx.ModelProto, value: np.ndarray) -> np.ndarray:
    (found,) = _outputs(model, value)
    return found


def _of_shape(value: float) -> Node:
    return _node("ConstantOfShape", "four", "c", value=numpy_helper.from_array(np.array([value], np.float32)))


def _choice() -> Sequence[Node]:
    """Two branches that read a tensor of FP16."""
    branches = [
        helper.make_graph([_node(operation, "b,one", f"{operation}_out")], operation, [], [result])
        for operation in ("Add", "Sub")
        for result in [helper.make_tensor_value_info(f"{operation}_out", FLOAT, _SHAPE)]
    ]
    chosen = helper.make_node("If", ["true"], ["c"], "c", then_branch=branches[0], else_branch=branches[1])
    return _node("Mul", "x,tenth", "b"), chosen, _node("Relu", "c", "z")


# Nodes from x to z, and the types of tensors that say how they were converted.
_GRAPHS: dict[str, tuple[Sequence[Node], dict[str, int]]] = {
    "a constant by its shape": ([_of_shape(2), _node("Mul", "x,c", "z")], {"c": HALF, "z": HALF}),
    "a constant without a value": (
        [_node("ConstantOfShape", "four", "c"), _node("Add", "x,c", "z")],
        {"c": HALF, "z": HALF},
    ),
    "a constant beyond FP16": (
        [_of_shape(1e6), _node("Mul", "x,c", "b"), _node("Div", "b,large", "z")],
        {"c": FLOAT, "b": FLOAT, "z": FLOAT},
    ),
    "a bound beyond FP16": ([_of_shape(-1e9), _node("Max", "x,c", "z")], {"c": HALF, "z": HALF}),
    "constants in attributes": (
        [
            helper.make_node("Constant", [], ["c"], value_float=0.5),
            helper.make_node("Constant", [], ["d"], value_floats=[1.0, 2.0, 3.0, 4.0]),
            _node("Mul", "x,c", "b"),
            _node("Mul", "b,d", "z"),
        ],
        {"b": HALF, "z": HALF},
    ),
    "a grid of sizes": (
        [
            _node("Shape", "x", "s", start=2),
            _node("Cast", "s", "c", to=FLOAT),
            _node("ReduceMax", "c", "m", keepdims=0),
            _node("Range", "one,eight,m", "r"),
            _node("Div", "r,m", "d"),
            _node("ReduceMax", "d", "e", keepdims=0),
            _node("Mul", "x,e", "z"),
        ],
        {"c": FLOAT, "r": FLOAT, "d": FLOAT, "z": HALF},
    ),
    "an operation without FP16": (
        [_node("Mul", "x,tenth", "b"), _node("Celu", "b", "c"), _node("Relu", "c", "z")],
        {"b": HALF, "c": FLOAT, "z": HALF},
    ),
    "a matrix of its own type": (
        [_node("Expand", "tenth,side", "e"), _node("EyeLike", "e", "c", dtype=FLOAT), _node("Add", "x,c", "z")],
        {"c": FLOAT, "z": HALF},
    ),
    "branches": (_choice(), {"b": HALF, "c": FLOAT, "z": HALF}),
}  # fmt: skip


@pytest.mark.parametrize("name", list(_GRAPHS))
def test_each_operand_has_the_type_that_its_node_asks_for(name: str) -> None:
    nodes, kinds = _GRAPHS[name]
    value = np.random.default_rng(0).random(_SHAPE).astype(np.float32)
    expected = _run(_model(*nodes), value)
    half = to_half(_model(*nodes))
    onnx.checker.check_model(half, full_check=True)
    types = types_of(half)
    assert {key: types[key] for key in kinds} == kinds
    found = _run(half, value.astype(np.float16))
    assert found.dtype == np.float32
    assert np.abs(found - expected).max() < 4e-3 * max(1, np.abs(expected).max())


@pytest.mark.parametrize("name", ["detr", "dfine", "rfdetr", "rfdetr-roboflow", "rtdetr", "rtdetr-ultralytics"])
def test_heads_of_transformers_find_the_same(name: str) -> None:
    """Most queries have a near neighbour. Untrained weights give near scores, so that FP16 chooses others, too."""
    path = FOLDER / f"{name}.onnx"
    planes = next(planes for _, planes in pictures(load(path.with_suffix(".npz")).placing))
    full, half = (
        [row[0] for row in _outputs(model, planes.astype(kind))]
        for model, kind in ((onnx.load(path), np.float32), (to_half(onnx.load(path)), np.float16))
    )
    scales = [np.abs(one).max(axis=0) for one in full]
    between = [np.abs(one[:, None] - two) / scale for one, two, scale in zip(full, half, scales, strict=True)]
    nearest = np.concatenate(between, axis=2).max(axis=2).min(axis=1)
    assert np.median(nearest) < 0.03


def test_local_functions_are_inlined() -> None:
    """Those of the exporter of PyTorch, with constants of their own."""
    body = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.float32(0.5))),
        helper.make_node("Mul", ["a", "c"], ["b"]),
    ]
    opset = helper.make_opsetid("", 17)
    model = _model(helper.make_node("Halve", ["x"], ["z"], domain="own"))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.append(helper.make_function("own", "Halve", ["a"], ["b"], body, [opset]))
    half = to_half(model)
    assert types_of(half)["z"] == HALF
    assert _run(half, np.ones(_SHAPE, np.float16)).max() == 1


def test_tensors_of_unknown_types_are_refused() -> None:
    """Behind the last layer they are nobody's business, and so are those whose type the file states."""
    own = helper.make_node("Own", ["x"], ["o"], domain="own")
    model = _model(own, _node("Relu", "o", "z"))
    with pytest.raises(DetectorError, match=r"a.onnx: node z \(Relu\) reads o, whose type is not known: set"):
        to_half(model, file="a.onnx")
    model.graph.value_info.append(helper.make_tensor_value_info("o", FLOAT, _SHAPE))
    read = [node.input[0] for node in to_half(model).graph.node]
    assert read == ["x", "x_fp32", "o", "o_fp16", "z", "y_fp16"]
    behind = _model(_node("Relu", "x", "z"))
    behind.graph.node.append(helper.make_node("Own", ["y"], ["o"], domain="own"))
    behind.graph.output.append(onnx.ValueInfoProto(name="o"))
    to_half(behind)


def test_outputs_that_are_constants_stay() -> None:
    model = _model(_node("Relu", "x", "z"), helper.make_node("Constant", [], ["k"], value_floats=[0.1]))
    model.graph.output.append(helper.make_tensor_value_info("k", FLOAT, [1]))
    half = to_half(model)
    onnx.checker.check_model(half, full_check=True)
    assert [node.op_type for node in half.graph.node if node.output[0] == "k"] == ["Constant"]
