"""Masks of instances from coefficients and prototypes, packed to bits."""

from __future__ import annotations

import numpy as np

from detectors.detections import Masks
from detectors.heads.layout import Floats
from detectors.letterbox import InputSpec, Letterbox


def masks_of(coefficients: Floats, protos: Floats, boxes: Floats, spec: InputSpec, place: Letterbox) -> Masks:
    """The masks of boxes, at the resolution of the prototypes.

    A pixel belongs to the mask where the sum of the prototypes, times the coefficients, is positive, and its corner lies
    in the box.

    Args:
        coefficients: (n, p).
        protos: (p, h, w), of the whole input.
        boxes: (n, 4) corners in input pixels.
        place: of the picture in the input.
    """
    count, (height, width) = len(boxes), protos.shape[1:]
    inside = (coefficients @ protos.reshape(len(protos), -1)).reshape(count, height, width) > 0
    across, down = np.float32(width / spec.width), np.float32(height / spec.height)
    left, top, right, bottom = (boxes * np.array([across, down] * 2, np.float32)).T[:, :, None]
    column, row = np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)
    inside &= ((column >= left) & (column < right))[:, None, :]
    inside &= ((row >= top) & (row < bottom))[:, :, None]
    scale = spec.width / width * place.source[0] / place.width, spec.height / height * place.source[1] / place.height
    origin = -place.left * place.source[0] / place.width, -place.top * place.source[1] / place.height
    return Masks(np.packbits(inside, axis=2), width, origin, scale)
