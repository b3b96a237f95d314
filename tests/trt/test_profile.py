"""`lookout engine profile`, of a model file and by the engine's key; a lane's ranges for a profiler."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import invoke
from detectors.cuda import CudaError
from detectors.factory import engine_store
from detectors.ranges import NvtxRanges
from detectors.trt.library import load
from tests.support import fake_tensorrt as tensorrt
from tests.support import stubbed_cuda as cuda
from tests.trt.parts import BACKEND, host_pictures, open_trt, options_of

_LAUNCH_FAILED = 719


def _profile(capsys: pytest.CaptureFixture[str], target: str | Path, *more: str | Path) -> tuple[int, str, str]:
    code = invoke(["engine", "profile", *map(str, (target, *more))])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_model_and_its_key_have_the_same_layers(
    toy: Path, engines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    here = ("--cache", engines, "--runs", "3")
    svg, html = tmp_path / "new" / "layers.svg", tmp_path / "page.html"
    code, table, _ = _profile(capsys, toy, "--max-batch", "4", "--top", "2", "--svg", svg, "--html", html, *here)
    assert code == 0
    assert table.index("/model.0/conv/Conv") < table.index("x_QuantizeLinear")
    for words in ("750.0", "75.0", "1.000 ms per batch of 4", "1 int8 (75 %)", "1 faster layers, not shown: 5.0 %",
                  "1 unfused Q/DQ nodes: x_QuantizeLinear"):  # fmt: skip
        assert words in table
    assert "750.0 us, 75.0 %" in svg.read_text()
    assert "750.0 us, 75.0 %" in html.read_text()
    assert "Concat" in html.with_suffix(".md").read_text()

    recipe = engine_store(engines).entries()[0]
    code, text, _ = _profile(capsys, recipe.key[:8], "--json", "--batch", "2", *here)
    assert code == 0
    read: dict[str, Any] = json.loads(text)
    assert (read["key"], read["model"], read["batch"], read["runs"]) == (recipe.key, "toy.onnx", 2, 3)
    assert [row["milliseconds"] for row in read["layers"]] == [0.75, 0.2, 0.05]
    assert read["milliseconds"] == pytest.approx(1.0)

    assert invoke(["engine", "show", recipe.key, "--layers", str(toy), "--cache", str(engines)]) == 0
    assert "/model.$1/Concat" in capsys.readouterr().out
    for more, words in {
        (recipe.key, "--batch", "9"): f"engine {recipe.key} takes batches of 1 to 4, not of 9",
        (recipe.key, "--svg", str(html / "in.svg")): "in.svg cannot be written: ",
        ("no-such-key",): "no engine in ",
        (str(tmp_path / "none.onnx"),): "none.onnx is no file: give an ONNX file, or a key of",
    }.items():
        code, _, error = _profile(capsys, more[0], *more[1:], *here)
        assert (code, error.count("\n")) == (2, 1), error
        assert words in error


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("create_execution_context", "no memory for another execution context"),
        ("set_input_shape", "TensorRT refuses batches of 4"),
        ("execute_async_v3", "TensorRT failed on a batch of 4"),
        ("deserialize", "does not load here with {0}: it was built by {0} for"),
    ],
)
def test_an_engine_that_fails_is_one_line_and_leaves_nothing(
    toy: Path, engines: Path, capsys: pytest.CaptureFixture[str], call: str, words: str
) -> None:
    assert _profile(capsys, toy, "--max-batch", "4", "--cache", engines)[0] == 0
    key = engine_store(engines).entries()[0].key
    tensorrt.calm()
    tensorrt.fail_nth(call, 1)
    code, _, error = _profile(capsys, key, "--cache", engines)
    assert (code, error.count("\n")) == (2, 1), error
    assert words.format(load(BACKEND).builder) in error


class _Domain:
    """Implements `Domain`: keeps what begins and ends."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._open: list[str] = []

    def get_event_attributes(self, message: str) -> str:
        return message

    def push_range(self, attributes: str) -> None:
        self._open.append(attributes)
        self.events.append(f"begin {attributes}")

    def pop_range(self) -> None:
        self.events.append(f"end {self._open.pop()}")


def test_a_lane_has_a_range_for_each_stage(toy: Path, engines: Path) -> None:
    domain = _Domain()
    with closing(open_trt(options_of(toy, engines))) as detector:
        detector.ranges = NvtxRanges(domain)
        with closing(detector.lane()) as lane:
            lane.detect(host_pictures(2))
            name = threading.current_thread().name
            stages = [f"{name} {stage}" for stage in ("preprocess", "infer", "postprocess")]
            assert domain.events == [f"{what} {stage}" for stage in stages for what in ("begin", "end")]
            domain.events.clear()
            cuda.fail("cuGraphLaunch", 2, _LAUNCH_FAILED)
            with pytest.raises(CudaError):
                lane.detect(host_pictures(2))
            assert domain.events == [f"{what} {stage}" for stage in stages[:2] for what in ("begin", "end")]
        cuda.calm()
