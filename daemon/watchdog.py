"""Which part of the daemon does not come back from a library."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from daemon.clock import Clock

_PAUSED_NS = 5_000_000_000  # between two looks, of which there is one a second: nobody could move meanwhile


@dataclass(frozen=True)
class Beat:
    """The last sign of life of a part.

    Attributes:
        step: what it is at, such as "detect".
        at_ns: monotonic time.
    """

    part: str
    step: str
    at_ns: int


@dataclass(frozen=True)
class Stuck:
    """A part that has given no sign of life for so long."""

    part: str
    step: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.part} is stuck in {self.step!r} for {self.seconds:.0f} s (monitor.stuck_after_s)"


class Watchdog:
    """Looks at all parts, about once a second.

    A process that was stopped, or whose machine was, goes on: what counts is the time in which parts could have moved.

    Args:
        beats: of the parts there are now.
        after_s: without a sign of life for so long, a part is stuck.
    """

    def __init__(self, beats: Callable[[], Iterable[Beat]], after_s: float, clock: Clock) -> None:
        self._beats, self._after_s, self._clock = beats, after_s, clock
        self._looked_ns = self._since_ns = clock.monotonic_ns()

    def look(self) -> list[Stuck]:
        """The parts that are stuck now."""
        now = self._clock.monotonic_ns()
        if now - self._looked_ns > _PAUSED_NS:
            self._since_ns = now
        self._looked_ns = now
        rows = [Stuck(row.part, row.step, (now - max(row.at_ns, self._since_ns)) / 1e9) for row in self._beats()]
        return [row for row in rows if row.seconds > self._after_s]
