"""`lookout evaluate --mot`: the tracker over sequences in MOTChallenge's layout, with frames left out on request.

A sequence is a folder with `gt/gt.txt`, and `det/det.txt` or pictures in `img1/`. `seqinfo.ini` gives the rate.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from daemon.analytics.track_stage import Tracker, TrackerStage
from daemon.commands.mot_files import (
    CONFIDENCE,
    NO_ROWS,
    Rows,
    SequenceFiles,
    by_frame,
    corners,
    read_rows,
    read_sequence,
)
from daemon.commands.tracking_score import ScoredFrame, TrackingScore, open_metrics, score
from daemon.config.model import ModelConfig
from daemon.config.root import Config
from daemon.config.sources import SyntheticConfig, TrackingConfig
from daemon.errors import LookoutError
from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.ledger import Ledger
from daemon.progress import Tell
from detectors.detections import Detections
from detectors.pictures import read_picture
from detectors.port import Detector, HostImage, Lane
from lookout.messages import FrameClock

FLOOR = TrackingConfig().floor
_LABELS = ("person", "pedestrian")  # of models
_NO_TRUTH = np.empty((0, 5))
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
class MotFrame:
    """A frame that is not left out.

    Attributes:
        number: from 1.
        ns: its time.
        truth: id and corners, (n, 5).
    """

    number: int
    ns: int
    found: Detections
    truth: Rows


@dataclass(frozen=True)
class MotScores:
    """The score of each sequence, by the path of its folder."""

    sequences: dict[str, TrackingScore]


def evaluate(options: MotOptions, detector: Detector | None = None, tell: Tell | None = None) -> MotScores:
    """The scores of all sequences in a folder.

    Args:
        detector: finds the boxes in `img1`; None for those of `det/det.txt`.
        tell: called before each frame; of sequences to come the length is not known.

    Raises:
        LookoutError: there is no sequence, a file is missing or damaged, or TrackEval is not installed.
    """
    folders = folders_of(options.folder)
    parse_drop(options.drop, options.seed)
    metrics, results, done = open_metrics(), {}, itertools.count()
    for folder in folders:
        sequence = read_sequence(folder)
        name = folder.name if folder == options.folder else str(folder.relative_to(options.folder))
        with ExitStack() as opened:
            lane = opened.enter_context(closing(detector.lane())) if detector else None
            find = _by_lane(sequence, lane, detector.info.labels) if lane and detector else by_file(sequence)
            frames = list[MotFrame]()
            for frame in frames_of(sequence, options, find):
                frames.append(frame)
                if tell is not None:
                    tell(next(done), 0)
            results[name] = score(_tracked(frames, options), metrics)
    return MotScores(results)


def folders_of(folder: Path) -> list[Path]:
    """The sequences in a folder.

    Raises:
        LookoutError: there is none.
    """
    found = sorted(path.parent.parent for path in folder.glob("**/gt/gt.txt"))
    if not found:
        raise LookoutError(f"{folder} has no sequence: a folder with gt/gt.txt, in MOTChallenge's layout")
    return found


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


def frames_of(sequence: SequenceFiles, options: MotOptions, find: Find) -> Iterator[MotFrame]:
    """The frames that are not left out.

    Raises:
        LookoutError: all are.
    """
    dropped = parse_drop(options.drop, options.seed)
    numbers = [number for number in range(1, sequence.length + 1) if not dropped(number - 1)]
    if not numbers:
        raise LookoutError(f"{sequence.folder}: {options.drop} leaves out all of its {sequence.length} frames")
    for number in numbers:
        ns = round((number - 1) * 1e9 / sequence.fps)
        yield MotFrame(number, ns, find(number), sequence.truth.get(number, _NO_TRUTH))


def _tracked(frames: Iterable[MotFrame], options: MotOptions) -> list[ScoredFrame]:
    config = Config(
        model=ModelConfig(path=Path("none"), confidence=options.confidence),
        sources=[SyntheticConfig(id="sequence")],
        tracking=TrackingConfig(enabled=True),
    )
    stage = TrackerStage(Tracker(config, Ledger()), (_LABELS[0],))
    result = []
    for one in frames:
        seq, ns = one.number - 1, one.ns
        (found,) = stage([FrameInfo("sequence", "mot", seq, ns, ns, ns, FrameClock("file", 0), 0, 1, 1)], [one.found])
        if found.tracks is None:
            raise AssertionError("the source is tracked")
        result.append(scored(one, found.tracks.id, found))
    return result


def scored(frame: MotFrame, ids: npt.NDArray[np.int64], found: Detections) -> ScoredFrame:
    """A frame and the ids of boxes, 0 for none."""
    seen, truth = ids > 0, frame.truth
    return ScoredFrame(truth[:, 0].astype(np.int64), truth[:, 1:5], ids[seen], found.xyxy[seen].astype(np.float64))


def by_file(sequence: SequenceFiles) -> Find:
    """The boxes of `det/det.txt`, the strongest first. A confidence outside of 0 to 1 counts as the nearer of the two.

    Raises:
        LookoutError: the file cannot be read.
    """
    boxes = dict(by_frame(read_rows(sequence.folder / "det" / "det.txt")))

    def find(number: int) -> Detections:
        rows = boxes.get(number, NO_ROWS)
        rows = rows[np.argsort(-rows[:, CONFIDENCE], kind="stable")]
        confidence = np.clip(rows[:, CONFIDENCE], 0, 1).astype(np.float32)
        return Detections(corners(rows).astype(np.float32), confidence, np.zeros(len(rows), np.int32))

    return find


def _by_lane(sequence: SequenceFiles, lane: Lane, labels: tuple[str, ...]) -> Find:
    wanted = np.array([label in _LABELS for label in labels])
    if not wanted.any():
        raise LookoutError(f"the model has none of the labels {', '.join(_LABELS)}; it has {', '.join(labels)}")
    folder, extension = sequence.pictures
    paths = {int(path.stem): path for path in folder.glob(f"*{extension}") if path.stem.isdecimal()}

    def find(number: int) -> Detections:
        path = paths.get(number)
        picture = None if path is None else read_picture(path)
        if picture is None:
            raise LookoutError(f"{folder} has no picture of frame {number}, such as {number:06d}{extension}")
        (found,), _ = lane.detect([HostImage(picture)])
        people = found[wanted[found.class_id]]
        return Detections(people.xyxy, people.confidence, np.zeros(len(people), np.int32))

    return find
