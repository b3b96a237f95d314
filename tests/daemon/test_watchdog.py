"""A part that hangs is found; a process that was paused has none."""

from __future__ import annotations

import pytest

from daemon.watchdog import Beat, Watchdog
from tests.support.clock import ManualClock


class Parts:
    """Two, of which one may hang; looked at once a second."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._beats = {"lane-0": clock.monotonic_ns(), "publisher": clock.monotonic_ns()}
        self.watchdog = Watchdog(lambda: [Beat(part, "a step", at) for part, at in self._beats.items()], 30.0, clock)

    def pass_time(self, seconds: int, moving: tuple[str, ...]) -> list[str]:
        found: list[str] = []
        for _ in range(seconds):
            self._clock.advance(1.0)
            self._beats.update(dict.fromkeys(moving, self._clock.monotonic_ns()))
            found = [row.part for row in self.watchdog.look()]
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
    assert parts.watchdog.look() == []
    assert parts.pass_time(30, moving=("publisher",)) == []
    assert parts.pass_time(1, moving=("publisher",)) == ["lane-0"]
