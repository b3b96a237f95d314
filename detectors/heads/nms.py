"""Non-maximum suppression, of upright and of rotated boxes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
MOST_CANDIDATES = 8192  # per picture, for NMS; reached only with a threshold near zero
_EPS = 1e-7


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
