"""Faults of a layout that the values of a model's raw outputs reveal."""

from __future__ import annotations

import numpy as np

from detectors.heads.layout import Floats, Head, Outputs
from detectors.heads.queries import QueryHead
from detectors.heads.rows import RowHead
from detectors.heads.values import are_never_negative, has_pixels, is_whole, kind_of_boxes

MAX_SHARE = 2.0  # boxes as shares of the picture are no larger
_POSE = 4 + 1 + 17 * 3  # a box, one class, and COCO's key points
_SURE = 0.9  # of a score
_CROWDED = 0.5  # share of the places in which no detector is sure of objects of one class
_MOSTLY, _OUTSIDE = 0.99, 0.25  # shares of the queries
_MARGIN = 0.1  # share of the picture
_MIN_QUERIES = 10


def fault_of(outputs: Outputs, head: Head) -> str | None:
    """The mistake in a layout that others have the shape of, in one picture's raw outputs; None if there is none."""
    if isinstance(head, RowHead):
        return _fault_of_rows(outputs, head)
    return _fault_of_queries(outputs, head) if isinstance(head, QueryHead) and head.has_logits else None


def _fault_of_rows(outputs: Outputs, head: RowHead) -> str | None:
    raw = outputs[head.output]
    rows = raw.T if head.layout == "yolov8" else raw
    size = head.spec.width, head.spec.height
    if head.layout == "yolox" and (fault := _fault_of_grid(rows)):
        return fault
    if head.is_raw and len(rows) > 1 and not np.ptp(rows[:, :4], axis=0).any():
        return "they are all the same box, as a quantisation that has lost them leaves them: quantise it anew"
    largest = float(np.abs(rows[:, :4]).max(initial=0.0))
    if head.is_raw and head.layout != "yolox" and 0 < largest <= MAX_SHARE < max(size) / 16:
        return "they are shares of the picture, not pixels: export the model with boxes in pixels"
    if head.layout in ("end2end", "deepstream") and not is_whole(np.maximum(rows[:, 5], 0)):
        return "the sixth column has fractions, and classes are whole numbers; it is probably a model of another task"
    if head.layout in ("yolov5", "yolov8") and head.task != "obb" and (kind := kind_of_boxes(rows[:, :4], size)):
        return f"they are {kind}: export the model with boxes as cx, cy, w, h in pixels"
    return _fault_of_scores(rows, head) if head.classes else None


def _fault_of_scores(rows: Floats, head: RowHead) -> str | None:
    """The mistake in scores of which one class has high ones nearly everywhere."""
    scores = rows[:, 4 : rows.shape[1] - head.extras]
    scores = scores if head.layout == "yolov8" else scores[:, 1:] * scores[:, :1]
    share = (scores > _SURE).mean(axis=0)
    crowded = int(share.argmax())
    if share[crowded] <= _CROWDED:
        return None
    return (
        f"class {crowded} has a score above {_SURE} in {share[crowded]:.0%} of all places, as an objectness or the "
        "background of a softmax has: export the model without that column, and with scores of objects alone"
    )


def _fault_of_queries(outputs: Outputs, head: QueryHead) -> str | None:
    """The mistake in boxes, which are centre and size as shares, or in logits."""
    boxes, logits = outputs[head.boxes], outputs[head.labels]
    if float(np.abs(boxes).max(initial=0.0)) > MAX_SHARE:
        return "they are pixels, not shares of the picture: export the model before its post-processing"
    first, last = boxes[:, :2], boxes[:, 2:]
    is_ordered = (last >= first).all(axis=1).mean() >= _MOSTLY
    outside = np.abs(first - 0.5) + last / 2 > 0.5 + _MARGIN
    if len(boxes) >= _MIN_QUERIES and is_ordered and outside.any(axis=1).mean() > _OUTSIDE:
        return "they are corners, not centre and size: export the model before its post-processing"
    if 0 <= logits.min() < logits.max() <= 1:
        return f"{head.labels} are all from 0 to 1, as scores are, and not logits: export the model without its sigmoid"
    return None


def _fault_of_grid(rows: Floats) -> str | None:
    """The mistake in rows of YOLOX."""
    if has_pixels(rows):
        return (
            "widths are pixels, not logarithms, as in transposed YOLOv8, or YOLOX with decoding inside: export it "
            "without decoding, or in the layout of YOLOv8"
        )
    if are_never_negative(rows):
        return (
            "the first four columns are never negative, as shares of the picture, units of cells, or the scores of "
            "NanoDet are: it is another family. Wrap the model so that it gives one output (b, 4 + c, n) of cx, cy, "
            "w, h in pixels and c scores"
        )
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
