"""Memory that nobody uses and that would be kept: what connections, models and sources long gone have left."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress
from functools import cache

_M_MMAP_THRESHOLD = -3  # of malloc.h
_LARGE_BYTES = 16 << 20


def return_large_blocks() -> None:
    """Have glibc give blocks of 16 MiB and more back when they are freed; to be called before threads are started.

    By itself it keeps all that are smaller than the largest ever freed, up to 32 MiB, in a heap of each thread: each
    model that was opened leaves one.
    """
    with suppress(AttributeError, OSError):  # musl, macOS
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def tidy() -> None:
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
