"""`lookout engine compare`: what an engine computes beside onnxruntime, told as a person reads it."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import numpy as np
import pytest

from daemon.cli import invoke
from tests.support.daemon import DEMO_MODEL


def _compare(folder: Path, *arguments: str) -> int:
    return invoke(["engine", "compare", str(DEMO_MODEL), "--precision", "fp16", "--cache", str(folder), *arguments])


def test_an_engine_that_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _compare(tmp_path) == 0
    said = capsys.readouterr().out
    assert "0 of 38 tensors differ by more than 0.05 of their size; the greatest error is" in said


def test_the_first_that_differs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The engine's input is in half precision, so that already the first layer reads something else."""
    assert _compare(tmp_path, "--tolerance", "1e-7") == 1
    said = capsys.readouterr().out
    assert "the first: " in said
    assert ", of Mul " in said.rpartition("the first: ")[2]


def test_all_tensors_of_a_picture_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cv2.imwrite(str(tmp_path / "grey.png"), np.full((20, 30, 3), 90, np.uint8))
    assert _compare(tmp_path, "--all", "--picture", str(tmp_path / "grey.png")) == 0
    assert re.search(r"0 of [12]\d\d tensors", capsys.readouterr().out)
    assert _compare(tmp_path, "--picture", str(tmp_path / "none.png")) == 2
    assert "none.png is not a picture that can be read" in capsys.readouterr().err
