"""What parts of the daemon work with, in tests of one of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from daemon.clock import Clock
from daemon.system.context import Context
from daemon.system.watchdog import Watchdog


def context_of(clock: Clock, on_failure: Callable[[str], None] = pytest.fail) -> Context:
    """A failure fails the test, unless it is wanted."""
    return Context(clock, Watchdog(30.0, clock, lambda _: None), on_failure)
