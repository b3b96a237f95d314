"""Conversion of graphs to FP16, as TensorRT 10 and 11 get them; run here by onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from daemon.sources.scene import Scene
from detectors.half import fp32_nodes, keep_in_fp32, tail, to_half
from detectors.heads.layout import ModelFacts
from detectors.heads.recognise import recognise
from detectors.letterbox import fit, preprocess
from detectors.matching import match
from detectors.port import DetectorError, PostprocessParams
from tests.support.daemon import DEMO_MODEL

HALF, FLOAT = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT


@pytest.fixture(scope="module")
def half() -> onnx.ModelProto:
    return to_half(onnx.load(DEMO_MODEL))


def test_input_and_weights_are_fp16_and_the_output_is_fp32(half: onnx.ModelProto) -> None:
    onnx.checker.check_model(half, full_check=True)
    assert [node.type.tensor_type.elem_type for node in half.graph.input] == [HALF]
    assert [node.type.tensor_type.elem_type for node in half.graph.output] == [FLOAT]
    weights = {weight.name: weight.data_type for weight in half.graph.initializer}
    convolutions = [node for node in half.graph.node if node.op_type == "Conv"]
    assert len(convolutions) > 10
    assert {weights[node.input[1]] for node in convolutions} == {HALF}


def test_boxes_agree_with_fp32(half: onnx.ModelProto) -> None:
    """FP16 loses no box, and moves none by a hundredth of its area."""
    original = ort.InferenceSession(str(DEMO_MODEL), providers=["CPUExecutionProvider"])
    converted = ort.InferenceSession(half.SerializeToString(), providers=["CPUExecutionProvider"])
    name, (_, _, height, width) = original.get_inputs()[0].name, original.get_inputs()[0].shape
    count = 0
    for seed in range(4):
        picture = Scene(640, 360, seed=seed).draw(7)
        shape = (1, *original.run(None, {name: np.zeros((1, 3, height, width), np.float32)})[0].shape[1:])
        head = recognise(ModelFacts([("out", shape)], (width, height), original.get_modelmeta().custom_metadata_map))
        values, box = preprocess(picture, head.spec)[None], fit(640, 360, head.spec)
        wanted = PostprocessParams(0.5)
        full = head.detections({"out": original.run(None, {name: values})[0][0]}, box, wanted)
        less = head.detections({"out": converted.run(None, {name: values.astype(np.float16)})[0][0]}, box, wanted)
        assert len(match(full.xyxy, full.class_id, less.xyxy, less.class_id, 0.99)) == len(full) == len(less)
        count += len(full)
    assert count > 8


@pytest.mark.needs("data")
@pytest.mark.parametrize("name", ["yolov5n", "yolov8n", "yolox_nano"])
def test_layers_that_compute_pixels_stay_fp32(data: Path, name: str) -> None:
    """The last layers of real models, but no convolution: 85 % of their nodes become FP16."""
    model = onnx.load(data / "models" / f"{name}.onnx")
    kept = [model.graph.node[number].op_type for number in tail(model.graph)]
    assert kept
    assert "Conv" not in kept
    assert len(kept) < 0.3 * len(model.graph.node)
    half = to_half(model)
    onnx.checker.check_model(half, full_check=True)
    (output,) = half.graph.output
    assert output.type.tensor_type.elem_type == FLOAT


def test_an_output_that_other_nodes_read() -> None:
    """A convolution's output that is also a model output, read by an FP32 node and by a convolution."""
    weights = onnx.numpy_helper.from_array(np.full((1, 1, 1, 1), 2, np.float32), "w")
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["a"]),
        onnx.helper.make_node("Conv", ["a", "w"], ["b"]),
        onnx.helper.make_node("Add", ["a", "b"], ["c"]),
    ]
    shape = (1, 1, 2, 2)
    infos = [onnx.helper.make_tensor_value_info(name, FLOAT, shape) for name in "xac"]
    graph = onnx.helper.make_graph(nodes, "g", infos[:1], infos[1:], [weights])
    half = to_half(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8))
    onnx.checker.check_model(half, full_check=True)
    session = ort.InferenceSession(half.SerializeToString(), providers=["CPUExecutionProvider"])
    a, c = session.run(None, {"x": np.ones(shape, np.float16)})
    assert (a.dtype, c.dtype) == (np.float32, np.float32)
    assert (a.max(), c.max()) == (2, 6)


def _chain(*operations: tuple[str, float]) -> onnx.ModelProto:
    """A chain of operations with one constant each and a final convolution by 1, from x to y."""
    nodes, constants, name = [], [], "x"
    for number, (operation, value) in enumerate([*operations, ("Conv", 1.0)]):
        shape = (1, 1, 1, 1) if operation == "Conv" else ()
        constants.append(onnx.numpy_helper.from_array(np.full(shape, value, np.float32), f"c{number}"))
        result = "y" if number == len(operations) else f"t{number}"
        nodes.append(onnx.helper.make_node(operation, [name, f"c{number}"], [result], f"{operation}{number}"))
        name = result
    shape = (1, 1, 2, 2)
    infos = [onnx.helper.make_tensor_value_info(name, FLOAT, shape) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "g", infos[:1], infos[1:], constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def _run(model: onnx.ModelProto, value: float) -> float:
    onnx.checker.check_model(model, full_check=True)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": np.full((1, 1, 2, 2), value, np.float16)})
    assert result.dtype == np.float32
    return float(result.max())


def _types(model: onnx.ModelProto) -> dict[str, int]:
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True).graph
    return {row.name: row.type.tensor_type.elem_type for row in (*inferred.value_info, *inferred.output)}


def test_kept_nodes_compute_in_fp32() -> None:
    """Casts only where FP16 begins and ends."""
    operations = (("Mul", 2.0), ("Add", 4096.0), ("Sub", 4096.0), ("Mul", 3.0))
    kept = to_half(_chain(*operations), frozenset({"Add1", "Sub2"}))
    types = _types(kept)
    assert [types[name] for name in ("t0", "t1", "t2", "t3")] == [HALF, FLOAT, FLOAT, HALF]
    assert [node.op_type for node in kept.graph.node] == ["Mul", "Cast", "Add", "Sub", "Cast", "Mul", "Conv", "Cast"]
    assert _run(kept, 0.5) == 3.0
    assert [_types(to_half(_chain(*operations)))[name] for name in ("t1", "t2")] == [HALF, HALF]


def test_nodes_with_weights_beyond_fp16_stay_fp32() -> None:
    """Such weights are not clipped to 65504. A bound of that size is clipped: it has no effect either way."""
    kept = to_half(_chain(("Mul", 1e6), ("Mul", 1e-6), ("Min", 1e30)))
    types = _types(kept)
    assert [types[name] for name in ("t0", "t1", "t2")] == [FLOAT, HALF, HALF]
    bound = next(row for row in kept.graph.initializer if row.name == "c2_fp16")
    assert onnx.numpy_helper.to_array(bound) == np.float16(65504)
    assert _run(kept, 0.01) == pytest.approx(0.01, rel=0.05)


def test_a_file_lists_nodes_to_keep() -> None:
    model = _chain(("Add", 4096.0), ("Sub", 4096.0))
    keep_in_fp32(model, frozenset({"Sub1", "Add0"}))
    assert fp32_nodes(model) == {"Add0", "Sub1"}
    assert [_types(to_half(model))[name] for name in ("t0", "t1")] == [FLOAT, FLOAT]
    keep_in_fp32(model, frozenset({"gone"}))
    with pytest.raises(DetectorError, match="has no node 'gone'"):
        to_half(model)
