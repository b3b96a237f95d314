"""COCO AP by the same detector that `run` uses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.cli import invoke
from tests.support.daemon import DEMO_MODEL
from tests.support.streets import labelled_streets

EXPECTED = {"yolox_nano": 0.3722, "yolov5n": 0.3361, "yolov8n": 0.4490}


@pytest.mark.needs("data")
@pytest.mark.slow
@pytest.mark.parametrize("model", list(EXPECTED))
def test_real_models_reach_their_accuracy(model: str, data: Path, tmp_path: Path) -> None:
    """Within 0.005 of what was measured elsewhere on the same photos."""
    out = tmp_path / "out.json"
    images = data / "images"
    arguments = ["--model", str(data / "models" / f"{model}.onnx"), "--images", str(images / "val")]
    assert invoke(["evaluate", *arguments, "--annotations", str(images / "val.json"), "--json", str(out)]) == 0
    assert json.loads(out.read_text())["ap"] == pytest.approx(EXPECTED[model], abs=0.005)


@pytest.fixture
def streets(tmp_path: Path) -> tuple[Path, Path]:
    return labelled_streets(tmp_path, 8)


def _evaluate(images: Path, annotations: Path, *more: str) -> int:
    return invoke(
        ["evaluate", "--model", str(DEMO_MODEL), "--images", str(images), "--annotations", str(annotations), *more]
    )


def test_the_demo_model_on_its_streets(streets: tuple[Path, Path], tmp_path: Path) -> None:
    """Category ids are found by name, not by position."""
    assert _evaluate(*streets, "--json", str(tmp_path / "out.json")) == 0
    figures = json.loads((tmp_path / "out.json").read_text())
    assert figures["ap50"] > 0.95
    assert figures["boxes"] == 40


def test_what_does_not_fit_is_told(
    streets: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images, annotations = streets
    assert _evaluate(images, images / "0.png") == 2
    assert "cannot be read as JSON" in capsys.readouterr().err
    assert _evaluate(images / "elsewhere", annotations) == 2
    assert "is --images the right folder" in capsys.readouterr().err
    content = json.loads(annotations.read_text())
    for category in content["categories"]:
        category["name"] = "zebra"
    (tmp_path / "zebras.json").write_text(json.dumps(content))
    assert _evaluate(images, tmp_path / "zebras.json") == 2
    assert "none is named 'person'" in capsys.readouterr().err
    (tmp_path / "list.json").write_text("{}")
    assert _evaluate(images, tmp_path / "list.json") == 2
    assert "`images` is missing" in capsys.readouterr().err
