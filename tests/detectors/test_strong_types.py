"""Graphs that strongly typed networks take: the parser and builder of TensorRT RTX read every file, or say why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from calibration.placement import share_scales
from calibration.quantize import load, quantize, targets
from detectors.half import keep_in_fp32
from detectors.port import DetectorError
from detectors.tensor_types import check_types
from tests.support.daemon import DEMO_MODEL, ROOT
from tests.support.strong_parser import Job, Result, results

pytestmark = pytest.mark.needs("tensorrt-rtx")
FOLDER = ROOT / "tests" / "data" / "heads"
HEADS = sorted(FOLDER.glob("*.onnx"))
# The others are built by the long test. Ampere, as the RTX 30 has it, and Ada for FP8.
_BUILT = ("yolov8-seg",)
_AMPERE, _ADA = "SM86", "SM89"
_FP8_ON_AMPERE = "fp8 on Ampere"
_NO_NMS = "node {} (NonZero): it has no such operation: export the model without NMS, which Lookout then does itself"


def _int8(path: Path) -> onnx.ModelProto:
    """As `lookout calibrate` writes it, but with ranges of no pictures."""
    model = load(path)
    return quantize(model, {node.input[0]: (-4.0, 4.0) for node in targets(model)})


def _fp8(path: Path) -> onnx.ModelProto:
    """The same with FP8 instead of integers, as ModelOpt writes it."""
    model = _int8(path)
    model.opset_import[0].version = 19
    model.ir_version = 10
    zeros = {node.input[2] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    for tensor in model.graph.initializer:
        if tensor.name in zeros:
            content = np.zeros(numpy_helper.to_array(tensor).shape, np.uint8).tobytes()
            tensor.CopyFrom(helper.make_tensor(tensor.name, TensorProto.FLOAT8E4M3FN, tensor.dims, content, raw=True))
    return model


def _mixed(path: Path) -> onnx.ModelProto:
    """Some layers in FP32 between others in FP16, as a calibration against overflow leaves them."""
    model = load(path)
    layers = [node.name for node in model.graph.node if node.op_type in ("Conv", "Mul", "Concat", "MaxPool")]
    keep_in_fp32(model, frozenset(layers[3::4]))
    return model


_LOWER: dict[str, Callable[[Path], onnx.ModelProto]] = {
    "int8": _int8,
    "int8, shared scales": lambda path: share_scales(_int8(path)),
    "fp8": _fp8,
    "mixed": _mixed,
}


def _planted(path: Path) -> onnx.ModelProto:
    """A layer that reads FP16, with weights in FP32."""
    model = onnx.load(path)
    place, node = next((at, node) for at, node in enumerate(model.graph.node) if node.op_type == "Conv")
    model.graph.node.insert(place, helper.make_node("Cast", [node.input[0]], ["planted"], to=TensorProto.FLOAT16))
    model.graph.node[place + 1].input[0] = "planted"
    return model


def _lower(paths: list[Path], folder: Path) -> Iterator[tuple[str, Job]]:
    for path in paths:
        for number, (name, make) in enumerate(_LOWER.items()):
            made = folder / f"{path.stem}-{number}.onnx"
            onnx.save(make(path), made)
            yield f"{path.stem} {name}", Job(str(made), in_graph=True, card=_ADA if name == "fp8" else _AMPERE)


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """Results of all files in one process, which loads libraries of 230 MB."""
    folder = tmp_path_factory.mktemp("graphs")
    jobs = {f"{path.stem} fp32": Job(str(path)) for path in HEADS}
    jobs |= {f"{path.stem} fp16": Job(str(path), True, _AMPERE if path.stem in _BUILT else "") for path in HEADS}
    jobs |= dict(_lower([DEMO_MODEL], folder))
    jobs[_FP8_ON_AMPERE] = jobs[f"{DEMO_MODEL.stem} fp8"]._replace(card=_AMPERE)
    found = results(list(jobs.values()))
    return {name: found[job] for name, job in jobs.items()}


@pytest.mark.long
def test_every_head_is_read(read: dict[str, Result]) -> None:
    """In FP32 and converted to FP16; one family has an operation that TensorRT RTX lacks, and Ampere has no FP8."""
    refused = {name: result.refusal for name, result in read.items() if result.refusal}
    assert set(refused) == {"yolov8-nms fp32", "yolov8-nms fp16", _FP8_ON_AMPERE}
    assert refused["yolov8-nms fp32"] == refused["yolov8-nms fp16"] == _NO_NMS.format("n222")
    assert "Cannot compile for target(s) sm86, because" in refused[_FP8_ON_AMPERE]
    assert "fp8_e4m3" in refused[_FP8_ON_AMPERE]


@pytest.mark.long
def test_engines_are_built(read: dict[str, Result]) -> None:
    """In FP16, and of each lower precision."""
    built = {name for name, result in read.items() if result.size > 10_000}
    assert built == {f"{name} fp16" for name in _BUILT} | {f"{DEMO_MODEL.stem} {name}" for name in _LOWER}


def test_a_planted_type_is_found_by_lookout_and_by_the_parser(tmp_path: Path) -> None:
    path = tmp_path / "planted.onnx"
    model = _planted(FOLDER / "yolov8.onnx")
    onnx.save(model, path)
    with pytest.raises(DetectorError, match=r"planted.onnx: node n0 \(Conv\) reads FLOAT16 \(planted\) and FLOAT \("):
        check_types(model, path)
    (found,) = results([Job(str(path), unchecked=True)]).values()
    assert found.refusal.startswith("node n0 (Conv): Invalid Node - n0")
    assert "`input` type is Half but `kernel` is of type Float" in found.refusal
    assert "\n" not in found.refusal


@pytest.mark.needs("data")
def test_real_models_are_read(data: Path, tmp_path: Path) -> None:
    paths = [data / "models" / f"{name}.onnx" for name in ("yolov5n", "yolov8n", "yolox_nano")]
    jobs = [Job(str(path), in_graph) for path in paths for in_graph in (False, True)]
    lower = [job._replace(card="") for _, job in _lower([paths[2]], tmp_path)]
    assert set(results([*jobs, *lower]).values()) == {Result()}


@pytest.mark.long
@pytest.mark.parametrize("in_graph", [False, True], ids=["fp32", "fp16"])
def test_every_head_is_built(in_graph: bool, tmp_path: Path) -> None:
    jobs = [Job(str(path), in_graph, _AMPERE) for path in HEADS if path.stem != "yolov8-nms"]
    found = results([*jobs, *(job for _, job in _lower([FOLDER / "yolov8.onnx"], tmp_path))])
    assert [job for job, result in found.items() if result.refusal or result.size < 10_000] == []


@pytest.mark.long
@pytest.mark.needs("data")
def test_every_real_model_is_built(data: Path, tmp_path: Path) -> None:
    paths = sorted((data / "models").glob("*.onnx"))
    jobs = [Job(str(path), in_graph, _AMPERE) for path in paths for in_graph in (False, True)]
    found = results([*jobs, *(job for _, job in _lower(paths, tmp_path))])
    assert [job for job, result in found.items() if result.refusal or result.size < 10_000] == []
