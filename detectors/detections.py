"""The value every detector returns: boxes of one picture, checked at birth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_FLOAT, _INT = np.dtype(np.float32), np.dtype(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """Boxes of one picture, strongest first.

    Attributes:
        xyxy: (n, 4) float32, corners in source pixels.
        confidence: (n,) float32, 0-1.
        class_id: (n,) int32, index into the model's labels.
        left_out: candidates that were too many to be looked at, the weakest.
        checked: the detector knows that all of them are `plausible`.

    Raises:
        ValueError: a shape or dtype is another.
    """

    xyxy: npt.NDArray[np.float32]
    confidence: npt.NDArray[np.float32]
    class_id: npt.NDArray[np.int32]
    left_out: int = 0
    checked: bool = False

    def __post_init__(self) -> None:
        count = len(self.confidence)
        for name, array, shape, dtype in (
            ("xyxy", self.xyxy, (count, 4), _FLOAT),
            ("confidence", self.confidence, (count,), _FLOAT),
            ("class_id", self.class_id, (count,), _INT),
        ):
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(f"{name} must be {dtype} of shape {shape}, got {array.dtype} of shape {array.shape}")

    def __len__(self) -> int:
        return len(self.confidence)

    def __getitem__(self, keep: npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice) -> Detections:
        """The rows of a boolean mask (n,), of indices, or of a slice, in their order."""
        return Detections(self.xyxy[keep], self.confidence[keep], self.class_id[keep], self.left_out, self.checked)


def nothing() -> Detections:
    """No boxes."""
    return Detections(np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.int32))


def plausible(found: Sequence[Detections], classes: int) -> tuple[Sequence[Detections], int]:
    """Pictures' boxes without those that no picture has, and how many those were.

    A model may be damaged, overflow in half precision, or not be a detector: a corner or confidence that is not a
    number, a confidence outside 0 to 1, corners the wrong way round, a class that has no label. The GPU looks at its
    boxes itself, because numpy gives up the GIL for arrays of this size, and a lane waits to get it back.

    Args:
        classes: labels that the model has.
    """
    if all(one.checked for one in found):
        return found, 0
    left, top, right, bottom = np.concatenate([one.xyxy for one in found]).T
    confidence = np.concatenate([one.confidence for one in found])
    class_id = np.concatenate([one.class_id for one in found])
    # Comparisons with what is not a number are false.
    good = (left <= right) & (top <= bottom) & (right - left + bottom - top < np.inf)
    good &= (confidence >= 0) & (confidence <= 1) & (class_id >= 0) & (class_id < classes)
    if good.all():
        return found, 0
    ends = np.cumsum([len(one) for one in found])
    kept = [one[rows] for one, rows in zip(found, np.split(good, ends[:-1]))]
    return kept, int(len(good) - good.sum())
