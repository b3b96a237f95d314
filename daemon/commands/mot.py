"""`lookout evaluate --mot`: the tracker over sequences in MOTChallenge's layout, with frames left out on request.

A sequence is a folder with `gt/gt.txt`, and `det/det.txt` or pictures in `img1/`. `seqinfo.ini` gives the rate.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from daemon.analytics.track_stage import Tracker, TrackerStage
from daemon.commands.tracking_score import ScoredFrame, TrackingScore, open_metrics, score
from daemon.config import Config, ModelConfig, SyntheticConfig, TrackingConfig
from daemon.errors import LookoutError
from daemon.messages import FrameClock
from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.ledger import Ledger
from detectors.detections import Detections
from detectors.port import Detector, HostImage, Lane

FLOOR = TrackingConfig().floor
_FPS = 30.0
_PEDESTRIAN = 1  # class of gt.txt
_LABELS = ("person", "pedestrian")  # of models
_NO_ROWS = np.empty((0, 9))
Rows = npt.NDArray[np.float64]
Find = Callable[[int], Detections]


@dataclass(frozen=True)
class MotOptions:
    """Options of the evaluation.

    Attributes:
        drop: which frames are left out; see `parse_drop`.
        confidence: the threshold of boxes that begin tracks.
    """

    folder: Path
    drop: str = ""
    confidence: float = 0.25
    seed: int = 0


@dataclass(frozen=True)
class Sequence:
    """One sequence.

    Attributes:
        truth: rows of gt.txt by frame: id, and corners.
        length: frames, from 1.
    """

    folder: Path
    fps: float
    length: int
    truth: dict[int, Rows]


@dataclass(frozen=True)
class MotScores:
    """The score of each sequence, by the name of its folder."""

    sequences: dict[str, TrackingScore]


def evaluate(options: MotOptions, detector: Detector | None = None) -> MotScores:
    """The scores of all sequences in a folder.

    Args:
        detector: finds the boxes in `img1`; None for those of `det/det.txt`.

    Raises:
        LookoutError: there is no sequence, a file is missing or damaged, or TrackEval is not installed.
    """
    folders = sorted(path.parent.parent for path in options.folder.glob("**/gt/gt.txt"))
    if not folders:
        raise LookoutError(f"{options.folder} has no sequence: a folder with gt/gt.txt, in MOTChallenge's layout")
    parse_drop(options.drop, options.seed)
    metrics, results = open_metrics(), {}
    for folder in folders:
        sequence = _read(folder)
        with ExitStack() as opened:
            lane = opened.enter_context(closing(detector.lane())) if detector else None
            find = _by_lane(sequence, lane, detector.info.labels) if lane and detector else _by_file(sequence)
            results[folder.name] = score(list(_tracked(sequence, options, find)), metrics)
    return MotScores(results)


def parse_drop(text: str, seed: int) -> Callable[[int], bool]:
    """Whether a frame is left out: `random:0.5` (share), `stride:5` (keep every fifth), `bursts:12/60` (12 of each 60).

    Raises:
        LookoutError: it is none of them.
    """
    if not text:
        return lambda _: False
    if share := re.fullmatch(r"random:(0?\.\d+)", text):
        numbers = np.random.default_rng(seed).random(1_000_000) < float(share[1])
        return lambda frame: bool(numbers[frame % len(numbers)])
    if stride := re.fullmatch(r"stride:([1-9]\d*)", text):
        return lambda frame: frame % int(stride[1]) != 0
    if burst := re.fullmatch(r"bursts:(\d+)/([1-9]\d*)", text):
        return lambda frame: frame % int(burst[2]) >= int(burst[2]) - int(burst[1])
    raise LookoutError(f"drop {text!r} is none of random:0.5, stride:5 and bursts:12/60")


def _tracked(sequence: Sequence, options: MotOptions, find: Find) -> Iterator[ScoredFrame]:
    config = Config(
        model=ModelConfig(path=Path("none"), confidence=options.confidence),
        sources=[SyntheticConfig(id="sequence")],
        tracking=TrackingConfig(enabled=True),
    )
    stage = TrackerStage(Tracker(config, Ledger()), (_LABELS[0],))
    dropped = parse_drop(options.drop, options.seed)
    for number in range(1, sequence.length + 1):
        if dropped(number - 1):
            continue
        ns = round((number - 1) * 1e9 / sequence.fps)
        frame = FrameInfo("sequence", "mot", number - 1, ns, ns, ns, FrameClock("file", 0), 0, 1, 1)
        (found,) = stage([frame], [find(number)])
        tracks = found.tracks
        if tracks is None:
            raise AssertionError("the source is tracked")
        seen = tracks.id > 0
        truth = sequence.truth.get(number, _NO_ROWS[:, :5])
        yield ScoredFrame(
            truth[:, 0].astype(np.int64), truth[:, 1:5], tracks.id[seen], found.xyxy[seen].astype(np.float64)
        )


def _read(folder: Path) -> Sequence:
    rows = _table(folder / "gt" / "gt.txt")
    if rows.shape[1] >= 8:  # with a mark for what counts, and the class
        rows = rows[(rows[:, 6] > 0) & (rows[:, 7] == _PEDESTRIAN)]
    info = configparser.ConfigParser()
    info.read(folder / "seqinfo.ini")
    truth = {int(number): np.column_stack((of[:, 1], _corners(of))) for number, of in _by_frame(rows)}
    length = info.getint("Sequence", "seqLength", fallback=max(truth, default=0))
    return Sequence(folder, info.getfloat("Sequence", "frameRate", fallback=_FPS), length, truth)


def _by_file(sequence: Sequence) -> Find:
    boxes = dict(_by_frame(_table(sequence.folder / "det" / "det.txt")))

    def find(number: int) -> Detections:
        rows = boxes.get(number, _NO_ROWS)
        rows = rows[np.argsort(-rows[:, 6], kind="stable")]
        confidence = np.clip(rows[:, 6], 0, 1).astype(np.float32)
        return Detections(_corners(rows).astype(np.float32), confidence, np.zeros(len(rows), np.int32))

    return find


def _by_lane(sequence: Sequence, lane: Lane, labels: tuple[str, ...]) -> Find:
    wanted = np.array([label in _LABELS for label in labels])
    if not wanted.any():
        raise LookoutError(f"the model has none of the labels {', '.join(_LABELS)}; it has {', '.join(labels)}")

    def find(number: int) -> Detections:
        path = sequence.folder / "img1" / f"{number:06d}.jpg"
        picture = cv2.imread(str(path))
        if picture is None:
            raise LookoutError(f"{path} cannot be read as a picture")
        (found,), _ = lane.detect([HostImage(picture.astype(np.uint8))])
        people = found[wanted[found.class_id]]
        return Detections(people.xyxy, people.confidence, np.zeros(len(people), np.int32))

    return find


def _table(path: Path) -> Rows:
    try:
        rows = np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise LookoutError(f"{path} cannot be read as rows of numbers: {error}") from error
    if rows.size and rows.shape[1] < 7:
        raise LookoutError(f"{path}: a row has {rows.shape[1]} numbers, and not at least 7")
    return rows if rows.size else _NO_ROWS


def _by_frame(rows: Rows) -> Iterator[tuple[int, Rows]]:
    for number in np.unique(rows[:, 0]):
        yield int(number), rows[rows[:, 0] == number]


def _corners(rows: Rows) -> Rows:
    """(n, 4) in pixels from 0; the files count from 1."""
    corner = rows[:, 2:4] - 1
    return np.hstack((corner, corner + rows[:, 4:6]))
