"""The value every detector returns: boxes of one picture, checked at birth."""

from __future__ import annotations

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

    Raises:
        ValueError: a shape or dtype is another.
    """

    xyxy: npt.NDArray[np.float32]
    confidence: npt.NDArray[np.float32]
    class_id: npt.NDArray[np.int32]

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

    def __getitem__(self, keep: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Detections:
        """The rows of a boolean mask (n,), or of indices, in their order."""
        return Detections(self.xyxy[keep], self.confidence[keep], self.class_id[keep])


def nothing() -> Detections:
    """No boxes."""
    return Detections(np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.int32))
