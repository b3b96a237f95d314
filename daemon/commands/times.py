"""Times on the command line and in tables: local, as people write them."""

from __future__ import annotations

import re
from typing import Any

import click

from daemon.clock import Clock, SystemClock, utc_of

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_NANOSECONDS = 1_000_000_000
_EXAMPLES = "2026-11-26T10:30:00, 2026-11-26T09:30Z, or 2h for two hours ago"


class Moment(click.ParamType):  # type: ignore[type-arg]
    """A time as UTC ns: ISO 8601, local unless it says otherwise, or how long ago."""

    name = "time"

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        ago = _AGO.fullmatch(value)
        if ago:
            return self._clock.utc_ns() - round(float(ago[1]) * _SECONDS[ago[2]] * _NANOSECONDS)
        try:
            return utc_of(value)
        except ValueError:
            self.fail(f"{value!r} is no time: {_EXAMPLES}", param, ctx)


def length_text(ns: int) -> str:
    """A length of time, such as 2 d 03:04:05."""
    seconds = round(ns / _NANOSECONDS)
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days} d {clock}" if days else clock if seconds else f"{ns / _NANOSECONDS:.3f} s"
