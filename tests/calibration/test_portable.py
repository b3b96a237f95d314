"""Problems for TensorRT 8.6, 10 and 11, each planted in a good file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto as Model
from onnx import TensorProto, helper, numpy_helper

from calibration.graph import Graph, quantised_layers
from calibration.portable import READERS, problems
from calibration.quantize import load, observe, quantize, targets
from daemon.sources.scene import Scene
from detectors.half import to_half
from detectors.ort.detector import OrtDetector
from detectors.port import HostImage, Options
from tests.support.daemon import DEMO_MODEL


@pytest.fixture(scope="module")
def good() -> bytes:
    """The demo model, quantised."""
    model = load(DEMO_MODEL)
    with closing(OrtDetector(Options(DEMO_MODEL, max_batch=1))) as detector, closing(detector.lane()) as lane:
        pictures = [HostImage(Scene(640, 360, seed=seed).draw(3)) for seed in range(4)]
        inputs = [lane.preprocess([picture]).copy() for picture in pictures]
    content: bytes = quantize(model, observe(model, inputs).ranges("minmax")).SerializeToString()
    return content


@pytest.fixture
def model(good: bytes) -> Model:
    return onnx.load_model_from_string(good)


def _quantiser(model: Model, *, weight: bool) -> onnx.NodeProto:
    graph = Graph(model)
    return next(
        node for node in graph.nodes if node.op_type == "QuantizeLinear" and graph.is_weight(node.input[0]) is weight
    )


def _value(model: Model, name: str) -> onnx.TensorProto:
    return next(row for row in model.graph.initializer if row.name == name)


def _put(model: Model, name: str, array: np.ndarray) -> None:
    _value(model, name).CopyFrom(numpy_helper.from_array(array, name))


def test_our_files_have_no_problems(model: Model) -> None:
    onnx.checker.check_model(model, full_check=True)
    assert [problems(model, reader) for reader in READERS] == [[], [], []]
    kinds = {row.data_type for row in model.graph.initializer if row.name in
             {node.input[1] for node in model.graph.node if node.op_type == "QuantizeLinear"}}  # fmt: skip
    assert kinds == {TensorProto.FLOAT}


def test_every_layer_but_the_head_computes_on_integers(model: Model) -> None:
    graph = Graph(model)
    layers = {node.name for node in quantised_layers(graph)}
    assert layers == {node.name for node in targets(load(DEMO_MODEL))}
    assert len(layers) + len(graph.head) == len(graph.weighted)
    assert len(layers) > 10


def test_strongly_typed_files_have_no_fp32_before_the_tail(model: Model) -> None:
    half = to_half(model)
    onnx.checker.check_model(half, full_check=True)
    graph = Graph(half)
    assert quantised_layers(graph)
    for node in graph.nodes:
        if node.op_type == "QuantizeLinear":
            assert _value(half, node.input[1]).data_type == TensorProto.FLOAT16


def _fp16_scale(model: Model) -> None:
    name = _quantiser(model, weight=False).input[1]
    _put(model, name, numpy_helper.to_array(_value(model, name)).astype(np.float16))


def _new_opset(model: Model) -> None:
    model.opset_import[0].version = 19


def _no_zero_point(model: Model) -> None:
    del _quantiser(model, weight=False).input[2]


def _zero_point_of_3(model: Model) -> None:
    _put(model, _quantiser(model, weight=False).input[2], np.array(3, np.int8))


def _uint8(model: Model) -> None:
    _put(model, _quantiser(model, weight=False).input[2], np.array(0, np.uint8))


def _scale_of_0(model: Model) -> None:
    _put(model, _quantiser(model, weight=False).input[1], np.array(0, np.float32))


def _scales_of_channels(model: Model) -> None:
    _put(model, _quantiser(model, weight=False).input[1], np.array([0.1, 0.2], np.float32))


def _wrong_axis(model: Model) -> None:
    for node in model.graph.node:
        for row in node.attribute:
            if row.name == "axis" and node.op_type == "DequantizeLinear":
                row.i = 1


def _integers_in_the_file(model: Model) -> None:
    """Weights stored as INT8."""
    node = _quantiser(model, weight=True)
    weights = numpy_helper.to_array(_value(model, node.input[0]))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(weights.shape, np.int8), "stored"))
    after = next(
        row for row in model.graph.node if row.op_type == "DequantizeLinear" and row.input[0] == node.output[0]
    )
    after.input[0] = "stored"


def _other_scale_behind(model: Model) -> None:
    node = _quantiser(model, weight=False)
    after = next(
        row for row in model.graph.node if row.op_type == "DequantizeLinear" and row.input[0] == node.output[0]
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array(0.5, np.float32), "other"))
    after.input[1] = "other"


def _pair(model: Model, tensor: str, position: int) -> str:
    """Add a Q/DQ pair to a tensor; returns its output."""
    node = _quantiser(model, weight=False)
    rest = node.input[1:]
    pair = [
        helper.make_node("QuantizeLinear", [tensor, *rest], [f"{tensor}_q"], "planted"),
        helper.make_node("DequantizeLinear", [f"{tensor}_q", *rest], [f"{tensor}_dq"], "planted_back"),
    ]
    for row in reversed(pair):
        model.graph.node.insert(position, row)
    return f"{tensor}_dq"


def _before_the_activation(model: Model) -> None:
    graph = Graph(model)
    place, layer = next((at, row) for at, row in enumerate(graph.nodes) if row.op_type == "Conv")
    readers = [(row, at) for row in graph.readers[layer.output[0]] for at, name in enumerate(row.input)
               if name == layer.output[0]]  # fmt: skip
    result = _pair(model, layer.output[0], place + 1)
    for row, at in readers:
        row.input[at] = result


def _behind_the_head(model: Model) -> None:
    graph = Graph(model)
    layer = graph.head[-1]
    reader = graph.readers[layer.output[0]][0]
    at = list(reader.input).index(layer.output[0])
    place = next(number for number, row in enumerate(graph.nodes) if row.output[0] == layer.output[0])
    result = _pair(model, layer.output[0], place + 1)
    reader.input[at] = result


def _head_of_integers(model: Model) -> None:
    layer = Graph(model).head[0]
    place = next(number for number, row in enumerate(model.graph.node) if row.output[0] == layer.output[0])
    tensor = layer.input[0]
    result = _pair(model, tensor, place)
    next(row for row in model.graph.node if row.output[0] == layer.output[0]).input[0] = result


def _dynamic(model: Model) -> None:
    model.graph.node.append(helper.make_node("ConvInteger", ["a", "b"], ["c"], "planted"))


TRAPS: dict[str, tuple[Callable[[Model], None], str, tuple[str, ...]]] = {
    "FP16 scales": (_fp16_scale, "is FP16, which 8.6 reads as if it were FP32", ("8.6",)),
    "a newer opset": (_new_opset, "opset 19: 8.6 reads up to 17", ("8.6",)),
    "no zero point": (_no_zero_point, "has no zero point", READERS),
    "a zero point": (_zero_point_of_3, "zero point is not 0", READERS),
    "unsigned": (_uint8, "zero point is UINT8", READERS),
    "no scale": (_scale_of_0, "must be positive and finite", READERS),
    "activations by channel": (_scales_of_channels, "an activation has 2 scales", READERS),
    "weights by the other axis": (_wrong_axis, "lie along axis 1", READERS),
    "integer weights": (_integers_in_the_file, "integers stored in the file", READERS),
    "another scale behind": (_other_scale_behind, "its scale differs from that of", READERS),
    "between layer and activation": (_before_the_activation, "and its activation, and prevents their fusion", READERS),
    "pixels and scores": (_behind_the_head, "quantises outputs of the head", READERS),
    "the head": (_head_of_integers, "belongs to the head but reads integers", READERS),
    "onnxruntime's operators": (_dynamic, "ConvInteger is onnxruntime's own", READERS),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("trap", list(TRAPS))
def test_each_planted_problem_is_found(model: Model, trap: str) -> None:
    plant, words, readers = TRAPS[trap]
    plant(model)
    for reader in READERS:
        found = problems(model, reader)
        assert any(words in line for line in found) is (reader in readers), (reader, found)


def test_types_that_do_not_agree_are_found(model: Model) -> None:
    """A float constant that the conversion to FP16 misses, read together with FP16."""
    graph = model.graph
    layer = next(node for node in graph.node if node.op_type == "Conv")
    cast = helper.make_node("Cast", [layer.output[0]], ["wide"], "planted", to=TensorProto.DOUBLE)
    back = helper.make_node("Add", ["wide", layer.output[0]], ["mixed"], "mixing")
    place = next(number for number, node in enumerate(graph.node) if node.output[0] == layer.output[0])
    reader = Graph(model).readers[layer.output[0]][0]
    reader.input[list(reader.input).index(layer.output[0])] = "mixed"
    graph.node.insert(place + 1, back)
    graph.node.insert(place + 1, cast)
    assert problems(model, "10")
    assert problems(model, "11")


@pytest.mark.needs("data")
@pytest.mark.parametrize(("name", "head"), [("yolov5n", 3), ("yolov8n", 7), ("yolox_nano", 9)])
def test_heads_are_found_by_structure(data: Path, name: str, head: int) -> None:
    """Three convolutions; three times two plus the one over a softmax; three times three."""
    model = load(data / "models" / f"{name}.onnx")
    assert len(Graph(model).head) == head
    assert len(Graph(model).residuals) in (6, 7)


@pytest.mark.needs("data")
def test_where_pairs_stand(data: Path) -> None:
    """Pairs of yolov8n by producing node, and the tensors a concatenation reads without a pair."""
    model = load(data / "models" / "yolov8n.onnx")
    graph = Graph(quantize(model, {node.input[0]: (-1.0, 1.0) for node in targets(model)}))
    pairs = [node for node in graph.nodes if node.op_type == "QuantizeLinear" and not graph.is_weight(node.input[0])]
    behind = Counter(graph.producer[node.input[0]].op_type for node in pairs if node.input[0] in graph.producer)
    assert behind == {"Mul": 28, "Concat": 13, "Split": 8, "Add": 2}
    others = Counter(row.op_type for node in pairs for row in graph.readers[node.input[0]] if row is not node)
    assert others == {"Concat": 12}
