"""Looks of a classifier at boxes: a bounded queue of them, and its account."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from daemon.classification.votes import AttributeVotes
from daemon.pipeline.frames import FrameInfo
from detectors.port import Image, PreparedImage
from lookout.messages import ClassifierMetrics, CropsDropped

Cause = Literal["busy", "failed", "unavailable", "removed", "shutdown"]


@dataclass(eq=False, slots=True)
class Crop:
    """A look at one box.

    Attributes:
        track: id.
        label: the track's.
        box: x1, y1, x2, y2 in source pixels.
        image: a copy of the box; None before it is made, and after the look.
    """

    frame: FrameInfo
    track: int
    label: str
    box: tuple[float, float, float, float]
    ballot: AttributeVotes
    image: Image | PreparedImage | None = None

    @property
    def source(self) -> str:
        return self.frame.source


class CropQueue:
    """Takes looks from lanes, and gives them to the classifier's thread.

    At any moment requested = classified + dropped + pending.

    A look that finds no room is dropped: another look at its track is due soon. While several sources wait, none
    has more than half of the room.

    Args:
        room: maximum number of looks that wait or are under way.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._pending: dict[Crop, None] = {}
        self._of_source: Counter[str] = Counter()
        self._waiting: deque[Crop] = deque()
        self._requested = self._classified = 0
        self._dropped: Counter[str] = Counter()
        self._failure: str | None = None
        self._closed = False
        self._filled = threading.Condition()

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more looks."""
        return self._closed

    def reserve(self, crops: Sequence[Crop]) -> list[Crop]:
        """Find room for looks; returns those that have it. The others are dropped as busy.

        Their parts must be copied now, and then `put` takes them.
        """
        taken = []
        with self._filled:
            if self._closed:
                return self._refuse(crops)
            self._requested += len(crops)
            for crop in crops:
                if self._has_room(crop.source):
                    self._pending[crop] = None
                    self._of_source[crop.source] += 1
                    taken.append(crop)
                else:
                    self._dropped["busy"] += 1
                    crop.ballot.cancel()
        return taken

    def put(self, crops: Sequence[Crop], images: Sequence[Image | PreparedImage | None]) -> None:
        """Add looks with the copies of their parts; those without a copy are dropped as busy."""
        with self._filled:
            for crop, image in zip(crops, images, strict=True):
                crop.image = image
                if crop in self._pending and image is not None:
                    self._waiting.append(crop)
                else:
                    self._drop(crop, "busy")
            self._filled.notify()

    def get(self, max_items: int, timeout_s: float) -> list[Crop]:
        """Wait for looks; the longest waiting ones, none after the timeout."""
        with self._filled:
            self._filled.wait_for(lambda: self._waiting or self._closed, timeout_s)
            return [self._waiting.popleft() for _ in range(min(max_items, len(self._waiting)))]

    def complete(self, crop: Crop) -> bool:
        """Count a look as done; False if it was dropped meanwhile, so that its result means nothing."""
        with self._filled:
            if not self._forget(crop):
                return False
            self._classified += 1
            return True

    def give_up(self, crops: Iterable[Crop]) -> None:
        """Drop looks that the classifier's server gives no results for."""
        with self._filled:
            for crop in crops:
                self._drop(crop, "unavailable")

    def forget(self, source: str) -> None:
        """Drop the looks of a source that is removed."""
        with self._filled:
            for crop in [crop for crop in self._pending if crop.source == source]:
                self._drop(crop, "removed")
            self._waiting = deque(crop for crop in self._waiting if crop.source != source)

    def close(self, cause: Cause, failure: str | None = None) -> None:
        """Drop all looks, those under way too, and take no more. A second call does nothing."""
        with self._filled:
            if not self._closed:
                self._closed, self._failure = True, failure
                for crop in [*self._pending]:
                    self._drop(crop, cause)
                self._waiting.clear()
            self._filled.notify_all()

    def metrics(self) -> ClassifierMetrics:
        with self._filled:
            return ClassifierMetrics(
                self._requested, self._classified, CropsDropped(**self._dropped), len(self._pending), self._failure
            )

    def _has_room(self, source: str) -> bool:
        own = self._of_source[source]
        return len(self._pending) < self._room and (own == len(self._pending) or own < max(1, self._room // 2))

    @staticmethod
    def _refuse(crops: Sequence[Crop]) -> list[Crop]:
        """Nothing is asked of a closed queue."""
        for crop in crops:
            crop.ballot.cancel()
        return []

    def _drop(self, crop: Crop, cause: Cause) -> None:
        if self._forget(crop):
            self._dropped[cause] += 1
            crop.ballot.cancel()

    def _forget(self, crop: Crop) -> bool:
        crop.image = None
        if crop not in self._pending:
            return False
        del self._pending[crop]
        self._of_source[crop.source] -= 1
        if not self._of_source[crop.source]:
            del self._of_source[crop.source]
        return True
