"""Placement of INT8: shared scales of joined tensors, and layers that are faster in float."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from calibration.graph import Graph, quantised_layers, with_float_layers
from calibration.kernel_times import by_layer, slower
from calibration.placement import Placement
from calibration.placement_search import PlacementSearch, PlacementTrial
from calibration.portable import READERS, problems
from calibration.quantize import load, observe, quantize, session_of, targets
from detectors.port import Detector, Options
from tests.support.daemon import DEMO_MODEL
from tests.support.resnet import resnet50

_JOINING = ("Concat", "Slice", "Split", "MaxPool", "Resize")


@dataclass(frozen=True)
class Made:
    """A model, its INT8 form with a scale per layer, and their input."""

    model: onnx.ModelProto
    quantised: onnx.ModelProto
    pixels: npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def made() -> Made:
    model = load(DEMO_MODEL)
    size = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]]
    pixels = np.random.default_rng(0).random((2, 3, *size), np.float32)
    return Made(model, quantize(model, observe(model, [pixels], threads=1).ranges("minmax")), pixels)


def test_joined_tensors_share_a_scale(made: Made) -> None:
    """Each input and output of a passing node has a pair, and all pairs share one scale."""
    shared = Placement("shared").of(made.quantised)
    graph = Graph(shared)
    joined = 0
    for node in graph.nodes:
        pair = graph.producer.get(node.input[0]) if node.op_type in _JOINING else None
        if pair is None or pair.op_type != "DequantizeLinear":
            continue
        data = node.input if node.op_type == "Concat" else node.input[:1]
        scales = {float(np.asarray(graph.value(graph.producer[name].input[1]))) for name in data}
        readers = [reader for reader in graph.readers[node.output[0]] if reader.op_type == "QuantizeLinear"]
        scales |= {float(np.asarray(graph.value(reader.input[1]))) for reader in readers}
        assert len(scales) == 1, node.name
        assert readers, node.name
        joined += 1
    assert joined > 15
    for reader in READERS:
        assert problems(shared, reader) == []


def test_shared_scales_cost_little_accuracy(made: Made) -> None:
    """Shared scales at most double the error."""
    models = (made.model, made.quantised, Placement("shared").of(made.quantised))
    exact, apart, shared = (session_of(model, 1).run(None, {"images": made.pixels})[0] for model in models)
    assert np.abs(shared - exact).mean() <= 2 * np.abs(apart - exact).mean()
    assert not np.array_equal(shared, apart)


def test_unused_pairs_are_removed(made: Made) -> None:
    layers = [node.name for node in quantised_layers(Graph(made.quantised))]
    some, none = Placement("shared", frozenset(layers[:-1])), Placement("shared", frozenset(layers))
    left = Graph(some.of(made.quantised))
    assert [node.name for node in quantised_layers(left)] == layers[-1:]
    assert not any(node.op_type == "QuantizeLinear" for node in none.of(made.quantised).graph.node)


def test_a_residual_with_a_layer_of_its_own_is_an_integer(tmp_path: Path) -> None:
    """The addition is fused with the other layer. If either layer is float, so is the residual."""
    model = load(resnet50(tmp_path / "resnet50.onnx", size=32, narrow=8))
    pixels = np.random.default_rng(0).standard_normal((1, 3, 32, 32), np.float32)
    quantised = quantize(model, observe(model, [pixels], threads=1).ranges("minmax"))
    assert _residuals(quantised) == {"stage0_0_add", "stage1_0_add", "stage2_0_add", "stage3_0_add"}
    for layer in ("stage1_0_beside", "stage1_0_conv3"):
        assert _residuals(with_float_layers(quantised, [layer])) == {"stage0_0_add", "stage2_0_add", "stage3_0_add"}


def _residuals(model: onnx.ModelProto) -> set[str]:
    """Additions that read a layer's output through a pair."""
    graph = Graph(model)
    weighted = {node.output[0] for node in graph.weighted}
    return {
        node.name
        for node in graph.nodes
        if node.op_type == "Add" and any(name not in weighted and graph.origin(name) in weighted for name in node.input)
    }


# --- kernel times ---------------------------------------------------------------------------------------


