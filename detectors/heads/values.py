"""Layouts whose outputs have the same shape, told apart by their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from detectors.heads.candidates import count_cells
from detectors.heads.layout import Ambiguity, Floats, Outputs
from detectors.heads.rows import RowHead
from detectors.letterbox import InputSpec

_TOLERANCE = 1e-3
_MAX_LOG = 20.0  # of a width over its stride: exp(20) is wider than any picture
_DEEPSTREAM = Ambiguity(
    frozenset(("mean", "std")),
    "rows of a box, a score and a class for each grid cell are those of DeepStream-Yolo's export scripts, and the file "
    "does not state which colours the model reads: set model.mean and model.std, [0, 0, 0] and [1, 1, 1] for YOLOv8, "
    "YOLOv9 and YOLO11; or model.head: deepstream for that",
)


def other_layout(head: RowHead, pictures: Sequence[Outputs]) -> RowHead | None:
    """The layout that the values show, where they are not those of `head`; None if they do not show another one.

    Args:
        pictures: raw outputs of each picture.
    """
    if head.task != "detect" or head.layout not in ("yolov5", "yolox"):
        return None
    rows = np.concatenate([raw[head.output] for raw in pictures])
    if _are_indexed(rows):
        extras = rows.shape[1] - 6
        is_anchored = head.layout == "yolov5"
        found = replace(head, layout="deepstream", classes=None, extras=extras, spec=_plain(head.spec))
        return replace(found, ambiguity=None if is_anchored else _DEEPSTREAM)
    if head.layout == "yolox" and has_pixels(rows) and (rows[:, 4] == 1).all():  # YOLOv6, Gold-YOLO
        return replace(head, layout="yolov5", spec=_plain(head.spec))
    return None


def has_pixels(rows: Floats) -> bool:
    """Whether widths of the layout yolox are pixels, and not logarithms."""
    return float(np.abs(rows[:, 2:4]).max(initial=0.0)) > _MAX_LOG


def are_scores(rows: Floats) -> bool:
    """Whether the first four columns are all scores. Offsets to a grid and logarithms of sizes have both signs."""
    return bool(rows[:, :4].min(initial=0.0) >= 0 and rows[:, :4].max(initial=0.0) <= 1)


def are_corners(columns: Floats, size: tuple[int, int], strides: Sequence[int]) -> bool:
    """Whether the first four rows of the layout yolov8, one column for each cell, are corners, and not centre and size:
    then it is the middle of the corners that lies in the cell."""
    if columns.shape[1] != count_cells(size, strides):
        return False
    cells = [np.meshgrid(*(np.arange(side // stride) + 0.5 for side in size)) for stride in strides]
    grid = np.concatenate([np.stack((x.ravel(), y.ravel())) * stride for (x, y), stride in zip(cells, strides)], axis=1)
    centre = np.abs(columns[:2] - grid).mean()
    middle = np.abs((columns[:2] + columns[2:4]) / 2 - grid).mean()
    return bool(middle < centre / 4)


def is_whole(values: Floats) -> bool:
    """Whether all values are class ids."""
    return bool((np.abs(values - np.rint(values)) <= _TOLERANCE).all() and (values > -0.5).all())


def _are_indexed(rows: Floats) -> bool:
    """Whether rows of six or seven columns have a class id in the sixth."""
    if rows.shape[1] not in (6, 7) or not is_whole(rows[:, 5]) or not (rows[:, 4] > 0).any():
        return False
    if rows.shape[1] == 7:
        return bool((rows[:, 6] > 0).any())
    return bool((rows[:, 2] >= rows[:, 0]).all() and (rows[:, 3] >= rows[:, 1]).all())


def _plain(spec: InputSpec) -> InputSpec:
    return InputSpec(spec.width, spec.height)
