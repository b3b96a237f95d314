"""Services that every part of the daemon uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from daemon.system.time_limits import Limits
from detectors.ranges import NoRanges, Ranges

if TYPE_CHECKING:
    from daemon.clock import Clock
    from daemon.system.watchdog import Watchdog


@dataclass(frozen=True)
class Runtime:
    """Shared by all parts.

    Attributes:
        on_failure: ends the daemon with the reason why a part cannot go on.
        ranges: of a profiler.
    """

    clock: Clock
    watchdog: Watchdog
    on_failure: Callable[[str], None]
    limits: Limits = field(default_factory=Limits)
    ranges: Ranges = field(default_factory=NoRanges)
