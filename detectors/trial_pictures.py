"""Pictures for the trial run of a model: blank ones, and drawn ones in which many detectors find something."""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, pi, sin

import cv2
import numpy as np
import numpy.typing as npt

from detectors.letterbox import PAD, InputSpec
from detectors.port import HostImage

Bgr = npt.NDArray[np.uint8]
LEAST_CONFIDENCE = 1e-6  # nearly everything in them is a box


def first_pictures(spec: InputSpec) -> Iterator[tuple[str, HostImage]]:
    """Name and picture: a grey one, and noise, in the size of the input."""
    shape = (spec.height, spec.width, 3)
    yield "a grey picture", HostImage(np.full(shape, PAD, np.uint8))
    yield "noise", HostImage(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))


def further_pictures(spec: InputSpec) -> Iterator[tuple[str, HostImage]]:
    """Drawn pictures, for questions that the first ones leave open."""
    width, height = spec.width, spec.height
    for name, draw in (("a stop sign", _stop_sign), ("a face", _face), ("a ball", _ball), ("blocks", _blocks)):
        picture = _background(width, height)
        draw(picture)
        yield f"a drawn picture of {name}", HostImage(picture)


def _background(width: int, height: int) -> Bgr:
    """Sky over ground, with soft spots."""
    spots = np.random.default_rng(1).integers(0, 40, (8, 8, 3), dtype=np.uint8)
    picture = np.asarray(cv2.resize(spots, (width, height), interpolation=cv2.INTER_CUBIC), np.uint8)
    picture[: height // 2] += np.array([180, 150, 120], np.uint8)
    picture[height // 2 :] += np.array([70, 90, 80], np.uint8)
    return picture


def _stop_sign(picture: Bgr) -> None:
    height, width = picture.shape[:2]
    centre, radius = (width // 2, height // 2), min(width, height) * 0.35
    cv2.rectangle(picture, (centre[0] - 4, centre[1]), (centre[0] + 4, height), (120, 120, 120), -1)
    for share, colour in ((1.0, (250, 250, 250)), (0.93, (30, 20, 190))):
        corners = [(pi / 8 + number * pi / 4, share * radius) for number in range(8)]
        points = [(centre[0] + reach * cos(angle), centre[1] + reach * sin(angle)) for angle, reach in corners]
        cv2.fillPoly(picture, [np.array(points, np.int32)], colour)
    scale = radius / 62
    size, _ = cv2.getTextSize("STOP", cv2.FONT_HERSHEY_SIMPLEX, scale, max(1, round(scale * 5)))
    at = centre[0] - size[0] // 2, centre[1] + size[1] // 2
    cv2.putText(picture, "STOP", at, cv2.FONT_HERSHEY_SIMPLEX, scale, (250, 250, 250), max(1, round(scale * 5)))


def _face(picture: Bgr) -> None:
    height, width = picture.shape[:2]
    unit, x, y = min(width, height) / 100, width // 2, height // 2

    def ellipse(dx: float, dy: float, across: float, down: float, colour: tuple[int, int, int]) -> None:
        axes = max(1, round(across * unit)), max(1, round(down * unit))
        cv2.ellipse(picture, (round(x + dx * unit), round(y + dy * unit)), axes, 0, 0, 360, colour, -1)

    ellipse(0, 45, 38, 28, (120, 60, 40))  # shoulders
    ellipse(0, 22, 9, 14, (140, 170, 215))
    ellipse(0, -4, 21, 27, (30, 45, 70))  # hair
    ellipse(0, 0, 17, 23, (150, 180, 225))
    for side in (-7, 7):
        ellipse(side, -4, 3.2, 1.8, (245, 245, 245))
        ellipse(side, -4, 1.4, 1.6, (60, 40, 30))
        ellipse(side, -8, 4, 0.8, (40, 50, 70))
    ellipse(0, 4, 1.8, 4, (125, 155, 200))
    ellipse(0, 12, 5.5, 1.6, (90, 80, 180))


def _ball(picture: Bgr) -> None:
    height, width = picture.shape[:2]
    centre, radius = (width // 2, height // 2), round(min(width, height) * 0.3)
    for step in range(12):
        shade = 90 + 12 * step
        moved = centre[0] - step * radius // 40, centre[1] - step * radius // 40
        cv2.circle(picture, moved, round(radius * (1 - step / 14)), (30, shade // 2 + 40, shade), -1)
    for angle in (0, 60, 120):
        cv2.ellipse(picture, centre, (radius, radius // 3), angle, 0, 360, (20, 20, 20), max(1, radius // 30))


def _blocks(picture: Bgr) -> None:
    """Rectangles of many sizes and colours."""
    height, width = picture.shape[:2]
    rng = np.random.default_rng(2)
    for size in (0.5, 0.35, 0.25, 0.15, 0.1, 0.06) * 4:
        across, down = (max(2, round(side * size * rng.uniform(0.5, 1.5))) for side in (width, height))
        left, top = rng.integers(0, max(1, width - across)), rng.integers(0, max(1, height - down))
        colour = tuple(rng.integers(0, 256, 3).tolist())
        cv2.rectangle(picture, (int(left), int(top)), (int(left) + across, int(top) + down), colour, -1)
