"""Moving objects, for measurements of tracking and rules."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections

WIDTH, HEIGHT = 1920, 1080


class MovingObjects:
    """Objects that go to and fro across the picture.

    Their boxes are as detectors give them: a few are missing, weak or false, and all are a little off.
    """

    def __init__(self, random: np.random.Generator, objects: int) -> None:
        self._random = random
        self._size = random.uniform((30, 60), (70, 140), (objects, 2))
        self._room = np.array([WIDTH, HEIGHT]) - self._size
        self._start = random.uniform(0, 2, (objects, 2))
        self._speed = random.uniform(-250, 250, (objects, 2)) / self._room

    def boxes(self, seconds: float) -> Detections:
        """The boxes of a picture, the strongest first."""
        random, count = self._random, len(self._size)
        corner = (0.5 - 0.5 * np.cos(np.pi * (self._start + self._speed * seconds))) * self._room
        boxes = np.hstack((corner, corner + self._size))
        boxes += random.normal(0, 0.02, boxes.shape) * np.tile(self._size, 2)
        confidence = np.where(
            random.random(count) < 0.15, random.uniform(0.11, 0.24, count), random.uniform(0.5, 0.95, count)
        )
        seen = random.random(count) >= 0.05
        false = random.binomial(count, 0.02)
        place = random.uniform((0, 0), (WIDTH - 80, HEIGHT - 80), (false, 2))
        boxes = np.vstack((boxes[seen], np.hstack((place, place + 80))))
        confidence = np.concatenate((confidence[seen], random.uniform(0.26, 0.5, false)))
        order = np.argsort(-confidence, kind="stable")
        return Detections(
            _float32(boxes[order]), _float32(confidence[order]), np.zeros(len(order), np.int32), checked=True
        )


def _float32(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    return values.astype(np.float32)
