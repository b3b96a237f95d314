"""A trial run of an opened model on two blank pictures, which reveals other tasks and overflows.

A pose or rotated-box model without metadata has outputs of a detector's shape; its key points and angles would be
published as scores. Arithmetic that overflows in FP16 overflows on noise. Where a GPU decodes, its boxes are compared
with those of the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections
from detectors.heads.layout import Head, Outputs
from detectors.letterbox import PAD, InputSpec
from detectors.port import DetectorError, HostImage, PostprocessParams

_TOLERANCE = 1e-3  # of scores, for FP16 rounding
_MAX_LOG = 20.0  # of a width over its stride: exp(20) is wider than any picture
_MAX_SHARE = 2.0  # boxes as shares of the picture are no larger
_LAYOUTS = ("yolov5", "yolov8", "yolox", "end2end")
_POSE = 4 + 1 + 17 * 3  # a box, one class, and COCO's key points
_LEAST = 1e-6  # confidence: nearly everything is a box
_RANKS = slice(10, 80)  # of the boxes between which a threshold is looked for
_ALIKE = 0.9  # share of the boxes: one that is nearly at a limit may be on either side of it
_NEAR_SCORE, _NEAR = 1e-3, 0.5  # pixels, or radians
_BITS = 0.02  # of a mask
_MOST = 200  # boxes, the strongest

Decode = Callable[[HostImage, PostprocessParams], tuple[Detections, Detections]]
"""Decodes the raw outputs of one picture under some limits: on the device, and by the reference."""


def check(run: Callable[[HostImage], Outputs], head: Head, precision: str) -> None:
    """Run a model on a grey and on a noise picture.

    Args:
        run: returns the raw outputs of one picture, without the batch dimension.
        precision: of the arithmetic.

    Raises:
        DetectorError: the model is not a detector with this head, or its arithmetic overflows.
    """
    for name, picture in _pictures(head.spec):
        raw = run(picture)
        if not all(np.isfinite(values).all() for values in raw.values()):
            remedy = ": set model.precision: fp32" if precision == "fp16" else ": check that the file is complete"
            raise DetectorError(f"the model computes NaN or infinity for {name} in {precision}{remedy}")
        scores = head.scores(raw)
        low, high = float(scores.min(initial=0.0)), float(scores.max(initial=0.0))
        if low < -_TOLERANCE or high > 1 + _TOLERANCE:
            raise DetectorError(
                f"the model's scores for {name} range from {low:.4g} to {high:.4g}, but scores of {head.name} "
                f"range from 0 to 1: {_likely(raw, head)}"
            )
        if fault := _fault_of_boxes(raw, head):
            raise DetectorError(f"the model's boxes for {name} are not those of {head.name}: {fault}")


def decodes_alike(decode: Decode, spec: InputSpec, wanted: PostprocessParams) -> bool:
    """Whether a device decodes as the reference does, at a threshold that some dozens of boxes reach."""
    for _, picture in _pictures(spec):
        _, all_boxes = decode(picture, replace(wanted, confidence=_LEAST))
        limits = replace(wanted, confidence=_threshold(all_boxes.confidence))
        given, expected = decode(picture, limits)
        if not _are_alike(given[:_MOST], expected[:_MOST]):
            return False
    return True


def _threshold(confidences: npt.NDArray[np.float32]) -> float:
    """A confidence in the widest gap, so that rounding moves no box over it."""
    ranked = np.sort(confidences)[::-1].astype(np.float64)
    some = ranked[_RANKS] if len(ranked) > _RANKS.start + 1 else np.append(ranked, _LEAST)
    if len(some) < 2:
        return _LEAST
    widest = int(np.argmax(some[:-1] - some[1:]))
    return max(_LEAST, float(some[widest] + some[widest + 1]) / 2)


def _are_alike(given: Detections, expected: Detections) -> bool:
    if not len(given) or not len(expected):
        return len(given) == len(expected)
    near = np.abs(given.confidence[None] - expected.confidence[:, None]) < _NEAR_SCORE
    near &= given.class_id[None] == expected.class_id[:, None]
    near &= np.abs(given.xyxy[None] - expected.xyxy[:, None]).max(axis=2) < _NEAR
    found = sum(
        any(_extras_are_alike(given[other : other + 1], expected[row : row + 1]) for other in others.nonzero()[0])
        for row, others in enumerate(near)
    )
    return found >= _ALIKE * max(len(given), len(expected))


def _extras_are_alike(given: Detections, expected: Detections) -> bool:
    """Whether key points, box at an angle and mask of one box are alike."""
    for one, other in ((given.keypoints, expected.keypoints), (given.obb, expected.obb)):
        if (one is None) != (other is None):
            return False
        if one is not None and other is not None and not np.allclose(one, other, rtol=0, atol=_NEAR, equal_nan=True):
            return False
    if given.masks is None or expected.masks is None:
        return given.masks is expected.masks
    return bool((given.masks.unpacked() != expected.masks.unpacked()).mean() < _BITS)


def _fault_of_boxes(outputs: Outputs, head: Head) -> str | None:
    """The mistake in boxes of a layout that others have the shape of; None if there is none."""
    layout = head.name.partition("-")[0]
    if layout not in _LAYOUTS:
        return None
    (rows,) = [values for values in outputs.values() if values.ndim == 2]
    rows = rows.T if layout == "yolov8" else rows
    size = max(head.spec.width, head.spec.height)
    if layout == "yolox":
        if np.abs(rows[:, 2:4]).max(initial=0.0) > _MAX_LOG:
            return (
                "widths are pixels, not logarithms, as in YOLOv6, transposed YOLOv8, or YOLOX with decoding inside: "
                "export it without decoding, or in the layout of YOLOv8"
            )
        return None
    largest = float(np.abs(rows[:, :4]).max(initial=0.0))
    if 0 < largest <= _MAX_SHARE < size / 16:
        return "they are shares of the picture, not pixels: export the model with boxes in pixels"
    if layout == "end2end" and (np.abs(rows[:, 5] - np.rint(rows[:, 5])) > _TOLERANCE).any():
        return "the sixth column has fractions, and classes are whole numbers; it is probably a model of another task"
    return None


def _pictures(spec: InputSpec) -> Iterator[tuple[str, HostImage]]:
    shape = (spec.height, spec.width, 3)
    yield "a grey picture", HostImage(np.full(shape, PAD, np.uint8))
    yield "noise", HostImage(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))


def _likely(outputs: Outputs, head: Head) -> str:
    """The likely kind of a model with such outputs."""
    (raw, *_) = outputs.values()
    if head.name == "yolov8" and len(raw) == _POSE:
        return "56 rows indicate a pose model without metadata: export it with ultralytics"
    if head.name == "yolov8" and len(raw) > 5 and raw[4:-1].min() >= 0 and raw[4:-1].max() <= 1:
        return "a last row without scores indicates rotated boxes without metadata: export it with ultralytics"
    return "it is probably a model of another task, or its scores are not activated"
