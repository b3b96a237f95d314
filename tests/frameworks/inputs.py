"""How the frameworks place a picture in the input of a model. Pure numpy.

The resampling is the one that the files of results were made with; `detectors.letterbox` may sample otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from detectors.letterbox import PAD, InputSpec, fit

Floats = npt.NDArray[np.float32]


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
            box = fit(bgr.shape[1], bgr.shape[0], InputSpec(self.width, self.height))
            pixels = np.full((self.height, self.width, 3), PAD, np.float32)
            inner = resample(bgr, box.width, box.height)
            pixels[box.top : box.top + box.height, box.left : box.left + box.width] = inner
            return np.asarray(pixels[..., ::-1].transpose(2, 0, 1) * np.float32(1 / 255), np.float32, order="C")
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


def resample(image: npt.NDArray[np.uint8], width: int, height: int) -> Floats:
    """Bilinear, with half-pixel centres and clamped borders. Where a picture shrinks by more than two, a pixel is the
    mean of several samples."""
    down, across = (max(1, -(-had // (2 * wanted))) for had, wanted in zip(image.shape, (height, width)))
    y0, y1, fy = _taps(image.shape[0], height * down)
    x0, x1, fx = _taps(image.shape[1], width * across)
    rows = image.astype(np.float32)
    rows = rows[y0] * (1 - fy)[:, None, None] + rows[y1] * fy[:, None, None]
    fine = rows[:, x0] * (1 - fx)[:, None] + rows[:, x1] * fx[:, None]
    return np.asarray(fine.reshape(height, down, width, across, 3).mean(axis=(1, 3)), np.float32)


def _taps(size: int, target: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Floats]:
    centres = np.clip((np.arange(target, dtype=np.float64) + 0.5) * (size / target) - 0.5, 0, size - 1)
    low = np.floor(centres).astype(np.intp)
    return low, np.minimum(low + 1, size - 1), (centres - low).astype(np.float32)
