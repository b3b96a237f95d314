"""Files of a sequence in MOTChallenge's layouts: truth, boxes, and what `seqinfo.ini` says.

Rows of `gt.txt` have a mark for what counts in the seventh column. Behind it, those of MOT16 and later have the class,
and eight or nine numbers in all. Those of MOT15 have ten, and a place in the world there.
"""

from __future__ import annotations

import configparser
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from daemon.errors import LookoutError

Rows = npt.NDArray[np.float64]
FRAME, ID, CONFIDENCE, CLASS = 0, 1, 6, 7  # columns; the confidence is the mark in gt.txt
LEAST, MOST = 7, 10  # numbers of a row
NO_ROWS = np.empty((0, LEAST))
_MOT15 = 10
_PEDESTRIAN = 1
_MAX_FRAMES = 1_000_000
_FPS, _MAX_FPS = 30.0, 1000.0


@dataclass(frozen=True)
class SequenceFiles:
    """One sequence.

    Attributes:
        fps: frames a second.
        length: frames, from 1.
        truth: rows of gt.txt that count, by frame: id, and corners.
        pictures: folder and extension.
    """

    folder: Path
    fps: float
    length: int
    truth: dict[int, Rows]
    pictures: tuple[Path, str]


def read_sequence(folder: Path) -> SequenceFiles:
    """Read `gt/gt.txt` and, if there is one, `seqinfo.ini`.

    Raises:
        LookoutError: a file is missing or damaged, contradicts the other, or has no truth that counts.
    """
    path = folder / "gt" / "gt.txt"
    rows = _counting(read_rows(path), path)
    truth = {number: np.column_stack((of[:, ID], corners(of))) for number, of in by_frame(rows)}
    for number, of in truth.items():
        if len(np.unique(of[:, 0])) < len(of):
            raise LookoutError(f"{path}: frame {number} has an id twice")
    info = _Info(folder / "seqinfo.ini")
    last = max(truth)
    length = int(info.number("seqLength", last, _MAX_FRAMES))
    if length < last:
        raise LookoutError(f"{info.path}: seqLength is {length}, but gt.txt has frame {last}")
    pictures = folder / info.text("imDir", "img1"), info.text("imExt", ".jpg")
    return SequenceFiles(folder, info.number("frameRate", _FPS, _MAX_FPS), length, truth, pictures)


def read_rows(path: Path) -> Rows:
    """(n, 7 to 10) of a file of rows.

    Raises:
        LookoutError: it cannot be read, or has a row that is none.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a file without rows
            rows = np.loadtxt(path, delimiter=",", ndmin=2, encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise LookoutError(f"{path} cannot be read as rows of numbers: {error}") from error
    if not rows.size:
        return NO_ROWS
    if not LEAST <= rows.shape[1] <= MOST:
        raise LookoutError(f"{path}: a row has {rows.shape[1]} numbers, and not {LEAST} to {MOST}")
    for problem, bad in (
        ("has something that is no number", ~np.isfinite(rows[:, :LEAST]).all(axis=1)),
        (f"has no frame from 1 to {_MAX_FRAMES}", (rows[:, FRAME] < 1) | (rows[:, FRAME] > _MAX_FRAMES)),
        ("has a frame that is no whole number", rows[:, FRAME] % 1 != 0),
        ("has an id that is no whole number", (rows[:, ID] % 1 != 0) | (np.abs(rows[:, ID]) > 1 << 53)),
        ("has a box without an area", (rows[:, 4:6] <= 0).any(axis=1)),
    ):
        if bad.any():
            raise LookoutError(f"{path}: row {int(bad.argmax()) + 1} {problem}")
    return rows


def by_frame(rows: Rows) -> Iterator[tuple[int, Rows]]:
    """The rows of each frame that has some, in their order."""
    rows = rows[np.argsort(rows[:, FRAME], kind="stable")]
    numbers, firsts = np.unique(rows[:, FRAME], return_index=True)
    yield from zip(map(int, numbers), np.split(rows, firsts[1:]))


def corners(rows: Rows) -> Rows:
    """(n, 4) in pixels from 0; the files count from 1."""
    corner = rows[:, 2:4] - 1
    return np.hstack((corner, corner + rows[:, 4:6]))


def _counting(rows: Rows, path: Path) -> Rows:
    """The rows that count as truth.

    Raises:
        LookoutError: there is none.
    """
    marked = rows[:, CONFIDENCE] > 0
    has_class = CLASS < rows.shape[1] < _MOT15 and (rows[:, CLASS] != -1).any()
    people = rows[:, CLASS] == _PEDESTRIAN if has_class else np.ones(len(rows), np.bool_)
    found: Rows = rows[marked & people]
    if not len(found):
        raise LookoutError(
            f"{path} has no truth that counts: of {len(rows)} rows {int((~marked).sum())} are marked 0, and "
            f"{int((marked & ~people).sum())} are of another class than {_PEDESTRIAN}, pedestrian"
        )
    return found


class _Info:
    """`seqinfo.ini`; without it everything has its default.

    Raises:
        LookoutError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        parser = configparser.ConfigParser(interpolation=None)
        try:
            if path.exists():
                parser.read_string(path.read_text("utf-8-sig"))
        except (OSError, ValueError, configparser.Error) as error:
            reason = str(error).replace("\n", " ")
            raise LookoutError(f"{path} cannot be read: {reason}") from error
        self._section = parser["Sequence"] if parser.has_section("Sequence") else {}

    def text(self, key: str, default: str) -> str:
        return self._section.get(key, default)

    def number(self, key: str, default: float, max_value: float) -> float:
        """
        Raises:
            LookoutError: it is not above 0, or more than `max_value`.
        """
        text = self._section.get(key)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value <= max_value:
            raise LookoutError(f"{self.path}: {key} is {text!r}, and not a number above 0 and up to {max_value:g}")
        return value
