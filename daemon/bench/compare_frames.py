"""Comparison of two recordings of detections, frame by frame and box by box."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daemon.bench.recording import Row, read
from daemon.errors import LookoutError
from detectors.matching import match

_SHOWN = 10
_Key = tuple[str, str | None, int]  # source, model, and pts or seq


@dataclass(frozen=True)
class Agreement:
    """Agreement of two recordings.

    Attributes:
        frames: number published in both.
        only_a, only_b: numbers published in one only.
        boxes_a, boxes_b: numbers of boxes in common frames.
        matched: number of boxes of the same class with enough overlap.
        mean_iou, confidence_shift: of matched boxes; the shift is B minus A.
        differing: source, model if there are several, and pts of the first frames that differ.
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
        """Share of matched boxes."""
        return 2 * self.matched / max(1, self.boxes_a + self.boxes_b) if self.boxes_a + self.boxes_b else 1.0


def compare_frames(a: Path, b: Path, iou: float = 0.95) -> Agreement:
    """Compare frames with equal source, model, and pts, or seq without pts.

    Raises:
        LookoutError: a file cannot be read, or no frame is in both.
    """
    left, right = _published(read(a)), _published(read(b))
    common = [key for key in left if key in right]
    if not common:
        raise LookoutError(f"{a} and {b} have no published frame in common: check that the recordings are the same")
    ious: list[float] = []
    shifts: list[float] = []
    differing = []
    for key in common:
        pairs = _pairs(left[key], right[key], iou)
        ious += [found for found, _ in pairs]
        shifts += [shift for _, shift in pairs]
        if not len(pairs) == len(left[key].boxes) == len(right[key].boxes):
            differing.append(" ".join(str(part) for part in key if part is not None))
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


def _published(rows: Iterable[Row]) -> dict[_Key, Row]:
    found: dict[_Key, Row] = {}
    for row in rows:
        if row.dropped is None:
            found.setdefault((row.source, row.model, row.seq if row.pts is None else row.pts), row)
    return found


def _pairs(a: Row, b: Row, iou: float) -> list[tuple[float, float]]:
    """IoU and confidence shift of each matched box."""
    if not a.boxes or not b.boxes:
        return []
    boxes = [np.array([box.box for box in row.boxes], np.float32) for row in (a, b)]
    classes = [np.array([box.class_id for box in row.boxes], np.int32) for row in (a, b)]
    pairs = match(boxes[0], classes[0], boxes[1], classes[1], iou)
    return [(overlap, b.boxes[j].confidence - a.boxes[i].confidence) for i, j, overlap in pairs]
