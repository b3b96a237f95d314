"""Agreement of two models on the same frames: the accuracy measure for users without labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.detections import Detections
from detectors.matching import match
from detectors.port import DetectorError

_MIN_IOU = 0.5
_THRESHOLD_FACTOR = 0.7  # a box at 0.24 is not missing because the threshold is 0.25
_MIN_BOXES = 30


@dataclass(frozen=True)
class Agreement:
    """Boxes of two models; the first is the reference.

    Attributes:
        share: matched / (matched + missed + new).
        matched, missed, new: numbers of boxes; only the second model has the new ones.
        mean_iou: of matched boxes.
        confidence_shift: second minus first, mean over matched boxes.
    """

    share: float
    matched: int
    missed: int
    new: int
    mean_iou: float
    confidence_shift: float
    frames: int


@dataclass(frozen=True)
class Difference:
    """One frame's differences.

    Attributes:
        matched: number of boxes that both models have.
        missed, new: indices of boxes that only the first, or only the second model has.
    """

    frame: int
    matched: int
    missed: list[int]
    new: list[int]


def threshold(confidence: float) -> float:
    """The detector threshold for a comparison at `confidence`."""
    return confidence * _THRESHOLD_FACTOR


def compare(
    first: Sequence[Detections], second: Sequence[Detections], confidence: float
) -> tuple[Agreement, list[Difference]]:
    """Compare detections made with `threshold(confidence)`. Boxes below `confidence` count only when matched.

    Raises:
        DetectorError: too few objects for a meaningful comparison.
    """
    ious: list[float] = []
    shifts: list[float] = []
    rows: list[Difference] = []
    for number, (true, found) in enumerate(zip(first, second)):
        pairs = match(true.xyxy, true.class_id, found.xyxy, found.class_id, _MIN_IOU)
        counted = [pair for pair in pairs if max(true.confidence[pair[0]], found.confidence[pair[1]]) >= confidence]
        ious += [pair[2] for pair in counted]
        shifts += [float(found.confidence[pair[1]] - true.confidence[pair[0]]) for pair in counted]
        rows.append(
            Difference(
                number,
                matched=len(counted),
                missed=_alone(true, {pair[0] for pair in pairs}, confidence),
                new=_alone(found, {pair[1] for pair in pairs}, confidence),
            )
        )
    missed, new = sum(len(row.missed) for row in rows), sum(len(row.new) for row in rows)
    if len(ious) + missed < _MIN_BOXES:
        raise DetectorError(
            f"the float model sees {len(ious) + missed} objects in {len(first)} frames, too few to compare by: "
            "give frames with more to see, or labelled photos (--images, --annotations)"
        )
    share = len(ious) / (len(ious) + missed + new)
    figures = (float(np.mean(values)) if values else 0.0 for values in (ious, shifts))
    mean_iou, shift = (round(value, 4) for value in figures)
    return Agreement(round(share, 4), len(ious), missed, new, mean_iou, shift, len(first)), rows


def by_group(rows: Sequence[Difference], groups: Sequence[str]) -> NDArray[np.int64]:
    """(groups, 3) int64: boxes matched, missed and new in each group of frames; empty groups are left out.

    Args:
        groups: the group of each frame.
    """
    sums: dict[str, NDArray[np.int64]] = {}
    for row in rows:
        counts = np.array((row.matched, len(row.missed), len(row.new)), np.int64)
        sums[groups[row.frame]] = sums.get(groups[row.frame], 0) + counts
    return np.array([counts for counts in sums.values() if counts.any()], np.int64).reshape(-1, 3)


def _alone(boxes: Detections, matched: set[int], confidence: float) -> list[int]:
    sure = np.flatnonzero(boxes.confidence >= confidence)
    return [int(number) for number in sure if int(number) not in matched]
