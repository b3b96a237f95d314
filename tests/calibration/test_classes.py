"""Classifiers in lower precision, by the commands of docs/resnet.md: the gate is the drop of the top-1 accuracy."""

from __future__ import annotations

import json
import shlex
from contextlib import closing
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from markdown_it import MarkdownIt

from calibration.bootstrap import drop_of_hits, ruling_of
from calibration.classes import split_pictures
from daemon.cli import invoke
from detectors.accuracy_record import find
from detectors.ort.detector import OrtDetector
from detectors.port import DetectorError, HostImage, Options, PostprocessParams
from tests.support import stubs
from tests.support.daemon import ROOT
from tests.support.pictures import picture

RESNET = Path(__file__).parents[1] / "data" / "heads" / "resnet.onnx"
_PICTURES, _PHOTOS = 160, 36
# Few pictures prove little, and random weights lose more than trained ones.
_REPLACED = ("--max-top1-drop 0.01", "--max-top1-drop 0.2 --threads 1 --max-batch 4")
_FAST = ["--threads", "1", "--max-batch", "4"]


def _commands() -> list[str]:
    text = (ROOT / "docs" / "resnet.md").read_text(encoding="utf-8")
    blocks = [token.content for token in MarkdownIt().parse(text) if token.type == "fence" and token.info == "sh"]
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files: a small ResNet by both names, pictures in folders by their class, and pictures without."""
    folder = tmp_path_factory.mktemp("page")
    for name in ("resnet18", "resnet50"):
        model = onnx.load(RESNET)
        onnx.helper.set_model_props(model, {"mean": "[0.485, 0.456, 0.406]", "std": "[0.229, 0.224, 0.225]"})
        onnx.save(model, folder / f"{name}.onnx")
    options = Options(folder / "resnet18.onnx", head="classify", wanted=PostprocessParams(0.0), max_batch=1)
    with closing(OrtDetector(options)) as detector, closing(detector.lane()) as lane:
        for number in range(len(detector.info.labels)):
            (folder / "val" / f"n{number:04}").mkdir(parents=True)
        for number in range(_PICTURES):
            best = lane.detect([HostImage(picture(number))])[0][0].class_id[0]
            cv2.imwrite(str(folder / "val" / f"n{best:04}" / f"{number}.png"), picture(number))
        for best in range(len(detector.info.labels)):  # no class without a picture
            cv2.imwrite(str(folder / "val" / f"n{best:04}" / "last.png"), picture(_PICTURES))
    (folder / "photos").mkdir()
    for number in range(_PICTURES + 1, _PICTURES + 1 + _PHOTOS):
        cv2.imwrite(str(folder / "photos" / f"{number}.png"), picture(number))
    return folder


@pytest.mark.long
def test_the_page_on_the_cpu(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    ran = [line for line in _commands() if line.startswith("lookout ") and "--backend cpu" in line]
    assert [line.split()[1] for line in ran] == ["evaluate", "evaluate", "calibrate", "evaluate"]
    for line in ran:
        assert invoke(shlex.split(line.replace(*_REPLACED))[1:]) == 0, capsys.readouterr().err
    before, after = (json.loads((folder / name).read_text()) for name in ("fp32.json", "int8.json"))
    assert before["top1"] >= 0.9
    assert before["top1"] - 0.2 <= after["top1"]
    record = find(folder / "made" / "resnet50.int8.onnx")
    assert record is not None
    assert (record.measure, record.unit, record.accepted) == ("top-1", "photos", True)
    outcome = json.loads((folder / "made" / "calibration.json").read_text())["outcome"]
    assert set(outcome["steering"]).isdisjoint(set(outcome["judging"]) - {"last.png"})
    _refused(folder)


def _refused(folder: Path) -> None:
    """The same loss is above a smaller budget: no file is left, and the exit code says so."""
    command = [
        "calibrate",
        "resnet50.onnx",
        "--from",
        "photos",
        "--classify",
        "val",
        "--out",
        "none",
        "--backend",
        "cpu",
    ]
    asked = ["--precision", "int8", "--method", "minmax", "--max-float", "0", "--max-top1-drop", "0.0"]
    assert invoke([*command, *asked, *_FAST]) in (1, 3)
    assert not (folder / "none" / "resnet50.int8.onnx").exists()


@pytest.mark.long
def test_the_page_over_a_stand_in_of_tensorrt(folder: Path, tmp_path: Path) -> None:
    """INT8 by calibration on that backend, without labels; then the page's engines."""
    environment = stubs.environment(tmp_path)
    command = (
        f"calibrate {folder / 'resnet50.onnx'} --from {folder / 'photos'} --classifier --precision int8 --backend trt"
    )
    more = "--method minmax --placement layers --min-agreement 0.4 --builder-level 0 --held-out 24"
    more += f" --out {folder / 'made'}"
    lines = [line for line in _commands() if "engine build" in line or "--backend trt" in line]
    assert len(lines) == 4
    script = "import os, sys\nfrom daemon.cli import invoke\nos.chdir(sys.argv[1])\n"
    runs = [[*shlex.split(f"{command} {more}"), *_FAST, "--frames", "32"], *(shlex.split(line)[1:] for line in lines)]
    script += f"codes = [invoke(line) for line in {runs!r}]\nprint('codes', codes)"
    done = stubs.run(["-c", script, str(folder)], environment)
    assert "codes [0, 0, 0, 0, 0]" in done.stdout, (done.stdout + done.stderr)[-3000:]


def test_labels_that_do_not_fit_are_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of other classes, and those of a detector's photos."""
    (tmp_path / "other" / "cat").mkdir(parents=True)
    for number in range(4):
        cv2.imwrite(str(tmp_path / "other" / "cat" / f"{number}.png"), picture(number))
    command = [
        "calibrate",
        str(folder / "resnet50.onnx"),
        "--from",
        str(folder / "photos"),
        "--out",
        str(tmp_path / "out"),
    ]
    assert invoke([*command, "--classify", str(tmp_path / "other"), "--backend", "cpu", *_FAST]) == 2
    assert "'cat' is not a label of the model" in " ".join(capsys.readouterr().err.split())
    assert invoke([*command, "--classify", "x", "--images", "x", "--annotations", "x"]) == 2
    assert "--classify is for classifiers" in capsys.readouterr().err


def test_few_pictures_are_not_split(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    cv2.imwrite(str(tmp_path / "cat" / "one.png"), picture(0))
    with pytest.raises(DetectorError, match="1 labelled pictures are too few"):
        split_pictures(tmp_path, 0.5, 0)


def test_pictures_without_a_difference_prove_as_much_as_there_are() -> None:
    """And a clear loss is refused, whatever the other model gains elsewhere."""
    right = np.ones(60, np.bool_)
    groups = [str(number) for number in range(60)]
    found = drop_of_hits(right, right, groups, 0, "photos")
    assert found.drop == 0
    assert 0.03 < found.high < 0.08
    assert ruling_of(found, 0.01) == "undecided"
    many = drop_of_hits(np.ones(2000, np.bool_), np.ones(2000, np.bool_), [str(n) for n in range(2000)], 0, "photos")
    assert ruling_of(many, 0.01) == "accepted"
    worse = right.copy()
    worse[:30] = False
    assert ruling_of(drop_of_hits(right, worse, groups, 0, "photos"), 0.1) == "refused"
