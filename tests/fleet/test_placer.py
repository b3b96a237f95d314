"""The elected loop: which member leads, when it places, and how it counts losses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from daemon.fleet.placer import Placer, PlacerThread, hold_down_s
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError, LeaseLostError, Renewal
from daemon.fleet.records import FleetView, HoldDown, MemberRecord, StreamFormat, Want
from tests.fleet.views import cameras, member, placed, view, without
from tests.support.clock import ManualClock
from tests.support.runtime import runtime_of

SETTLE_S = 5.0


class Records:
    """One coordinator's records, as its members read and write them.

    Attributes:
        away: the error of the next calls.
    """

    def __init__(self, *members: str, sources: int = 12) -> None:
        self.view = view({name: member(10) for name in members}, cameras(sources))
        self.away: CoordinatorError | None = None
        self.writes = 0

    def change(self, **given: object) -> None:
        self.view = replace(self.view, revision=self.view.revision + 1, **given)  # type: ignore[arg-type]

    def lose(self, name: str) -> None:
        self.view = without(self.view, name)
        if self.view.placer == name:
            self.change(placer=None)

    def join(self, name: str) -> None:
        joined = {**self.view.joined, name: self.view.revision + 1}
        self.change(members={**self.view.members, name: member(10)}, joined=joined)


class Lease:
    """A membership of one member."""

    def __init__(self, records: Records, member: str) -> None:
        self.records, self.member = records, member

    @property
    def renewal(self) -> Renewal:
        raise NotImplementedError

    def update(self, record: MemberRecord) -> None:
        self.records.change(members={**self.records.view.members, self.member: record})

    def claim(self, sources: Sequence[str]) -> dict[str, int]:
        raise NotImplementedError

    def release(self, sources: Sequence[str]) -> None:
        raise NotImplementedError

    def refuse(self, reasons: Mapping[str, str | None]) -> None:
        raise NotImplementedError

    def saw(self, pictures: Mapping[str, StreamFormat]) -> None:
        self.records.change(seen={**self.records.view.seen, **pictures})

    def lead(self) -> bool:
        self._check()
        if self.records.view.placer is None:
            self.records.change(placer=self.member)
        return self.records.view.placer == self.member

    def place(self, wants: Mapping[str, Want], basis: FleetView) -> int:
        self._check()
        now = self.records.view
        if now.placer != self.member:
            return 0
        same = {name: want for name, want in wants.items()
                if name in now.sources and now.sources[name] == basis.sources.get(name)
                and now.wants.get(name) == basis.wants.get(name)}  # fmt: skip
        self.records.change(wants={**now.wants, **same})
        self.records.writes += 1
        return len(same)

    def hold_down(self, member: str, seconds: float) -> None:
        self._check()
        now = self.records.view
        losses = now.losses.get(member, 0) + 1
        self.records.change(losses={**now.losses, member: losses})
        if seconds:
            self.records.change(held={**now.held, member: HoldDown(losses=losses)})

    def leave(self) -> None:
        left = {**self.records.view.left, self.member: self.records.view.joined[self.member]}
        self.records.lose(self.member)
        self.records.change(left=left)

    def _check(self) -> None:
        if self.records.away:
            raise self.records.away


class Loop:
    """One member's placer, and the records as it sees them."""

    def __init__(self, records: Records, name: str, clock: ManualClock) -> None:
        self.records, self.lease = records, Lease(records, name)
        self.placer = Placer(clock, SETTLE_S)

    def turn(self) -> float | None:
        return self.placer.run_once(self.records.view, self.lease)

    def until_quiet(self) -> None:
        for _ in range(10):
            before = self.records.view
            self.turn()
            if self.records.view is before:
                return
        pytest.fail("the placer does not come to rest")


def warm(records: Records, *names: str) -> tuple[ManualClock, list[Loop]]:
    """Placers that have followed the records long enough."""
    clock = ManualClock()
    loops = [Loop(records, name, clock) for name in names]
    for loop in loops:
        assert loop.turn() == SETTLE_S
    clock.advance(SETTLE_S)
    return clock, loops


def test_the_first_one_leads_and_places_once() -> None:
    records = Records("a", "b")
    _, (a, b) = warm(records, "a", "b")
    assert records.view.wants == {}
    a.until_quiet()
    assert (records.view.placer, records.writes) == ("a", 1)
    assert all(placed(records.view).values())
    assert b.turn() is None
    assert not b.placer.leads
    records.change(owned={})
    assert a.turn() is None
    assert records.writes == 1
    assert a.placer.counts.placements == 2


def test_a_placer_waits_until_other_members_had_time_to_join() -> None:
    """Else the first member of a whole fleet that starts would get all sources."""
    records, clock = Records("a"), ManualClock()
    a = Loop(records, "a", clock)
    assert a.turn() == SETTLE_S
    clock.advance(SETTLE_S - 1)
    records.join("b")
    assert a.turn() == pytest.approx(1.0)
    assert records.view.placer is None
    clock.advance(1)
    a.until_quiet()
    assert {"a", "b"} == set(placed(records.view).values())


def test_a_placer_without_its_own_record_waits() -> None:
    records = Records("a")
    assert Loop(records, "b", ManualClock()).turn() is not None
    assert records.view.placer is None


