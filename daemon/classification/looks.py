"""Looks of a classifier at boxes: a bounded queue of them, and its account."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from daemon.classification.votes import Ballot
from daemon.messages import ClassifierMetrics, LooksDropped
from detectors.port import Image, Part

Cause = Literal["busy", "failed", "removed", "shutdown"]


@dataclass(eq=False, slots=True)
class Look:
    """A look at one box.

    Attributes:
        track: id.
        part: the box in its picture; None once it is copied, because the picture is released then.
        image: the copy; None before it is made, and after the look.
    """

    source: str
    track: int
    seq: int
    ballot: Ballot
    part: Part | None
    image: Image | None = None


class LookQueue:
    """Takes looks from lanes, and gives them to the classifier's thread.

    At any moment asked = done + dropped + pending.

    A look that finds no room is dropped, because its track is asked about again soon. While several sources wait, none
    has more than half of the room.

    Args:
        room: maximum number of looks that wait or are under way.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._pending: dict[Look, None] = {}
        self._of_source: Counter[str] = Counter()
        self._waiting: deque[Look] = deque()
        self._asked = self._done = 0
        self._dropped: Counter[str] = Counter()
        self._failure: str | None = None
        self._closed = False
        self._filled = threading.Condition()

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more looks."""
        return self._closed

    def offer(self, looks: Sequence[Look]) -> list[Look]:
        """Find room for looks; returns those that have it. The others are dropped as busy.

        Their parts must be copied now, and then `push` takes them.
        """
        taken = []
        with self._filled:
            if self._closed:
                return self._refuse(looks)
            self._asked += len(looks)
            for look in looks:
                if self._has_room(look.source):
                    self._pending[look] = None
                    self._of_source[look.source] += 1
                    taken.append(look)
                else:
                    self._dropped["busy"] += 1
                    look.ballot.withdraw()
        return taken

    def push(self, looks: Iterable[Look]) -> None:
        """Add looks whose parts are copied; those without a copy are dropped as busy."""
        with self._filled:
            for look in looks:
                if look in self._pending and look.image is not None:
                    self._waiting.append(look)
                else:
                    self._drop(look, "busy")
            self._filled.notify()

    def take(self, most: int, timeout_s: float) -> list[Look]:
        """Wait for looks; the longest waiting ones, none after the timeout."""
        with self._filled:
            self._filled.wait_for(lambda: self._waiting or self._closed, timeout_s)
            return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def finish(self, look: Look) -> bool:
        """Count a look as done; False if it was dropped meanwhile, so that its result means nothing."""
        with self._filled:
            if not self._forget(look):
                return False
            self._done += 1
            return True

    def forget(self, source: str) -> None:
        """Drop the looks of a source that is removed."""
        with self._filled:
            for look in [look for look in self._pending if look.source == source]:
                self._drop(look, "removed")
            self._waiting = deque(look for look in self._waiting if look.source != source)

    def close(self, cause: Cause, failure: str | None = None) -> None:
        """Drop all looks, those under way too, and take no more. A second call does nothing."""
        with self._filled:
            if not self._closed:
                self._closed, self._failure = True, failure
                for look in [*self._pending]:
                    self._drop(look, cause)
                self._waiting.clear()
            self._filled.notify_all()

    def metrics(self) -> ClassifierMetrics:
        with self._filled:
            return ClassifierMetrics(
                self._asked, self._done, LooksDropped(**self._dropped), len(self._pending), self._failure
            )

    def _has_room(self, source: str) -> bool:
        own = self._of_source[source]
        return len(self._pending) < self._room and (own == len(self._pending) or own < max(1, self._room // 2))

    @staticmethod
    def _refuse(looks: Sequence[Look]) -> list[Look]:
        """Nothing is asked of a closed queue."""
        for look in looks:
            look.ballot.withdraw()
        return []

    def _drop(self, look: Look, cause: Cause) -> None:
        if self._forget(look):
            self._dropped[cause] += 1
            look.ballot.withdraw()

    def _forget(self, look: Look) -> bool:
        look.part = look.image = None
        if look not in self._pending:
            return False
        del self._pending[look]
        self._of_source[look.source] -= 1
        if not self._of_source[look.source]:
            del self._of_source[look.source]
        return True
