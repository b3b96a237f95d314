"""onnxruntime's other providers: what is said where one cannot be had, and OpenVINO."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnxruntime as ort
import pytest
import yaml

from daemon.cli import invoke
from detectors.factory import Backend, open_detector
from detectors.port import BackendUnavailableError, DetectorError, Options
from tests.support.daemon import DEMO_MODEL, ROOT
from tests.support.needs import OPENVINO

_SAYS = hasattr(ort.InferenceSession, "get_provider_graph_assignment_info")
_OTHER_BUILD = "pip uninstall -y onnxruntime && pip install"


@pytest.mark.parametrize(
    ("provider", "command"),
    [
        ("openvino", "pip install onnxruntime-ep-openvino"),
        ("cuda", f"{_OTHER_BUILD} onnxruntime-gpu"),
        ("webgpu", "pip install onnxruntime-ep-webgpu"),
        ("nv-tensorrt-rtx", "pip install onnxruntime-ep-nv-tensorrt-rtx-cu13"),
    ],
)
def test_a_provider_that_is_not_installed_has_its_command(provider: str, command: str) -> None:
    with pytest.raises(BackendUnavailableError) as refused:
        open_detector("auto", Options(DEMO_MODEL, provider=provider))
    if _SAYS:
        assert str(refused.value) == f"model.provider: {provider} is not installed: {command}"
    else:
        assert "needs onnxruntime 1.24" in str(refused.value)


@pytest.mark.parametrize("backend", ["cpu", "trt", "triton", "fake"])
def test_a_provider_is_no_other_backends(backend: Backend) -> None:
    path = Path("http://127.0.0.1:1/m") if backend == "triton" else DEMO_MODEL
    with pytest.raises(DetectorError, match=f"set model.backend: ort instead of {backend}"):
        open_detector(backend, Options(path, provider="openvino"))


def test_a_device_is_a_providers() -> None:
    with pytest.raises(DetectorError, match=r"model\.provider_device needs model\.provider"):
        open_detector("auto", Options(DEMO_MODEL, provider_device="GPU"))


@pytest.mark.parametrize("provider", [None, "cpu"])
def test_the_cpu_is_what_it_was(provider: str | None) -> None:
    detector = open_detector("ort", Options(DEMO_MODEL, provider=provider, max_batch=1))
    assert (detector.info.backend, detector.info.device, detector.info.nodes) == ("cpu", "", ())
    detector.close()


def test_check_refuses_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    model = {"path": str(DEMO_MODEL), "provider": "webgpu"}
    path.write_text(yaml.safe_dump({"model": model, "sources": [{"id": "drawn", "type": "synthetic"}]}))
    assert invoke(["check", "--running", "-c", str(path)]) == 2
    said = capsys.readouterr().out
    assert ("model.provider: webgpu is not installed: pip install onnxruntime-ep-webgpu" in said) is _SAYS


@pytest.mark.needs("openvino")
@pytest.mark.long
def test_openvino_holds_the_contract() -> None:
    """In a Python whose onnxruntime is the build with OpenVINO: one process has one onnxruntime."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "openvino"]
    command += ["tests/contract/test_detector.py", "tests/detectors/openvino_cases.py"]
    environment = {**os.environ, "PYTHONPATH": str(OPENVINO)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
