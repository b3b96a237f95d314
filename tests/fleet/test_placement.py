"""Placement: what an operator is promised, on drawn fleets and on random ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.fleet.arrangement import fits
from daemon.fleet.demand import FULL, USABLE
from daemon.fleet.placement import loads, place
from daemon.fleet.placer import first_wants
from daemon.fleet.rebalance import rebalance
from daemon.fleet.records import Capacity, FleetView, HoldDown, MemberRecord, Owned, SourceRecord, StreamFormat, Want
from tests.fleet.views import PIXELS_PER_S, camera, cameras, capacity_for, member, placed, view, without, written

Row = TypeVar("Row")
LABELS = [{}, {"site": "north"}, {"site": "south"}]


def after_placing(before: FleetView) -> FleetView:
    return written(before, place(before))


def owned_as_wanted(before: FleetView) -> FleetView:
    owned = {name: Owned(want.member, 1) for name, want in before.wants.items() if want.member is not None}
    return replace(before, owned=owned)


def moves(before: FleetView, after: FleetView) -> dict[str, tuple[str | None, str | None]]:
    old, new = placed(before), placed(after)
    return {name: (old[name], new[name]) for name in old if old[name] is not None and old[name] != new.get(name)}


# --- drawn fleets --------------------------------------------------------------------------------------------------


def test_loss_of_one_of_four_moves_its_sources_alone() -> None:
    fleet = view({f"host{n}/gpu0": member(room) for n, room in enumerate((150, 150, 150, 240))}, cameras(600))
    before = after_placing(fleet)
    assert all(placed(before).values())
    for lost in fleet.members:
        its_sources = {name for name, where in placed(before).items() if where == lost}
        after = after_placing(without(before, lost))
        assert moves(before, after).keys() == its_sources
        room = sum(room for name, room in zip(fleet.members, (150, 150, 150, 240)) if name != lost)
        waiting = [want for want in after.wants.values() if want.member is None]
        assert len(waiting) == max(0, 600 - room)
        assert all(want.reason.startswith("no room: ") and "3 members" in want.reason for want in waiting)


def test_sources_go_to_members_in_proportion_to_capacity() -> None:
    fleet = after_placing(view({"a": member(200), "b": member(200), "c": member(400)}, cameras(400)))
    counts = Counter(placed(fleet).values())
    assert counts["c"] == pytest.approx(200, abs=40)
    assert counts["a"] == pytest.approx(100, abs=40)


def test_a_new_member_moves_nothing_until_an_operator_says_so() -> None:
    before = after_placing(view({"a": member(300), "b": member(300)}, cameras(400)))
    grown = replace(before, members={**before.members, "c": member(300)})
    assert place(grown) == {}
    found = rebalance(grown)
    assert max(found.after.values()) < max(found.before.values())
    assert max(found.after.values()) - min(found.after.values()) < 0.1
    assert all(move.after == "c" or found.before[move.before] > found.before[move.after] for move in found.moves)
    after = written(grown, found.wants)
    assert place(after) == {}
    assert len(moves(before, after)) == len(found.moves) > 100


def test_rebalance_leaves_pinned_sources() -> None:
    before = after_placing(view({"a": member(300)}, cameras(100)))
    pinned = {name: msgspec.structs.replace(want, pinned=True) for name, want in before.wants.items()}
    assert rebalance(replace(before, members={**before.members, "b": member(300)}, wants=pinned)).moves == ()


def test_a_drained_member_and_one_that_leaves_lose_their_sources() -> None:
    before = after_placing(view({"a": member(100), "b": member(100), "c": member(100)}, cameras(90)))
    drained = after_placing(replace(before, drained={"a": "maintenance"}))
    assert "a" not in placed(drained).values()
    assert {want.reason for want in place(replace(before, drained={"a": ""})).values()} == {"a is drained"}
    leaving = after_placing(replace(before, members={**before.members, "b": member(100, state="leaving")}))
    assert "b" not in placed(leaving).values()


def test_a_member_that_starts_gets_nothing_and_keeps_what_it_has() -> None:
    starting = member(100, state="starting")
    fleet = view({"a": starting}, cameras(3), wants={"camera-0": Want(member="a")})
    assert {name: want.member for name, want in place(fleet).items()} == {"camera-1": None, "camera-2": None}
    assert place(fleet)["camera-1"].reason == "a is drained, or not ready"
    pair = view({"a": starting, "b": member(100)}, cameras(1), drained={"b": ""})
    assert place(pair)["camera-0"].reason == "a, b are drained, or not ready"


def test_labels_and_refusals_are_kept() -> None:
    members = {"n": member(9, labels={"site": "north"}), "s": member(9, labels={"site": "south", "floor": "2"})}
    sources = {
        "1": camera("1", affinity={"site": "north"}),
        "2": camera("2", affinity={"site": "south", "floor": "2"}),
        "3": camera("3", affinity={"site": "east"}),
    }
    fleet = after_placing(view(members, sources))
    assert placed(fleet) == {"1": "n", "2": "s", "3": None}
    assert fleet.wants["3"].reason == "no member has the label site=east"
    both = camera("1", affinity={"site": "north", "floor": "2"})
    assert place(view(members, {"1": both}))["1"].reason == "no member has the labels floor=2, site=north"
    refused = place(replace(fleet, refused={"1": {"n": "sources: unknown key `fps`"}}))
    assert refused["1"] == Want(member=None, reason="refused by n: sources: unknown key `fps`")


def _with_models(room: float, **models: float) -> MemberRecord:
    return member(msgspec.structs.replace(capacity_for(room), models=models))


def test_sources_go_to_members_that_have_their_models() -> None:
    """A picture costs what it costs all models that look at it."""
    both, one, plain = _with_models(9, people=1.0, plates=3.0), _with_models(2, people=1.0), member(9)
    sources = {
        "1": camera("1", model="plates"),
        "2": camera("2", model=["people", "plates"]),
        "3": camera("3"),
        "4": camera("4", model="dogs"),
        "5": camera("5", model=["dogs", "people"]),
    }
    fleet = after_placing(view({"both": both, "one": one}, sources))
    assert placed(fleet) == {"1": "both", "2": "both", "3": "one", "4": None, "5": None}
    assert loads(fleet)["both"][0] == pytest.approx(7 / 9.5 * USABLE[0])
    reasons = {name: want.reason for name, want in fleet.wants.items()}
    assert reasons["4"] == "no member that may have it has the model dogs"
    assert reasons["5"] == "no member that may have it has the models dogs, people"
    assert place(fleet) == {}
    # A member that comes back with other models keeps what it can have.
    changed = place(replace(fleet, members={"both": plain, "one": one}))
    assert {name: want.member for name, want in changed.items()} == {"1": None, "2": None}
    alone = place(view({"both": both}, {"3": camera("3")}))
    assert alone["3"].reason == "no member that may have it has a single model, and it names none"
    moved = place(written(fleet, {"1": Want(member="one", pinned=True)}))
    assert moved["1"] == Want(member="both", reason="one does not have the model plates")


def test_a_refused_source_goes_elsewhere() -> None:
    before = after_placing(view({"a": member(9), "b": member(9)}, cameras(1)))
    first = str(placed(before)["camera-0"])
    after = after_placing(replace(before, refused={"camera-0": {first: "no such file"}}))
    assert {first, str(placed(after)["camera-0"])} == {"a", "b"}
    assert after.wants["camera-0"].reason == f"{first} refused it"


def test_a_pin_is_kept_while_it_can_be() -> None:
    before = owned_as_wanted(after_placing(view({"a": member(20), "b": member(20)}, cameras(10))))
    pins = {name: Want(member="b", pinned=True) for name in before.wants}
    pinned = written(before, pins)
    assert place(pinned) == {}
    lost = place(without(pinned, "b"))
    assert all(want.member == "a" and not want.pinned for want in lost.values())


def test_a_pin_without_room_goes_back_to_the_owner() -> None:
    """Residents of the same priority are not driven out by an operator's move."""
    before = owned_as_wanted(after_placing(view({"a": member(5), "b": member(5)}, cameras(10))))
    name = next(name for name, where in placed(before).items() if where == "a")
    asked = written(before, {name: Want(member="b", pinned=True)})
    found = place(asked)
    assert found == {name: Want(member="a", reason="b has no room for it")}
    assert place(written(asked, found)) == {}


