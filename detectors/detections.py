"""The value every detector returns: boxes of one picture, checked at birth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """Boxes of one picture, strongest first.

    Attributes:
        xyxy: (n, 4) float32, corners in source pixels.
        confidence: (n,) float32, 0-1.
        class_id: (n,) int32, index into the model's labels.
        left_out: candidates that were too many to be looked at, the weakest.

    Raises:
        ValueError: a shape or dtype is another.
    """

    xyxy: npt.NDArray[np.float32]
    confidence: npt.NDArray[np.float32]
    class_id: npt.NDArray[np.int32]
    left_out: int = 0

    def __post_init__(self) -> None:
        count = len(self.confidence)
        for name, array, shape, dtype in (
            ("xyxy", self.xyxy, (count, 4), np.float32),
            ("confidence", self.confidence, (count,), np.float32),
            ("class_id", self.class_id, (count,), np.int32),
        ):
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(
                    f"{name} must be {np.dtype(dtype)} of shape {shape}, got {array.dtype} of shape {array.shape}"
                )

    def __len__(self) -> int:
        return len(self.confidence)

    def __getitem__(self, keep: npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice) -> Detections:
        """The rows of a boolean mask (n,), of indices, or of a slice, in their order."""
        return Detections(self.xyxy[keep], self.confidence[keep], self.class_id[keep], self.left_out)


def nothing() -> Detections:
    """No boxes."""
    return Detections(np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.int32))


def plausible(found: Sequence[Detections], classes: int) -> tuple[Sequence[Detections], int]:
    """Pictures' boxes without those that no picture has, and how many those were.

    A model may be damaged, overflow in half precision, or not be a detector: a corner or confidence that is not a
    number, a confidence outside 0 to 1, corners the wrong way round, a class that has no label.

    Args:
        classes: labels that the model has.
    """
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
