"""A daemon as a member: it joins, runs what is wanted, gives it up in time, and nothing happens alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.clock import boottime_ns
from daemon.config.model import ModelConfig
from daemon.daemon import Daemon
from daemon.errors import LookoutError
from daemon.fleet import missing_claims
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError, NameTakenError
from daemon.fleet.records import Owned
from daemon.pipeline.ledger import Counts
from lookout.client import Subscriber
from lookout.messages import Detections, Owner, Status
from tests.fleet.daemons import Fleet, fleet_in, member_of, wait_runs
from tests.lifetimes.gate import Gate
from tests.lifetimes.parts import Camera
from tests.lifetimes.rig import wait_until
from tests.lifetimes.running import warned
from tests.support.daemon import is_state, receive_until


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path) as found:
        yield found


def _away() -> None:
    raise CoordinatorAwayError("nothing answers")


def test_what_is_wanted_runs_and_what_is_not_wanted_does_not(fleet: Fleet) -> None:
    fleet.want("one", "a", "b")
    app = fleet.start("one")
    wait_runs(app, "a", "b")
    assert {*fleet.owned} == {"a", "b"}
    fleet.want("one", "c")
    fleet.want("two", "a")
    fleet.wait_owned(None, "a")
    wait_runs(app, "b", "c")


def test_a_claim_that_somebody_deletes_is_made_again(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The member learns of it from the records that it has no more, and its other sources go on."""
    monkeypatch.setattr(missing_claims, "TIMEOUT_NS", 100_000_000)
    fleet.want("one", "a", "b")
    app = fleet.start("one")
    wait_runs(app, "a", "b")
    before = fleet.owned
    with fleet.engine.changes:
        del fleet.engine.content.owned["a"]
        fleet.engine.touch()

    def is_mended() -> bool:
        grants = app.fleet.grants if app.fleet else None
        owned, owner = fleet.owned.get("a"), grants.owner("a") if grants else None
        return owned is not None and owner is not None and owned.epoch == owner.epoch > before["a"].epoch

    wait_until(is_mended, "it is claimed and granted again")
    wait_runs(app, "a", "b")
    assert fleet.owned["b"] == before["b"]


def test_messages_have_the_epoch_of_the_claim(fleet: Fleet) -> None:
    app = fleet.start("one")
    with Subscriber(app.endpoint, kinds=("detections", "status")) as subscriber:
        wait_until(app.parts.publishing.publisher.has_subscribers.is_set, "it is heard")
        fleet.want("one", "a")
        first = receive_until(subscriber, lambda message: isinstance(message, Detections))
        epoch = fleet.owned["a"].epoch
        fleet.want("two", "a")
        told = first + receive_until(subscriber, is_state("a", "ended"))
        fleet.wait_owned(None, "a")
        fleet.want("one", "a")
        again = receive_until(subscriber, lambda message: isinstance(message, Detections))
    owners = {message.owner for message in told if isinstance(message, (Detections, Status))}
    assert owners == {Owner("one", epoch, "lookout")}
    assert {message.owner for message in again if isinstance(message, (Detections, Status))} == {
        Owner("one", fleet.owned["a"].epoch, "lookout")
    }
    assert fleet.owned["a"].epoch > epoch
    assert app.ledger.counts_of("a").dropped.fenced == 0  # the last message is sent before the claim is released


def test_a_source_is_stopped_completely_before_another_member_has_it(fleet: Fleet) -> None:
    """A library that holds its connection delays the release."""
    gate = Gate()

    one, two = fleet.start("one", make_source=lambda _, __: Camera(gate)), fleet.start("two")
    fleet.want("one", "a")
    wait_runs(one, "a")
    gate.close()
    gate.wait_for_one()
    fleet.want("two", "a")
    wait_until(lambda: one.changes._working, "it is being removed")
    assert fleet.owned["a"].member == "one"
    gate.open()
    fleet.wait_owned("two", "a")
    wait_runs(two, "a")
    assert not one.sources.captures


def test_wants_that_flip_end_where_they_end(fleet: Fleet) -> None:
    one, two = fleet.start("one"), fleet.start("two")
    for _ in range(20):
        for member in ("one", "two", None, "two", "one"):
            fleet.want(member, "a", "b")
            if member is not None:
                threading.Event().wait(0.01)
    fleet.wait_owned("one", "a", "b")
    wait_runs(one, "a", "b")
    wait_until(lambda: not two.sources.captures, "the other has none")


