"""Promises of every coordinator: `harness` is each kind of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from daemon.fleet.port import Coordinator, CoordinatorError, LeaseLostError, Membership
from daemon.fleet.records import Capacity, Endpoints, FleetView, MemberRecord, Owned, SourceRecord, StreamFormat, Want
from daemon.system.stop_token import StopToken
from tests.fleet.conftest import Harness

RECORD = MemberRecord(
    release="1.0",
    state="ready",
    capacity=Capacity(detector=900.0, decoders={"h264": 1e9}),
    endpoints=Endpoints(messages="tcp://hall:5556"),
    labels={"site": "north"},
)
SOURCE = SourceRecord(config={"url": "rtsp://${USER}@10.0.0.1/1"}, priority=2, affinity={"site": "north"})
A, B = "hall/gpu0", "hall/gpu1"
TTL_S = 30.0


def join(coordinator: Coordinator, member: str = A) -> Membership:
    return coordinator.join(member, RECORD, TTL_S)


def place(coordinator: Coordinator, placer: Membership, wants: dict[str, str | None]) -> int:
    assert placer.lead()
    basis = coordinator.view()
    return placer.place({source: Want(member=member) for source, member in wants.items()}, basis)


def add(coordinator: Coordinator, *sources: str) -> None:
    coordinator.put_sources(dict.fromkeys(sources, SOURCE), replace=False)


def test_a_new_fleet_is_empty(coordinator: Coordinator) -> None:
    view = coordinator.view()
    assert not any((view.members, view.sources, view.wants, view.owned, view.drained, view.problems, view.placer))


def test_a_member_is_seen_by_all(harness: Harness) -> None:
    member = join(harness.connect())
    view = harness.connect().view()
    assert member.member == A
    assert view.members == {A: RECORD}
    assert view.joined[A] > 0
    assert not harness.connect("another").view().members


def test_a_member_updates_its_record(coordinator: Coordinator) -> None:
    full = MemberRecord(release="1.1", state="starting", capacity=RECORD.capacity, endpoints=RECORD.endpoints)
    member = join(coordinator)
    before = coordinator.view()
    member.update(full)
    assert coordinator.view().members == {A: full}
    assert coordinator.view().joined == before.joined
    assert before.members == {A: RECORD}, "a view does not change"


def test_a_name_is_given_once(coordinator: Coordinator) -> None:
    first = join(coordinator)
    with pytest.raises(CoordinatorError, match=f"a member {A} is in the fleet already"):
        join(coordinator)
    before = coordinator.view().joined[A]
    first.leave()
    join(coordinator)
    assert coordinator.view().joined[A] > before


def test_a_member_that_leaves_was_not_lost(harness: Harness, coordinator: Coordinator) -> None:
    left, lost = join(coordinator, A), join(coordinator, B)
    joined = coordinator.view().joined
    left.leave()
    harness.expire(lost)
    view = coordinator.view()
    assert not view.members
    assert view.left == {A: joined[A]}


def test_sources_are_kept_as_they_were_written(coordinator: Coordinator) -> None:
    other = SourceRecord(config={"url": "rtsp://10.0.0.2/1"})
    assert coordinator.put_sources({"a": SOURCE, "b/c d": SOURCE}, replace=False) == []
    assert coordinator.put_sources({"a": other, "e": other}, replace=False) == ["a"]
    assert coordinator.view().sources == {"a": SOURCE, "b/c d": SOURCE, "e": other}
    assert coordinator.put_sources({"a": other}, replace=True) == ["a"]
    assert coordinator.view().sources["a"] == other


def test_a_removed_source_leaves_nothing_but_its_owner(coordinator: Coordinator) -> None:
    add(coordinator, "a", "b")
    member = join(coordinator)
    place(coordinator, member, {"a": A, "b": A})
    member.claim(["a", "b"])
    member.saw({"a": StreamFormat(codec="hevc")})
    member.refuse({"a": "too large"})
    assert coordinator.remove_sources(["a", "x"]) == ["a"]
    assert coordinator.remove_sources(["a", "x"]) == []
    view = coordinator.view()
    assert view.sources.keys() == view.wants.keys() == {"b"}
    assert not view.refused
    assert not view.seen
    assert view.owned.keys() == {"a", "b"}
    member.saw({"a": StreamFormat()})
    member.refuse({"a": "late"})
    assert not coordinator.view().seen
    assert not coordinator.view().refused


def test_there_is_one_placer(harness: Harness, coordinator: Coordinator) -> None:
    first, second = join(coordinator, A), join(harness.connect(), B)
    assert first.lead()
    assert first.lead()
    assert not second.lead()
    assert coordinator.view().placer == A
    harness.expire(first)
    assert coordinator.view().placer is None
    assert second.lead()
    assert coordinator.view().placer == B


def test_only_the_placer_places(coordinator: Coordinator) -> None:
    add(coordinator, "a")
    first, second = join(coordinator, A), join(coordinator, B)
    first.lead()
    second.lead()
    assert second.place({"a": Want(member=B)}, coordinator.view()) == 0
    want = Want(member=A, reason="fits")
    assert first.place({"a": want}, coordinator.view()) == 1
    assert coordinator.view().wants == {"a": want}


def test_what_has_changed_meanwhile_is_not_placed(coordinator: Coordinator) -> None:
    add(coordinator, "moved", "replaced", "removed", "same")
    member = join(coordinator)
    member.lead()
    basis = coordinator.view()
    coordinator.move(["moved"], A)
    coordinator.put_sources({"replaced": SOURCE}, replace=True)
    coordinator.remove_sources(["removed"])
    wants = dict.fromkeys(["moved", "replaced", "removed", "same", "unknown"], Want(member=None, reason="full"))
    assert member.place(wants, basis) == 1
    view = coordinator.view()
    assert view.wants.keys() == {"moved", "same"}
    assert view.wants["moved"].pinned
    assert member.place(wants, view) == 3
    assert member.place(wants, view) == 0


def test_a_wanted_source_is_claimed(coordinator: Coordinator) -> None:
    add(coordinator, "a", "b", "c", "d")
    member = join(coordinator)
    place(coordinator, member, {"a": A, "b": B, "c": None})
    claimed = member.claim(["a", "b", "c", "d", "unknown"])
    assert claimed.keys() == {"a"}
    assert coordinator.view().owned == {"a": Owned(A, claimed["a"])}
    assert member.claim(["a"]) == claimed, "again, as after an answer that was lost"


def test_many_sources_are_claimed_and_released_at_once(coordinator: Coordinator) -> None:
    sources = [f"camera-{number}" for number in range(300)]
    add(coordinator, *sources)
    member = join(coordinator)
    assert place(coordinator, member, dict.fromkeys(sources, A)) == 300
    assert member.claim(sources).keys() == set(sources)
    assert coordinator.view().owned.keys() == set(sources)
    member.release(sources[:-1])
    assert coordinator.view().owned.keys() == {sources[-1]}
    assert set(coordinator.remove_sources(sources)) == set(sources)


def test_a_source_has_one_owner_and_epochs_rise(harness: Harness, coordinator: Coordinator) -> None:
    add(coordinator, "a")
    first, second = join(coordinator, A), join(harness.connect(), B)
    place(coordinator, first, {"a": A})
    epochs = [first.claim(["a"])["a"]]
    place(coordinator, first, {"a": B})
    assert second.claim(["a"]) == {}, "it is not free yet"
    second.release(["a"])
    assert coordinator.view().owned["a"].member == A
    first.release(["a"])
    first.release(["a"])
    assert first.claim(["a"]) == {}, "it is not wanted here any more"
    epochs.append(second.claim(["a"])["a"])
    harness.expire(second)
    assert not coordinator.view().owned
    place(coordinator, first, {"a": A})
    epochs.append(first.claim(["a"])["a"])
    assert epochs == sorted(set(epochs))


def test_two_that_claim_at_once_are_not_both_owners(harness: Harness, coordinator: Coordinator) -> None:
    sources = [f"camera-{number}" for number in range(40)]
    add(coordinator, *sources)
    members = [join(harness.connect(), name) for name in (A, B)]
    place(coordinator, members[0], dict.fromkeys(sources, A))
    claims: list[dict[str, int]] = []
    threads = [threading.Thread(target=lambda: claims.append(members[0].claim(sources))) for _ in range(2)]
    threads.append(threading.Thread(target=lambda: claims.append(members[1].claim(sources))))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    owned = {source: owner.epoch for source, owner in coordinator.view().owned.items()}
    assert sorted(map(len, claims)) == [0, 40, 40]
    assert all(claimed in ({}, owned) for claimed in claims)


CALLS: dict[str, Callable[[Membership, FleetView], object]] = {
    "update": lambda member, _: member.update(RECORD),
    "claim": lambda member, _: member.claim(["a"]),
    "release": lambda member, _: member.release(["a"]),
    "refuse": lambda member, _: member.refuse({"a": "no"}),
    "saw": lambda member, _: member.saw({"a": StreamFormat()}),
    "lead": lambda member, _: member.lead(),
    "place": lambda member, view: member.place({"a": Want(member=A)}, view),
    "hold_down": lambda member, _: member.hold_down(B, 60),
    "renew": lambda member, _: member.renewal.renew(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_lease_that_has_ended_is_known_at_once(harness: Harness, coordinator: Coordinator, call: str) -> None:
    add(coordinator, "a")
    member = join(coordinator)
    place(coordinator, member, {"a": A})
    view = coordinator.view()
    harness.expire(member)
    with pytest.raises(LeaseLostError):
        CALLS[call](member, view)
    member.leave()
    member.renewal.revoke()
    member.renewal.close()
    assert not coordinator.view().left


def test_a_new_membership_has_nothing_of_the_last_one(harness: Harness, coordinator: Coordinator) -> None:
    add(coordinator, "a")
    old = join(coordinator)
    place(coordinator, old, {"a": A})
    epoch = old.claim(["a"])["a"]
    harness.expire(old)
    new = join(coordinator)
    assert not coordinator.view().owned
    with pytest.raises(LeaseLostError):
        old.claim(["a"])
    assert new.claim(["a"])["a"] > epoch
    with pytest.raises(LeaseLostError):
        old.release(["a"])
    assert coordinator.view().owned["a"].epoch > epoch


def test_a_lease_is_renewed(coordinator: Coordinator) -> None:
    renewal = join(coordinator).renewal
    assert renewal.renew() >= TTL_S
    renewal.revoke()
    with pytest.raises(LeaseLostError):
        renewal.renew()
    renewal.close()


def test_refusals_end_with_the_member(harness: Harness, coordinator: Coordinator) -> None:
    add(coordinator, "a", "b")
    first, second = join(coordinator, A), join(coordinator, B)
    first.refuse({"a": "unknown key", "b": "no variable"})
    second.refuse({"a": "too large"})
    assert coordinator.view().refused == {"a": {A: "unknown key", B: "too large"}, "b": {A: "no variable"}}
    first.refuse({"b": None, "a": "still unknown"})
    assert coordinator.view().refused == {"a": {A: "still unknown", B: "too large"}}
    harness.expire(first)
    assert coordinator.view().refused == {"a": {B: "too large"}}


def test_pictures_stay_for_the_next_owner(harness: Harness, coordinator: Coordinator) -> None:
    add(coordinator, "a")
    member = join(coordinator)
    seen = StreamFormat(codec="hevc", width=3840, height=2160, fps=25.0)
    member.saw({"a": seen})
    harness.expire(member)
    assert coordinator.view().seen == {"a": seen}


def test_members_are_drained(coordinator: Coordinator) -> None:
    coordinator.drain(A, "a new card")
    coordinator.drain(A, "a new fan")
    assert coordinator.view().drained == {A: "a new fan"}
    coordinator.undrain(A)
    coordinator.undrain(A)
    assert not coordinator.view().drained


def test_an_operator_moves_sources(coordinator: Coordinator) -> None:
    add(coordinator, "a", "b")
    join(coordinator)
    coordinator.move(["a"], A)
    coordinator.move(["a"], A)
    want = coordinator.view().wants["a"]
    assert (want.member, want.pinned) == (A, True)
    with pytest.raises(CoordinatorError, match="no member hall/gpu7 is in the fleet"):
        coordinator.move(["a"], "hall/gpu7")
    with pytest.raises(CoordinatorError, match="not in the fleet, and not moved: x, y"):
        coordinator.move(["x", "b", "y"], A)
    assert coordinator.view().wants.keys() == {"a", "b"}


def test_losses_are_counted(coordinator: Coordinator) -> None:
    placer, other = join(coordinator, A), join(coordinator, "hall/gpu2")
    placer.lead()
    placer.hold_down(B, 0)
    view = coordinator.view()
    assert (view.losses, view.held) == ({B: 1}, {})
    placer.hold_down(B, 60)
    other.hold_down(B, 60)
    view = coordinator.view()
    assert view.losses == {B: 2}
    assert view.held[B].losses == 2


def test_changes_are_followed(harness: Harness, coordinator: Coordinator) -> None:
    stop = StopToken()
    views = harness.connect().follow(stop)
    first = next(views)
    assert not first.sources
    add(coordinator, "a")
    member = join(coordinator)
    view = _after(views, lambda view: A in view.members)
    assert view.sources == {"a": SOURCE}
    assert view.revision > first.revision
    place(coordinator, member, {"a": A})
    epoch = member.claim(["a"])["a"]
    owned = _after(views, lambda view: "a" in view.owned)
    assert owned.owned == {"a": Owned(A, epoch)}
    assert owned.joined == view.joined
    harness.expire(member)
    gone = _after(views, lambda view: not view.members)
    assert not gone.owned
    assert gone.placer is None
    assert owned.owned, "a view does not change"
    stop.set()
    assert list(views) == []


def _after(views: Iterator[FleetView], is_there: Callable[[FleetView], bool]) -> FleetView:
    return next(view for view in views if is_there(view))
