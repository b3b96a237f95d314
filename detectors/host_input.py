"""Pictures in host memory: they are resized, placed and normalised for a model, and parts are cut out of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from detectors.letterbox import PAD, InputSpec, Letterbox, cell_size, fit, resample
from detectors.port import HostImage, Image, Part, PreparedImage, on_host


class HostInput:
    """A batch of pictures as a model reads them. One thread uses it.

    Padding is written once; a slot is padded again only for a picture of another shape.

    Args:
        buffer: (b, 3, height, width) float32 or float16, normalised; or uint8, pixels as they are, for a model that
            normalises them itself, also (b, height, width, 3).

    Attributes:
        buffer: as given.
        boxes: the place of the picture in each slot.
    """

    def __init__(self, buffer: npt.NDArray[Any], spec: InputSpec) -> None:
        self.buffer, self._spec = buffer, spec
        self._is_raw = buffer.dtype == np.uint8
        self._padding: npt.NDArray[Any] = np.full(3, PAD, np.uint8) if self._is_raw else spec.padding
        self.boxes: list[Letterbox] = [fit(1, 1, spec)] * len(buffer)
        # Channels first, whatever the order in memory.
        self._planes = buffer if buffer.shape[1] == 3 else buffer.transpose(0, 3, 1, 2)
        self._planes[:] = self._padding[:, None, None]

    def place(self, slot: int, bgr: npt.NDArray[np.uint8]) -> None:
        """Write a picture, (height, width, 3) uint8, into a slot."""
        spec = self._spec
        box = fit(bgr.shape[1], bgr.shape[0], spec)
        planes = self._planes[slot]
        if self.boxes[slot] != box:
            planes[:] = self._padding[:, None, None]
            self.boxes[slot] = box
        (rows, columns), shown = box.window(spec)
        resized = _resized(bgr, box.width, box.height)[shown]
        channels = cv2.split(resized)[:: -1 if spec.rgb else 1]
        for plane, channel, scale, bias in zip(planes[:, rows, columns], channels, spec.scale, spec.bias):
            if self._is_raw:
                plane[...] = channel if channel.dtype == np.uint8 else np.rint(channel)
            elif bias:
                plane[...] = channel * np.float32(scale) + np.float32(bias)
            else:
                np.multiply(channel, np.float32(scale), out=plane, casting="same_kind")

    def close(self) -> None:
        """Free the buffer now, even if this object is still referenced."""
        self.buffer = self._planes = self.buffer[:0].copy()


class HostCutter:
    """See `detectors.port.Cutter`. Each copy has memory of its own, of its part alone."""

    def cut(self, parts: Sequence[Part]) -> list[Image | PreparedImage | None]:
        return [cut_on_host(part) for part in parts]

    def release_done(self) -> None:
        """Pictures are copied at once."""

    def close(self) -> None:
        """Holds nothing."""


def cut_on_host(part: Part) -> HostImage:
    """A copy of a part of a picture in host memory."""
    left, top, right, bottom = part.box
    return HostImage(np.array(on_host(part.image).bgr[top:bottom, left:right], order="C"))


def _resized(bgr: npt.NDArray[np.uint8], width: int, height: int) -> npt.NDArray[Any]:
    """See `resample`; most results are rounded."""
    across, down = cell_size(bgr.shape[1], width), cell_size(bgr.shape[0], height)
    factors = width * across / bgr.shape[1], height * down / bgr.shape[0]
    right, below = -bgr.shape[1] % across, -bgr.shape[0] % down
    if right or below:
        cells = (bgr.shape[1] + right) // across, (bgr.shape[0] + below) // down
        if (round(cells[0] * factors[0]), round(cells[1] * factors[1])) == cells:
            return resample(bgr, width, height)  # OpenCV copies where the size stays the same, whatever the factors
        bgr = np.asarray(cv2.copyMakeBorder(bgr, 0, below, 0, right, cv2.BORDER_REPLICATE), np.uint8)
    bgr = _means(bgr, across, down)
    if factors == (1.0, 1.0):
        return bgr
    # A partial cell makes the result larger than it should be, at most.
    between = cv2.resize(bgr, None, fx=factors[0], fy=factors[1], interpolation=cv2.INTER_LINEAR)
    return np.asarray(between[:height, :width], np.uint8)


def _means(bgr: npt.NDArray[np.uint8], across: int, down: int) -> npt.NDArray[np.uint8]:
    """The means of whole cells. OpenCV has fast code for halving, and for the mean around each pixel of 3x3 or 5x5."""
    size = bgr.shape[1] // across, bgr.shape[0] // down
    while across % 2 == 0 and down % 2 == 0:
        across, down = across // 2, down // 2
        bgr = np.asarray(cv2.resize(bgr, (size[0] * across, size[1] * down), interpolation=cv2.INTER_AREA), np.uint8)
    if across == down == 1:
        return bgr
    if across == down in (3, 5):
        around = cv2.blur(bgr, (across, down))
        return np.asarray(cv2.resize(around, size, interpolation=cv2.INTER_NEAREST_EXACT), np.uint8)
    return np.asarray(cv2.resize(bgr, size, interpolation=cv2.INTER_AREA), np.uint8)