@pytest.mark.needs("data")
def test_kernel_times_by_name(data: Path) -> None:
    """Names as TensorRT 8.6 writes them: fused, single, parallel, reformatting, and pairs by tensor."""
    model = load(data / "models" / "yolov8n.onnx")
    convolution = "model.1.conv.weight + model.1.conv.weight_QuantizeLinear + /model.1/conv/Conv"
    kernels = [
        ("images_QuantizeLinear", 1.0),
        (f"{convolution} + PWN(/model.1/act/Sigmoid, /model.1/act/Mul)", 2.0),
        ("PWN(PWN(/model.2/m.0/cv2/act/Sigmoid, /model.2/m.0/cv2/act/Mul), /model.2/m.0/Add)", 4.0),
        ("/model.2/Split_output_1_shared_DequantizeLinear_clone_1", 8.0),
        (f"Reformatting CopyNode for Input Tensor 0 to {convolution}", 16.0),
        ("/model.14/Concat_/model.13/Resize_output_0_shared_clone_0 copy", 32.0),
        ("/model.22/cv2.0/cv2.0.0/conv/Conv || /model.22/cv3.0/cv3.0.0/conv/Conv", 64.0),
        ("something of TensorRT's own", 128.0),
    ]
    assert by_layer(model, kernels) == {
        "/model.0/conv/Conv": 1.0,
        "/model.1/conv/Conv": 18.0,
        "/model.2/m.0/cv2/conv/Conv": 4.0,
        "/model.2/cv1/conv/Conv": 8.0,
        "/model.12/cv2/conv/Conv": 32.0,
        "/model.22/cv2.0/cv2.0.0/conv/Conv": 32.0,
        "/model.22/cv3.0/cv3.0.0/conv/Conv": 32.0,
    }


def test_layers_that_are_slower_as_integers() -> None:
    floats = {"a": 1.0, "b": 1.0, "c": 1.0}
    assert slower(floats, {"a": 0.5, "b": 1.05, "c": 1.2, "d": 9.0}, margin=0.1) == {"c"}


# --- the search -----------------------------------------------------------------------------------------


class _Device:
    """A device with integer layers of half the float time, some of twice; a concatenation that is quantised afterwards
    takes as long as a layer.
    """

    def __init__(self, slow: Sequence[str]) -> None:
        self._slow = set(slow)
        self.opened: list[str] = []

    def __call__(self, options: Options) -> Detector:
        content = options.path.read_bytes()
        self.opened.append(f"{options.precision} {hash(content)}")
        graph = Graph(onnx.load_from_string(content))
        integers = {node.name for node in quantised_layers(graph)}
        rows = [
            SimpleNamespace(name=node.name, milliseconds=1.0 if node.name not in integers else self._integer(node.name))
            for node in graph.weighted
        ]
        quantised_after = [
            node
            for node in graph.nodes
            if node.op_type == "QuantizeLinear"
            and (before := graph.producer.get(node.input[0])) is not None
            and before.op_type == "Concat"
            and graph.producer[before.input[0]].op_type != "DequantizeLinear"
        ]
        rows += [SimpleNamespace(name=node.name, milliseconds=1.0) for node in quantised_after]
        whole = sum(row.milliseconds for row in rows) / 1e3
        return cast(
            "Detector",
            SimpleNamespace(
                info=SimpleNamespace(max_batch=8),
                layers=lambda: rows,
                lane=lambda: SimpleNamespace(replay=lambda _size, times: whole * times, close=lambda: None),
                close=lambda: None,
            ),
        )

    def _integer(self, name: str) -> float:
        return 2.0 if name in self._slow else 0.5


def _search(made: Made, device: _Device, folder: Path) -> tuple[list[PlacementTrial], PlacementSearch]:
    placing = PlacementSearch(device, made.model, Options(DEMO_MODEL), folder / "tried.onnx", lambda: None)
    return placing.search(made.quantised), placing


def test_the_fastest_placement_is_found(made: Made, tmp_path: Path) -> None:
    slow = [node.name for node in targets(made.model)][3:6]
    device = _Device(slow)
    tried, placing = _search(made, device, tmp_path)
    assert tried[0].placement == Placement("shared", frozenset(slow))
    assert [row.milliseconds for row in tried] == sorted(row.milliseconds or 0 for row in tried)
    assert {row.placement for row in tried} >= {Placement("layers"), Placement("shared")}
    assert len(placing.rejected(tried[0].placement)) == len(tried) - 1


def test_without_slower_layers_only_both_kinds_are_tried(made: Made, tmp_path: Path) -> None:
    tried, _ = _search(made, _Device([]), tmp_path)
    assert [row.placement for row in tried] == [Placement("shared"), Placement("layers")]


def test_a_repeated_search_opens_the_same_files(made: Made, tmp_path: Path) -> None:
    """So it finds engines that were built before an interruption."""
    slow = [node.name for node in targets(made.model)][3:6]
    first, again = _Device(slow), _Device(slow)
    for device in (first, again):
        _search(made, device, tmp_path)
    assert first.opened == again.opened
    assert len(set(first.opened)) == 4
