"""A limit of new connections: all cameras of a lost member would otherwise be connected to in the same moment."""

from __future__ import annotations

from daemon.clock import Clock

_SHARE = 0.2  # of a second's number


class Pace:
    """A token bucket, with one second's number at once.

    Args:
        per_s: connections a second.
    """

    def __init__(self, per_s: float, clock: Clock) -> None:
        self._per_s, self._clock = per_s, clock
        self._limit = max(1.0, per_s)
        self._left, self._at_ns = self._limit, clock.monotonic_ns()

    @property
    def room(self) -> int:
        """Connections that may begin now."""
        now = self._clock.monotonic_ns()
        self._left = min(self._limit, self._left + (now - self._at_ns) * self._per_s / 1e9)
        self._at_ns = now
        return int(self._left)

    def room_for(self, wanted: int) -> int:
        """How many of these connections may begin now. Many begin a few at a time: each change costs as much."""
        room = self.room
        return min(room, wanted) if room >= min(wanted, self._limit * _SHARE) else 0

    def spend(self, connections: int) -> None:
        self._left -= connections
