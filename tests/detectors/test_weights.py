"""Weights in files beside a model are part of its digest, wherever a digest decides."""

from __future__ import annotations

import os
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from daemon.batch.settings import recipe_of
from daemon.config.load import parse
from detectors.accuracy_record import AccuracyRecord, find, write
from detectors.model import digest_of
from detectors.onnx_graph import read_graph
from detectors.ort.detector import OrtDetector
from detectors.port import DetectorError, Options
from detectors.trt.model_file import ModelFile
from tests.support.models import toy_model


def _with_external(folder: Path, factor: float = 1.0, location: str = "model.onnx.data") -> Path:
    """The toy model with its boxes in another file."""
    folder.mkdir(parents=True, exist_ok=True)
    model = onnx.load(toy_model(folder / "toy.onnx"))
    for tensor in model.graph.initializer:
        if tensor.name == "boxes":
            boxes = numpy_helper.to_array(tensor) * np.float32(factor)
            tensor.CopyFrom(numpy_helper.from_array(boxes, tensor.name))
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location=location, size_threshold=256)
    return path


def _record(digest: str) -> AccuracyRecord:
    return AccuracyRecord(onnx_sha256=digest, precision="int8", accepted=True, measure="AP", reference=1, value=1,
                          least=1, backend="cpu", frames=1, at="")  # fmt: skip


def test_two_networks_with_one_graph_have_two_digests(tmp_path: Path) -> None:
    """On the CPU, in engines' recipes, in batches, and in records of accuracy."""
    paths = [_with_external(tmp_path / name, factor) for name, factor in (("a", 1.0), ("b", 0.5))]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    digests = [digest_of(path) for path in paths]
    assert digests[0] != digests[1]
    for path, digest in zip(paths, digests):
        with closing(OrtDetector(Options(path, threads=1, max_batch=1))) as detector:
            assert detector.info.digest == digest[:12]
        assert ModelFile(Options(path)).digest == digest
        config = parse(f"model: {{path: {path}}}\nsources: [{{id: a, type: synthetic}}]\n")
        assert recipe_of(config, "ipc:///x").settings["model"]["digest"] == digest
    write(paths[0], _record(digests[0]))
    assert find(paths[0]) == _record(digests[0])
    write(paths[1], _record(digests[0]))
    assert find(paths[1]) is None


def test_a_model_in_one_file_has_that_files_digest(tmp_path: Path) -> None:
    """So its engines and its results keep their names."""
    path = toy_model(tmp_path / "toy.onnx")
    assert digest_of(path) == sha256(path.read_bytes()).hexdigest()


def test_weights_that_change_change_the_digest(tmp_path: Path) -> None:
    """A file is read once, until it is another one."""
    path = _with_external(tmp_path)
    before, weights = digest_of(path), path.with_name("model.onnx.data")
    assert digest_of(path) == before
    content = bytearray(weights.read_bytes())
    content[0] ^= 1
    weights.write_bytes(content)
    assert digest_of(path) != before


def test_weights_that_are_missing_are_named(tmp_path: Path) -> None:
    path = _with_external(tmp_path)
    path.with_name("model.onnx.data").unlink()
    with pytest.raises(DetectorError, match=r"its weights lie in .*model\.onnx\.data, which does not exist: copy it"):
        OrtDetector(Options(path))


@pytest.mark.parametrize("kept", [0, -4])
def test_weights_that_are_cut_off_are_named(kept: int, tmp_path: Path) -> None:
    path = _with_external(tmp_path)
    weights = path.with_name("model.onnx.data")
    whole = weights.read_bytes()
    weights.write_bytes(whole[:kept])
    words = rf"its weights in .*model\.onnx\.data are not complete, {len(whole[:kept])} of {len(whole)} bytes: copy"
    with pytest.raises(DetectorError, match=words) as raised:
        OrtDetector(Options(path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", "a/../../secret", "", "C:\\secret", "a\x00b"])
def test_weights_outside_of_the_folder_are_not_read(location: str, tmp_path: Path) -> None:
    path = _with_external(tmp_path / "models")
    (tmp_path / "secret").write_bytes(b"secret")
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    path.write_bytes(model.SerializeToString())
    with pytest.raises(DetectorError, match="names weights outside of its folder") as raised:
        digest_of(path)
    assert "\n" not in str(raised.value)


def test_weights_that_may_be_endless_are_not_read(tmp_path: Path) -> None:
    path = _with_external(tmp_path)
    weights = path.with_name("model.onnx.data")
    weights.unlink()
    os.mkfifo(weights)
    with pytest.raises(DetectorError, match="is not a file, and cannot hold the weights"):
        digest_of(path)


def _external(name: str, location: str) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def test_weights_are_found_wherever_a_graph_may_have_them() -> None:
    """In initializers, in sparse ones, in constants, in subgraphs, and in functions."""
    value = helper.make_tensor_value_info("out", TensorProto.FLOAT, [1])
    inner = helper.make_graph([helper.make_node("Identity", ["w"], ["out"])], "inner", [], [value])
    inner.initializer.append(_external("w", "inner.data"))
    nodes = [
        helper.make_node("Constant", [], ["c"], value=_external("c", "constant.data")),
        helper.make_node("If", ["c"], ["out"], then_branch=inner, else_branch=inner),
    ]
    graph = helper.make_graph(nodes, "outer", [], [value], [_external("w", "outer.data")])
    sparse = onnx.SparseTensorProto(values=_external("s", "values.data"), indices=_external("i", "indices.data"))
    graph.sparse_initializer.append(sparse)
    constant = helper.make_node("Constant", [], ["f"], value=_external("f", "function.data"))
    function = helper.make_function("own", "F", [], ["f"], [constant], [helper.make_opsetid("", 17)])
    found = read_graph(helper.make_model(graph, functions=[function]).SerializeToString())
    names = ("constant", "inner", "outer", "values", "indices", "function")
    assert set(found.external) == {f"{name}.data" for name in names}
    assert found.operators == {"Constant": 2, "If": 1, "Identity": 2}


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    whole = toy_model(tmp_path / "toy.onnx").read_bytes()
    for end in range(1, len(whole), len(whole) // 40):
        path = tmp_path / "damaged.onnx"
        path.write_bytes(whole[:end])
        assert digest_of(path) == sha256(whole[:end]).hexdigest()
        with pytest.raises(DetectorError, match="is not a complete ONNX model") as raised:
            OrtDetector(Options(path))
        assert "\n" not in str(raised.value)
