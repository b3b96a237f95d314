"""Letterbox geometry: placing a picture of any size in the model's input, and mapping boxes back.

Pure numpy; the reference for every backend: a faster preprocess must sample like `resample`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypedDict, cast

import numpy as np
import numpy.typing as npt

PAD = 114  # the grey of YOLO's training


Fit = Literal["letterbox", "corner", "stretch", "cover"]
_Each = tuple[float, float, float]  # for each channel


class _Normalisation(TypedDict):
    scale: _Each
    bias: _Each


def normalisation(mean: _Each, std: _Each) -> _Normalisation:
    """Scale and bias for a mean and a deviation of colours from 0 to 1."""
    return {
        "scale": cast("_Each", tuple(1 / (255 * deviation) for deviation in std)),
        "bias": cast("_Each", tuple(0.0 - one / deviation for one, deviation in zip(mean, std))),
    }


IMAGENET = normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's pictures, RGB."""


@dataclass(frozen=True)
class InputSpec:
    """The input of a model's family: pixels times `scale` plus `bias`.

    Attributes:
        width, height: pixels.
        fit: letterbox: the whole picture, padded on both sides. corner: likewise, but the picture lies top-left.
            stretch: the whole picture, without its aspect ratio. cover: the middle of the picture, without padding.
        rgb: channel order RGB; otherwise BGR.
        scale, bias: of each channel, in the model's order, on values of 0 to 255.
        crop: share of the shorter side that cover shows.
    """

    width: int
    height: int
    fit: Fit = "letterbox"
    rgb: bool = True
    scale: _Each = (1 / 255, 1 / 255, 1 / 255)
    bias: _Each = (0.0, 0.0, 0.0)
    crop: float = 1.0

    @property
    def mean(self) -> _Each:
        """Of each channel, on values of 0 to 1."""
        red, green, blue = (0.0 - bias / (255 * scale) for scale, bias in zip(self.scale, self.bias))
        return red, green, blue

    @property
    def std(self) -> _Each:
        """The deviation of each channel, on values of 0 to 1."""
        red, green, blue = (1 / (255 * scale) for scale in self.scale)
        return red, green, blue

    def normalising(self, mean: _Each, std: _Each) -> InputSpec:
        """The input with another mean and deviation of each channel, on values of 0 to 1."""
        return replace(self, **normalisation(mean, std))

    @property
    def padding(self) -> npt.NDArray[np.float32]:
        """The value of padding in each channel, (3,)."""
        return self.normalised(np.full(3, PAD, np.float32))

    def normalised(self, pixels: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Pixels (..., 3) of 0 to 255, in the model's order of channels, as the model reads them."""
        return np.asarray(pixels * np.array(self.scale, np.float32) + np.array(self.bias, np.float32), np.float32)


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

    def window(self, spec: InputSpec) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
        """Rows and columns of the input that show the picture, and those of the resized picture that are shown."""
        top, left = max(self.top, 0), max(self.left, 0)
        bottom, right = min(self.top + self.height, spec.height), min(self.left + self.width, spec.width)
        rows, columns = slice(top, bottom), slice(left, right)
        return (rows, columns), (
            slice(top - self.top, bottom - self.top),
            slice(left - self.left, right - self.left),
        )

    def points_to_source(self, points: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Map key points, (n, k, 2 or 3) with x and y in input pixels first, to (n, k, 3) in source pixels, clipped to
        the picture. The third value is the confidence: 1 where the model gives none."""
        width, height = self.source
        scale = np.array([width / self.width, height / self.height], np.float32)
        shift = np.array([self.left, self.top], np.float32)
        mapped = np.ones((*points.shape[:2], 3), np.float32)
        mapped[..., :2] = np.clip((points[..., :2] - shift) * scale, 0, np.array([width, height], np.float32))
        mapped[..., 2 : points.shape[2]] = points[..., 2:]
        return mapped

    def rotated_to_source(self, boxes: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Map rotated boxes, (n, 5) centre, width, height and angle, to source pixels. They are not clipped."""
        scale = np.array([self.source[0] / self.width, self.source[1] / self.height] * 2 + [1], np.float32)
        return np.asarray((boxes - np.array([self.left, self.top, 0, 0, 0], np.float32)) * scale, np.float32)


def fit(width: int, height: int, spec: InputSpec) -> Letterbox:
    """The place of a picture in the model's input: with its aspect ratio, unless it is stretched; at least 1x1.

    Sizes are rounded; odd padding goes to the right and bottom, as in ultralytics' LetterBox. A picture that covers the
    input has a rectangle larger than it.
    """
    if spec.fit == "stretch":
        return Letterbox((width, height), 0, 0, spec.width, spec.height)
    if spec.fit == "cover":
        ratio = max(spec.width / width, spec.height / height) / spec.crop
    else:
        ratio = min(spec.width / width, spec.height / height)
    inner_width, inner_height = max(1, round(width * ratio)), max(1, round(height * ratio))
    if spec.fit == "corner":
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
    window, part = box.window(spec)
    canvas[window] = resample(image, box.width, box.height)[part]
    ordered = canvas[..., ::-1] if spec.rgb else canvas
    return np.asarray(spec.normalised(ordered).transpose(2, 0, 1), dtype=np.float32, order="C")


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
