"""Candidates of a picture's raw output: the rows above the threshold, as boxes in input pixels, and which of them
remain after non-maximum suppression, upright or rotated. Pure numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import pi

import numpy as np
import numpy.typing as npt

from detectors.heads.layout import Floats, Indices
from detectors.port import PostprocessParams

STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32))
TWO_STRIDES = ((16, 32), (8, 16))  # of small YOLOs, such as YOLOv3-tiny

Doubles = npt.NDArray[np.float64]
MOST_CANDIDATES = 8192  # per picture, for NMS; reached only with a threshold near zero
_EPS = 1e-7


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


def nms(
    boxes: Floats,
    scores: Floats,
    classes: npt.NDArray[np.intp],
    iou: float,
    limit: int,
    max_candidates: int = MOST_CANDIDATES,
) -> npt.NDArray[np.intp]:
    """Greedy class-wise non-maximum suppression.

    Equal scores keep their input order, so that the result is deterministic.

    Args:
        boxes: (n, 4) xyxy.
        scores: (n,).
        classes: (n,); boxes of different classes never suppress each other.
        iou: a box is removed if its IoU with a stronger one of its class is higher.
        limit: maximum number of kept boxes.
        max_candidates: only the strongest ones are considered.

    Returns:
        Indices of the kept boxes, strongest first.
    """
    order = np.argsort(-scores, kind="stable")[:max_candidates]
    left, top, right, bottom = boxes[order].T
    areas = (right - left) * (bottom - top)
    kinds = classes[order]
    rest = np.arange(len(order))
    kept: list[int] = []
    while len(rest) and len(kept) < limit:
        best, rest = rest[0], rest[1:]
        kept.append(int(order[best]))
        width = np.minimum(right[best], right[rest]) - np.maximum(left[best], left[rest])
        height = np.minimum(bottom[best], bottom[rest]) - np.maximum(top[best], top[rest])
        inter = np.maximum(width, 0) * np.maximum(height, 0)
        # Multiplied out to avoid dividing by zero for boxes without area.
        overlaps = inter > iou * (areas[best] + areas[rest] - inter)
        rest = rest[~(overlaps & (kinds[rest] == kinds[best]))]
    return np.array(kept, dtype=np.intp)


def rotated_nms(
    boxes: Floats,
    scores: Floats,
    classes: npt.NDArray[np.intp],
    iou: float,
    limit: int,
    max_candidates: int = MOST_CANDIDATES,
) -> npt.NDArray[np.intp]:
    """Suppression of boxes at an angle, by `probabilistic_iou`. Unlike in `nms`, a box that is itself removed removes
    others too, as in ultralytics, whose models are trained for that. In double precision, so that thin boxes, whose
    overlap depends much on rounding, give the same everywhere.

    Args:
        boxes: (n, 5) centre x and y, width, height, angle in radians.
    """
    order = np.argsort(-scores, kind="stable")[:max_candidates]
    shapes, kinds = gaussians(boxes[order].astype(np.float64)), classes[order]
    kept: list[int] = []
    for place in range(len(order)):
        stronger = shapes[:, :place][:, kinds[:place] == kinds[place]]
        if not (probabilistic_iou(stronger, shapes[:, place : place + 1]) > iou).any():
            kept.append(int(order[place]))
            if len(kept) == limit:
                break
    return np.array(kept, dtype=np.intp)


def gaussians(boxes: Doubles) -> Doubles:
    """The normal distribution that stands for each rotated box (n, 5): centre x and y, variances of x and y, and their
    covariance, (5, n)."""
    x, y, width, height, angle = boxes.T
    a, b = width * width / 12, height * height / 12
    cos, sin = np.cos(angle), np.sin(angle)
    return np.stack((x, y, a * cos * cos + b * sin * sin, a * sin * sin + b * cos * cos, (a - b) * cos * sin))


def probabilistic_iou(one: Doubles, other: Doubles) -> Floats:
    """One minus the Hellinger distance of two normal distributions, each (5, n) of `gaussians` (Murrugarra-Llerena et
    al., "Probabilistic Intersection-over-Union for Training and Evaluation of Oriented Object Detectors", 2024)."""
    x, y, a, b, c = one
    x_, y_, a_, b_, c_ = other
    sum_a, sum_b, sum_c = a + a_, b + b_, c + c_
    determinant = sum_a * sum_b - sum_c * sum_c
    near = (sum_a * (y - y_) ** 2 + sum_b * (x - x_) ** 2) / (determinant + _EPS) * 0.25
    turned = sum_c * (x_ - x) * (y - y_) / (determinant + _EPS) * 0.5
    own = np.maximum(a * b - c * c, 0) * np.maximum(a_ * b_ - c_ * c_, 0)
    shape = np.log(determinant / (4 * np.sqrt(own) + _EPS) + _EPS) * 0.5
    distance = np.sqrt(1 - np.exp(-np.clip(near + turned + shape, _EPS, 100)) + _EPS)
    return np.asarray(1 - distance, np.float32)
