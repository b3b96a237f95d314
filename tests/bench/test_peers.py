"""`python -m tests.bench engine --peer`: other engines are measured and compared, or named with the reason."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from daemon.cli import invoke
from daemon.errors import LookoutError
from detectors.factory import availability
from tests.bench.__main__ import bench
from tests.bench.peers.child import run
from tests.bench.peers.compare import differences
from tests.bench.peers.names import PEERS
from tests.bench.peers.program import NotRunError, open_session, placement, require_provider
from tests.support.daemon import wait_until
from tests.support.models import toy_model

_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_LIMIT_S = 60.0


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("model") / "toy.onnx")


def _refusal(code: str, folder: Path, timeout_s: float = _LIMIT_S) -> str:
    with pytest.raises(LookoutError) as refused:
        run([sys.executable, "-c", code], folder, {}, timeout_s)
    return str(refused.value)


def test_every_engine_has_a_row(toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The CPU is measured on any machine. What is not installed here says so, and what to install."""
    file = tmp_path / "rates.json"
    command = ["engine", str(toy), "--peer", "all", "--max-batch", "3", "--seconds", "0.1"]
    assert invoke([*command, "--json", str(file)], bench) == 0
    shown = capsys.readouterr().out
    found = json.loads(file.read_text())
    assert (found["model"].split()[0], found["precision"], found["batch"]) == ("toy", "fp32", 3)
    rows: dict[str, Any] = {row["engine"]: row for row in found["engines"]}
    assert [*rows] == ["Lookout, TensorRT", *PEERS.values()]

    cpu = rows["ONNX Runtime, CPU"]
    assert (cpu["version"], cpu["precision"], cpu["note"]) == (ort.__version__, "fp32", "")
    assert 0 < cpu["lowest"] <= cpu["images_per_s"] <= cpu["highest"]
    assert cpu["batch_ms"] > 0
    assert cpu["difference"] == 0.0  # the same library

    absent = {"Triton server": "not run: no server is named: --server http://HOST:PORT/MODEL"}
    trt = next(row for row in availability() if row.backend == "trt")
    if not trt.available:
        absent["Lookout, TensorRT"] = f"not run: {trt.reason}"
    for kind in ("CUDA", "TensorRT"):
        provider = f"{kind.title() if kind == 'TensorRT' else kind}ExecutionProvider"
        if provider not in ort.get_available_providers():
            absent[f"ONNX Runtime, {kind}"] = (
                f"not run: onnxruntime {ort.__version__} has no {provider}: pip install onnxruntime-gpu"
            )
    if not any(map(find_spec, ("torch", "torch_tensorrt", "onnx2torch"))):
        absent["Torch-TensorRT"] = "not run: not installed: torch, torch-tensorrt, onnx2torch: pip install torch"
    for engine, reason in absent.items():
        assert rows[engine]["note"].startswith(reason)
        assert (rows[engine]["images_per_s"], rows[engine]["difference"]) == (None, None)
        assert f"{engine}: {reason}" in shown.replace("\n", "")


def test_a_session_that_falls_back_is_not_timed(toy: Path, tmp_path: Path) -> None:
    """onnxruntime takes the CPU where a provider is missing, and says so in a warning alone."""
    if _CUDA in ort.get_available_providers():
        pytest.skip("onnxruntime has CUDA here")
    with pytest.warns(UserWarning, match="not in available provider names"):
        session = open_session(ort, str(toy), [(_CUDA, {"device_id": "0"})], 1, tmp_path)
    with pytest.raises(NotRunError, match=f"{_CUDA} does not load, and onnxruntime fell back to {_CPU}"):
        require_provider(session, _CUDA)
    session.end_profiling()


