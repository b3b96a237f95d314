"""`lookout evaluate --tiles --roi`: AP of views beside that of whole pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import pytest

from daemon.cli import invoke
from tests.support.daemon import DEMO_MODEL
from tests.support.streets import labelled_streets


@pytest.fixture
def large(tmp_path: Path) -> tuple[Path, Path]:
    """Streets in the upper left corner of pictures that are four times as wide: their objects are small."""
    folder, truth = labelled_streets(tmp_path / "streets", 6)
    content: dict[str, Any] = json.loads(truth.read_text())
    for row in content["images"]:
        path = folder / row["file_name"]
        picture = cv2.imread(str(path))
        assert picture is not None
        wide = cv2.copyMakeBorder(picture, 0, 1080, 0, 1920, cv2.BORDER_CONSTANT, value=(114, 114, 114))
        cv2.imwrite(str(path), wide)
        row["width"], row["height"] = 2560, 1440
    truth.write_text(json.dumps(content))
    return folder, truth


def _evaluate(images: Path, annotations: Path, *more: str) -> int:
    files = ["--images", str(images), "--annotations", str(annotations)]
    return invoke(["evaluate", "--backend", "cpu", "--model", str(DEMO_MODEL), *files, *more])


def test_views_find_what_is_too_small_in_the_whole(large: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    roi = ["--roi", "0", "0", "0.25", "0.25"]
    assert _evaluate(*large, "--tiles", "4x4", "--tiles", "2x2", *roi, "--json", str(out)) == 0
    views = {row["view"]: row for row in json.loads(out.read_text())["views"]}
    assert {name: row["pictures"] for name, row in views.items()} == {
        "whole picture": 1,
        "region of interest": 1,
        "4x4 tiles and the whole": 17,
        "2x2 tiles and the whole": 5,
    }
    whole, region = (views[name]["figures"] for name in ("whole picture", "region of interest"))
    assert whole["ap"] < 0.2
    assert region["ap"] > 0.6
    assert views["2x2 tiles and the whole"]["figures"]["ap"] > 0.5
    assert whole["boxes"] == region["boxes"] > 0


def test_objects_outside_of_the_region_do_not_count(large: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert _evaluate(*large, "--roi", "0.5", "0.5", "1", "1", "--json", str(out)) == 0
    assert [row["figures"]["boxes"] for row in json.loads(out.read_text())["views"]] == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tiles", "9x1"], "--tiles: '9x1' is not columns x rows"),
        (["--roi", "0.5", "0", "0.5", "1"], "--roi: right must be above left"),
    ],
)
def test_mistakes_are_one_line(
    large: tuple[Path, Path], arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _evaluate(*large, *arguments) == 2
    assert words in capsys.readouterr().err
