"""In which order parts start and stop, and how long each may take."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from daemon.lifecycle import ALL_ENDED, Closing, Lifecycle, Phase, Steps, ThreadPart
from daemon.system.stop_token import StopToken
from daemon.system.time_limits import Limits
from daemon.system.watchdog import Pulse
from tests.support.clock import ManualClock
from tests.support.daemon import wait_until
from tests.support.runtime import runtime_of


class Slow:
    """Writes down what is done to it, and takes some time to end.

    Args:
        seconds: for its end; it has not ended if it gets fewer.
    """

    def __init__(self, name: str, said: list[str], clock: ManualClock, seconds: float = 0.0) -> None:
        self.name, self._said, self._clock, self._seconds = name, said, clock, seconds

    def start(self) -> None:
        self._said.append(f"{self.name} starts")

    def request_stop(self) -> None:
        self._said.append(f"{self.name} is asked")

    def join(self, seconds: float) -> Sequence[str]:
        taken = min(seconds, self._seconds)
        self._clock.advance(taken)
        self._seconds -= taken
        self._said.append(f"{self.name} had {seconds:.2f} s")
        return [self.name] if self._seconds > 0 else ALL_ENDED


@pytest.fixture
def said() -> list[str]:
    return []


def test_consumers_start_first_and_stop_last(said: list[str], clock: ManualClock) -> None:
    life = Lifecycle(clock, Limits(stop=10.0))
    life.add(Slow("publisher", said, clock), Phase.PUBLISHER)
    life.add(Slow("lanes", said, clock), Phase.LANES)
    life.add(Slow("sources", said, clock), Phase.SOURCES)
    life.start(StopToken())
    assert said == ["publisher starts", "lanes starts", "sources starts"]
    said.clear()
    assert life.stop() == []
    assert [row for row in said if row.endswith("asked")] == [
        "sources is asked",
        "lanes is asked",
        "publisher is asked",
    ]


def test_what_takes_requests_starts_first(said: list[str], clock: ManualClock) -> None:
    life = Lifecycle(clock, Limits())
    life.add(Slow("lanes", said, clock), Phase.LANES)
    life.add(Slow("changes", said, clock), Phase.INTAKE)
    life.start(StopToken())
    assert said == ["changes starts", "lanes starts"]


def test_a_phase_has_what_is_left_of_its_share(said: list[str], clock: ManualClock) -> None:
    """The parts of a phase are asked together, so that they end beside each other; the next have some time still."""
    life = Lifecycle(clock, Limits(stop=10.0))
    for name, phase, seconds in (("a", Phase.SOURCES, 4.0), ("b", Phase.SOURCES, 99.0), ("lanes", Phase.LANES, 99.0)):
        life.add(Slow(name, said, clock, seconds), phase)
    life.add(Slow("rules", said, clock), Phase.RULES)
    assert life.stop() == ["b", "lanes"]
    assert said[:4] == ["a is asked", "b is asked", "a had 5.00 s", "b had 1.00 s"]
    assert "lanes had 1.50 s" in said
    assert "rules had 0.70 s" in said


def test_the_intake_is_asked_first_and_waited_for_last(said: list[str], clock: ManualClock) -> None:
    life = Lifecycle(clock, Limits())
    life.add(Slow("stores", said, clock), Phase.STORES)
    life.add(Slow("changes", said, clock), Phase.INTAKE)
    life.stop()
    assert (said[0], said[-1]) == ("changes is asked", "changes had 0.05 s")


def test_nothing_more_starts_after_a_stop(said: list[str], clock: ManualClock) -> None:
    life, stop = Lifecycle(clock, Limits()), StopToken()
    life.add(Steps("model", start=stop.set), Phase.LANES)
    life.add(Slow("sources", said, clock), Phase.SOURCES)
    life.start(stop)
    assert said == []


def test_what_is_half_built_is_undone_from_its_end(said: list[str], clock: ManualClock) -> None:
    life = Lifecycle(clock, Limits())
    life.add(Slow("publisher", said, clock), Phase.PUBLISHER)
    life.add(Slow("sources", said, clock), Phase.SOURCES)
    life.undo()
    assert said == ["sources is asked", "sources had 0.00 s", "publisher is asked", "publisher had 0.00 s"]


def test_who_has_ended_is_not_asked_again(said: list[str], clock: ManualClock) -> None:
    """Only those that still worked are, for their names."""
    life = Lifecycle(clock, Limits(stop=10.0))
    life.add(Slow("sources", said, clock), Phase.SOURCES)
    life.add(Slow("lanes", said, clock, 99.0), Phase.LANES)
    assert life.stop() == ["lanes"]
    assert [row for row in said if " had " in row] == ["sources had 5.00 s", "lanes had 6.50 s", "lanes had 0.00 s"]


def test_what_cannot_be_undone_keeps_nothing_else_open(said: list[str], clock: ManualClock) -> None:
    def fail(_: float) -> None:
        raise OSError("a socket")

    life = Lifecycle(clock, Limits())
    life.add(Slow("publisher", said, clock), Phase.PUBLISHER)
    life.add(Steps("packets", join=fail), Phase.REPORTS)
    with pytest.raises(OSError, match="a socket"):
        life.undo()
    assert said == ["publisher is asked", "publisher had 0.00 s"]


def test_a_library_that_hangs_is_left_behind(clock: ManualClock) -> None:
    hangs, closed = threading.Event(), list[str]()
    life = Lifecycle(clock, Limits(close=0.01))
    life.add(Closing("the model", hangs.wait, clock), Phase.MODELS)
    life.add(Closing("decoders", lambda: closed.append("decoders"), clock), Phase.DECODERS)
    try:
        assert life.stop() == []
        wait_until(lambda: closed, "the next one is closed")
    finally:
        hangs.set()


class Working(ThreadPart):
    """Fails at once, or works until it is asked to end."""

    def __init__(self, clock: ManualClock, failures: list[str], *, fails: bool = False) -> None:
        super().__init__("worker", runtime_of(clock, failures.append))
        self._fails, self.closed = fails, 0

    def work(self, pulse: Pulse) -> None:
        if self._fails:
            raise ValueError("no room")
        pulse.rest()
        self.ending.wait()

    def close(self) -> None:
        self.closed += 1


def test_a_part_that_never_started_is_closed_once(clock: ManualClock) -> None:
    part = Working(clock, [])
    assert [part.stop(0.0), part.stop(0.0)] == [ALL_ENDED, ALL_ENDED]
    assert part.closed == 1


def test_the_thread_closes_its_part(clock: ManualClock) -> None:
    part = Working(clock, [])
    part.start()
    assert part.join(0.0) == ["worker"]
    assert part.closed == 0
    assert part.stop(30.0) == ALL_ENDED
    assert part.closed == 1


def test_a_part_that_fails_ends_the_daemon(clock: ManualClock) -> None:
    failures: list[str] = []
    part = Working(clock, failures, fails=True)
    part.start()
    assert part.join(30.0) == ALL_ENDED
    assert (failures, part.closed) == (["worker failed: no room"], 1)
