"""Matching of two sets of boxes, to compare a detector with ground truth or with another detector."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Boxes = npt.NDArray[np.float32]
Classes = npt.NDArray[np.int32]


def iou_matrix(a: Boxes, b: Boxes) -> npt.NDArray[np.float32]:
    """IoU of each pair: (n, 4) and (m, 4) xyxy to (n, m) float32; 0 for boxes without area."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = np.clip(high - low, 0, None).prod(axis=2)
    area_a, area_b = (a[:, 2:] - a[:, :2]).prod(axis=1), (b[:, 2:] - b[:, :2]).prod(axis=1)
    union = area_a[:, None] + area_b[None] - inter
    return np.asarray(np.divide(inter, union, out=np.zeros_like(inter), where=union > 0), dtype=np.float32)


def match(a: Boxes, a_class: Classes, b: Boxes, b_class: Classes, least_iou: float) -> list[tuple[int, int, float]]:
    """Pairs (index in a, index in b, IoU) of the same class, best IoU first; each box is used once."""
    overlap = iou_matrix(a, b) * (a_class[:, None] == b_class[None])
    pairs: list[tuple[int, int, float]] = []
    for flat in np.argsort(-overlap, axis=None, kind="stable"):
        i, j = divmod(int(flat), overlap.shape[1])
        if overlap[i, j] < least_iou or overlap[i, j] == 0:
            break
        if all(i != pair[0] and j != pair[1] for pair in pairs):
            pairs.append((i, j, float(overlap[i, j])))
    return pairs
