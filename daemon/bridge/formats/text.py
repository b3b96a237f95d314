"""Times and coordinates as other formats write them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from urllib.parse import quote

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def utc(ns: int, digits: int = 3) -> str:
    """A time as RFC 3339 writes it.

    Args:
        ns: since 1970, UTC.
        digits: of the second's fraction, 1 to 9; later ones are cut off.
    """
    seconds, rest = divmod(ns, 1_000_000_000)
    at = _EPOCH + timedelta(seconds=seconds)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{rest:09d}"[: 20 + digits] + "Z"


def part(name: str) -> str:
    """A name as one part of a path or topic: no sign that means something there."""
    return quote(name or "_", safe="")
