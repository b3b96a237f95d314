"""`lookout evaluate --classify`: top-1 and top-5 of real classifiers, and what is wrong with pictures and classes."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from daemon.cli import invoke
from detectors.ort.detector import OrtDetector
from detectors.port import HostImage, Options, PostprocessParams
from detectors.semantics import Semantics

HEADS = Path(__file__).parents[1] / "data" / "heads"
_UNSTATED = ("resnet", "mobilenet")  # whose files state no mean and no deviation
MODELS = ("yolov8-cls", *_UNSTATED)
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_COUNT = 24


def _pictures() -> list[npt.NDArray[np.uint8]]:
    random = np.random.default_rng(0)
    sizes = random.integers(40, 300, (_COUNT, 2))
    small = [random.integers(0, 256, (*random.integers(2, 9, 2), 3), dtype=np.uint8) for _ in sizes]
    return [np.asarray(cv2.resize(one, size.tolist()), np.uint8) for one, size in zip(small, sizes)]


def _options(model: str) -> Options:
    semantics = Semantics(mean=_MEAN, std=_STD) if model in _UNSTATED else Semantics()
    wanted = PostprocessParams(0.0)
    return Options(HEADS / f"{model}.onnx", head="classify", wanted=wanted, max_batch=5, semantics=semantics)


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _ranked(model: str) -> tuple[list[list[str]], tuple[str, ...]]:
    """The model's first five labels of each picture, and all of its labels."""
    with closing(OrtDetector(_options(model))) as detector, closing(detector.lane()) as lane:
        found = [lane.detect([HostImage(picture)])[0][0] for picture in _pictures()]
        return [[detector.info.labels[number] for number in one.class_id] for one in found], detector.info.labels


def _evaluate(model: str, path: Path, figures: Path) -> int:
    command = ["evaluate", "--model", str(HEADS / f"{model}.onnx"), "--backend", "cpu", "--classify", str(path)]
    if model in _UNSTATED:
        command += ["--mean", *map(str, _MEAN), "--std", *map(str, _STD)]
    return invoke([*command, "--max-batch", "5", "--json", str(figures)])


def test_folders_by_class(model: str, tmp_path: Path) -> None:
    """Half of the pictures lie in the folder of their first class, the others in that of their fifth."""
    ranked, _ = _ranked(model)
    for number, (picture, labels) in enumerate(zip(_pictures(), ranked)):
        folder = tmp_path / "set" / labels[0 if number % 2 else 4]
        folder.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(folder / f"{number}.png"), picture)
    assert _evaluate(model, tmp_path / "set", tmp_path / "figures.json") == 0
    found = json.loads((tmp_path / "figures.json").read_text())
    assert (found["pictures"], found["top1"], found["top5"]) == (_COUNT, 0.5, 1.0)
    assert sum(one["pictures"] for one in found["classes"].values()) == _COUNT


def test_a_csv_with_numbers_and_a_file_that_is_no_picture(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranked, labels = _ranked(model)
    rows = ["file,class", "broken.png,0"]
    (tmp_path / "broken.png").write_text("no picture")
    for number, (picture, best) in enumerate(zip(_pictures(), ranked)):
        cv2.imwrite(str(tmp_path / f"{number}.png"), picture)
        rows.append(f"{number}.png,{labels.index(best[0])}")
    (tmp_path / "set.csv").write_text("\n".join(rows))
    assert _evaluate(model, tmp_path / "set.csv", tmp_path / "figures.json") == 0
    found = json.loads((tmp_path / "figures.json").read_text())
    assert (found["top1"], len(found["unreadable"])) == (1.0, 1)
    assert "1 files are not pictures" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a.png,nothing such\n", "'nothing such' is not a label of the model"),
        ("a.png,0,1\n", "a line is file,class, but this one has 3 columns"),
        ("", "has no pictures"),
        ("missing.png,0\n", "none of 1 pictures can be read"),
    ],
)
def test_what_is_wrong_is_one_line(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "set.csv").write_text(content)
    cv2.imwrite(str(tmp_path / "a.png"), _pictures()[0])
    assert _evaluate("resnet", tmp_path / "set.csv", tmp_path / "figures.json") == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert message in lines[0]


def test_a_detector_is_no_classifier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "set.csv").write_text("a.png,0\n")
    assert _evaluate("yolov8", tmp_path / "set.csv", tmp_path / "figures.json") == 2
    assert "classify" in capsys.readouterr().err