def test_a_higher_priority_takes_the_place_of_the_lowest() -> None:
    sources = {f"{n}": camera(f"{n}", priority=n % 3) for n in range(9)}
    before = after_placing(view({"a": member(9)}, sources))
    smaller = after_placing(replace(before, members={"a": member(5)}))
    waiting = {name for name, where in placed(smaller).items() if where is None}
    assert {sources[name].priority for name in waiting} == {0, 1}
    assert sum(sources[name].priority == 0 for name in waiting) == 3
    urgent = replace(smaller, sources={**sources, "new": camera("new", priority=7)})
    found = place(urgent)
    assert found["new"].member == "a"
    assert [sources[name].priority for name in found if name != "new"] == [1]


def test_one_large_source_displaces_as_few_as_possible() -> None:
    sources = {**cameras(8), "large": camera("large", priority=1)}
    seen = {
        "large": StreamFormat(width=3840, height=2160, fps=30),
        "camera-0": StreamFormat(width=3840, height=2160, fps=30),
    }
    before = after_placing(view({"a": member(11)}, cameras(8), seen=seen))
    assert all(placed(before).values())
    found = place(replace(before, sources=sources))
    assert {name for name, want in found.items() if want.member is None} == {"camera-0"}


def test_a_member_that_is_held_down_comes_last() -> None:
    fleet = view({"a": member(5), "b": member(5)}, cameras(5), held={"a": HoldDown(losses=2)})
    assert set(placed(after_placing(fleet)).values()) == {"b"}
    more = after_placing(replace(fleet, sources=cameras(7)))
    assert Counter(placed(more).values()) == {"b": 5, "a": 2}
    assert place(replace(more, held={})) == {}


