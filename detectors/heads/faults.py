"""Faults of a layout that the values of a model's raw outputs reveal."""

from __future__ import annotations

import numpy as np

from detectors.heads.candidates import STRIDES, count_cells
from detectors.heads.layout import Floats, Head, Outputs
from detectors.heads.rows import RowHead
from detectors.heads.values import are_corners, are_scores, has_pixels, is_whole

MAX_SHARE = 2.0  # boxes as shares of the picture are no larger
_POSE = 4 + 1 + 17 * 3  # a box, one class, and COCO's key points


def fault_of_rows(outputs: Outputs, head: RowHead) -> str | None:
    """The mistake in boxes of a layout that others have the shape of; None if there is none."""
    raw = outputs[head.output]
    rows = raw.T if head.layout == "yolov8" else raw
    size = head.spec.width, head.spec.height
    if head.layout == "yolox":
        return _fault_of_grid(rows)
    largest = float(np.abs(rows[:, :4]).max(initial=0.0))
    if head.is_raw and 0 < largest <= MAX_SHARE < max(size) / 16:
        return "they are shares of the picture, not pixels: export the model with boxes in pixels"
    if head.layout in ("end2end", "deepstream") and not is_whole(np.maximum(rows[:, 5], 0)):
        return "the sixth column has fractions, and classes are whole numbers; it is probably a model of another task"
    if head.layout == "yolov8" and head.task != "obb":
        strides = next((row for row in STRIDES if count_cells(size, row) == len(rows)), ())
        if are_corners(raw, size, strides):
            return "they are corners, not centre and size: export the model with boxes as cx, cy, w, h"
    return None


def _fault_of_grid(rows: Floats) -> str | None:
    """The mistake in rows of YOLOX."""
    if has_pixels(rows):
        return (
            "widths are pixels, not logarithms, as in transposed YOLOv8, or YOLOX with decoding inside: export it "
            "without decoding, or in the layout of YOLOv8"
        )
    if are_scores(rows):
        return "the first columns are all from 0 to 1, as scores are, such as NanoDet's: it is another family"
    return None


def likely_kind(outputs: Outputs, head: Head) -> str:
    """The likely kind of a model with such outputs."""
    (raw, *_) = outputs.values()
    if head.task == "classify":
        return "set model.activation: softmax or sigmoid"
    if head.name == "yolov8" and len(raw) == _POSE:
        return "56 rows indicate a pose model without metadata: export it with ultralytics"
    if head.name == "yolov8" and len(raw) > 5 and raw[4:-1].min() >= 0 and raw[4:-1].max() <= 1:
        return "a last row without scores indicates rotated boxes without metadata: export it with ultralytics"
    return "it is probably a model of another task, or its scores are not activated"
