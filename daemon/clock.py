"""Time as a port: durations are monotonic nanoseconds, and tests advance them instead of sleeping."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    def monotonic_ns(self) -> int:
        """For every duration and deadline."""
        ...

    def utc_ns(self) -> int:
        """Nanoseconds since 1970, UTC: only ever written into messages, never subtracted."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Let time pass until the event is set or the seconds are over; says whether the event is set."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def utc_ns(self) -> int:
        return time.time_ns()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(max(0.0, seconds))