def test_nodes_on_another_provider_are_named(toy: Path, tmp_path: Path) -> None:
    session = open_session(ort, str(toy), [(_CPU, {})], 1, tmp_path)
    session.run(None, {"images": np.zeros((1, 3, 64, 64), np.float32)})
    profile = Path(session.end_profiling())
    events = json.loads(profile.read_text())
    assert placement(profile, _CPU) == ""
    assert not profile.exists()

    profile.write_text(json.dumps(events))
    with pytest.raises(
        NotRunError, match=rf"{_CUDA} loads, but no node of the model runs on it: all \d+ are on {_CPU}"
    ):
        placement(profile, _CUDA)

    for event in events:  # as onnxruntime writes it where the convolution alone runs on the CPU
        if event.get("cat") == "Node" and "provider" in event["args"] and "Conv" not in event["args"]["op_name"]:
            event["args"]["provider"] = _CUDA
    profile.write_text(json.dumps(events))
    assert " nodes run on CPUExecutionProvider: " in placement(profile, _CUDA)


def test_a_process_that_crashes_is_one_line(tmp_path: Path) -> None:
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert _refusal(killed, tmp_path) == "its process was ended by SIGSEGV"
    said = _refusal("raise ValueError('odd')", tmp_path)
    assert said == "its process ended with 1 and without a result (its log: ValueError: odd)"
    logged = r"import os; os.write(2, b'\x1b[31m12:00 [E] Failed to load library lib.so: no such file\x1b[m\n')"
    said = _refusal(logged, tmp_path)
    assert (
        said == "its process ended with 0 and without a result (its log: Failed to load library lib.so: no such file)"
    )
    with pytest.raises(LookoutError, match="/nowhere/python: No such file or directory"):
        run(["/nowhere/python"], tmp_path, {}, _LIMIT_S)


def test_a_process_that_hangs_ends_with_all_it_started(tmp_path: Path) -> None:
    code = """
import os, signal, sys
if os.fork() == 0:
    with open(sys.argv[1] + "/pid", "w") as file:
        file.write(str(os.getpid()))
signal.pause()
"""
    assert _refusal(code, tmp_path, 1.5) == "no result within 1.5 s (--peer-timeout)"
    if (pid := tmp_path / "pid").exists():  # unless the machine was slower than the limit
        process = Path("/proc") / pid.read_text()
        wait_until(lambda: not process.exists() or ") Z " in (process / "stat").read_text(), "it has ended")


def test_differences_of_outputs() -> None:
    expected = {"rows": np.array([[1.0, -4.0]]), "scores": np.array([[0.5]])}
    assert differences(expected, expected) == (0.0, 0.0, "")
    assert differences(expected, {**expected, "rows": np.array([[1.0, -4.5]])}) == (0.5, 0.125, "")
    assert differences(expected, {**expected, "scores": np.array([[np.nan]])})[2] == "output scores has NaN or infinity"
    assert differences(expected, {"rows": expected["rows"]})[2] == "output scores is missing, not (1, 1)"
    assert differences(expected, {**expected, "rows": np.zeros((1, 3))})[2] == "output rows is (1, 3), not (1, 2)"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["toy.onnx", "--peer", "openvino"], "'openvino' is not one of 'onnxruntime-cpu'"),
        (["gone.onnx", "--peer", "all"], "model gone.onnx cannot be read"),
        (["http://127.0.0.1/model", "--peer", "all"], "give the ONNX file, and the address with --server"),
        (["toy.onnx"], "name another engine: --peer all, or one of onnxruntime-cpu, "),
        (["toy.onnx", "--server", "http://127.0.0.1/toy"], "--server goes with --peer triton"),
        (["toy.onnx", "--peer-python", "python"], "--peer-python goes with --peer all"),
        (["toy.onnx", "--peer", "triton", "--peer-python", "torch-tensorrt=python"], "goes with --peer torch-tensorrt"),
        (["toy.onnx", "--peer-python", "tvm=python"], "'tvm' is not an engine: choose from onnxruntime-cpu, "),
    ],
)
def test_bad_input_gets_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["engine", *arguments], bench) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("lookout:")]
    assert len(lines) == 1
    assert said in lines[0]
