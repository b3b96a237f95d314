"""Letterbox geometry: placing a picture of any size in the model's input, and mapping boxes back.

Pure numpy; the reference for every backend: a faster preprocess must sample like `resample`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

PAD = 114  # the grey of YOLO's training


@dataclass(frozen=True)
class InputSpec:
    """The input of a model's family.

    Attributes:
        width, height: pixels.
        centred: padding on both sides (YOLOv5, v8); otherwise the picture lies top-left (YOLOX).
        rgb: channel order RGB; otherwise BGR.
        scale: factor on the 0-255 values (1/255 or 1).
    """

    width: int
    height: int
    centred: bool = True
    rgb: bool = True
    scale: float = 1.0 / 255.0


@dataclass(frozen=True)
class Letterbox:
    """The place of a source picture in the model's input, in pixels.

    Attributes:
        source: width and height of the source picture.
        left, top, width, height: the picture's rectangle in the model's input.
    """

    source: tuple[int, int]
    left: int
    top: int
    width: int
    height: int

    def to_source(self, boxes: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Map boxes, (n, 4) float32 xyxy in input pixels, to source pixels, clipped to the picture."""
        width, height = self.source
        scale = np.array([width / self.width, height / self.height] * 2, dtype=np.float32)
        shift = np.array([self.left, self.top] * 2, dtype=np.float32)
        limit = np.array([width, height] * 2, dtype=np.float32)
        clipped: npt.NDArray[np.float32] = np.clip((boxes - shift) * scale, np.float32(0), limit)
        return clipped


def fit(width: int, height: int, spec: InputSpec) -> Letterbox:
    """The largest rectangle with the picture's aspect ratio in the model's input, at least 1x1.

    Sizes are rounded; odd padding goes to the right and bottom, as in ultralytics' LetterBox.
    """
    ratio = min(spec.width / width, spec.height / height)
    inner_width, inner_height = max(1, round(width * ratio)), max(1, round(height * ratio))
    if not spec.centred:
        return Letterbox((width, height), 0, 0, inner_width, inner_height)
    left, top = (spec.width - inner_width) // 2, (spec.height - inner_height) // 2
    return Letterbox((width, height), left, top, inner_width, inner_height)


def cell_size(source: int, target: int) -> int:
    """Pixels per cell along one axis: as many as a target pixel covers in whole. So it covers less than two cells."""
    return max(1, source // target)


def resample(image: npt.NDArray[np.uint8], width: int, height: int) -> npt.NDArray[np.float32]:
    """Bilinear resize with half-pixel centres and clamped borders, like OpenCV's INTER_LINEAR. When shrinking by two or
    more, cells take the place of pixels: each is the mean of `cell_size` pixels per axis, so no pixel is skipped.

    Args:
        image: (h, w, 3) uint8.

    Returns:
        (height, width, 3) float32, unrounded, 0-255.
    """
    down, across = cell_size(image.shape[0], height), cell_size(image.shape[1], width)
    rows = _means(_means(image.astype(np.float32), down, 0), across, 1)
    y0, y1, fy = _taps(image.shape[0] / down, len(rows), height)
    x0, x1, fx = _taps(image.shape[1] / across, rows.shape[1], width)
    rows = rows[y0] * (1 - fy)[:, None, None] + rows[y1] * fy[:, None, None]
    return np.asarray(rows[:, x0] * (1 - fx)[:, None] + rows[:, x1] * fx[:, None], dtype=np.float32)


def preprocess(image: npt.NDArray[np.uint8], spec: InputSpec) -> npt.NDArray[np.float32]:
    """One picture as model input; the reference for every backend.

    Args:
        image: (h, w, 3) uint8 BGR.

    Returns:
        (3, spec.height, spec.width) float32.
    """
    box = fit(image.shape[1], image.shape[0], spec)
    canvas = np.full((spec.height, spec.width, 3), PAD, dtype=np.float32)
    canvas[box.top : box.top + box.height, box.left : box.left + box.width] = resample(image, box.width, box.height)
    ordered = canvas[..., ::-1] if spec.rgb else canvas
    return np.asarray(ordered.transpose(2, 0, 1) * np.float32(spec.scale), dtype=np.float32, order="C")


def _means(image: npt.NDArray[np.float32], size: int, axis: int) -> npt.NDArray[np.float32]:
    """The means of `size` pixels each along an axis; the edge is repeated to fill the last cell."""
    if size == 1:
        return image
    padding = [(0, 0)] * image.ndim
    padding[axis] = (0, -image.shape[axis] % size)
    shape = list(image.shape)
    shape[axis : axis + 1] = [-1, size]
    whole = np.pad(image, padding, mode="edge").reshape(shape)
    return np.asarray(whole.mean(axis=axis + 1), dtype=np.float32)


def _taps(
    size: float, cells: int, target: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.float32]]:
    """The two cells around each target pixel, and the weight of the second.

    Args:
        size: of the picture, in cells.
    """
    centres = (np.arange(target, dtype=np.float64) + 0.5) * (size / target) - 0.5
    centres = np.clip(centres, 0, cells - 1)
    low = np.floor(centres).astype(np.intp)
    return low, np.minimum(low + 1, cells - 1), (centres - low).astype(np.float32)
