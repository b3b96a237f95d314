"""OpenVINO by onnxruntime: the tests that `test_providers.py` runs in a Python of their own."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from daemon.cli import invoke
from daemon.sources.scene import Scene
from detectors.factory import open_detector
from detectors.ort.unsigned import unsigned
from detectors.port import BackendUnavailableError, DetectorError, HostImage, Options, PostprocessParams
from tests.support.daemon import DEMO_MODEL, ROOT

HEADS = ROOT / "tests" / "data" / "heads"
_OPTIONS = Options(DEMO_MODEL, wanted=PostprocessParams(0.3), max_batch=2, threads=1, provider="openvino")


def test_openvino_finds_the_cpus_boxes() -> None:
    pictures = [HostImage(Scene(640, 360, seed=seed).draw(7)) for seed in range(2)]
    found = []
    for provider in ("cpu", "openvino"):
        options = replace(_OPTIONS, provider=provider)
        with closing(open_detector("ort", options)) as detector, closing(detector.lane()) as lane:
            found.append(lane.detect(pictures)[0])
    assert sum(map(len, found[0])) > 1
    for one, other in zip(*found):
        np.testing.assert_array_equal(one.class_id, other.class_id)
        np.testing.assert_allclose(one.xyxy, other.xyxy, atol=0.02)
        np.testing.assert_allclose(one.confidence, other.confidence, atol=1e-3)


def test_openvino_says_what_it_got(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(open_detector("auto", _OPTIONS)) as detector:
        info = detector.info
    assert (info.backend, info.device, info.precision) == ("openvino", "CPU", "fp32")
    ((name, count),) = info.nodes
    assert name == "openvino"
    path = tmp_path / "config.yaml"
    model = {"path": str(DEMO_MODEL), "provider": "openvino", "max_batch": 1, "threads": 1}
    path.write_text(yaml.safe_dump({"model": model, "sources": [{"id": "drawn", "type": "synthetic"}]}))
    assert invoke(["check", "--running", "-c", str(path)]) == 0
    said = capsys.readouterr().out
    assert "openvino on CPU, fp32" in said
    assert f"{count} on openvino" in said


@pytest.mark.parametrize("device", ["GPU", "NPU"])
def test_openvino_has_no_such_device(device: str) -> None:
    with pytest.raises(BackendUnavailableError, match=f"has no device {device} on this machine: set .* to CPU"):
        open_detector("ort", replace(_OPTIONS, provider_device=device))


def test_openvino_does_not_convert_on_the_cpu() -> None:
    with pytest.raises(DetectorError, match="the CPU does not convert"):
        open_detector("ort", replace(_OPTIONS, precision="fp16"))


def test_nodes_that_openvino_leaves_are_named(tmp_path: Path) -> None:
    model = onnx.load(DEMO_MODEL)
    for node in model.graph.node:
        node.input[:] = ["pooled" if name == "images" else name for name in node.input]
    pool = onnx.helper.make_node("LpPool", ["images"], ["pooled"], kernel_shape=[1, 1])  # gives what it gets
    model.graph.node.insert(0, pool)
    onnx.save(model, tmp_path / "pooled.onnx")
    with closing(open_detector("ort", replace(_OPTIONS, path=tmp_path / "pooled.onnx"))) as detector:
        info = detector.info
    count = dict(info.nodes)["openvino"]
    assert dict(info.nodes) == {"openvino": count, "cpu": 1}
    assert f"1 of {count + 1} nodes run on the CPU and not on openvino: 1 LpPool" in info.notes


def test_openvino_does_not_run_every_graph() -> None:
    """Its own reason is the last of many lines."""
    path = HEADS / "yolo26-obb-end2end.onnx"
    with pytest.raises(
        DetectorError, match=r"openvino does not run it: Shapes .* leave model\.provider out"
    ) as refused:
        open_detector("ort", replace(_OPTIONS, path=path))
    assert "\n" not in str(refused.value)


def test_quantised_activations_are_uint8_for_openvino(tmp_path: Path) -> None:
    """The values are the same. With int8 OpenVINO computes others: if that fails, `unsigned.py` may go."""
    path = tmp_path / "quantised.onnx"
    onnx.save(_split_and_joined(), path)
    content = unsigned(path)
    assert content is not None
    pictures = np.random.default_rng(0).random((2, 3, 32, 32), np.float32)

    def run(model: bytes, provider: str) -> npt.NDArray[np.float32]:
        return np.asarray(ort.InferenceSession(model, providers=[provider]).run(None, {"images": pictures})[0])

    expected = run(path.read_bytes(), "CPUExecutionProvider")
    np.testing.assert_array_equal(run(content, "CPUExecutionProvider"), expected)
    np.testing.assert_allclose(run(content, "OpenVINOExecutionProvider"), expected, atol=1e-5)
    assert np.abs(run(path.read_bytes(), "OpenVINOExecutionProvider") - expected).max() > 0.01


def test_a_float_file_stays_as_it_is() -> None:
    assert unsigned(DEMO_MODEL) is None


def _split_and_joined() -> onnx.ModelProto:
    """Quantised convolutions with a split, a sum and a concatenation between them, as YOLOv8 has them."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    tensors = [numpy_helper.from_array(np.array(0, np.int8), "zero")]
    tensors.append(numpy_helper.from_array(np.array([8, 8], np.int64), "halves"))
    for name, scale in (("s1", 0.02), ("s2", 0.03), ("s3", 0.025), ("ws", 0.01)):
        tensors.append(numpy_helper.from_array(np.array(scale, np.float32), name))

    def add(kind: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def quantised(tensor: str, scale: str) -> str:
        return add("DequantizeLinear", add("QuantizeLinear", tensor, scale, "zero"), scale, "zero")

    def convolved(tensor: str, inputs: int, outputs: int) -> str:
        weights = random.normal(0, 0.3 / inputs**0.5, (outputs, inputs, 3, 3)).astype(np.float32)
        tensors.append(numpy_helper.from_array(weights, f"w{len(nodes)}"))
        made = add("Conv", tensor, quantised(tensors[-1].name, "ws"), pads=[1] * 4)
        return add("Mul", made, add("Sigmoid", made))

    first = convolved(quantised(convolved(quantised("images", "s1"), 3, 16), "s2"), 16, 16)
    nodes.append(helper.make_node("Split", [first, "halves"], ["left", "right"], axis=1))
    right = quantised("right", "s2")
    branch = convolved(quantised(convolved(right, 8, 8), "s3"), 8, 8)
    joined = add("Concat", "left", "right", add("Add", right, quantised(branch, "s2")), axis=1)
    last = convolved(quantised(joined, "s3"), 24, 8)
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", count, 32, 32])
        for name, count in (("images", 3), (last, 8))
    ]
    graph = helper.make_graph(nodes, "quantised", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