def test_a_disabled_source_has_no_owner() -> None:
    fleet = view({"a": member(5)}, {"1": camera("1", enabled=False), "2": camera("2")})
    assert place(fleet)["1"] == Want(member=None, reason="enabled: false")
    assert place(after_placing(fleet)) == {}


def test_demand_follows_the_configuration_and_the_video() -> None:
    small = Capacity(detector=100 / USABLE[0], decoders={"hevc": 1e12}, cores=4, cpu_decoding=PIXELS_PER_S)
    cases: list[tuple[SourceRecord, StreamFormat | None, bool]] = [
        (camera("1", max_fps=20), StreamFormat(codec="hevc", fps=120), True),
        (camera("1"), StreamFormat(codec="hevc", fps=120), False),
        (camera("1", max_fps=25, tiles="2x2"), StreamFormat(codec="hevc"), False),
        (camera("1", max_fps=20, tiles={"columns": 2, "rows": 2}), StreamFormat(codec="hevc"), True),
        (camera("1", decode="nvdec"), StreamFormat(codec="h264"), False),
        (camera("1", decode="nvdec"), StreamFormat(codec="hevc"), True),
        (camera("1", decode="cpu"), StreamFormat(codec="hevc", width=3840, height=2160), False),
        (camera("1"), StreamFormat(codec="h264", width=2560, height=1440), True),
        (SourceRecord(config={"id": "1", "type": "synthetic", "fps": 90}), None, True),
        (SourceRecord(config={"id": "1", "max_fps": "many", "tiles": [1], "type": 5}), None, True),
    ]
    for source, picture, has_room in cases:
        fleet = view({"a": member(small)}, {"1": source}, seen={"1": picture} if picture else {})
        assert (place(fleet)["1"].member == "a") is has_room, (source.config, picture, place(fleet)["1"].reason)


def test_memory_and_sessions_of_the_gpu_count() -> None:
    sessions = member(msgspec.structs.replace(capacity_for(100), sessions=3))
    assert (
        _waiting(view({"a": sessions}, cameras(5)))
        == ["no room: the GPU's decoder sessions are used up on 1 member"] * 2
    )
    memory = member(msgspec.structs.replace(capacity_for(100), memory=1000, source_memory={"h264": 250}))
    assert _waiting(view({"a": memory}, cameras(5))) == ["no room: the GPU's memory is full on 1 member"]


