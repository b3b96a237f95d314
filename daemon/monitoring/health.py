"""The daemon's health, with reasons."""

from __future__ import annotations

from collections.abc import Callable

from daemon.clock import Clock
from daemon.system.stop_token import StopToken
from daemon.system.watchdog import Stuck, Watchdog

PART_FAILED = 3  # exit code: a lane, the publisher or the monitor failed; the supervisor restarts the process
PART_STUCK = 4  # exit code: one of them is stuck in a library


class Health:
    """A part that fails or is stuck ends the daemon: only a new process can go on.

    Args:
        stuck_after_s: a part without a heartbeat for so long is stuck.
        stop: set when a part fails.

    Attributes:
        failure: reason of the first failure, None without one.
        exit_code: for the failure.
        is_ready: started and not stopping.
        degraded: reasons by part, of parts that have failed and that detection goes on without.
        notes: each returns what is wrong though detection gives results; None if nothing is.
        conditions: each returns why detection gives no results now, though the daemon works; None if it does.
    """

    def __init__(self, stuck_after_s: float, clock: Clock, stop: StopToken) -> None:
        self._stop = stop
        self.watchdog = Watchdog(stuck_after_s, clock, self._on_stuck)
        self.failure: str | None = None
        self.exit_code = PART_FAILED
        self.is_ready = False
        self.degraded: dict[str, str] = {}
        self.notes: list[Callable[[], str | None]] = []
        self.conditions: list[Callable[[], str | None]] = []

    def begin(self) -> None:
        """The daemon has started."""
        self.is_ready = True

    def end(self) -> None:
        """The daemon is stopping."""
        self.is_ready = False

    def degrade(self, part: str, reason: str) -> None:
        """Report that a part has failed, and that detection goes on without it."""
        self.degraded[part] = reason

    def fail(self, reason: str) -> None:
        """Report that a part cannot go on."""
        self.failure = self.failure or reason
        self._stop.set()

    def _on_stuck(self, stuck: Stuck) -> None:
        if self.failure is None:
            self.exit_code = PART_STUCK
        self.fail(str(stuck))

    def problems(self) -> list[str]:
        """Vital parts that are stuck, and the failure."""
        stuck = [str(row) for row in self.watchdog.stuck_parts() if row.vital]
        return [*stuck, *([self.failure] if self.failure else [])]

    def waits_for(self) -> list[str]:
        """Reasons of the conditions: no restart helps, and the daemon goes on when they are over."""
        return [reason for condition in self.conditions if (reason := condition())]

    def warnings(self) -> list[str]:
        """Other parts that are stuck or have failed, and notes; detection goes on."""
        stuck = [str(row) for row in self.watchdog.stuck_parts() if not row.vital]
        return [
            *stuck,
            *self.waits_for(),
            *(reason for note in self.notes if (reason := note())),
            *(f"{part} has failed: {reason}" for part, reason in [*self.degraded.items()]),
        ]
