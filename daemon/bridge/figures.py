"""Detections on their way to one target: the newest of each source, and no faster than it wants them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from daemon.bridge.records import Figure
from daemon.bridge.report import FigureAccount
from lookout.messages import Detections, Owner, decode, topic


class Waiting(NamedTuple):
    """Detections as they came: most are never read, because newer ones take their place.

    Attributes:
        admits: whether an owner is the newest of a source.
    """

    daemon: str
    source: str
    payload: bytes
    admits: Callable[[str, Owner | None], bool]

    def read(self) -> Figure | None:
        try:
            message = decode(topic("detections", self.source), self.payload)
        except ValueError:
            return None
        if not isinstance(message, Detections) or not self.admits(self.source, message.owner):
            return None
        return Figure(self.daemon, self.source, message, self.payload)


class FigureBox:
    """received = sent + thinned + failed + those that wait, which are at most one for each source.

    Args:
        fps: of each source; 0: none.
    """

    def __init__(self, fps: float) -> None:
        self.is_wanted = fps > 0
        self._gap_ns = round(1e9 / fps) if fps else 0
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str], Waiting] = {}
        self._next_ns: dict[tuple[str, str], int] = {}
        self._received = self._sent = self._failed = self._thinned = 0

    def put(self, waiting: Waiting) -> None:
        """In place of the one that waits, which is thinned."""
        key = waiting.daemon, waiting.source
        with self._lock:
            self._received += 1
            self._thinned += key in self._waiting
            self._waiting[key] = waiting

    def take(self, now_ns: int) -> list[Figure]:
        """Those that are due. A message that cannot be read, or is of a former owner of its source, has failed."""
        with self._lock:
            due = [key for key in self._waiting if self._next_ns.get(key, 0) <= now_ns]
            for key in due:
                # From when it was due, so that the rate is kept; not from long ago.
                self._next_ns[key] = max(self._next_ns.get(key, 0) + self._gap_ns, now_ns)
            found = [figure for key in due if (figure := self._waiting.pop(key).read()) is not None]
            self._failed += len(due) - len(found)
            return found

    def settle(self, sent: int, failed: int) -> None:
        with self._lock:
            self._sent += sent
            self._failed += failed

    def report(self) -> FigureAccount:
        """Detections that wait count as thinned until they are sent."""
        with self._lock:
            waiting = self._received - self._sent - self._failed - self._thinned
            return FigureAccount(self._received, self._sent, self._thinned + waiting, self._failed)
