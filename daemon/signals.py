"""SIGTERM and SIGINT: the first asks for a clean stop, the second ends the process at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Within, signals call `stop`; the handlers from before come back afterwards. Main thread only."""
    asked = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
