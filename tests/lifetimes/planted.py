"""Defects for the daemon, to check that random histories find them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from daemon.app import App
from daemon.capture.processes.worker import Worker
from daemon.control.changes import Changes
from daemon.errors import StoppingError
from daemon.pipeline.ledger import Ledger
from daemon.sources.buffers import RemoteLease


def leaked_lease() -> None:
    """A slot of a capture process is sometimes not returned."""
    numbers, return_buffer = itertools.count(1), RemoteLease.__del__

    def leak(self: RemoteLease) -> None:
        if next(numbers) % 40:
            return_buffer(self)

    RemoteLease.__del__ = leak  # type: ignore[method-assign]


def lost_frame() -> None:
    """A dropped frame is sometimes not counted."""
    numbers, drop = itertools.count(1), Ledger.drop

    def lose(self: Ledger, *args: Any) -> None:
        if next(numbers) % 20:
            drop(self, *args)

    Ledger.drop = lose  # type: ignore[method-assign, assignment]


def wrong_state() -> None:
    """A source whose process died is not reported as down."""
    put_off = Worker._schedule_restart

    def keep_quiet(self: Worker, captures: Any, reason: str) -> None:
        states = {capture: capture.state for capture in captures}
        put_off(self, captures, reason)
        for capture, state in states.items():
            capture.state = state if capture.state == "down" else "stalled"

    Worker._schedule_restart = keep_quiet  # type: ignore[method-assign]


def left_thread() -> None:
    """A model that is opening when the daemon ends is not abandoned."""

    def forget(self: Changes, request: Any, error: Exception) -> None:
        if not isinstance(error, StoppingError):
            give_up(self, request, error)

    give_up = Changes._abandon
    Changes._abandon = forget  # type: ignore[method-assign]


def wrong_exit_code() -> None:
    """A daemon that failed exits with 0."""
    stop = App.stop
    App.stop = lambda self: stop(self) and 0  # type: ignore[method-assign]


DEFECTS: dict[str, Callable[[], None]] = {
    "leaked-lease": leaked_lease,
    "lost-frame": lost_frame,
    "wrong-state": wrong_state,
    "left-thread": left_thread,
    "wrong-exit-code": wrong_exit_code,
}
