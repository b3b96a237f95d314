"""Small pictures of large ones, for lists."""

from __future__ import annotations

import cv2
import numpy as np

from daemon.pipeline.drawing import Picture

_QUALITY = 75
_SHAPE = 16 / 9
_MARGIN = 1.8  # of a box, whose surroundings say where it is
_LEAST = 1 / 5  # of the picture's width: a box far away is shown with what lies around it
Box = tuple[float, float, float, float]


def smaller(content: bytes, width: int, box: Box | None = None) -> bytes | None:
    """A JPEG of a JPEG, at most `width` pixels wide; never enlarged.

    Args:
        box: x1, y1, x2, y2 in pixels: the result is 16:9 around it.

    Returns:
        None if it is no picture.
    """
    picture = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR) if content else None
    if picture is None:
        return None
    shown = picture.astype(np.uint8, copy=False) if box is None else around(picture.astype(np.uint8, copy=False), box)
    high, wide = shown.shape[:2]
    if wide > width:
        size = (width, max(1, round(high * width / wide)))
        shown = cv2.resize(shown, size, interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False)
    encoded: bytes = cv2.imencode(".jpg", shown, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1].tobytes()
    return encoded


def around(picture: Picture, box: Box) -> Picture:
    """The part of a picture that shows a box and what is near it: 16:9 where the picture is large enough, and never
    beyond its border."""
    high, wide = picture.shape[:2]
    x1, y1, x2, y2 = box
    across = max(_MARGIN * (x2 - x1), _MARGIN * (y2 - y1) * _SHAPE, _LEAST * wide)
    left, right = _within((x1 + x2) / 2, across, wide)
    top, bottom = _within((y1 + y2) / 2, across / _SHAPE, high)
    return picture[top:bottom, left:right]


def _within(centre: float, length: float, most: int) -> tuple[int, int]:
    """A span of a length about a centre, moved to lie within 0 and `most`."""
    size = min(most, max(1, round(length)))
    begin = min(max(0, round(centre - size / 2)), most - size)
    return begin, begin + size
