"""Candidates of a picture's raw output: the rows above the threshold, as boxes in input pixels. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import pi

import numpy as np
import numpy.typing as npt

from detectors.heads.layout import Floats
from detectors.port import PostprocessParams

STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32))
TWO_STRIDES = ((16, 32), (8, 16))  # of small YOLOs, such as YOLOv3-tiny

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Candidates:
    """Boxes above the threshold.

    Attributes:
        boxes: (n, 4) corners in input pixels; centre and size for rotated boxes.
        rows: (n,) row of the raw output.
    """

    boxes: Floats
    scores: Floats
    classes: Indices
    rows: Indices


def count_cells(size: tuple[int, int], strides: Sequence[int]) -> int:
    """Number of grid cells of an input."""
    return sum((size[0] // stride) * (size[1] // stride) for stride in strides)


def anchored(output: Floats, extras: int, wanted: PostprocessParams, *, rotated: bool) -> Candidates:
    strong = np.flatnonzero(output[:, 4] >= wanted.confidence)
    rows = output[strong]
    reached, scores, classes = pick(rows[:, 5 : rows.shape[1] - extras] * rows[:, 4:5], wanted)
    boxes = rows[reached, :4]
    return Candidates(boxes if rotated else corners(boxes), scores, classes, strong[reached])


def columns_of(output: Floats, extras: int, wanted: PostprocessParams, *, rotated: bool) -> Candidates:
    end = len(output) - extras
    strong = np.flatnonzero(output[4:end].max(axis=0) >= wanted.confidence)
    columns = output[:end, strong]
    reached, scores, classes = pick(columns[4:].T, wanted)
    boxes = columns[:4, reached].T
    return Candidates(boxes if rotated else corners(boxes), scores, classes, strong[reached])


def ready(output: Floats, wanted: PostprocessParams) -> Candidates:
    strong = np.flatnonzero(output[:, 4] >= wanted.confidence)
    rows = output[strong]
    return Candidates(rows[:, :4], rows[:, 4], whole(rows[:, 5]), strong)


def indexed(output: Floats, wanted: PostprocessParams) -> Candidates:
    """Rows of DeepStream-Yolo: six columns like `ready`, but before NMS; or centre and size, score of the best class,
    class, objectness."""
    if output.shape[1] == 6:
        return ready(output, wanted)
    scores = output[:, 4] * output[:, 6]
    strong = np.flatnonzero(scores >= wanted.confidence)
    rows = output[strong]
    return Candidates(corners(rows[:, :4]), scores[strong], whole(rows[:, 5]), strong)


def gridded(output: Floats, wanted: PostprocessParams, size: tuple[int, int]) -> Candidates:
    cells = np.flatnonzero(output[:, 4] >= wanted.confidence)
    rows = output[cells]
    reached, scores, classes = pick(rows[:, 5:] * rows[:, 4:5], wanted)
    rows, cells = rows[reached], cells[reached]
    grid, stride = grid_of(size, len(output))
    centres = (rows[:, :2] + grid[cells]) * stride[cells]
    sizes = np.exp(rows[:, 2:4]) * stride[cells]
    return Candidates(corners(np.concatenate((centres, sizes), axis=1)), scores, classes, cells)


def whole(classes: Floats) -> Indices:
    """Class ids among floats; -1 for what is none."""
    return np.where(np.abs(classes) < 1 << 24, classes, -1).astype(np.intp)  # float32 is exact up to there


def pick(scores: Floats, wanted: PostprocessParams) -> tuple[Indices, Floats, Indices]:
    """Row, score and class of each score (n, c) above the threshold. A row with a NaN is left out."""
    reached = scores.max(axis=1) >= wanted.confidence
    if wanted.multi_label:
        rows, classes = np.nonzero((scores >= wanted.confidence) & reached[:, None])
    else:
        rows = np.flatnonzero(reached)
        classes = scores[rows].argmax(axis=1)
    return rows, scores[rows, classes], classes


def corners(boxes: Floats) -> Floats:
    """cx, cy, w, h to x1, y1, x2, y2."""
    half = boxes[:, 2:] * np.float32(0.5)
    return np.concatenate((boxes[:, :2] - half, boxes[:, :2] + half), axis=1)


def hulls(boxes: Floats, size: tuple[int, int]) -> Floats:
    """The upright boxes (n, 4) around rotated ones (n, 5), clipped to the picture."""
    cos, sin = np.abs(np.cos(boxes[:, 4])), np.abs(np.sin(boxes[:, 4]))
    half = np.stack(
        (boxes[:, 2] * cos + boxes[:, 3] * sin, boxes[:, 2] * sin + boxes[:, 3] * cos), axis=1
    ) * np.float32(0.5)
    limit = np.array(size * 2, np.float32)
    around = np.concatenate((boxes[:, :2] - half, boxes[:, :2] + half), axis=1)
    return np.asarray(np.clip(around, np.float32(0), limit), np.float32)


def regular(boxes: Floats) -> Floats:
    """Rotated boxes (n, 5) with angles from 0 to 90 degrees, in radians; width and height change places for that."""
    angle = np.mod(boxes[:, 4], np.float32(pi))
    swap = angle >= np.float32(pi / 2)
    width, height = np.where(swap, boxes[:, 3], boxes[:, 2]), np.where(swap, boxes[:, 2], boxes[:, 3])
    angle = np.mod(angle, np.float32(pi / 2))
    return np.stack((boxes[:, 0], boxes[:, 1], width, height, angle), axis=1).astype(np.float32)


@lru_cache(maxsize=8)
def grid_of(size: tuple[int, int], rows: int) -> tuple[Floats, Floats]:
    """Cell (n, 2) and stride (n, 1) of each row of a YOLOX output, in order of strides."""
    strides = next(strides for strides in STRIDES if count_cells(size, strides) == rows)
    cells, scale = [], []
    for stride in strides:
        x, y = np.meshgrid(np.arange(size[0] // stride), np.arange(size[1] // stride))
        cells.append(np.stack((x.ravel(), y.ravel()), axis=1))
        scale.append(np.full((x.size, 1), stride))
    return np.concatenate(cells).astype(np.float32), np.concatenate(scale).astype(np.float32)