def test_the_next_placer_takes_over_at_once_and_counts_the_loss_of_the_first() -> None:
    records = Records("a", "b")
    _, (a, b) = warm(records, "a", "b")
    a.until_quiet()
    b.turn()
    records.lose("a")
    b.until_quiet()
    assert records.view.placer == "b"
    assert set(placed(records.view).values()) == {"b", None}
    assert (records.view.losses, records.view.held) == ({"a": 1}, {})


def test_losses_within_an_hour_hold_a_member_down() -> None:
    records = Records("a", "b", sources=3)
    _, (a,) = warm(records, "a")
    a.until_quiet()
    for count in (1, 2, 3):
        records.change(wants={name: Want(member="b") for name in records.view.sources})
        a.until_quiet()
        records.lose("b")
        a.until_quiet()
        assert records.view.losses == {"b": count}
        assert ("b" in records.view.held) == (count > 1)
        records.join("b")
        a.until_quiet()
        assert set(placed(records.view).values()) == {"a"}


def test_the_time_of_a_hold_down_doubles() -> None:
    assert [hold_down_s(losses) for losses in range(8)] == [0, 60, 120, 240, 480, 960, 960, 960]


def test_a_member_that_leaves_is_no_loss() -> None:
    records = Records("a", "b")
    _, (a,) = warm(records, "a")
    a.until_quiet()
    Lease(records, "b").update(member(10, state="leaving"))
    a.until_quiet()
    assert "b" not in placed(records.view).values()
    Lease(records, "b").leave()
    a.until_quiet()
    assert records.view.losses == {}


def test_a_member_that_leaves_between_two_views_is_no_loss() -> None:
    records = Records("a", "b")
    _, (a,) = warm(records, "a")
    a.until_quiet()
    Lease(records, "b").leave()
    a.until_quiet()
    assert "b" not in placed(records.view).values()
    assert records.view.losses == {}


def test_a_member_that_joins_again_between_two_views_was_lost() -> None:
    records = Records("a", "b")
    _, (a,) = warm(records, "a")
    a.until_quiet()
    before = placed(records.view)
    records.lose("b")
    records.join("b")
    a.until_quiet()
    assert records.view.losses == {"b": 1}
    assert placed(records.view) == before


def test_a_loss_is_counted_by_one_of_two_placers() -> None:
    records = Records("a", "b", "c")
    _, (a, b) = warm(records, "a", "b")
    a.until_quiet()
    b.turn()
    records.lose("c")
    b.turn()
    a.until_quiet()
    b.turn()
    records.lose("a")
    b.until_quiet()
    assert records.view.losses == {"c": 1, "a": 1}


def test_old_records_write_nothing_and_two_placers_agree() -> None:
    records = Records("a", "b")
    _, (a, b) = warm(records, "a", "b")
    old = records.view
    a.until_quiet()
    after = records.view
    records.change(placer=None)  # its lease has ended, and it does not know
    assert b.placer.run_once(old, b.lease) is not None
    assert records.view.placer == "b"
    b.until_quiet()
    a.turn()
    assert records.view.wants == after.wants
    assert (a.placer.leads, b.placer.leads) == (False, True)


@pytest.mark.parametrize("error", [CoordinatorAwayError("away"), LeaseLostError("lost"), CoordinatorError("full")])
def test_after_an_error_it_goes_on(error: CoordinatorError) -> None:
    records = Records("a", "b")
    _, (a,) = warm(records, "a")
    a.until_quiet()
    records.lose("b")
    records.away = error
    with pytest.raises(type(error)):
        a.turn()
    records.away = None
    a.until_quiet()
    assert records.view.losses == {"b": 1}
    assert "b" not in placed(records.view).values()


def test_a_new_membership_forgets_what_happened_before_it() -> None:
    """All members join anew after the coordinator was restored: that was no loss of theirs."""
    records = Records("a", "b")
    clock, (a,) = warm(records, "a")
    a.until_quiet()
    for name in ("a", "b"):
        records.lose(name)
    records.join("a")
    assert a.turn() == SETTLE_S
    records.join("b")
    clock.advance(SETTLE_S)
    a.until_quiet()
    assert records.view.losses == {}
    assert set(placed(records.view).values()) == {"a", "b"}


# --- the thread ----------------------------------------------------------------------------------------------------


class CountingLease(Lease):
    """Calls a function after each write, in the placer's thread."""

    on_write: Callable[[], None] = staticmethod(lambda: None)

    def place(self, wants: Mapping[str, Want], basis: FleetView) -> int:
        written = super().place(wants, basis)
        self.on_write()
        return written


def test_the_thread_places_what_it_is_given_and_survives_its_own_mistake() -> None:
    records, clock = Records("a"), ManualClock()
    mistakes = [ValueError("a mistake")]

    def place_or_fail(now: FleetView) -> dict[str, Want]:
        if mistakes:
            raise mistakes.pop()
        return {name: Want(member="a") for name in now.sources if name not in now.wants}

    thread = PlacerThread(Placer(clock, 0.0, place_or_fail), runtime_of(clock))
    lease, written = CountingLease(records, "a"), threading.Event()
    lease.on_write = written.set
    thread.start()
    try:
        thread.notify(records.view, lease)
        assert written.wait(60)
        assert not mistakes
    finally:
        thread.stop(60)
    assert not thread.is_alive()
    assert set(placed(records.view).values()) == {"a"}
