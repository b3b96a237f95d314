"""How the frameworks place a picture in the input of a model, by our own resampling. Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from detectors.letterbox import InputSpec, preprocess, resample

Floats = npt.NDArray[np.float32]
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True)
class Placing:
    """The place of a picture in the input, and its colours.

    Attributes:
        geometry: "letterbox" (detectors.letterbox), "stretch" (the aspect ratio is lost), or "crop" (the shorter side
            becomes `shorter`, the longer one is rounded down, and the middle is cut out).
        width, height: of the input, pixels.
        shorter: pixels, for "crop".
        mean, std: of the colours RGB from 0 to 1; (colour - mean) / std is the input.
    """

    geometry: str
    width: int = 128
    height: int = 128
    shorter: int = 0
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def planes(self, bgr: npt.NDArray[np.uint8]) -> Floats:
        """One picture as model input, (3, height, width)."""
        if self.geometry == "letterbox":
            return preprocess(bgr, InputSpec(self.width, self.height))
        pixels = resample(bgr, self.width, self.height) if self.geometry == "stretch" else self._cropped(bgr)
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        colours = (pixels[..., ::-1] * np.float32(1 / 255) - mean) / std
        return np.asarray(colours.transpose(2, 0, 1), np.float32, order="C")

    def _cropped(self, bgr: npt.NDArray[np.uint8]) -> Floats:
        height, width = bgr.shape[:2]
        shortest = min(height, width)
        height, width = (self.shorter * side // shortest for side in (height, width))
        top, left = round((height - self.height) / 2), round((width - self.width) / 2)
        return resample(bgr, width, height)[top : top + self.height, left : left + self.width]
