"""Memory that nobody uses and that would be kept: what connections leave, what sources long gone have freed."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from functools import cache


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
