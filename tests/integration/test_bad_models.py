"""Models whose boxes no picture has, and whose labels no terminal should see."""

from __future__ import annotations

import re
import subprocess
import sys
from math import inf, nan
from pathlib import Path

import httpx
import msgspec
import pytest
from rich.console import Console

from daemon.commands.watch import View, once
from detectors.heads.candidates import MOST_CANDIDATES
from detectors.ort.detector import OrtDetector
from detectors.port import DetectorError, Options
from lookout.messages import Detections
from tests.daemon.test_messages import MESSAGE
from tests.support.daemon import PATIENCE_S, ROOT, Lookout, has_seen, receive_until
from tests.support.models import black_clip, constant_model, hidden_model
from tests.support.ports import free_port
from tests.support.served import HEADERS, TOKEN, Served

_STREET = {"id": "street", "type": "synthetic", "width": 64, "height": 64, "fps": 20}
_CONFIG = (
    "model: {{path: {model}}}\nsources: [{{id: a, type: synthetic}}]\npublisher: {{endpoint: 'tcp://127.0.0.1:*'}}\n"
)
_REFUSED = {
    "corners that are no number": (nan, nan, nan, nan, 0.9, 0),
    "a confidence that is no number": (1, 1, 9, 9, nan, 0),
    "an infinite confidence": (1, 1, 9, 9, inf, 0),
    "a class that is no number": (1, 1, 9, 9, 0.9, nan),
    "a confidence of 600": (1, 1, 9, 9, 600, 0),
    "a negative confidence": (1, 1, 9, 9, -2, 0),
}
_LEFT_OUT = {
    "corners the wrong way round": (9, 9, 1, 1, 0.9, 0),
    "a class beyond all": (1, 1, 9, 9, 0.9, 1e30),
    "a class without a label": (1, 1, 9, 9, 0.9, 2),
    "a negative class": (1, 1, 9, 9, 0.9, -1),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("what", _REFUSED)
def test_a_model_that_gives_what_no_detector_gives_is_refused(what: str, tmp_path: Path) -> None:
    """In one line, when it is opened."""
    file = tmp_path / "config.yaml"
    model = constant_model(tmp_path / "model.onnx", _REFUSED[what])
    file.write_text(_CONFIG.format(model=model))
    command = [sys.executable, "-m", "daemon", "run", "-c", str(file)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert "for a grey picture" in line


@pytest.mark.parametrize("what", _LEFT_OUT)
def test_a_model_whose_every_box_is_impossible_is_refused(what: str, tmp_path: Path) -> None:
    model = constant_model(tmp_path / "model.onnx", _LEFT_OUT[what])
    with pytest.raises(DetectorError, match=r"all \d+ boxes .* impossible|one more than there are labels") as raised:
        OrtDetector(Options(model))
    assert "\n" not in str(raised.value)


@pytest.mark.share(2)
@pytest.mark.parametrize("what", _LEFT_OUT)
def test_boxes_that_no_picture_has_are_left_out_and_counted(what: str, tmp_path: Path) -> None:
    """The daemon goes on, its messages fit their schema, nothing but log lines is on its standard error, and its health
    names the model."""
    model = hidden_model(tmp_path / "model.onnx", _LEFT_OUT[what])
    night = {"id": "night", "type": "av", "url": str(black_clip(tmp_path / "night.mp4", 2000)), "pace": "realtime"}
    with Lookout(
        tmp_path,
        {"sources": [night], "model": {"path": str(model)}, "monitor": {"interval_s": 0.2},
         "http": {"enabled": True, "port": (port := free_port()), "token": TOKEN}},
    ) as lookout:  # fmt: skip
        with lookout.subscribe() as subscriber:
            messages = receive_until(subscriber, has_seen(5, "night"))
        answer = httpx.get(f"http://127.0.0.1:{port}/live", headers=HEADERS, timeout=PATIENCE_S)
        assert re.search(r"all \d+ boxes of the model so far are impossible", answer.text), answer.text
        assert lookout.stop() == 0
        assert all(line.startswith("{") for line in lookout.log().splitlines())
        told = lookout.log().count("boxes that no picture has")
    assert [row.detections for row in messages if isinstance(row, Detections) and row.detections] == []
    assert told == 1


def test_more_candidates_than_are_looked_at_are_counted(tmp_path: Path) -> None:
    model = constant_model(tmp_path / "model.onnx", (1, 1, 9, 9, 0.9, 1), count=MOST_CANDIDATES + 7)
    with Served(tmp_path, model={"path": str(model)}) as served:
        rows = served.client.get("/metrics").text.splitlines()
        assert served.lookout.stop() == 0
        assert served.lookout.log().count("more candidates than the limit") == 1
    (count,) = [float(row.split()[-1]) for row in rows if row.startswith("lookout_candidates_left_out_total ")]
    assert count >= 2 * 7
    assert count % 7 == 0


def test_good_boxes_are_published(tmp_path: Path) -> None:
    model = constant_model(tmp_path / "model.onnx", (1, 1, 9, 9, 0.9, 1))
    with Lookout(tmp_path, {"sources": [_STREET], "model": {"path": str(model)}}) as lookout:
        with lookout.subscribe("detections") as subscriber:
            (message, *_) = receive_until(subscriber, has_seen(1, "street"))
        assert isinstance(message, Detections)
        assert {(row.label, row.class_id, row.box) for row in message.detections} == {
            ("other", 1, (1.0, 1.0, 9.0, 9.0))
        }
        assert lookout.stop() == 0


@pytest.mark.parametrize("label", ["\x1b]0;pwn\x07", "a\nb", "\x9b31m", "L" * 129])
def test_a_label_that_is_no_plain_text_is_refused(label: str, tmp_path: Path) -> None:
    model = constant_model(tmp_path / "model.onnx", (1, 1, 9, 9, 0.9, 0), {"0": "thing", "1": label})
    file = tmp_path / "config.yaml"
    file.write_text(_CONFIG.format(model=model))
    command = [sys.executable, "-m", "daemon", "run", "-c", str(file)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "label 1" in line]
    assert "is not printable text of at most 128 characters" in line
    assert "\x1b" not in done.stderr + done.stdout


def test_check_prints_a_label_as_it_is(tmp_path: Path) -> None:
    """Brackets are a label's own, and no markup."""
    model = constant_model(tmp_path / "model.onnx", (1, 1, 9, 9, 0.9, 0), {"0": "[/x]", "1": "[red]"})
    file = tmp_path / "config.yaml"
    street = "{id: a, type: synthetic, width: 64, height: 64}"
    file.write_text(f"model: {{path: {model}}}\nsources: [{street}]\npublisher: {{endpoint: 'tcp://127.0.0.1:*'}}\n")
    command = [sys.executable, "-m", "daemon", "check", "-c", str(file)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2: [/x], [red]" in done.stdout


class _Liar:
    """A subscriber to a publisher that is not ours."""

    received, lost, fenced, failure = 1, dict[str, int](), dict[str, int](), None

    def __init__(self, message: Detections) -> None:
        self._message = message

    def receive(self, _timeout_s: float) -> Detections:
        return self._message


def test_what_a_stranger_publishes_does_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;pwn\x07\x1b[31m[/red][bold]"
    box = msgspec.structs.replace(MESSAGE.detections[0], label=evil)
    message = msgspec.structs.replace(MESSAGE, source=evil, detections=[box])
    liar = _Liar(message)
    assert once(liar, "tcp://x", 1.0, as_json=False) == 0  # type: ignore[arg-type]
    view = View("tcp://x")
    view.add(message)
    console = Console(width=200, force_terminal=False, color_system=None)
    console.print(view.render(liar))  # type: ignore[arg-type]
    shown = capsys.readouterr().out
    assert "pwn" in shown
    assert "[/red][bold]" in shown  # as it is, and not as markup
    assert not set(shown) & set("\x1b\x07\x9b")
