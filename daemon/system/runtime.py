"""What every part of the daemon works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from daemon.clock import Clock
from daemon.system.limits import Limits
from daemon.system.watchdog import Watchdog


@dataclass(frozen=True)
class Runtime:
    """One for all parts.

    Attributes:
        on_failure: told why a part cannot go on; the daemon ends with that reason.
    """

    clock: Clock
    watchdog: Watchdog
    on_failure: Callable[[str], None]
    limits: Limits = field(default_factory=Limits)
