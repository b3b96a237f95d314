"""The daemon's health, with reasons."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from daemon.clock import Clock
from daemon.system.stop_token import StopToken
from daemon.system.watchdog import Stuck, Watchdog

Reason = Callable[[], "str | None"]
PART_FAILED = 3  # exit code: a lane, the publisher or the monitor failed; the supervisor restarts the process
PART_STUCK = 4  # exit code: one of them is stuck in a library


class Trouble(NamedTuple):
    """Attributes:
    what: the part or thing that is in trouble, by a name that stays.
    since: UTC ns, when it was first noticed.
    """

    what: str
    since: int
    reason: str


class Health:
    """A part that fails or is stuck ends the daemon: only a new process can go on.

    Args:
        stuck_after_s: a part without a heartbeat for so long is stuck.
        stop: set when a part fails.

    Attributes:
        failure: reason of the first failure, None without one.
        exit_code: for the failure.
        is_ready: started and not stopping.
        state: as an operator sees it, and since when, UTC ns.
        degraded: reasons by part, of parts that have failed and that detection goes on without.
        notes: by what they are about, each returns what is wrong though detection gives results; None if nothing is.
        conditions: likewise, why detection gives no results now, though the daemon works; None if it does.
    """

    def __init__(self, stuck_after_s: float, clock: Clock, stop: StopToken) -> None:
        self._stop, self._clock = stop, clock
        self.watchdog = Watchdog(stuck_after_s, clock, self._on_stuck)
        self.failure: str | None = None
        self.exit_code = PART_FAILED
        self.is_ready = False
        self.state: tuple[Literal["starting", "running", "stopping"], int] = "starting", clock.utc_ns()
        self.degraded: dict[str, str] = {}
        self.notes: dict[str, Reason] = {}
        self.conditions: dict[str, Reason] = {}
        self._since: dict[str, int] = {}  # of the present troubles
        self._noticing = threading.Lock()

    def begin(self) -> None:
        """The daemon has started."""
        self.is_ready, self.state = True, ("running", self._clock.utc_ns())

    def end(self) -> None:
        """The daemon is stopping."""
        self.is_ready, self.state = False, ("stopping", self._clock.utc_ns())

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
        return [reason for _, reason in _said(self.conditions)]

    def warnings(self) -> list[str]:
        """Other parts that are stuck or have failed, and notes; detection goes on."""
        stuck = [str(row) for row in self.watchdog.stuck_parts() if not row.vital]
        return [
            *stuck,
            *self.waits_for(),
            *(reason for _, reason in _said(self.notes)),
            *(f"{part} has failed: {reason}" for part, reason in [*self.degraded.items()]),
        ]

    def troubles(self) -> list[Trouble]:
        """All that is wrong now, problems and warnings, and since when; any thread may call it."""
        with self._noticing:  # around the questions, too: an older answer would forget what a newer one has found
            now, found = self._clock.utc_ns(), dict(self._found())
            self._since = {what: self._since.get(what, now) for what in found}
            return [Trouble(what, self._since[what], reason) for what, reason in found.items()]

    def tick(self, _: int) -> None:
        """Every second: notice what is wrong."""
        self.troubles()

    def _found(self) -> Iterator[tuple[str, str]]:
        if self.failure:
            yield "daemon", self.failure
        for row in self.watchdog.stuck_parts():
            yield row.part, str(row)
        yield from _said(self.conditions)
        yield from _said(self.notes)
        yield from [*self.degraded.items()]


def _said(reasons: dict[str, Reason]) -> Iterator[tuple[str, str]]:
    for what, ask in [*reasons.items()]:
        if reason := ask():
            yield what, reason