def test_the_reason_names_what_is_short_on_each_member() -> None:
    one = msgspec.structs.replace(capacity_for(9), sessions=1)
    on_cpu = Capacity(detector=900, cores=1, cpu_decoding=2 * PIXELS_PER_S)
    members = {"a": member(one), "b": member(one), "c": member(on_cpu)}
    assert _waiting(view(members, cameras(4))) == [
        "no room: the GPU's decoder sessions are used up on 2 members, the CPU can decode no more on 1 member"
    ]
    only_gpu = {name: camera(name, decode="nvdec") for name in ("1", "2", "3")}
    assert _waiting(view(members, only_gpu)) == [
        "no room: the GPU's decoder sessions are used up on 2 members, "
        "1 member cannot decode h264 as its configuration asks"
    ]


def _waiting(fleet: FleetView) -> list[str]:
    """Reasons of the sources that wait."""
    return [want.reason for want in after_placing(fleet).wants.values() if want.member is None]


def test_videos_that_differ_a_little_move_nothing() -> None:
    """A member is filled up to a share of what it can do, and keeps its sources up to all of it."""
    before = after_placing(view({"a": member(50), "b": member(50)}, cameras(100)))
    assert all(placed(before).values())
    assert place(replace(before, seen={name: StreamFormat(fps=31) for name in before.sources})) == {}
    found = place(replace(before, seen={name: StreamFormat(fps=36) for name in before.sources}))
    assert 0 < len(found) < 40


def test_a_fleet_without_members_or_without_sources() -> None:
    assert place(view({}, {})) == {}
    assert place(view({"a": member(5)}, {})) == {}
    assert {want.reason for want in place(view({}, cameras(2))).values()} == {"the fleet has no member"}


# --- random fleets -------------------------------------------------------------------------------------------------


@st.composite
def fleets(draw: st.DrawFn) -> FleetView:
    names = [f"host{n}/gpu0" for n in range(draw(st.integers(1, 5)))]
    members = {
        name: member(
            draw(st.sampled_from([0, 1, 3, 8])),
            state=draw(st.sampled_from(["ready", "ready", "ready", "starting", "leaving"])),
            labels=draw(st.sampled_from(LABELS)),
        )
        for name in names
    }
    everyone = st.sampled_from([*names, "gone/gpu0"])
    ids = [f"camera-{n}" for n in range(draw(st.integers(0, 16)))]
    sources = {
        name: camera(
            name,
            priority=draw(st.sampled_from([0, 0, 0, 1, 2, 5])),
            affinity=draw(st.sampled_from([*LABELS, {}, {}])),
            enabled=draw(st.sampled_from([True, True, True, False])),
            decode=draw(st.sampled_from(["auto", "auto", "nvdec", "cpu"])),
        )
        for name in ids
    }
    pictures = st.builds(
        StreamFormat, codec=st.sampled_from(["h264", "hevc", "av1"]), width=st.sampled_from([640, 1920, 3840]),
        fps=st.sampled_from([5.0, 30.0, 60.0]),
    )  # fmt: skip
    some = st.sampled_from([*ids, "removed"])
    wants = st.builds(Want, member=st.one_of(st.none(), everyone), pinned=st.booleans())
    return view(
        members,
        sources,
        drained=draw(st.dictionaries(st.sampled_from(names), st.just("reason"), max_size=1)),
        held=draw(st.dictionaries(st.sampled_from(names), st.just(HoldDown(losses=2)), max_size=2)),
        refused=draw(st.dictionaries(some, st.dictionaries(everyone, st.just("reason"), max_size=2), max_size=4)),
        seen=draw(st.dictionaries(some, pictures)),
        wants=draw(st.dictionaries(some, wants)),
        owned=draw(st.dictionaries(some, st.builds(Owned, everyone, st.just(1)))),
    )


RANDOM = settings(max_examples=25, deadline=None)


