"""Models that Lookout does not run are refused in one line that names what was seen, and the likely task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from detectors.cpu.detector import CpuDetector
from detectors.port import DetectorError, Options

Shape = Sequence[int | str]
_FLOAT, _INT, _BYTE = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8
_PICTURE: tuple[str, int, Shape] = ("images", _FLOAT, (1, 3, 96, 96))
_CELLS = 12 * 12 + 6 * 6 + 3 * 3


def _model(
    path: Path, inputs: Sequence[tuple[str, int, Shape]], outputs: Sequence[tuple[str, Shape]], metadata: dict[str, str]
) -> Path:
    """A file whose outputs are random constants."""
    rng, nodes = np.random.default_rng(0), []
    for name, shape in outputs:
        value = numpy_helper.from_array(np.asarray(rng.normal(0, 3, [int(side) for side in shape]), np.float32))
        nodes.append(helper.make_node("Constant", [], [name], value=value))
    graph = helper.make_graph(
        nodes,
        "other",
        [helper.make_tensor_value_info(*given) for given in inputs],
        [helper.make_tensor_value_info(name, _FLOAT, shape) for name, shape in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)
    onnx.save(model, path)
    return path


def _refused(
    path: Path,
    inputs: Sequence[tuple[str, int, Shape]],
    outputs: Sequence[tuple[str, Shape]],
    metadata: dict[str, str] | None = None,
) -> str:
    with pytest.raises(DetectorError) as caught:
        CpuDetector(Options(_model(path / "other.onnx", inputs, outputs, metadata or {}), threads=1))
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ([("scores", (1, 21, 96, 96))], "semantic segmentation"),
        ([("depth", (1, 1, 96, 96))], "semantic segmentation or another picture"),
        ([("high", (1, 3, 192, 192))], "feature maps"),
        ([("p3", (1, 64, 12, 12)), ("p4", (1, 64, 6, 6)), ("p5", (1, 64, 3, 3))], "feature maps"),
        ([("cells", (1, 255, 12, 12))], "feature maps"),
        ([("heat", (1, 17, 24, 24))], "feature maps"),
        ([("tokens", (1, 197, 384))], "head not recognised|scores for"),
        ([("embedding", (1, 512))], "model.head: classify"),
        ([("logits", (1, 1000))], "model.head: classify"),
        ([("logits", (1, 1000, 1, 1))], "model.head: classify"),
        ([("age", (1, 1))], "age 1x1"),
        ([("boxes", (1, 100, 4)), ("scores", (1, 100, 21))], "boxes 1x100x4"),
        ([("boxes", (1, 100, 4)), ("scores", (1, 100))], "scores 1x100"),
        ([("boxes", (1, 100, 4)), ("classes", (1, 100)), ("scores", (1, 100)), ("count", (1,))], "count 1"),
        ([("boxes", (100, 4)), ("labels", (100,)), ("scores", (100,))], "boxes 100x4"),
        ([("rows", (1, 84, 77))], "another input size"),
        ([("rows", (1, 56, _CELLS))], "56 rows indicate a pose model"),
        ([("rows", (1, 84, _CELLS))], "range from 0 to 1"),
        ([("rows", (1, 300, 5))], "rows 1x300x5"),
        ([("landmarks", (1, 136))], "model.head: classify"),
        ([("logits", (1, 26, 37))], "logits 1x26x37"),
        ([("a", (1, 10)), ("b", (1, 10))], "a 1x10, b 1x10"),
        ([("scalar", ())], "scalar"),
        ([("nothing", (1, 0, 6))], "nothing 1x0x6"),
        ([("video", (1, 3, 8, 96, 96))], "video 1x3x8x96x96"),
    ],
)
def test_other_outputs_are_refused(tmp_path: Path, outputs: list[tuple[str, Shape]], expected: str) -> None:
    text = _refused(tmp_path, [_PICTURE], outputs)
    assert any(part in text for part in expected.split("|")), text


@pytest.mark.parametrize(
    "inputs",
    [
        [("samples", _FLOAT, (1, 16000))],
        [("tokens", _INT, (1, 77))],
        [("tokens", _INT, (1, 77)), ("attention_mask", _INT, (1, 77))],
        [("images", _FLOAT, (1, 96, 96, 3))],
        [("images", _FLOAT, (1, 1, 96, 96))],
        [("images", _FLOAT, (1, 4, 96, 96))],
        [("images", _BYTE, (1, 3, 96, 96))],
        [("left", _FLOAT, (1, 3, 96, 96)), ("right", _FLOAT, (1, 3, 96, 96))],
        [("clip", _FLOAT, (1, 3, 8, 96, 96))],
        [("images", _FLOAT, (1, 3, 96, 96)), ("threshold", _FLOAT, (1,))],
        [("image", _FLOAT, (3, 96, 96))],
    ],
)
def test_other_inputs_are_refused(tmp_path: Path, inputs: list[tuple[str, int, Shape]]) -> None:
    text = _refused(tmp_path, inputs, [("output", (1, 84, _CELLS))])
    assert "needs one float input of (batch, 3, height, width), but has" in text
    assert all(name in text for name, *_ in inputs)


@pytest.mark.parametrize("task", ["semantic", "depth", "track", "super-resolution"])
def test_other_tasks_are_refused(tmp_path: Path, task: str) -> None:
    assert f"the model's task is '{task}'" in _refused(tmp_path, [_PICTURE], [("o", (1, 84, _CELLS))], {"task": task})


@pytest.mark.parametrize("task", ["pose", "obb", "segment", "classify"])
def test_outputs_must_be_those_of_the_task(tmp_path: Path, task: str) -> None:
    text = _refused(tmp_path, [_PICTURE], [("o", (1, 84, 77))], {"task": task})
    assert f"the task is {task}" in text
