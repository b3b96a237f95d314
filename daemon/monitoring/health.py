"""Whether the daemon works, and why not."""

from __future__ import annotations

from daemon.clock import Clock
from daemon.system.stop import Stop
from daemon.system.watchdog import Stuck, Watchdog

PART_FAILED = 3  # exit code when a lane, the publisher or the monitor failed: the supervisor starts a fresh process
PART_STUCK = 4  # when one of them did not come back from a library


class Health:
    """Of one daemon. A failed or stuck part ends it: only another process can go on.

    Args:
        stuck_after_s: without a sign of life for so long, a part is stuck.
        stop: set when a part fails.

    Attributes:
        failure: of the part that failed first, None if none has.
        exit_code: that tells of it.
        is_ready: started, and not told to stop.
    """

    def __init__(self, stuck_after_s: float, clock: Clock, stop: Stop) -> None:
        self._stop = stop
        self.watchdog = Watchdog(stuck_after_s, clock, self._on_stuck)
        self.failure: str | None = None
        self.exit_code = PART_FAILED
        self.is_ready = False

    def fail(self, reason: str) -> None:
        """A part cannot go on."""
        self.failure = self.failure or reason
        self._stop.set()

    def _on_stuck(self, stuck: Stuck) -> None:
        if self.failure is None:
            self.exit_code = PART_STUCK
        self.fail(str(stuck))

    def problems(self) -> list[str]:
        """Parts without which the daemon is of no use, and that do not move, and what has failed."""
        stuck = [str(row) for row in self.watchdog.stuck_parts() if row.vital]
        return [*stuck, *([self.failure] if self.failure else [])]

    def warnings(self) -> list[str]:
        """Parts that do not move, and that detections go on without."""
        return [str(row) for row in self.watchdog.stuck_parts() if not row.vital]
