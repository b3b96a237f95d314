"""Objects on known paths and the boxes that a detector might give of them, without pictures.

Objects cross each other's paths. Some boxes are missed, weak or false, and all are a little off. Everything follows
from the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from daemon.analytics.tracker import TrackSettings
from daemon.pipeline.frames import FrameInfo
from detectors.detections import Detections
from lookout.messages import FrameClock

SETTINGS = TrackSettings(
    floor=0.1, start=0.25, threshold=0.25, timeout_ns=1_000_000_000, memory_ns=3_000_000_000, confirm_hits=3
)
WIDTH, HEIGHT = 1920, 1080


@dataclass(frozen=True)
class Seen:
    """One frame.

    Attributes:
        objects: (n,) the object of each box; -1 for a false one.
        truth: (objects, 4) the true corners.
    """

    frame: FrameInfo
    found: Detections
    objects: list[int]
    truth: npt.NDArray[np.float64]


def frame_of(
    number: int, ns: int, *, source: str = "street", session: str = "one", kind: str = "arrival", pts: bool = True
) -> FrameInfo:
    clock = FrameClock(kind)  # type: ignore[arg-type]
    return FrameInfo(source, session, number, ns if pts else None, ns + 5_000_000_000, 0, clock, 0, WIDTH, HEIGHT)


def boxes(*rows: tuple[float, float, float, float], confidence: float = 0.9, class_id: int = 0) -> Detections:
    """Equal boxes but for their corners."""
    count = len(rows)
    return Detections(
        np.array(rows, np.float32).reshape(count, 4),
        np.full(count, confidence, np.float32),
        np.full(count, class_id, np.int32),
    )


def walk(
    seed: int, *, objects: int = 20, fps: float = 30.0, seconds: float = 30.0, source: str = "street", classes: int = 1
) -> list[Seen]:
    """Objects that slow down and turn around at the edges of the picture; elsewhere their speed is up to 400 pixels a
    second."""
    random = np.random.default_rng(seed)
    size = random.uniform((40, 80), (90, 180), (objects, 2))
    room = np.array([WIDTH, HEIGHT]) - size
    start, speed = random.uniform(0, 2, (objects, 2)), random.uniform(-250, 250, (objects, 2)) / room
    sway, rate = random.uniform(0, 0.02, (objects, 2)), random.uniform(0.5, 2.0, (objects, 2))
    kinds = random.integers(0, classes, objects)
    frames = []
    for number in range(round(seconds * fps)):
        now = number / fps
        along = start + speed * now + sway * np.sin(rate * now)
        corner = (0.5 - 0.5 * np.cos(np.pi * along)) * room
        frames.append(_seen(random, number, round(now * 1e9), source, np.hstack((corner, corner + size)), kinds))
    return frames


def _seen(
    random: np.random.Generator,
    number: int,
    ns: int,
    source: str,
    truth: npt.NDArray[np.float64],
    kinds: npt.NDArray[np.int64],
) -> Seen:
    count = len(truth)
    side = np.tile(truth[:, 2:] - truth[:, :2], 2)
    shown = np.flatnonzero(random.random(count) >= 0.05)
    rows = (truth + random.normal(0, 0.02, truth.shape) * side)[shown]
    weak = random.random(len(shown)) < 0.15
    confidence = np.where(weak, random.uniform(0.11, 0.24, len(shown)), random.uniform(0.5, 0.95, len(shown)))
    false = int(random.random() < 0.02 * count)
    corner = random.uniform((0, 0), (WIDTH - 80, HEIGHT - 80), (false, 2))
    rows = np.vstack((rows, np.hstack((corner, corner + 80))))
    confidence = np.concatenate((confidence, random.uniform(0.26, 0.5, false)))
    class_id = np.concatenate((kinds[shown], np.zeros(false, np.int64)))
    objects = np.concatenate((shown, np.full(false, -1)))
    order = np.argsort(-confidence, kind="stable")
    found = Detections(
        rows[order].astype(np.float32), confidence[order].astype(np.float32), class_id[order].astype(np.int32)
    )
    return Seen(frame_of(number, ns, source=source), found, objects[order].tolist(), truth)


def switches(frames: Sequence[Seen], results: Sequence[Detections]) -> int:
    """How often an object got another id than the one it had."""
    last: dict[int, int] = {}
    count = 0
    for seen, result in zip(frames, results):
        assert result.tracks is not None
        objects = dict(zip(map(tuple, seen.found.xyxy.tolist()), seen.objects))  # weak boxes are removed
        for box, id in zip(result.xyxy.tolist(), result.tracks.id.tolist()):
            number = objects[tuple(box)]
            if number >= 0 and id > 0:
                count += last.get(number, id) != id
                last[number] = id
    return count


def write_mot(folder: Path, *, seed: int, seconds: float = 30.0, objects: int = 20) -> None:
    """A walk in MOTChallenge's layout, with gt/ and det/."""
    (folder / "gt").mkdir(parents=True)
    (folder / "det").mkdir()
    frames = walk(seed, seconds=seconds, objects=objects)
    truth, found = [], []
    for number, seen in enumerate(frames, 1):
        truth += [f"{number},{id},{_row(box)},1,1,1" for id, box in enumerate(seen.truth.tolist(), 1)]
        rows = zip(seen.found.xyxy.tolist(), seen.found.confidence.tolist())
        found += [f"{number},-1,{_row(box)},{confidence:.3f}" for box, confidence in rows]
    (folder / "gt/gt.txt").write_text("\n".join(truth) + "\n")
    (folder / "det/det.txt").write_text("\n".join(found) + "\n")
    (folder / "seqinfo.ini").write_text(f"[Sequence]\nframeRate=30\nseqLength={len(frames)}\n")


def _row(box: Sequence[float]) -> str:
    """Left, top, width and height; pixels count from 1."""
    return f"{box[0] + 1:.2f},{box[1] + 1:.2f},{box[2] - box[0]:.2f},{box[3] - box[1]:.2f}"
