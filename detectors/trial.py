"""A model that is opened is shown two pictures of nothing: what is no detector, or overflows, shows there.

A pose or rotated-box model without metadata has outputs of a detector's shape; key points and angles would be published
as scores. Arithmetic that overflows in FP16 does so on noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from detectors.heads import Floats, Head
from detectors.letterbox import PAD, InputSpec
from detectors.port import DetectorError, HostImage

_TOLERANCE = 1e-3  # of scores, which FP16 rounds
_POSE = 4 + 1 + 17 * 3  # a box, one class, and the points of COCO


def check(run: Callable[[HostImage], Floats], head: Head, precision: str) -> None:
    """Run a model on a grey picture and on noise.

    Args:
        run: gives the raw output for one picture, without the batch dimension.
        precision: of the arithmetic.

    Raises:
        DetectorError: the model is no detector of this head, or its arithmetic overflows.
    """
    for name, picture in _pictures(head.spec):
        raw = run(picture)
        if not np.isfinite(raw).all():
            remedy = ": set model.precision: fp32" if precision == "fp16" else ": is the file whole?"
            raise DetectorError(f"the model gives what is no number for {name} in {precision}{remedy}")
        scores = head.scores(raw)
        low, high = float(scores.min(initial=0.0)), float(scores.max(initial=0.0))
        if low < -_TOLERANCE or high > 1 + _TOLERANCE:
            raise DetectorError(
                f"the model's scores for {name} go from {low:.4g} to {high:.4g}, and those of {head.name} are from 0 "
                f"to 1: {_likely(raw, head)}; Lookout runs detection models only"
            )


def _pictures(spec: InputSpec) -> Iterator[tuple[str, HostImage]]:
    shape = (spec.height, spec.width, 3)
    yield "a grey picture", HostImage(np.full(shape, PAD, np.uint8))
    yield "noise", HostImage(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))


def _likely(raw: Floats, head: Head) -> str:
    """What else has an output like this."""
    if head.name == "yolov8" and len(raw) == _POSE:
        return "56 rows are those of a pose model"
    if head.name == "yolov8" and len(raw) > 5 and raw[4:-1].min() >= 0 and raw[4:-1].max() <= 1:
        return "a last row that is no score is that of rotated boxes"
    return "it is a model of another task, or its scores are not activated"
