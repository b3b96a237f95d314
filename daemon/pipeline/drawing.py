"""Boxes and labels on a picture."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from detectors.detections import Detections

_QUALITY = 85
_BOX_COLOUR = (66, 200, 255)
_EVENT_COLOUR = (80, 80, 255)
_BACKGROUND = (30, 30, 30)
Picture = npt.NDArray[np.uint8]  # BGR


def jpeg(picture: Picture) -> bytes:
    encoded: bytes = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1].tobytes()
    return encoded


def with_boxes(picture: Picture, found: Detections, labels: tuple[str, ...]) -> Picture:
    """A copy with each detection, its label and its confidence."""
    drawn = np.array(picture)
    thick = _thickness(picture)
    rows = zip(found.xyxy.round().astype(int).tolist(), found.confidence.tolist(), found.class_id.tolist())
    for (x0, y0, x1, y1), confidence, class_id in rows:
        cv2.rectangle(drawn, (x0, y0), (x1, y1), _BOX_COLOUR, thick)
        text = f"{labels[class_id] if class_id < len(labels) else class_id} {confidence:.2f}"
        _label(drawn, text, x0, y0, thick)
    return drawn


def mark(drawn: Picture, box: tuple[float, float, float, float] | None, text: str) -> None:
    """Draw a box that stands out, if there is one, and a text in the upper left corner."""
    thick = _thickness(drawn)
    if box is not None:
        x0, y0, x1, y1 = (round(edge) for edge in box)
        cv2.rectangle(drawn, (x0, y0), (x1, y1), _EVENT_COLOUR, 2 * thick)
    _label(drawn, text, 0, 0, thick)


def _thickness(picture: Picture) -> int:
    return max(1, round(int(picture.shape[1]) / 640))


def _label(drawn: Picture, text: str, left: int, bottom: int, thick: int) -> None:
    """A label on a dark background, above the box or in its corner."""
    scale = 0.6 * thick
    (width, height), below = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, thick)
    bottom = max(bottom, height + 2 * below)
    left = max(0, min(left, drawn.shape[1] - width))
    cv2.rectangle(drawn, (left, bottom - height - 2 * below), (left + width, bottom), _BACKGROUND, cv2.FILLED)
    cv2.putText(drawn, text, (left, bottom - below), cv2.FONT_HERSHEY_SIMPLEX, scale, _BOX_COLOUR, thick, cv2.LINE_AA)