@RANDOM
@given(fleets())
def test_every_enabled_source_has_a_member_that_may_have_it_or_a_reason(fleet: FleetView) -> None:
    after = after_placing(fleet)
    assert after.wants.keys() >= fleet.sources.keys()
    for name, source in fleet.sources.items():
        want = after.wants[name]
        if want.member is None:
            assert want.reason
            continue
        chosen = fleet.members[want.member]
        assert source.config["enabled"]
        assert chosen.labels.items() >= source.affinity.items()
        assert want.member not in fleet.refused.get(name, {})
        assert want.member not in fleet.drained
        assert chosen.state != "leaving"
        assert chosen.state == "ready" or fleet.wants[name].member == want.member


@RANDOM
@given(fleets())
def test_no_member_has_more_than_it_can_carry(fleet: FleetView) -> None:
    after = after_placing(fleet)
    got = {want.member for name, want in place(fleet).items()}
    for name, load in loads(after).items():
        assert fits(load, USABLE if name in got and name not in placed(fleet).values() else FULL), (name, load)


@RANDOM
@given(fleets())
def test_placing_again_changes_nothing(fleet: FleetView) -> None:
    after = after_placing(fleet)
    assert place(after) == {}
    assert place(owned_as_wanted(after)) == {}


@RANDOM
@given(fleets(), st.randoms())
def test_the_order_of_records_does_not_matter(fleet: FleetView, random: Random) -> None:
    def shuffled(rows: Mapping[str, Row]) -> dict[str, Row]:
        return {key: rows[key] for key in random.sample(sorted(rows), len(rows))}

    other = replace(
        fleet,
        members=shuffled(fleet.members),
        sources=shuffled(fleet.sources),
        wants=shuffled(fleet.wants),
        owned=shuffled(fleet.owned),
        refused=shuffled(fleet.refused),
    )
    assert place(other) == place(fleet)


@RANDOM
@given(fleets(), st.integers(0, 4))
def test_a_loss_moves_only_what_the_member_had_and_lower_priorities(fleet: FleetView, number: int) -> None:
    before = owned_as_wanted(after_placing(fleet))
    lost = sorted(before.members)[number % len(before.members)]
    after = after_placing(without(before, lost))
    its_own = {name for name, where in placed(before).items() if where == lost}
    highest = max((before.sources[name].priority for name in its_own), default=0)
    for name in moves(before, after):
        assert name in its_own or before.sources[name].priority < highest


@RANDOM
@given(fleets())
def test_a_source_waits_only_where_no_lower_priority_has_the_place(fleet: FleetView) -> None:
    """Each one that waits would find no member with room, even if all lower priorities were gone."""
    after = after_placing(fleet)
    for name, source in after.sources.items():
        if after.wants[name].member is not None or not source.config["enabled"]:
            continue
        firm = {other: row for other, row in after.sources.items() if row.priority >= source.priority}
        alone = replace(after, sources=firm, wants={other: after.wants[other] for other in firm})
        assert place(alone).get(name, after.wants[name]).member is None


@RANDOM
@given(fleets())
def test_a_pin_stays_where_it_fits(fleet: FleetView) -> None:
    after = after_placing(fleet)
    for name, want in fleet.wants.items():
        if name not in fleet.sources or want.member is None or not want.pinned:
            continue
        if after.wants[name].member == want.member:
            assert after.wants[name].pinned
        else:
            assert not after.wants[name].pinned


@RANDOM
@given(fleets())
def test_a_rebalance_overloads_no_member_and_stays(fleet: FleetView) -> None:
    found = rebalance(fleet)
    assert max(found.after.values()) <= max(1.0, *found.before.values()) + 1e-9
    assert place(written(fleet, found.wants)) == {}


@RANDOM
@given(fleets(), st.integers(1, 3))
def test_wants_that_are_written_a_few_at_a_time_come_to_rest(fleet: FleetView, limit: int) -> None:
    after, rounds = fleet, 0
    while wants := place(after):
        after = written(after, first_wants(wants, after, limit))
        rounds += 1
        assert rounds <= 4 * (len(fleet.sources) + 1)
    assert after.wants.keys() >= fleet.sources.keys()


def test_the_most_urgent_wants_come_first() -> None:
    sources = {**cameras(4), "high": camera("high", priority=3)}
    fleet = view({"a": member(9)}, sources, wants={"camera-3": Want(member="gone")})
    assert [*first_wants(place(fleet), fleet, 3)] == ["camera-3", "high", "camera-0"]
