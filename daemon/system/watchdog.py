"""Finds parts of the daemon that are stuck in a library, and where.

A thread of its own checks all parts and feeds systemd's watchdog. It does nothing else that could block, so that every
stuck part is found, the monitor included.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import structlog

from daemon.clock import Clock
from daemon.system import systemd
from daemon.system.stop_token import StopToken

log = structlog.get_logger(__name__)
_PAUSED_NS = 5_000_000_000  # a longer gap between checks, one a second, means that the whole process was stopped
_TICK_S = 1.0
_ROOT = Path(__file__).resolve().parents[2]


class Pulse:
    """Heartbeats of one thread, until `end`.

    Attributes:
        part: the thread's name.
        vital: the daemon cannot work without it.
        at_ns: monotonic time of the last heartbeat; None while the thread waits for work.
    """

    __slots__ = ("_clock", "_end", "at_ns", "part", "thread", "vital")

    def __init__(self, part: str, *, vital: bool, clock: Clock, end: Callable[[Pulse], None]) -> None:
        self.part, self.vital, self._clock, self._end = part, vital, clock, end
        self.thread = threading.get_ident()
        self.at_ns: int | None = clock.monotonic_ns()

    def beat(self) -> None:
        self.at_ns = self._clock.monotonic_ns()

    def rest(self) -> None:
        """The thread waits for work; it is not watched until the next beat."""
        self.at_ns = None

    def end(self) -> None:
        self._end(self)

    def __enter__(self) -> Pulse:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@dataclass(frozen=True)
class Stuck:
    """A part without a heartbeat.

    Attributes:
        where: the innermost line of our code.
        vital: see `Pulse`.
    """

    part: str
    where: str
    seconds: float
    vital: bool = True

    def __str__(self) -> str:
        return f"{self.part} is stuck for {self.seconds:.0f} s in {self.where} (monitor.stuck_after_s)"


class Watchdog(threading.Thread):
    """Checks all parts every second. Time in which the process or the machine was stopped does not count.

    Args:
        after_s: a part without a heartbeat for so long is stuck.
        on_stuck: called for a vital part at each check that finds it stuck.
    """

    def __init__(self, after_s: float, clock: Clock, on_stuck: Callable[[Stuck], None]) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._after_s, self._clock, self._on_stuck = after_s, clock, on_stuck
        self._pulses: dict[Pulse, None] = {}
        self._logged: set[str] = set()
        self._checked_ns = self._since_ns = clock.monotonic_ns()
        self._ending = StopToken()

    def pulse(self, part: str, *, vital: bool = True) -> Pulse:
        """A pulse for the calling thread, which is watched from now on."""
        pulse = Pulse(part, vital=vital, clock=self._clock, end=self._forget)
        self._pulses[pulse] = None
        return pulse

    def _forget(self, pulse: Pulse) -> None:
        self._pulses.pop(pulse, None)

    def stop(self, timeout_s: float) -> None:
        """End, within the time."""
        self._ending.set()
        if self.is_alive():
            self.join(timeout_s)

    def run(self) -> None:
        wanted = systemd.watchdog_s()
        tick = min(_TICK_S, (wanted or _TICK_S * 2) / 2, self._after_s / 4)
        while not self._clock.wait(self._ending, tick):
            if not self.check() and wanted:
                systemd.notify("WATCHDOG=1")

    def check(self) -> bool:
        """Report the parts that are stuck; returns whether a vital one is."""
        stuck = self.stuck_parts()
        vital = [row for row in stuck if row.vital]
        for row in vital:
            self._on_stuck(row)
        for row in stuck:
            if row.part not in self._logged:
                self._logged.add(row.part)
                log.error("stuck", part=row.part, where=row.where, seconds=round(row.seconds, 1))
        self._logged &= {row.part for row in stuck}
        return bool(vital)

    def stuck_parts(self) -> list[Stuck]:
        """The parts that are stuck now."""
        now = self._clock.monotonic_ns()
        if now - self._checked_ns > _PAUSED_NS:
            self._since_ns = now
        self._checked_ns = now
        rows = []
        for pulse in [*self._pulses]:
            at_ns = pulse.at_ns
            if at_ns is not None and (seconds := (now - max(at_ns, self._since_ns)) / 1e9) > self._after_s:
                rows.append(Stuck(pulse.part, where(pulse.thread), seconds, pulse.vital))
        return rows


def where(thread: int) -> str:
    """The innermost line of a thread in our code, such as `daemon/pipeline/lane.py:89 run_once`."""
    frame: FrameType | None = sys._current_frames().get(thread)
    innermost = frame
    while frame is not None:
        with suppress(ValueError):
            file = Path(frame.f_code.co_filename).relative_to(_ROOT)
            if file.parts[0] in ("daemon", "detectors"):
                return f"{file.as_posix()}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return innermost.f_code.co_name if innermost else "a thread that has ended"
