"""Element types along the edges of graphs, and what of them does not agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import NodeProto as Node
from onnx import TensorProto, helper, numpy_helper

from detectors.port import DetectorError
from detectors.tensor_types import check_types, conflicts, types_of
from tests.support.daemon import ROOT

FLOAT, HALF, INT64, BOOL = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL
_CONSTANTS = {
    "half": np.ones(4, np.float16),
    "float": np.ones(4, np.float32),
    "count": np.array([4], np.int64),
    "scales": np.ones(4, np.float32),
    "zero": np.array(0, np.int8),
    "true": np.array(True),
}


def _graph(nodes: Sequence[Node], result: str, kind: int = 0, name: str = "g") -> onnx.GraphProto:
    """A graph with an input of each type, and one output."""
    inputs = [helper.make_tensor_value_info(*row, [1, 4, 4, 4]) for row in (("x", FLOAT), ("h", HALF))]
    output = helper.make_tensor_value_info(result, kind, None) if kind else onnx.ValueInfoProto(name=result)
    constants = [numpy_helper.from_array(value, key) for key, value in _CONSTANTS.items()]
    return helper.make_graph(nodes, name, inputs, [output], constants)


def _model(nodes: Sequence[Node], result: str = "y", kind: int = 0, opset: int = 17) -> onnx.ModelProto:
    return helper.make_model(_graph(nodes, result, kind), opset_imports=[helper.make_opsetid("", opset)])


def _node(operation: str, inputs: str, outputs: str = "y", **attributes: object) -> Node:
    return helper.make_node(operation, inputs.split(","), outputs.split(","), "n", **attributes)


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "data" / "heads").glob("*.onnx")), ids=lambda path: path.stem)
def test_files_of_exporters(path: object) -> None:
    """Nothing is found in them, and every type is the one that onnx finds."""
    model = onnx.load(str(path))
    assert conflicts(model) == []
    found = types_of(model)
    inferred = onnx.shape_inference.infer_shapes(model).graph
    entries = (*inferred.value_info, *inferred.output)
    assert {entry.name: found[entry.name] for entry in entries} == {
        entry.name: entry.type.tensor_type.elem_type for entry in entries
    }


_PLANTED = {
    "two operands": (_node("Mul", "x,half"), "node n (Mul) reads FLOAT (x) and FLOAT16 (half), which must be one type"),
    "a joined tensor": (_node("Concat", "x,x,h", axis=1), "reads FLOAT (x) and FLOAT16 (h)"),
    "weights": (_node("InstanceNormalization", "h,half,float"), "reads FLOAT16 (h) and FLOAT (float)"),
    "a bound": (_node("Clip", "h,,float"), "reads FLOAT16 (h) and FLOAT (float)"),
    "one branch of two": (_node("Where", "true,x,h"), "reads FLOAT (x) and FLOAT16 (h)"),
    "no such FP16": (_node("Celu", "h"), "node n (Celu) reads FLOAT16 (h), but takes FLOAT"),
    "NMS": (_node("NonMaxSuppression", "x,h"), "reads FLOAT16 (h), but takes FLOAT"),
    "scales": (_node("Resize", "h,,half"), "reads FLOAT16 (half), but takes FLOAT"),
    "a size": (_node("Reshape", "x,float"), "reads FLOAT (float), but takes INT64"),
    "a grid, which only TensorRT minds": (_node("GridSample", "h,x"), "reads FLOAT16 (h) and FLOAT (x)"),
    "quantisation": (_node("QuantizeLinear", "h,float,zero"), "reads FLOAT16 (h), but takes FLOAT"),
}


@pytest.mark.parametrize("name", list(_PLANTED))
def test_operands_of_two_types(name: str) -> None:
    node, line = _PLANTED[name]
    (found,) = conflicts(_model([node]))
    assert line in found


@pytest.mark.parametrize(("node", "opset"), [
    (_node("Resize", "h,,scales"), 17),
    (_node("Pow", "h,float"), 17),
    (_node("QuantizeLinear", "h,half,zero"), 19),
    (_node("Cast", "h", to=FLOAT), 17),
    (_node("TopK", "h,count", "y,i"), 17),
    (_node("LayerNormalization", "h,half"), 17),
    (_node("BatchNormalization", "h,float,float,float,float"), 17),
    (helper.make_node("Own", ["x", "h"], ["y"], domain="my.own"), 17),
])  # fmt: skip
def test_types_that_may_differ(node: Node, opset: int) -> None:
    """Those of an operation that onnx does not know are its own business."""
    assert conflicts(_model([node], opset=opset)) == []


@pytest.mark.parametrize(("node", "kind"), [
    (_node("ConstantOfShape", "count"), FLOAT),
    (_node("ConstantOfShape", "count", value=numpy_helper.from_array(np.ones(1, np.float16))), HALF),
    (helper.make_node("Constant", [], ["y"], value_floats=[1.0]), FLOAT),
    (helper.make_node("Constant", [], ["y"], value_int=1), INT64),
    (_node("EyeLike", "h"), HALF),
    (_node("EyeLike", "h", dtype=INT64), INT64),
    (_node("Shape", "h"), INT64),
    (_node("DequantizeLinear", "zero,half"), HALF),
    (_node("Equal", "h,h"), BOOL),
    (_node("Identity", "h"), HALF),
])  # fmt: skip
def test_types_of_outputs(node: Node, kind: int) -> None:
    assert types_of(_model([node], opset=23))["y"] == kind


def test_an_output_that_is_declared_as_another_type() -> None:
    found = conflicts(_model([_node("Relu", "h")], kind=FLOAT))
    assert found == ["output y is declared as FLOAT, but is FLOAT16"]


def _if(*nodes: Node) -> Node:
    """A choice between two nodes."""
    outputs = [[onnx.ValueInfoProto(name=node.output[0])] for node in nodes]
    branches = [helper.make_graph([node], "branch", [], output) for node, output in zip(nodes, outputs)]
    return helper.make_node("If", ["true"], ["y"], "if", then_branch=branches[0], else_branch=branches[1])


def test_branches() -> None:
    """Their nodes read the tensors around them, and both must make one type."""
    half, float32 = _node("Relu", "h", "a"), _node("Relu", "x", "b")
    found = conflicts(_model([_if(half, float32)]))
    assert found == ["node if (If) makes FLOAT in one branch and FLOAT16 in the other (y)"]
    found = conflicts(_model([_if(_node("Add", "x,h", "c"), float32)]))
    assert found == ["node n (Add) reads FLOAT (x) and FLOAT16 (h), which must be one type"]
    found = conflicts(_model([_if(float32, float32), _node("Add", "y,h", "z")], "z"))
    assert found == ["node n (Add) reads FLOAT (y) and FLOAT16 (h), which must be one type"]


def test_loops() -> None:
    """What a loop carries has the type that its body declares, and is what the body makes of it."""
    body = helper.make_graph(
        [_node("Identity", "on", "on_out"), _node("Relu", "kept", "kept_out")],
        "body",
        [helper.make_tensor_value_info(*row, None) for row in (("i", INT64), ("on", BOOL), ("kept", FLOAT))],
        [helper.make_tensor_value_info(*row, None) for row in (("on_out", BOOL), ("kept_out", FLOAT))],
    )
    good = helper.make_node("Loop", ["count", "true", "x"], ["y"], "loop", body=body)
    assert conflicts(_model([good])) == []
    assert types_of(_model([good]))["y"] == FLOAT
    wrong = helper.make_node("Loop", ["count", "true", "h"], ["y"], "loop", body=body)
    assert conflicts(_model([wrong])) == ["node loop (Loop) reads FLOAT16 (h) as FLOAT (kept)"]


def test_the_line_names_the_file_and_what_to_do() -> None:
    with pytest.raises(DetectorError, match=r"^a.onnx: node n \(Mul\) reads .*: export the model in FP32 throughout$"):
        check_types(_model([_node("Mul", "x,h")]), "a.onnx")
