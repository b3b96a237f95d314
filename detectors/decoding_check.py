"""Compares the boxes that two ways of decoding find in the same picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections
from detectors.letterbox import InputSpec
from detectors.port import HostImage, PostprocessParams
from detectors.trial_pictures import LEAST_CONFIDENCE, first_pictures

_RANKS = slice(10, 80)  # of the boxes between which a threshold is looked for
_ALIKE = 0.9  # share of the boxes: one that is nearly at a limit may be on either side of it
_NEAR_SCORE, _NEAR = 1e-3, 0.5  # pixels, or radians
_BITS = 0.02  # of a mask
_MOST = 200  # boxes, the strongest

Decode = Callable[[HostImage, PostprocessParams], tuple[Detections, Detections]]
"""Decodes the raw outputs of one picture under some limits: on the device, and by the reference."""


def decodes_alike(decode: Decode, spec: InputSpec, wanted: PostprocessParams) -> bool:
    """Whether a device decodes as the reference does, at a threshold that some dozens of boxes reach."""
    for _, picture in first_pictures(spec):
        _, all_boxes = decode(picture, replace(wanted, confidence=LEAST_CONFIDENCE))
        limits = replace(wanted, confidence=_threshold(all_boxes.confidence))
        given, expected = decode(picture, limits)
        if not are_alike(given, expected):
            return False
    return True


def _threshold(confidences: npt.NDArray[np.float32]) -> float:
    """A confidence in the widest gap, so that rounding moves no box over it."""
    ranked = np.sort(confidences)[::-1].astype(np.float64)
    some = ranked[_RANKS] if len(ranked) > _RANKS.start + 1 else np.append(ranked, LEAST_CONFIDENCE)
    if len(some) < 2:
        return LEAST_CONFIDENCE
    widest = int(np.argmax(some[:-1] - some[1:]))
    return max(LEAST_CONFIDENCE, float(some[widest] + some[widest + 1]) / 2)


def are_alike(given: Detections, expected: Detections, near: float = _NEAR, near_score: float = _NEAR_SCORE) -> bool:
    """Whether nearly all of the strongest boxes are the same.

    Args:
        near: largest distance of corners, key points and angles, pixels or radians.
        near_score: largest difference of confidences.
    """
    given, expected = given[:_MOST], expected[:_MOST]
    if not len(given) or not len(expected):
        return len(given) == len(expected)
    same = np.abs(given.confidence[None] - expected.confidence[:, None]) < near_score
    same &= given.class_id[None] == expected.class_id[:, None]
    same &= np.abs(given.xyxy[None] - expected.xyxy[:, None]).max(axis=2) < near
    found = sum(
        any(_extras_are_alike(given[other : other + 1], expected[row : row + 1], near) for other in others.nonzero()[0])
        for row, others in enumerate(same)
    )
    return found >= _ALIKE * max(len(given), len(expected))


def _extras_are_alike(given: Detections, expected: Detections, near: float) -> bool:
    """Whether key points, box at an angle and mask of one box are alike."""
    for one, other in ((given.keypoints, expected.keypoints), (given.obb, expected.obb)):
        if (one is None) != (other is None):
            return False
        if one is not None and other is not None and not np.allclose(one, other, rtol=0, atol=near, equal_nan=True):
            return False
    if given.masks is None or expected.masks is None:
        return given.masks is expected.masks
    return bool((given.masks.unpacked() != expected.masks.unpacked()).mean() < _BITS)
