"""Memory that nobody uses and that would be kept: what connections, models and sources long gone have left."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress
from functools import cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_KEPT_BYTES = 8 << 20  # enough for a picture of 1080 lines: its pages are not taken anew each time
_LARGE_BYTES = 16 << 20


def return_early() -> None:
    """Have glibc keep 8 MiB of what is freed in each of its heaps, and give larger blocks back at once.

    By itself it comes to keep twice the largest block ever freed, up to 64 MiB, in a heap of each thread: each model
    that was opened leaves one.
    """
    with suppress(AttributeError, OSError):  # musl, macOS
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def trim() -> None:
    """Collect what has come since the start, and give freed memory back to the system; costs a few milliseconds.

    The collector is tuned to come rarely: a flood of connections, each of which leaves a cycle, would wait for it, and
    what lies between keeps its pages. The system's part is done without the interpreter's lock; only glibc can.
    """
    gc.collect()
    _trimmer()(0)


@cache
def _trimmer() -> Callable[[int], object]:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):  # musl, macOS
        return lambda _: None
