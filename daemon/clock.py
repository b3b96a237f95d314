"""Time as a port: durations are monotonic nanoseconds, and tests advance them instead of sleeping."""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Protocol

_WITH_ZONE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Awaited(Protocol):
    """A `Stop`, a `Bell` or a `threading.Event`."""

    def wait(self, timeout: float) -> bool:
        """Returns whether it has come, after so many seconds at most."""
        ...


class Bell:
    """Wakes one thread, once for any number of times it is rung while nobody waits.

    A `threading.Event` does that too, but makes a lock and two dozen calls of the interpreter for each wait: where a
    thread wakes for a frame or two, that is a good part of what they cost.
    """

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """From any thread."""
        if self._silent.locked():  # otherwise it rings already
            with suppress(RuntimeError):  # another thread was faster
                self._silent.release()

    def wait(self, timeout: float) -> bool:
        """Returns whether it rang, which it does no more."""
        return self._silent.acquire(timeout=timeout)


class Clock(Protocol):
    def monotonic_ns(self) -> int:
        """For every duration and deadline."""
        ...

    def utc_ns(self) -> int:
        """Nanoseconds since 1970, UTC: only ever written into messages, never subtracted."""
        ...

    def wait(self, event: Awaited, seconds: float) -> bool:
        """Let time pass until the event has come or the seconds are over; says whether it has come."""
        ...


class SystemClock:
    """The machine's clocks."""

    monotonic_ns = staticmethod(time.monotonic_ns)  # asked ten times a frame
    utc_ns = staticmethod(time.time_ns)

    @staticmethod
    def wait(event: Awaited, seconds: float) -> bool:
        return event.wait(max(0.0, seconds))


def boottime_ns() -> int:
    """Monotonic nanoseconds that count suspension as well: other machines go on meanwhile."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@cache
def boot_id() -> str:
    """Of this run of the machine: BOOTTIME of another one says nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def utc_text(utc_ns: int) -> str:
    """A time of `Clock.utc_ns` as people read it, to the second."""
    return datetime.fromtimestamp(utc_ns // 1_000_000_000, tz=timezone.utc).isoformat(timespec="seconds")


def local_text(utc_ns: int) -> str:
    """The same by the clock on the wall."""
    return datetime.fromtimestamp(utc_ns // 1_000_000_000, tz=timezone.utc).astimezone().isoformat(" ", "seconds")


def wall_text(utc_ns: int, now_ns: int) -> str:
    """The time of day by the clock on the wall, with its date if that is another than now's."""
    local, now = (datetime.fromtimestamp(ns // 1_000_000_000, tz=timezone.utc).astimezone() for ns in (utc_ns, now_ns))
    return local.strftime("%H:%M:%S" if local.date() == now.date() else "%Y-%m-%d %H:%M:%S")


def utc_ms_text(utc_ns: int) -> str:
    """A time of `Clock.utc_ns` to the millisecond, as browsers write it: 2026-11-26T10:30:00.250Z."""
    at = _EPOCH + timedelta(milliseconds=utc_ns // 1_000_000)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def offset_text(utc_ns: int, offset_s: int) -> str:
    """The same by a clock that is so many seconds ahead of UTC."""
    zone = timezone(timedelta(seconds=offset_s))
    return datetime.fromtimestamp(utc_ns // 1_000_000_000, tz=zone).isoformat(" ", "seconds")


def zone_at(utc_ns: int) -> tuple[str, int]:
    """Name of the machine's zone, and the seconds that it is ahead of UTC then."""
    local = datetime.fromtimestamp(utc_ns // 1_000_000_000, tz=timezone.utc).astimezone()
    name = os.environ.get("TZ", "").removeprefix(":")
    if not name:
        with suppress(OSError):
            name = os.readlink("/etc/localtime").partition("zoneinfo/")[2]
    offset = local.utcoffset()
    return name or local.tzname() or "UTC", int(offset.total_seconds()) if offset else 0


def utc_of(text: str) -> int:
    """A time in ISO 8601, local unless it says otherwise, as ns since 1970, to the millisecond.

    Raises:
        ValueError: it is none.
    """
    try:
        found = datetime.fromisoformat(f"{text[:-1]}+00:00" if text[-1:] in ("Z", "z") else text)
        return round(found.astimezone(timezone.utc).timestamp() * 1000) * 1_000_000
    except (OverflowError, OSError) as error:
        raise ValueError(str(error)) from error


def utc_with_zone(text: str) -> int:
    """UTC ns of a time in ISO 8601 that says its zone, such as 2026-11-26T10:30:00.250Z or 2026-11-26T11:30:00+01:00.

    Raises:
        ValueError: it is none.
    """
    found = _WITH_ZONE.fullmatch(text)
    if found is None:
        raise ValueError("not a date, a time and a zone")
    day, fraction, zone = found.groups()
    at = datetime.fromisoformat(day + ("+00:00" if zone == "Z" else zone)) - _EPOCH
    return (at.days * 86_400 + at.seconds) * 1_000_000_000 + int((fraction or "").ljust(9, "0"))


def process_age_s() -> float:
    """Seconds since the kernel started this process: what a user waited, the interpreter and its imports included."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # proc(5): field 22, in ticks
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
