"""SIGTERM and SIGINT: the first asks for a clean stop, the second ends the process at once. SIGHUP: reload."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_TO_STOP = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def held_back() -> Iterator[None]:
    """Within, this thread starts processes that `leave_to_the_daemon` from their first moment on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _TO_STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_to_the_daemon() -> None:
    """In a process of the daemon's: terminals and service managers signal it too, but it ends when the daemon does."""
    for number in _TO_STOP:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _TO_STOP)


@contextmanager
def stopping_on_signals(stop: Callable[[], None], reload: Callable[[], object] | None = None) -> Iterator[None]:
    """Within, signals call `stop`, and SIGHUP `reload`; handlers from before come back afterwards. Main thread only."""
    asked = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        stop()

    before = {number: signal.signal(number, handle) for number in _TO_STOP}
    if reload:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda _number, _frame: reload())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
