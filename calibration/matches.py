"""Matches of detections with ground truth, from which AP is computed for any resample of the photos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RECALLS = np.linspace(0.0, 1.0, 101)  # at which COCO reads precision
_MAX_CELLS = 1 << 21  # of the largest array; limits the draws computed at once


@dataclass(frozen=True)
class Category:
    """Detections of one category, matched at COCO's ten IoUs, by falling score.

    Attributes:
        scores: (d,) confidences.
        photo: (d,) the index of each detection's photo.
        tp: (10, d) whether the detection is a true positive.
        ignored: (10, d) whether it is ignored, as on a crowd.
        truths: (photos,) numbers of objects.
    """

    scores: NDArray[np.float64]
    photo: NDArray[np.int64]
    tp: NDArray[np.bool_]
    ignored: NDArray[np.bool_]
    truths: NDArray[np.int64]


class Matches:
    """Detections and ground truth of some photos.

    Attributes:
        categories: those with ground truth.
        groups: the index of each photo's clip, or of the photo itself without clips.
        unit: what `groups` counts, "photos" or "clips".
    """

    def __init__(self, categories: Sequence[Category], groups: NDArray[np.int64], unit: str = "photos") -> None:
        self.groups, self.unit = groups, unit
        self.categories = [row for row in categories if row.truths.any()]

    def part(self, photos: Sequence[int]) -> Matches:
        """The matches of some photos, renumbered in this order."""
        number = np.full(len(self.groups), -1)
        number[list(photos)] = np.arange(len(photos))
        rows = []
        for row in self.categories:
            kept = number[row.photo] >= 0
            photo, tp, ignored = number[row.photo[kept]], row.tp[:, kept], row.ignored[:, kept]
            rows.append(Category(row.scores[kept], photo, tp, ignored, row.truths[list(photos)]))
        groups = np.unique(self.groups[list(photos)], return_inverse=True)[1]
        return Matches(rows, groups.reshape(-1), self.unit)

    def ap(self, weights: NDArray[np.int64]) -> float:
        """COCO AP with each photo counted `weights` times; NaN without ground truth."""
        return float(self.aps(weights[None])[0])

    def aps(self, weights: NDArray[np.int64]) -> NDArray[np.float64]:
        """COCO AP for each row of weights, (draws, photos)."""
        largest = max((len(row.scores) for row in self.categories), default=1)
        step = max(1, _MAX_CELLS // max(1, largest))
        parts = [self._aps(weights[begin : begin + step]) for begin in range(0, len(weights), step)]
        return np.concatenate(parts)

    def _aps(self, weights: NDArray[np.int64]) -> NDArray[np.float64]:
        total, categories = np.zeros(len(weights)), np.zeros(len(weights))
        for row in self.categories:
            truths = weights @ row.truths
            total += _average_precision(row, weights[:, row.photo].T, truths)
            categories += truths > 0
        total[categories == 0] = np.nan
        return total / np.maximum(categories, 1)


def _average_precision(
    category: Category, weights: NDArray[np.int64], truths: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The mean over ten IoUs for each draw.

    Args:
        weights: (d, draws) how often each detection counts.
        truths: (draws,) numbers of objects.

    Precision is read at true positives alone: it only falls between them.
    """
    total = np.zeros(len(truths))
    detections = np.cumsum(weights, axis=0)
    for tp, ignored in zip(category.tp, category.ignored):
        places = np.flatnonzero(tp & ~ignored)
        if not len(places):
            continue
        hits, seen = np.cumsum(weights[places], axis=0), detections[places]
        if ignored.any():
            seen = seen - np.cumsum(weights * ignored[:, None], axis=0)[places]
        precision = hits / np.maximum(seen, 1)
        best = np.maximum.accumulate(precision[::-1], axis=0)[::-1]  # at this recall or a higher one
        reached = np.searchsorted(RECALLS, hits / np.maximum(truths, 1), side="right")
        total += (best * np.diff(reached, axis=0, prepend=0)).sum(axis=0)
    return np.where(truths > 0, total / (len(category.tp) * len(RECALLS)), 0.0)
