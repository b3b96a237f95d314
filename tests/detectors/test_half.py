"""FP16 written into a graph: what TensorRT 10 and 11 are given, run here by onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from daemon.sources.scene import Scene
from detectors.half import tail, to_half
from detectors.heads import recognise
from detectors.letterbox import fit, preprocess
from detectors.matching import match
from detectors.port import Wanted
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


def test_the_boxes_are_those_of_the_model(half: onnx.ModelProto) -> None:
    """Nothing of a picture is lost by half the precision: the same boxes, to a hundredth of a pixel in IoU terms."""
    original = ort.InferenceSession(str(DEMO_MODEL), providers=["CPUExecutionProvider"])
    converted = ort.InferenceSession(half.SerializeToString(), providers=["CPUExecutionProvider"])
    name, (_, _, height, width) = original.get_inputs()[0].name, original.get_inputs()[0].shape
    count = 0
    for seed in range(4):
        picture = Scene(640, 360, seed=seed).draw(7)
        shape = (1, *original.run(None, {name: np.zeros((1, 3, height, width), np.float32)})[0].shape[1:])
        head = recognise([("out", shape)], (width, height), original.get_modelmeta().custom_metadata_map)
        values, box = preprocess(picture, head.spec)[None], fit(640, 360, head.spec)
        wanted = Wanted(0.5)
        full = head.detections(original.run(None, {name: values})[0][0], box, wanted)
        less = head.detections(converted.run(None, {name: values.astype(np.float16)})[0][0], box, wanted)
        assert len(match(full.xyxy, full.class_id, less.xyxy, less.class_id, 0.95)) == len(full)
        count += len(full)
    assert count > 8


@pytest.mark.needs("data")
@pytest.mark.parametrize("name", ["yolov5n", "yolov8n", "yolox_nano"])
def test_what_computes_pixels_stays_fp32(data: Path, name: str) -> None:
    """The last layers of real models, and no convolution: 85 % of their nodes become FP16."""
    model = onnx.load(data / "models" / f"{name}.onnx")
    kept = [model.graph.node[number].op_type for number in tail(model.graph)]
    assert kept
    assert "Conv" not in kept
    assert len(kept) < 0.3 * len(model.graph.node)
    half = to_half(model)
    onnx.checker.check_model(half, full_check=True)
    (output,) = half.graph.output
    assert output.type.tensor_type.elem_type == FLOAT


def test_an_output_that_is_read_inside_too() -> None:
    """Of a convolution that is an output itself, and feeds what stays FP32 and another convolution."""
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
