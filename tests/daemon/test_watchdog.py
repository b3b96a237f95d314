"""A part that hangs is found, and named with its place; a process that was paused has none."""

from __future__ import annotations

import threading

import pytest

from daemon.system.stop_token import StopToken
from daemon.system.watchdog import Stuck, Watchdog
from tests.support.clock import ManualClock


class Parts:
    """Two, of which one may hang; looked at once a second."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.told: list[Stuck] = []
        self.watchdog = Watchdog(30.0, clock, self.told.append)
        self.pulses = {part: self.watchdog.pulse(part) for part in ("lane-0", "publisher")}

    def pass_time(self, seconds: int, moving: tuple[str, ...]) -> list[str]:
        found: list[str] = []
        for _ in range(seconds):
            self._clock.advance(1.0)
            for part in moving:
                self.pulses[part].beat()
            found = [row.part for row in self.watchdog.stuck_parts()]
        return found


@pytest.fixture
def parts(clock: ManualClock) -> Parts:
    return Parts(clock)


def test_a_part_that_hangs_is_found_after_its_time(parts: Parts) -> None:
    assert parts.pass_time(30, moving=("publisher",)) == []
    assert parts.pass_time(1, moving=("publisher",)) == ["lane-0"]


def test_a_process_that_was_paused_has_no_stuck_part(parts: Parts, clock: ManualClock) -> None:
    """Its monitor may be the first thread that runs again; from there on the others have their time."""
    parts.pass_time(5, moving=("lane-0", "publisher"))
    clock.advance(3600.0)
    assert parts.watchdog.stuck_parts() == []
    assert parts.pass_time(30, moving=("publisher",)) == []
    assert parts.pass_time(1, moving=("publisher",)) == ["lane-0"]


def test_a_part_that_waits_for_orders_or_has_ended_is_not_stuck(parts: Parts) -> None:
    parts.pulses["lane-0"].rest()
    parts.pulses["publisher"].end()
    assert parts.pass_time(100, moving=()) == []


def test_a_part_that_others_go_on_without_ends_nothing(parts: Parts, clock: ManualClock) -> None:
    """The thread of changes: it is named, and the daemon goes on."""
    parts.watchdog.pulse("changes", vital=False)
    assert parts.pass_time(31, moving=("lane-0", "publisher")) == ["changes"]
    assert not parts.watchdog.check()
    assert parts.told == []
    clock.advance(1.0)
    assert parts.watchdog.check() is False


def test_the_place_where_a_part_hangs_is_told(clock: ManualClock) -> None:
    """The innermost line of our own code, whatever library is below it."""
    stop, inside = StopToken(), threading.Event()
    watchdog = Watchdog(30.0, clock, lambda _: None)

    def hang() -> None:
        with watchdog.pulse("lane-7"):
            inside.set()
            stop.wait()

    thread = threading.Thread(target=hang)
    thread.start()
    assert inside.wait(10)
    clock.advance(4.0)
    watchdog.stuck_parts()
    for _ in range(31):
        clock.advance(1.0)
        stuck = watchdog.stuck_parts()
    stop.set()
    thread.join(10)
    assert [row.part for row in stuck] == ["lane-7"]
    assert stuck[0].where.startswith("daemon/system/stop_token.py:")
    assert stuck[0].where.endswith(" wait")