def test_a_changed_record_changes_the_source_in_place(fleet: Fleet) -> None:
    fleet.want("one", "a")
    app = fleet.start("one")
    wait_runs(app, "a")
    epoch = fleet.owned["a"].epoch
    fleet.want("one", "a", confidence=0.75)
    wait_until(lambda: any(row.confidence == 0.75 for row in app.changes.config.sources), "it is changed")
    wait_runs(app, "a")
    assert fleet.owned["a"].epoch == epoch


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"colour": "blue"}, "colour"),
        ({"type": "av", "url": "rtsp://${NOBODY_SETS_THIS}@192.0.2.1/x"}, "NOBODY_SETS_THIS"),
        ({"labels": ["zebra"]}, "zebra"),
    ],
)
def test_a_source_that_cannot_be_used_here_is_refused(fleet: Fleet, config: dict[str, object], reason: str) -> None:
    """And the others of the same batch run."""
    for id in ("a", "b"):
        fleet.want("one", id)
    fleet.want("one", "bad")
    with fleet.engine.changes:
        record = fleet.engine.content.sources["bad"]
        kept = dict(record.config) if "type" not in config else {"id": "bad"}
        fleet.engine.content.sources["bad"] = type(record)(config={**kept, **config})
    app = fleet.start("one")
    wait_until(lambda: reason in fleet.engine.view().refused.get("bad", {}).get("one", ""), "it is refused")
    wait_runs(app, "a", "b")
    fleet.wait_owned(None, "bad")
    fleet.want("one", "bad", fps=20)  # repaired
    wait_runs(app, "a", "b", "bad")
    assert fleet.engine.view().refused == {}


def test_a_member_leaves_at_a_clean_stop(fleet: Fleet) -> None:
    fleet.want("one", "a")
    app = fleet.start("one")
    wait_runs(app, "a")
    assert app.stop() == 0
    view = fleet.engine.view()
    assert (view.owned, view.members) == ({}, {})
    assert "one" in view.left


def test_a_lost_lease_stops_all_and_the_member_joins_anew(fleet: Fleet) -> None:
    fleet.want("one", "a")
    app = fleet.start("one")
    wait_runs(app, "a")
    first = fleet.owned["a"].epoch
    fleet.engine.advance(60.0)
    wait_until(lambda: member_of(app).counts.lost == 1, "it is lost")
    fleet.wait_owned("one", "a")
    assert fleet.owned["a"].epoch > first
    wait_runs(app, "a")
    assert member_of(app).counts.joins == 2


@pytest.mark.parametrize("on_loss", ["keep", "stop"])
def test_while_the_coordinator_is_away(fleet: Fleet, on_loss: str) -> None:
    fleet.want("one", "a")
    app = fleet.start("one", on_coordinator_loss=on_loss)
    wait_runs(app, "a")
    fleet.engine.away = True
    lease = member_of(app).lease
    assert lease is not None
    wait_until(lambda: lease.state == "away", "it is away")
    if on_loss == "stop":
        wait_until(lambda: not app.sources.captures, "its sources are stopped")
    else:
        wait_until(lambda: boottime_ns() > lease.valid_until, "the lease would have ended")
        wait_runs(app, "a")
    fleet.engine.away = False
    wait_runs(app, "a")
    assert app.stop() == 0


def test_a_daemon_starts_while_the_coordinator_is_away_and_says_so_once(fleet: Fleet) -> None:
    fleet.want("one", "a")
    fleet.engine.away = True
    with warned() as lines:
        app = fleet.start("one")
        assert app.health.is_ready
        wait_until(lambda: member_of(app).failure, "it has tried")
        assert "no member" in app.health.waits_for()[0]
        fleet.engine.away = False
        wait_runs(app, "a")
    assert app.health.waits_for() == []
    assert [line["event"] for line in lines].count("the fleet cannot be joined yet") == 1


def test_a_second_daemon_of_the_same_name_is_refused(fleet: Fleet) -> None:
    fleet.start("one")
    second = fleet.app("one")
    with pytest.raises(NameTakenError, match="a member one is in the fleet already"):
        second.start()


def test_a_coordinator_that_refuses_ends_the_start(fleet: Fleet) -> None:
    def refuse() -> None:
        raise CoordinatorError("the user lookout is unknown")

    fleet.hooks["join"] = refuse
    with pytest.raises(LookoutError, match="lookout is unknown"):
        fleet.start("one")


# --- nothing happens alone -------------------------------------------------------------------------------------------


