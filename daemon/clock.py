"""Time as a port: durations are monotonic nanoseconds, and tests advance them instead of sleeping."""

from __future__ import annotations

import os
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
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


def utc_text(utc_ns: int) -> str:
    """A time of `Clock.utc_ns` as people read it, to the second."""
    return datetime.fromtimestamp(utc_ns // 1_000_000_000, tz=timezone.utc).isoformat(timespec="seconds")


def process_age_s() -> float:
    """Seconds since the kernel started this process: what a user waited, the interpreter and its imports included."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # proc(5): field 22, in ticks
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
