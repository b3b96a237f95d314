"""Two recordings of what was found, frame by frame and box by box."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daemon.bench.recording import Row, read
from daemon.errors import LookoutError
from detectors.matching import match

_SHOWN = 10


@dataclass(frozen=True)
class Agreement:
    """What two recordings have in common.

    Attributes:
        frames: that both published.
        only_a, only_b: frames that one published and the other did not.
        boxes_a, boxes_b: in frames that both published.
        matched: boxes of the same class with enough overlap.
        mean_iou, confidence_shift: of those that matched; the second is B less A.
        differing: the first frames that differ, as source and pts.
    """

    frames: int
    only_a: int
    only_b: int
    boxes_a: int
    boxes_b: int
    matched: int
    mean_iou: float
    confidence_shift: float
    differing: list[str]

    @property
    def share(self) -> float:
        """Of the boxes of both, those that matched."""
        return 2 * self.matched / max(1, self.boxes_a + self.boxes_b) if self.boxes_a + self.boxes_b else 1.0


def compare_frames(a: Path, b: Path, iou: float = 0.95) -> Agreement:
    """Frames are the same where source and pts are, or seq where there is no pts.

    Raises:
        LookoutError: a file cannot be read, or they have no frame in common.
    """
    left, right = _published(read(a)), _published(read(b))
    common = [key for key in left if key in right]
    if not common:
        raise LookoutError(f"{a} and {b} have no published frame in common: are they of the same recordings?")
    ious: list[float] = []
    shifts: list[float] = []
    differing = []
    for key in common:
        pairs = _pairs(left[key], right[key], iou)
        ious += [found for found, _ in pairs]
        shifts += [shift for _, shift in pairs]
        if not len(pairs) == len(left[key].boxes) == len(right[key].boxes):
            differing.append(f"{key[0]} {key[1]}")
    return Agreement(
        frames=len(common),
        only_a=len(left) - len(common),
        only_b=len(right) - len(common),
        boxes_a=sum(len(left[key].boxes) for key in common),
        boxes_b=sum(len(right[key].boxes) for key in common),
        matched=len(ious),
        mean_iou=round(float(np.mean(ious)), 4) if ious else 0.0,
        confidence_shift=round(float(np.mean(shifts)), 4) if shifts else 0.0,
        differing=differing[:_SHOWN],
    )


def _published(rows: Iterable[Row]) -> dict[tuple[str, int], Row]:
    found: dict[tuple[str, int], Row] = {}
    for row in rows:
        if row.dropped is None:
            found.setdefault((row.source, row.seq if row.pts is None else row.pts), row)
    return found


def _pairs(a: Row, b: Row, iou: float) -> list[tuple[float, float]]:
    """Overlap and shift of confidence of each box that both have."""
    if not a.boxes or not b.boxes:
        return []
    boxes = [np.array([box.box for box in row.boxes], np.float32) for row in (a, b)]
    classes = [np.array([box.class_id for box in row.boxes], np.int32) for row in (a, b)]
    pairs = match(boxes[0], classes[0], boxes[1], classes[1], iou)
    return [(overlap, b.boxes[j].confidence - a.boxes[i].confidence) for i, j, overlap in pairs]