def _stop_while(app: Daemon, gate: Gate) -> None:
    assert app.stop() == 0
    gate.open()


@pytest.mark.parametrize("call", ["claim", "release", "update", "saw", "leave"])
def test_a_daemon_stops_while_the_coordinator_hangs(fleet: Fleet, call: str) -> None:
    gate = Gate()
    fleet.want("one", "a", "b")
    fleet.hooks[call] = gate
    app = fleet.start("one")
    wait_runs(app, "a", "b")
    gate.close()
    if call == "release":
        fleet.want(None, "a")
    elif call in ("claim", "saw"):
        fleet.want("one", "c")
    if call not in ("update", "leave"):  # they come with the stop
        gate.wait_for_one()
    _stop_while(app, gate)


def test_a_daemon_stops_while_it_joins(fleet: Fleet) -> None:
    """And what it joined meanwhile is given up."""
    gate = Gate()
    gate.close()
    fleet.hooks["join"] = gate
    app = fleet.app("one")
    starter = threading.Thread(target=app.start, daemon=True)
    starter.start()
    gate.wait_for_one()
    app.request_stop()
    starter.join(60)
    stopper = threading.Thread(target=app.stop, daemon=True)
    stopper.start()
    gate.open()
    stopper.join(60)
    assert not stopper.is_alive()
    wait_until(lambda: not fleet.engine.view().members, "it is no member")


def test_a_reload_keeps_the_fleets_sources(fleet: Fleet) -> None:
    gate = Gate()
    fleet.hooks["claim"] = gate
    fleet.want("one", "a")
    app = fleet.start("one")
    wait_runs(app, "a")
    gate.close()
    fleet.want("one", "b")
    gate.wait_for_one()
    app.reload().result(60)
    assert [row.id for row in app.changes.config.sources] == ["a"]
    gate.open()
    wait_runs(app, "a", "b")
    app.reload().result(60)
    wait_runs(app, "a", "b")


def test_a_claim_whose_answer_is_lost_is_made_again_or_given_up(fleet: Fleet) -> None:
    """Both: one source is wanted still, and one is not."""
    app = fleet.start("one")
    with fleet.engine.changes:
        (_, lease) = fleet.engine.content.members["one"]
        for id in ("a", "b"):
            fleet.want("one" if id == "a" else "two", id)
            fleet.engine.content.owned[id] = (Owned("one", fleet.engine.touch()), lease)
    wait_runs(app, "a")
    fleet.wait_owned(None, "b")
    fleet.wait_owned("one", "a")


def test_new_connections_are_limited(fleet: Fleet) -> None:
    fleet.want("one", *(f"s{number}" for number in range(6)))
    app = fleet.start("one", connects_per_s=2.0)
    wait_until(lambda: len(app.sources.captures) >= 2, "the first have begun")
    seen = []

    def all_run() -> bool:
        seen.append(len(app.sources.captures))
        return len(app.sources.captures) == 6

    wait_until(all_run, "all run")
    assert {4, 5} & {*seen}


def test_a_member_with_several_models(fleet: Fleet) -> None:
    """Its record has them, and what it owns is seen by those that the source names."""
    fake = ModelConfig(path=Path("none"), backend="fake", max_batch=4)
    fleet.want("one", "a", model=["people", "plates"])
    fleet.want("one", "b", model="dogs")
    app = fleet.start("one", models={"people": fake, "plates": fake})
    wait_until(lambda: "b" in fleet.engine.view().refused, "it is refused")
    assert "there is no model 'dogs' (people, plates)" in fleet.engine.view().refused["b"]["one"]
    assert [*fleet.engine.view().members["one"].capacity.models] == ["people", "plates"]
    published = app.ledger.counts_by_model
    wait_until(
        lambda: all(row.published > 3 for row in published().get("a", {"": Counts.none()}).values()), "both look"
    )
    assert [*published()["a"]] == ["people", "plates"]


def test_a_member_reports_what_it_sees(fleet: Fleet) -> None:
    fleet.want("one", "a")
    app = fleet.start("one", labels={"site": "north"}, address="192.0.2.9")
    wait_until(lambda: "a" in fleet.engine.view().seen, "its video is known")
    assert fleet.engine.view().seen["a"].width == 16
    record = fleet.engine.view().members["one"]
    assert record.labels == {"site": "north"}
    assert record.capacity.detector > 0
    assert record.endpoints.messages == app.endpoint
    assert record.state == "ready"
