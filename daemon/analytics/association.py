"""Which box belongs to which track, for many sources at once.

Pairs of boxes that overlap are found in padded arrays, one row a source. Everything after that works on the list of
pairs. No result depends on the other sources in the arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.intp]
_MAX_CELLS = 1 << 16  # of a padded array: larger ones leave the CPU's cache


@dataclass(frozen=True)
class Rows:
    """Boxes of several sources, those of one source side by side.

    Attributes:
        corners: (4, n) left, top, right and bottom.
        counts: (s,) boxes of each source.
    """

    corners: npt.NDArray[np.float64]
    counts: Indices

    def padded(self, sources: Indices, starts: Indices, width: int) -> npt.NDArray[np.float32]:
        """(4, sources, width); places without a box begin at infinity, so they overlap nothing."""
        counts = self.counts[sources]
        row = np.repeat(np.arange(len(sources)), counts)
        column = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        table = np.full((4, len(sources), width), np.inf, np.float32)
        table[:, row, column] = self.corners[:, np.repeat(starts[sources], counts) + column]
        return table


def overlapping(one: Rows, other: Rows) -> tuple[Indices, Indices]:
    """Pairs of boxes of the same source that overlap: a column of each. The pairs of a source are in order."""
    starts = np.cumsum(one.counts) - one.counts, np.cumsum(other.counts) - other.counts
    busy = np.flatnonzero(one.counts * other.counts)
    found = [_pairs(one, other, sources, starts) for sources in _chunks(one.counts, other.counts, busy)]
    if len(found) == 1:
        return found[0]
    if not found:
        return np.empty(0, np.intp), np.empty(0, np.intp)
    return np.concatenate([pair[0] for pair in found]), np.concatenate([pair[1] for pair in found])


def _chunks(ones: Indices, others: Indices, busy: Indices) -> list[Indices]:
    """The sources, in parts whose padded arrays are small."""
    if not len(busy):
        return []
    if len(busy) * int(ones[busy].max()) * int(others[busy].max()) <= _MAX_CELLS:
        return [busy]
    chunks: list[list[int]] = [[]]
    height = width = 0
    for source in busy[np.argsort(ones[busy] * others[busy], kind="stable")].tolist():
        height, width = max(height, int(ones[source])), max(width, int(others[source]))
        if chunks[-1] and (len(chunks[-1]) + 1) * height * width > _MAX_CELLS:
            chunks.append([])
            height, width = int(ones[source]), int(others[source])
        chunks[-1].append(source)
    return [np.array(chunk, np.intp) for chunk in chunks]


def _pairs(one: Rows, other: Rows, sources: Indices, starts: tuple[Indices, Indices]) -> tuple[Indices, Indices]:
    height, width = int(one.counts[sources].max()), int(other.counts[sources].max())
    left, top, right, bottom = one.padded(sources, starts[0], height)[:, :, :, None]
    left_, top_, right_, bottom_ = other.padded(sources, starts[1], width)[:, :, None, :]
    hit = left < right_
    hit &= left_ < right
    hit &= top < bottom_
    hit &= top_ < bottom
    place = np.flatnonzero(hit)
    cell, column = np.divmod(place, width)
    row, line = np.divmod(cell, height)
    return starts[0][sources][row] + line, starts[1][sources][row] + column


def iou(ones: npt.NDArray[np.float64], others: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Intersection over union of pairs of boxes, each (4, n)."""
    high, low = np.minimum(ones[2:], others[2:]), np.maximum(ones[:2], others[:2])
    sides = np.maximum(high - low, 0.0)
    common = sides[0] * sides[1]
    sides, sides_ = ones[2:] - ones[:2], others[2:] - others[:2]
    union = sides[0] * sides[1] + sides_[0] * sides_[1] - common
    found: npt.NDArray[np.float64] = common / np.maximum(union, 1e-9)
    return found


def shape_iou(ones: npt.NDArray[np.float64], others: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """IoU of pairs of boxes if both had the same centre, from their widths and heights, each (2, n)."""
    sides = np.minimum(ones, others)
    common = sides[0] * sides[1]
    found: npt.NDArray[np.float64] = common / (ones[0] * ones[1] + others[0] * others[1] - common)
    return found


def mutual_best(tracks: Indices, boxes: Indices, track_count: int, box_count: int) -> Indices:
    """The box of each track, -1 for a track without one, by pairs in order from the best to the worst.

    The result is that of going through the pairs one by one, but a round gives a box to every track whose best box has
    that track for its best.
    """
    result = np.full(track_count, -1, np.intp)
    free_track, free_box = np.ones(track_count, np.bool_), np.ones(box_count, np.bool_)
    first_of_track, first_of_box = np.empty(track_count, np.intp), np.empty(box_count, np.intp)
    while len(tracks):
        places = np.arange(len(tracks))
        first_of_track[tracks[::-1]] = places[::-1]  # of equal indices the last one written counts
        first_of_box[boxes[::-1]] = places[::-1]
        best = (first_of_track[tracks] == places) & (first_of_box[boxes] == places)
        won, given = tracks[best], boxes[best]
        result[won] = given
        free_track[won] = free_box[given] = False
        left = free_track[tracks] & free_box[boxes]
        tracks, boxes = tracks[left], boxes[left]
    return result
