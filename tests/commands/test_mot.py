"""`lookout evaluate --mot`: sequences in MOTChallenge's layout, and frames that are left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.cli import invoke
from daemon.commands.mot import MotOptions, evaluate, parse_drop
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


def _rewrite(path: Path, row: Callable[[list[str]], list[str]]) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join(",".join(row(line.split(","))) for line in lines) + "\n")


@pytest.mark.needs("trackeval")
def test_rows_of_all_layouts_are_read(tmp_path: Path) -> None:
    """MOT15 has ten numbers a row, and no class; MOT16 has the class in the eighth of nine."""
    layouts: dict[str, Callable[[list[str]], list[str]]] = {
        "MOT16": lambda row: row,
        "MOT15": lambda row: [*row[:7], "-1", "-1", "-1"],
        "MOT15 in the world": lambda row: [*row[:7], "3.7", "-12.25", "0"],
        "without a class": lambda row: row[:7],
        "no class known": lambda row: [*row[:7], "-1", "-1"],
    }
    for name, layout in layouts.items():
        write_mot(tmp_path / name / "walk", seed=0, seconds=1)
        _rewrite(tmp_path / name / "walk/gt/gt.txt", layout)
    found = evaluate(MotOptions(tmp_path)).sequences
    assert list(found) == [f"{name}/walk" for name in sorted(layouts)]  # of equal names none is lost
    assert len(set(found.values())) == 1
    assert found["MOT15/walk"].idf1 > 80


@pytest.mark.needs("trackeval")
def test_truth_that_counts_nothing_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_mot(tmp_path / "walk", seed=0, seconds=0.1, objects=4)
    marks = iter("0" * 5 + "1" * 7)
    _rewrite(tmp_path / "walk/gt/gt.txt", lambda row: [*row[:6], next(marks), "3", "1"])
    assert invoke(["evaluate", "--mot", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "walk/gt/gt.txt has no truth that counts: of 12 rows 5 are marked 0, and 7 are of another class" in said
    assert len(said.splitlines()) == 1


_ROW = "1,1,10,10,20,40,1,1,1"
_ODD: dict[str, tuple[str, str | bytes, str]] = {
    "empty": ("gt/gt.txt", "", "has no truth that counts: of 0 rows"),
    "words": ("gt/gt.txt", "frame,id\n", "cannot be read as rows of numbers"),
    "a longer row": ("gt/gt.txt", f"{_ROW}\n{_ROW},1\n", "cannot be read as rows of numbers"),
    "no text": ("gt/gt.txt", b"\x89PNG\r\n\x1a\n\xff\xfe", "cannot be read as rows of numbers"),
    "few columns": ("gt/gt.txt", "1,1,10,10,20,40\n", "a row has 6 numbers, and not 7 to 10"),
    "many columns": ("gt/gt.txt", f"{_ROW},1,1,1\n", "a row has 12 numbers, and not 7 to 10"),
    "no number": ("gt/gt.txt", f"{_ROW}\n2,1,nan,10,20,40,1,1,1\n", "row 2 has something that is no number"),
    "infinite": ("gt/gt.txt", "1,1,10,10,inf,40,1,1,1\n", "row 1 has something that is no number"),
    "frame 0": ("gt/gt.txt", "0,1,10,10,20,40,1,1,1\n", "row 1 has no frame from 1"),
    "frame 1e15": ("gt/gt.txt", "1e15,1,10,10,20,40,1,1,1\n", "row 1 has no frame from 1"),
    "half a frame": ("gt/gt.txt", "1.5,1,10,10,20,40,1,1,1\n", "row 1 has a frame that is no whole number"),
    "half an id": ("gt/gt.txt", "1,1.5,10,10,20,40,1,1,1\n", "row 1 has an id that is no whole number"),
    "no area": ("gt/gt.txt", "1,1,10,10,0,40,1,1,1\n", "row 1 has a box without an area"),
    "twice": ("gt/gt.txt", f"{_ROW}\n{_ROW}\n", "frame 1 has an id twice"),
    "no rate": ("seqinfo.ini", "[Sequence]\nframeRate=fast\n", "frameRate is 'fast', and not a number above 0"),
    "rate 0": ("seqinfo.ini", "[Sequence]\nframeRate=0\n", "frameRate is '0', and not a number above 0"),
    "short": ("seqinfo.ini", "[Sequence]\nseqLength=1\n", "seqLength is 1, but gt.txt has frame 3"),
    "endless": ("seqinfo.ini", "[Sequence]\nseqLength=1e12\n", "seqLength is '1e12', and not a number above 0"),
    "no section": ("seqinfo.ini", "frameRate=30\n", "seqinfo.ini cannot be read"),
    "no boxes' area": ("det/det.txt", "1,-1,10,10,20,-4,1\n", "det/det.txt: row 1 has a box without an area"),
    "no boxes": ("det/det.txt", b"", ""),
}


@pytest.mark.needs("trackeval")
@pytest.mark.parametrize("name", _ODD)
def test_an_odd_file_is_one_clear_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, content, reason = _ODD[name]
    write_mot(tmp_path / "walk", seed=0, seconds=0.1, objects=4)
    path = tmp_path / "walk" / file
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert invoke(["evaluate", "--mot", str(tmp_path)]) == (2 if reason else 0)
    said = capsys.readouterr().err
    assert reason in said
    assert len(said.splitlines()) == (1 if reason else 0)


@pytest.mark.needs("trackeval")
def test_a_sequence_of_which_no_frame_is_left_says_so(tmp_path: Path) -> None:
    write_mot(tmp_path / "walk", seed=0, seconds=0.1, objects=4)
    with pytest.raises(LookoutError, match=r"walk: bursts:9/9 leaves out all of its 3 frames"):
        evaluate(MotOptions(tmp_path, drop="bursts:9/9"))
