"""`lookout evaluate --mot`: sequences in MOTChallenge's layout, and frames that are left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.cli import invoke
from daemon.commands.mot import parse_drop
from daemon.errors import LookoutError
from tests.analytics.walks import write_mot


def test_each_mistake_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["evaluate"]) == 2
    assert "give --images and --annotations, or --mot" in capsys.readouterr().err
    assert invoke(["evaluate", "--mot", str(tmp_path)]) == 2
    assert "has no sequence: a folder with gt/gt.txt" in capsys.readouterr().err
    write_mot(tmp_path / "walk", seed=0, seconds=1)
    assert invoke(["evaluate", "--mot", str(tmp_path), "--drop", "some"]) == 2
    assert "drop 'some' is none of random:0.5, stride:5 and bursts:12/60" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "left"), [("", 600), ("stride:5", 120), ("bursts:12/60", 480), ("random:0.5", 300), ("random:.25", 450)]
)
def test_frames_are_left_out(text: str, left: int) -> None:
    dropped = parse_drop(text, 0)
    assert sum(not dropped(number) for number in range(600)) == pytest.approx(left, abs=30 if "random" in text else 0)


@pytest.mark.parametrize("text", ["random:2", "stride:0", "bursts:12", "bursts:1/0", "x"])
def test_odd_drops_are_refused(text: str) -> None:
    with pytest.raises(LookoutError, match="is none of"):
        parse_drop(text, 0)


@pytest.mark.needs("trackeval")
def test_the_score_of_a_sequence(tmp_path: Path) -> None:
    write_mot(tmp_path / "walk", seed=0, seconds=10)
    file = tmp_path / "figures.json"
    assert invoke(["evaluate", "--mot", str(tmp_path), "--drop", "bursts:12/60", "--json", str(file)]) == 0
    figures = json.loads(file.read_text())["sequences"]["walk"]
    assert figures["hota"] > 80
    assert figures["switches"] <= 3
