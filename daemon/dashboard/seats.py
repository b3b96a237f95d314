"""So many at once: of a viewer, who may keep no other out, and of a daemon, which is not to be flooded."""

from __future__ import annotations

from collections import Counter

from starlette.exceptions import HTTPException

_AGAIN = {"Retry-After": "1"}


class Seats:
    """The event loop's thread alone uses it.

    Args:
        what: is counted, for messages.
        of_viewer, of_daemon: the most at once.
    """

    def __init__(self, what: str, of_viewer: int, of_daemon: int) -> None:
        self._what, self._of_viewer, self._of_daemon = what, of_viewer, of_daemon
        self._viewers: Counter[str] = Counter()
        self._daemons: Counter[str] = Counter()

    def take(self, viewer: str, daemon: str) -> Seat:
        """A seat that the caller leaves.

        Raises:
            HTTPException: 429: the viewer has as many as may be. 503: the daemon has.
        """
        if self._viewers[viewer] >= self._of_viewer:
            raise HTTPException(429, f"{self._of_viewer} {self._what} of yours are being answered already", _AGAIN)
        if self._daemons[daemon] >= self._of_daemon:
            raise HTTPException(503, f"{self._of_daemon} {self._what} of {daemon} are being answered already", _AGAIN)
        self._viewers[viewer] += 1
        self._daemons[daemon] += 1
        return Seat(self, viewer, daemon)

    def free(self, viewer: str, daemon: str) -> None:
        """A seat is left."""
        for counts, key in ((self._viewers, viewer), (self._daemons, daemon)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]


class Seat:
    """One of `Seats`."""

    def __init__(self, seats: Seats, viewer: str, daemon: str) -> None:
        self._seats, self._viewer, self._daemon = seats, viewer, daemon
        self._is_left = False

    def leave(self) -> None:
        """A second call does nothing."""
        if not self._is_left:
            self._is_left = True
            self._seats.free(self._viewer, self._daemon)
