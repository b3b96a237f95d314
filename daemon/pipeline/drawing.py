"""Boxes and labels on a picture."""

from __future__ import annotations

from collections.abc import Mapping

import cv2
import numpy as np
import numpy.typing as npt

from detectors.detections import Detections, Masks
from lookout.messages import Attribute

_QUALITY = 85
_BOX_COLOUR = (66, 200, 255)
_EVENT_COLOUR = (80, 80, 255)
_MASK_COLOUR = (200, 120, 60)
_POINT_COLOUR = (90, 255, 120)
_BACKGROUND = (30, 30, 30)
_SEEN = 0.5  # the least confidence of a key point that is drawn
_FURTHEST = 1e6  # pixels: OpenCV draws with 32 bits
Picture = npt.NDArray[np.uint8]  # BGR


def jpeg(picture: Picture) -> bytes:
    encoded: bytes = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1].tobytes()
    return encoded


def with_boxes(picture: Picture, found: Detections, labels: tuple[str, ...]) -> Picture:
    """A copy with each detection: the id of its track, its label, its confidence and its settled attributes.
    With masks, angles and key points, if it has them."""
    drawn = np.array(picture)
    thick = _thickness(picture)
    if found.masks is not None:
        _fill(drawn, found.masks)
    known = [None] * len(found) if found.attributes is None else found.attributes.tolist()
    ids = [0] * len(found) if found.tracks is None else found.tracks.id.tolist()
    boxes = found.xyxy.round().astype(int).tolist()
    rows = zip(boxes, found.confidence.tolist(), found.class_id.tolist(), known, ids)
    for (x0, y0, x1, y1), confidence, class_id, attributes, id in rows:
        if found.obb is None:
            cv2.rectangle(drawn, (x0, y0), (x1, y1), _BOX_COLOUR, thick)
        name = labels[class_id] if class_id < len(labels) else class_id
        text = " ".join((f"#{id} " * (id > 0) + f"{name} {confidence:.2f}", *settled(attributes or {})))
        _label(drawn, text, x0, y0, thick)
    if found.obb is not None:
        cv2.polylines(drawn, _corners(found.obb), True, _BOX_COLOUR, thick)
    if found.keypoints is not None:
        _dots(drawn, found.keypoints, 2 * thick)
    return drawn


def settled(attributes: Mapping[str, Attribute]) -> list[str]:
    """The values that are settled, in order."""
    return [attribute.value for attribute in attributes.values() if attribute.settled and attribute.value is not None]


def _fill(drawn: Picture, masks: Masks) -> None:
    """Tint the pixels that some mask covers."""
    if not masks.bits.size:
        return
    union = np.unpackbits(np.bitwise_or.reduce(masks.bits, axis=0), axis=1, count=masks.width)
    (x, y), (across, down) = masks.origin, masks.scale
    place = np.array([[across, 0, x + across / 2 - 0.5], [0, down, y + down / 2 - 0.5]])  # of centres of bits
    size = (drawn.shape[1], drawn.shape[0])
    covered = cv2.warpAffine(union, place, size, flags=cv2.INTER_NEAREST) > 0
    drawn[covered] = (0.6 * drawn[covered] + 0.4 * np.array(_MASK_COLOUR)).round().astype(np.uint8)


def _corners(obb: npt.NDArray[np.float32]) -> list[npt.NDArray[np.int32]]:
    """The four corners of each box at an angle, (4, 2), in order around it."""
    centre, half, angle = obb[:, None, :2].astype(np.float64), obb[:, 2:4, None] / 2, obb[:, 4]
    width = half[:, 0] * np.stack((np.cos(angle), np.sin(angle)), axis=1)
    height = half[:, 1] * np.stack((-np.sin(angle), np.cos(angle)), axis=1)
    around = np.stack((-width - height, width - height, width + height, height - width), axis=1)
    return [*np.clip(centre + around, -_FURTHEST, _FURTHEST).round().astype(np.int32)]


def _dots(drawn: Picture, keypoints: npt.NDArray[np.float32], radius: int) -> None:
    """Dots on the key points that are seen, inside the picture."""
    points = keypoints.reshape(-1, 3)
    inside = (points[:, :2] >= 0).all(axis=1) & (points[:, :2] < (drawn.shape[1], drawn.shape[0])).all(axis=1)
    for x, y in points[inside & (points[:, 2] > _SEEN), :2].round().astype(int).tolist():
        cv2.circle(drawn, (x, y), radius, _POINT_COLOUR, cv2.FILLED)


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
