"""A drawn street with known boxes: the input of the demo, of tests and of the demo model's training.

Each object stays in a horizontal band of its own, so objects never hide each other. With fewer bands than objects they
cross: the object whose lower edge is lower is nearer, and hides others. Positions are a closed form of the frame
number: any frame, or its boxes, can be computed without the frames before it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt
from numpy.random import Generator, default_rng  # numpy loads it lazily, which may fail for lack of descriptors

LABELS = ("person", "car", "bus")
_ASPECT = {"person": 0.42, "car": 2.1, "bus": 2.9}  # width over height
_NOISE_LEVELS = 12
_STRIP = 64  # rows
_BACKGROUND_LOCK = threading.Lock()  # one background at a time: making one takes five times its memory
_Colour = tuple[int, int, int]
_Corners = tuple[int, int, int, int]


@dataclass(frozen=True)
class Box:
    """A known object of one frame.

    Attributes:
        xyxy: corners in pixels, right and bottom exclusive.
        id: of the object, from 1; the same in all frames.
        visible: share of the box that no box of a nearer object covers.
    """

    label: str
    xyxy: tuple[int, int, int, int]
    id: int
    visible: float


@dataclass(frozen=True)
class _Walker:
    """One object: its looks and its movement (pixels; periods in frames)."""

    label: str
    width: int
    height: int
    top: int
    bob: int
    phase: float
    period: float
    paint: _Colour
    trim: _Colour


class Scene:
    """A street of walkers and vehicles; equal seeds draw equal streets, at any size.

    Args:
        width, height: size of the frame, pixels, each at least 1.
        objects: number of objects at once.
        fps: frames a second; objects cross the frame in the same time at every rate.
        bands: number of bands, each of height/bands pixels, that objects are dealt out to; None for one an object.
    """

    def __init__(
        self,
        width: int,
        height: int,
        *,
        seed: int = 0,
        objects: int = 5,
        fps: float = 30.0,
        bands: int | None = None,
    ) -> None:
        self.width, self.height = width, height
        rng = default_rng(seed)
        bands = max(1, min(bands or objects, objects))
        self._walkers = [_walker(rng, width, height / bands, index % bands, fps) for index in range(objects)]
        with _BACKGROUND_LOCK:
            self._background = _background(rng, width, height)

    def draw(self, number: int) -> npt.NDArray[np.uint8]:
        """Draw a frame: BGR, shape (height, width, 3), uint8, a new array each time."""
        image: npt.NDArray[np.uint8] = self._background.copy()
        places = [self._place(walker, number) for walker in self._walkers]
        for index in _from_far_to_near(places):
            walker = self._walkers[index]
            _PAINTERS[walker.label](image, places[index], walker)
        return image

    def truth(self, number: int) -> list[Box]:
        """The boxes of a frame, in order of their ids: without `bands` this is from the top."""
        places = [self._place(walker, number) for walker in self._walkers]
        order = _from_far_to_near(places)
        nearer = {index: [places[other] for other in order[rank + 1 :]] for rank, index in enumerate(order)}
        return [
            Box(walker.label, place, index + 1, _visible(place, nearer[index]))
            for index, (walker, place) in enumerate(zip(self._walkers, places))
        ]

    def _place(self, walker: _Walker, number: int) -> _Corners:
        along = (walker.phase + number / walker.period) % 2.0
        there_and_back = along if along <= 1.0 else 2.0 - along
        x = round(there_and_back * (self.width - walker.width))
        y = walker.top + round(walker.bob * 0.5 * (1.0 + np.sin(2 * np.pi * 3 * along)))
        return x, y, x + walker.width, y + walker.height


def _from_far_to_near(places: list[_Corners]) -> list[int]:
    return sorted(range(len(places)), key=lambda index: (places[index][3], index))


def _visible(place: _Corners, nearer: list[_Corners]) -> float:
    """The share of a box that no other covers."""
    x0, y0, x1, y1 = place
    hidden = np.zeros((y1 - y0, x1 - x0), np.bool_)
    for left, top, right, bottom in nearer:
        hidden[max(0, top - y0) : max(0, bottom - y0), max(0, left - x0) : max(0, right - x0)] = True
    return 1.0 - float(hidden.mean())


def _walker(rng: Generator, width: int, band: float, index: int, fps: float) -> _Walker:
    label = LABELS[int(rng.integers(len(LABELS)))]
    height = max(1, int(band * rng.uniform(0.6, 0.9)))
    across = max(1, min(width, int(height * _ASPECT[label])))
    slack = int(band) - height
    paint, trim = _two_colours(rng)
    return _Walker(
        label=label,
        width=across,
        height=height,
        top=int(index * band),
        bob=max(0, slack),
        phase=float(rng.uniform(0.0, 2.0)),
        period=fps * float(rng.uniform(4.0, 12.0)),
        paint=paint,
        trim=trim,
    )


def _two_colours(rng: Generator) -> tuple[_Colour, _Colour]:
    """A body colour that differs from the grey road, and a darker one for details."""
    hue, saturation, value = int(rng.integers(180)), int(rng.integers(120, 256)), int(rng.integers(120, 256))
    pixel = np.array([[[hue, saturation, value]]], dtype=np.uint8)
    blue, green, red = (int(part) for part in cv2.cvtColor(pixel, cv2.COLOR_HSV2BGR)[0, 0])
    return (blue, green, red), (blue // 4, green // 4, red // 4)


def _background(rng: Generator, width: int, height: int) -> npt.NDArray[np.uint8]:
    """Blotchy grey ground with grain and lane marks that do not look like objects.

    It takes at most 15 bytes a pixel, 3 of them for the picture: the ground is converted to integers before the grain
    is added, strip by strip.
    """
    coarse = (rng.integers(60, 150, (6, 8, 1)) + rng.integers(-12, 13, (6, 8, 3))).astype(np.float32)
    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR)
    image: npt.NDArray[np.uint8] = smooth.reshape(height, width, 3).astype(np.uint8)  # 48 to 161
    del smooth
    for top in range(0, height, _STRIP):
        rows = image[top : top + _STRIP]
        rows += rng.integers(0, 2 * _NOISE_LEVELS + 1, (len(rows), width, 1)).astype(np.uint8)
        rows -= _NOISE_LEVELS
    for _ in range(6):
        x, y = int(rng.integers(width)), int(rng.integers(height))
        tone = int(rng.integers(90, 200))
        cv2.line(image, (x, y), (x + width // 12, y), (tone, tone, tone), max(1, height // 240))
    return image


def _person(image: npt.NDArray[np.uint8], box: tuple[int, int, int, int], walker: _Walker) -> None:
    x0, y0, x1, y1 = box
    width, height = x1 - x0, y1 - y0
    head = max(1, height // 7)
    middle = (x0 + x1) // 2
    _fill(image, x0, y0 + 2 * head, x1, y0 + (height * 3) // 5, walker.paint)
    _fill(image, x0 + width // 6, y0 + (height * 3) // 5, middle - width // 12, y1, walker.trim)
    _fill(image, middle + width // 12, y0 + (height * 3) // 5, x1 - width // 6, y1, walker.trim)
    cv2.circle(image, (middle, y0 + head), head, (140, 170, 225), cv2.FILLED)


def _car(image: npt.NDArray[np.uint8], box: tuple[int, int, int, int], walker: _Walker) -> None:
    x0, y0, x1, y1 = box
    width, height = x1 - x0, y1 - y0
    wheel = max(1, height // 5)
    _fill(image, x0 + width // 5, y0, x1 - width // 4, y0 + height // 2, walker.trim)
    _fill(image, x0, y0 + (height * 2) // 5, x1, y1 - wheel, walker.paint)
    _wheels(image, box, wheel)


def _bus(image: npt.NDArray[np.uint8], box: tuple[int, int, int, int], walker: _Walker) -> None:
    x0, y0, x1, y1 = box
    width, height = x1 - x0, y1 - y0
    wheel = max(1, height // 8)
    _fill(image, x0, y0, x1, y1 - wheel, walker.paint)
    pane = width // 6
    for number in range(5):
        left = x0 + pane // 3 + number * (pane + pane // 6)
        _fill(image, left, y0 + height // 6, left + pane - pane // 6, y0 + height // 2, walker.trim)
    _wheels(image, box, wheel)


def _wheels(image: npt.NDArray[np.uint8], box: tuple[int, int, int, int], radius: int) -> None:
    x0, _, x1, y1 = box
    for x in (x0 + (x1 - x0) // 4, x1 - (x1 - x0) // 4):
        cv2.circle(image, (x, y1 - 1 - radius), radius, (25, 25, 25), cv2.FILLED)


def _fill(image: npt.NDArray[np.uint8], x0: int, y0: int, x1: int, y1: int, colour: _Colour) -> None:
    """Fill a rectangle; right and bottom exclusive."""
    image[max(0, y0) : max(0, y1), max(0, x0) : max(0, x1)] = colour


_PAINTERS = {"person": _person, "car": _car, "bus": _bus}
