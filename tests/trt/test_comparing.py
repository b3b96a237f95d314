"""`lookout engine compare`: an engine's tensors compared with onnxruntime's."""

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
    output = capsys.readouterr().out
    assert "0 of 38 tensors differ by more than 0.05 of their size; the greatest error is" in output


def test_the_first_different_tensor_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The engine's input is FP16, so the first layer differs already."""
    assert _compare(tmp_path, "--tolerance", "1e-7") == 1
    output = capsys.readouterr().out
    assert "the first: " in output
    assert ", of Mul " in output.rpartition("the first: ")[2]


@pytest.mark.long
def test_all_tensors_of_a_given_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cv2.imwrite(str(tmp_path / "grey.png"), np.full((20, 30, 3), 90, np.uint8))
    assert _compare(tmp_path, "--all", "--picture", str(tmp_path / "grey.png")) == 0
    assert re.search(r"0 of [12]\d\d tensors", capsys.readouterr().out)
    assert _compare(tmp_path, "--picture", str(tmp_path / "none.png")) == 2
    assert "none.png is not a readable picture" in capsys.readouterr().err
