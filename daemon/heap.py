"""The C library's heap, which keeps what threads, floods and sources long gone have freed until it is asked."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


def trim() -> None:
    """Give freed memory back to the system; costs milliseconds, without the interpreter's lock. Only glibc can."""
    _trimmer()(0)


@cache
def _trimmer() -> Callable[[int], object]:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):  # musl, macOS
        return lambda _: None
