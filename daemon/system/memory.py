"""Returns freed memory of past connections, models and sources to the system."""

from __future__ import annotations

import ctypes
import gc
import resource
from collections.abc import Callable
from contextlib import suppress
from functools import cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of malloc.h
_KEPT_BYTES = 8 << 20  # enough for a picture of 1080 lines, so that its pages are reused
_LARGE_BYTES = 16 << 20
_SHARED_HEAPS = 2


def configure_malloc() -> None:
    """Let glibc keep 8 MiB of freed memory in each heap, and return larger blocks at once.

    By default glibc keeps up to twice the largest block ever freed, at most 64 MiB, in a heap of each thread: every
    model that was opened leaves one. Where address space is limited, threads share two heaps: each takes 64 MiB of it.
    """
    with suppress(AttributeError, OSError):  # musl, macOS
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            libc.mallopt(_M_ARENA_MAX, _SHARED_HEAPS)


def trim() -> None:
    """Run the garbage collector, and return freed memory to the system; takes a few milliseconds.

    The collector is configured to run rarely, so cycles of closed connections would stay and keep their pages. glibc
    trims without holding the GIL.
    """
    gc.collect()
    _trimmer()(0)


@cache
def _trimmer() -> Callable[[int], object]:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):  # musl, macOS
        return lambda _: None
