"""A Runtime for tests of one part of the daemon."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from daemon.clock import Clock
from daemon.system.runtime import Runtime
from daemon.system.watchdog import Watchdog


def runtime_of(clock: Clock, on_failure: Callable[[str], None] = pytest.fail) -> Runtime:
    """A runtime; a failure fails the test by default."""
    return Runtime(clock, Watchdog(30.0, clock, lambda _: None), on_failure)
