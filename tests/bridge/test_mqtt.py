"""MQTT on the wire: a real broker, and another program that reads from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from daemon.bridge.messages import Loss, Notice
from daemon.bridge.mqtt import claim, link
from daemon.bridge.port import AwayError, Connection
from daemon.bridge.records import Delivery
from daemon.bridge.targets.opening import open_target
from daemon.config.targets import MqttTarget
from daemon.redact import Secret
from lookout.messages import Owner, Total
from tests.bridge.told import (
    Kept,
    Later,
    Shown,
    context,
    deliveries,
    delivery,
    encoded_record,
    event,
    figure,
    source,
    tended,
    tended_for,
)
from tests.support.mosquitto import Mosquitto, Reader, retained

pytestmark = pytest.mark.needs("mosquitto")
HOSTILE = ["a/b", "+", "#", "$SYS", "%2F", "a b", "ä\u4e16", "_", "\u0007", "\ufdd0", "x" * 64]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path / "mosquitto") as broker:
        yield broker


def target(broker: Mosquitto, **keys: Any) -> MqttTarget:
    return MqttTarget(**{"name": "home", "url": Secret(f"mqtt://127.0.0.1:{broker.port}"), **keys})


@contextmanager
def _at_work(connection: Connection, board: Shown) -> Iterator[None]:
    """Tend it meanwhile, as its bridge does."""
    ending = Event()

    def work() -> None:
        while not ending.wait(0.05):
            connection.tend(board)

    thread = Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def test_events_come_once_in_order_with_their_ids(broker: Mosquitto) -> None:
    connection = open_target(target(broker), context())
    with Reader(broker.port, "lookout/events/#") as reader:
        assert connection.deliver(deliveries(1, 100)) == [None] * 100
        reader.wait(lambda row: len(row.messages) == 100)
        assert [row.id for row in reader.messages] == [f"5f0c2d1e-{number}" for number in range(1, 101)]
        first = reader.messages[0]
        assert (first.topic, first.retain, first.content_type) == (
            "lookout/events/door",
            False,
            "application/json",
        )
        assert first.payload == deliveries(1, 1)[0].record.body
    connection.close()


def test_each_kind_has_its_topic(broker: Mosquitto) -> None:
    connection = open_target(target(broker, prefix="lookout/hall", figures_fps=1), context())
    notice = Notice(id="n1", daemon="here", about="source", name="door", condition="down", since=1, at=2)
    loss = Loss(id="l1", daemon="here", count=3, at=2, cause="wire")
    with Reader(broker.port, "lookout/hall/#") as reader:
        rows = [Delivery(encoded_record("status", notice, "door")), Delivery(encoded_record("loss", loss, ""))]
        assert connection.deliver(rows) == [None, None]
        assert connection.show([figure(1), figure(2, "gate")]) == 2
        reader.wait(lambda row: len(row.messages) >= 6)
        assert {row.topic for row in reader.messages if not row.retain} == {
            "lookout/hall/status/source/door", "lookout/hall/loss", "lookout/hall/detections/door",
            "lookout/hall/detections/gate",
        }  # fmt: skip
    connection.close()


def test_hostile_names_have_topics_of_their_own(broker: Mosquitto) -> None:
    connection = open_target(target(broker), context())
    with Reader(broker.port, "lookout/events/+") as reader:
        rows = [delivery(event(number, name)) for number, name in enumerate(HOSTILE, start=1)]
        assert connection.deliver(rows) == [None] * len(HOSTILE)
        reader.wait(lambda row: len(row.messages) == len(HOSTILE))
        assert len({row.topic for row in reader.messages}) == len(HOSTILE)
    connection.close()


def test_states_are_retained_and_nothing_else_is(broker: Mosquitto) -> None:
    crossed = Total("gate", "line", "crossed", "forward", "car", 41)
    board, connection = Shown(), open_target(target(broker), context())
    board.show([source(inside=2, totals=[crossed]), source("gate", state="down")])
    connection.deliver(deliveries(1, 3))
    base = "lookout/sources/"
    tended(connection, board, lambda: f"{base}gate/counts" in retained(broker.port, "lookout/#"))
    found = retained(broker.port, "lookout/#")
    assert {topic: body for topic, body in found.items() if not topic.endswith(("status", "counts", "owner"))} == {
        "lookout/bridge/state": b"online", "lookout/daemons/here/state": b"online", "lookout/daemons/here/fps": b"25.0",
        f"{base}door/state": b"up", f"{base}door/availability": b"online", f"{base}door/fps": b"25.0",
        f"{base}door/occupancy/yard/person": b"2", f"{base}door/totals/gate/forward/car": b"41",
        f"{base}gate/state": b"down", f"{base}gate/availability": b"offline", f"{base}gate/fps": b"25.0",
        f"{base}gate/occupancy/yard/person": b"0",
    }  # fmt: skip
    connection.close()


def test_a_zone_that_is_empty_is_told_as_empty(broker: Mosquitto) -> None:
    board, connection = Shown(), open_target(target(broker), context())
    with Reader(broker.port, "lookout/sources/door/occupancy/#") as reader:
        board.show([source(inside=1)])
        tended(connection, board, lambda: len(reader.messages) == 1)
        board.show([source()])
        tended(connection, board, lambda: len(reader.messages) == 2)
        assert [row.payload for row in reader.messages] == [b"1", b"0"]
    connection.close()


def test_states_are_told_again_after_the_broker_forgot_them(broker: Mosquitto) -> None:
    memory, board = Kept(), Shown()
    board.show([source()])
    connection = open_target(target(broker), context(memory))
    tended(connection, board, lambda: "lookout/sources/door/counts" in retained(broker.port, "lookout/#"))
    before = retained(broker.port, "lookout/#")
    broker.stop()
    broker.configure([], keeps=False)
    broker.start()
    with pytest.raises(AwayError):
        tended(connection, board, lambda: False)
    connection.close()
    connection = open_target(target(broker), context(memory))
    tended(connection, board, lambda: retained(broker.port, "lookout/#").keys() == before.keys())
    connection.close()


def test_a_source_that_was_removed_meanwhile_leaves_nothing(broker: Mosquitto) -> None:
    memory, board = Kept(), Shown()
    board.show([source(), source("gate")])
    keys = {"homeassistant": True, "picture": True}
    connection = open_target(target(broker, **keys), context(memory))
    connection.deliver([delivery(event(1, "gate"), jpeg=b"\xff\xd8")])
    both = ("lookout/#", "homeassistant/#")
    tended(connection, board, lambda: "lookout/sources/gate/counts" in retained(broker.port, *both))
    assert [topic for topic in retained(broker.port, *both) if "gate" in topic]
    connection.close()

    connection = open_target(target(broker, **keys), context(memory))
    board.show([source()], is_complete=False, down=["here"])
    tended_for(connection, board, 20)  # nobody knows yet what there is
    assert [topic for topic in retained(broker.port, *both) if "gate" in topic]
    board.show([source()])
    tended(connection, board, lambda: not [topic for topic in retained(broker.port, *both) if "gate" in topic])
    # One is kept, for a Home Assistant that was away.
    tended(connection, board, lambda: {key.split()[0] for key in memory.texts if "gate" in key} == {"gone"})
    assert "lookout/sources/door/state" in retained(broker.port, *both)
    connection.close()


def test_a_source_is_unknown_when_the_bridge_starts_without_its_daemon(broker: Mosquitto) -> None:
    memory, board, clock = Kept(), Shown(), Later()
    board.show([source(zone=("yard", "state"), inside=1)])
    connection = open_target(target(broker), context(memory))
    topics = {f"lookout/sources/door/{name}" for name in ("state", "availability", "occupancy/yard/state")}
    tended(connection, board, lambda: topics <= retained(broker.port, "lookout/sources/#").keys())
    connection.close()
    connection = open_target(target(broker), context(memory, clock=clock))
    board.show([], is_complete=False, down=["here"])
    clock.pass_by(5)
    tended(connection, board, lambda: b"unknown" in retained(broker.port, "lookout/sources/door/state").values())
    found = retained(broker.port, *topics)
    assert [found[topic] for topic in sorted(topics)] == [b"offline", b"1", b"unknown"]
    board.show([source(zone=("yard", "state"), inside=1)])
    tended(connection, board, lambda: b"up" in retained(broker.port, "lookout/sources/door/state").values())
    connection.close()


def test_what_a_lost_spool_or_another_bridge_has_left_is_cleared(broker: Mosquitto) -> None:
    board = Shown()
    board.show([source("old")])
    connection = open_target(target(broker, homeassistant=True), context(id="bridge-1"))
    both = ("lookout/#", "homeassistant/#")
    tended(connection, board, lambda: "lookout/sources/old/counts" in retained(broker.port, *both))
    connection.say_farewell()  # type: ignore[attr-defined]
    connection.close()
    with Reader(broker.port, "tests/#") as other:
        other.publish("homeassistant/device/other/config", "{}", retain=True)
    connection = open_target(target(broker, homeassistant=True), context(id="bridge-2"))
    board.show([source("new")])
    tended(connection, board, lambda: "lookout/sources/new/counts" in retained(broker.port, *both))
    tended(connection, board, lambda: not [topic for topic in retained(broker.port, *both) if "old" in topic])
    assert retained(broker.port, *both)["homeassistant/device/other/config"] == b"{}"
    connection.close()


def test_what_another_bridge_has_left_is_cleared_after_a_broken_connection_too(broker: Mosquitto) -> None:
    """The broker dies as soon as the second bridge has the prefix."""
    board, memory, old = Shown(), Kept(), "lookout/sources/old/counts"
    connection = open_target(target(broker), context(id="bridge-1"))
    board.show([source("old")])
    tended(connection, board, lambda: old in retained(broker.port, "lookout/#"))
    connection.say_farewell()  # type: ignore[attr-defined]
    connection.close()

    with Reader(broker.port, "lookout/bridge/owner") as reader:

        def die_when_it_is_taken() -> None:
            reader.wait(lambda row: len(row.bodies("lookout/bridge/owner")) >= 2)
            broker.stop()

        dying = Thread(target=die_when_it_is_taken)
        dying.start()
        with suppress(AwayError):  # on a busy machine it may be through before
            open_target(target(broker), context(memory, id="bridge-2")).close()
        dying.join()
    broker.start()
    connection = open_target(target(broker), context(memory, id="bridge-2"))
    board.show([source("new")])
    tended(connection, board, lambda: old not in retained(broker.port, "lookout/#"))
    assert "adoption" not in memory.texts
    connection.close()


def test_a_source_of_a_fleet_keeps_its_topics_when_it_moves(broker: Mosquitto) -> None:
    board, connection = Shown(), open_target(target(broker, homeassistant=True), context(daemons=("a", "b")))
    with Reader(broker.port, "lookout/sources/#", "homeassistant/#") as reader:
        board.show([source(daemon="a", owner=Owner("a", 1, "yard"))], down=["b"])
        tended(connection, board, lambda: len(reader.bodies("lookout/sources/yard/door/counts")) == 1)
        moved = source(daemon="b", owner=Owner("b", 2, "yard"), inside=1)
        board.show([source(daemon="a", owner=Owner("a", 1, "yard"), state="down"), moved])
        topic = "lookout/sources/yard/door/occupancy/yard/person"
        tended(connection, board, lambda: reader.bodies(topic)[-1:] == [b"1"])
        board.show([moved], down=["a"])
        tended_for(connection, board, 20)
        assert not [row for row in reader.messages if row.payload == b""]
        assert {row.topic for row in reader.messages if row.topic.endswith("/availability")} == {
            "lookout/sources/yard/door/availability"
        }
    connection.close()


def test_a_change_of_the_prefix_leaves_nothing_below_the_old_one(broker: Mosquitto) -> None:
    board, memory = Shown(), Kept()
    board.show([source()])
    connection = open_target(target(broker, prefix="yard"), context(memory))
    tended(connection, board, lambda: "yard/sources/door/counts" in retained(broker.port, "yard/#"))
    connection.say_farewell()  # type: ignore[attr-defined]
    connection.close()
    connection = open_target(target(broker, prefix="hall"), context(memory))
    board.show([], is_complete=False, down=["here"])
    tended(connection, board, lambda: not retained(broker.port, "yard/#"))
    assert {key for key in memory.texts if key.startswith("prefix")} == {"prefix hall"}
    connection.close()


def test_an_old_prefix_that_another_bridge_has_taken_is_left_to_it(broker: Mosquitto) -> None:
    board, memory = Shown(), Kept()
    board.show([source()])
    connection = open_target(target(broker, prefix="yard"), context(memory))
    tended(connection, board, lambda: "yard/sources/door/counts" in retained(broker.port, "yard/#"))
    connection.say_farewell()  # type: ignore[attr-defined]
    connection.close()
    other = open_target(target(broker, prefix="yard"), context(id="bridge-2"))
    topics = {"yard/bridge/owner", "yard/bridge/state", "yard/sources/door/counts"}
    tended(other, board, lambda: topics <= retained(broker.port, "yard/#").keys())
    connection = open_target(target(broker, prefix="hall"), context(memory))
    tended(connection, board, lambda: "hall/sources/door/counts" in retained(broker.port, "hall/#"))
    tended(connection, board, lambda: topics <= retained(broker.port, "yard/#").keys())
    assert not [key for key in memory.texts if key.startswith("topic yard/")]
    other.close()
    connection.close()


def test_when_leaves_out_sources_of_states_too(broker: Mosquitto) -> None:
    from daemon.config.targets import WhenConfig

    board, connection = Shown(), open_target(target(broker, when=WhenConfig(sources=["door"])), context())
    board.show([source("gate"), source("door")])
    tended(connection, board, lambda: "lookout/sources/door/counts" in retained(broker.port, "lookout/#"))
    assert not retained(broker.port, "lookout/sources/gate/#")
    connection.close()


def test_the_broker_says_offline_when_the_bridge_is_gone(broker: Mosquitto, monkeypatch: pytest.MonkeyPatch) -> None:
    with Reader(broker.port, "lookout/bridge/state") as reader:
        monkeypatch.setattr(link, "WILL_DELAY_S", 30)
        connection = open_target(target(broker), context())
        connection.close()  # without a farewell: as a crash
        monkeypatch.setattr(link, "WILL_DELAY_S", 1)
        again = open_target(target(broker), context())
        again.close()
        reader.wait(lambda row: row.bodies("lookout/bridge/state")[-1:] == [b"offline"])
        bodies = reader.bodies("lookout/bridge/state")
        assert bodies.count(b"offline") == 1, "a bridge that comes back at once was never away"


def test_an_orderly_end_says_offline_at_once(broker: Mosquitto) -> None:
    connection = open_target(target(broker), context())
    connection.say_farewell()  # type: ignore[attr-defined]
    connection.close()
    connection.close()
    assert retained(broker.port, "lookout/bridge/state") == {"lookout/bridge/state": b"offline"}


def test_the_second_bridge_on_a_prefix_refuses_until_the_first_is_gone(broker: Mosquitto) -> None:
    first = open_target(target(broker), context(id="bridge-1"))
    board = Shown()
    with (
        _at_work(first, board),
        pytest.raises(AwayError, match=r"lookout is used by another bridge \(bridge-1/home\): give this target"),
    ):
        open_target(target(broker), context(id="bridge-2"))
    tended_for(first, board, 5)
    assert retained(broker.port, "lookout/bridge/state") == {"lookout/bridge/state": b"online"}
    other = open_target(target(broker, prefix="lookout/2"), context(id="bridge-2"))
    other.close()
    first.close()  # as a crash
    with Reader(broker.port, "lookout/bridge/state") as reader:
        reader.wait(lambda row: row.bodies("lookout/bridge/state")[-1:] == [b"offline"])
    second = open_target(target(broker), context(id="bridge-2"))
    second.close()


def test_a_prefix_whose_bridge_died_with_the_broker_is_taken(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "_LIFE_S", 1.0)
    with Reader(broker.port, "lookout/bridge/#") as reader:
        # No will was said, so all stands as if it ran.
        reader.publish("lookout/bridge/owner", '{"schema":"lookout.owner/1","id":"dead/home","since":1}', retain=True)
        reader.publish("lookout/bridge/state", "online", retain=True)
        reader.wait(lambda row: row.bodies("lookout/bridge/state"))
        connection = open_target(target(broker), context(id="bridge-2"))
        reader.wait(lambda row: len(row.bodies("lookout/bridge/owner")) == 3)
        _, question, _ = map(json.loads, reader.bodies("lookout/bridge/owner"))
        assert (question["id"], question["since"]) == ("bridge-2/home", 2**63 - 1), "its owner was asked"
        assert b"bridge-2/home" in retained(broker.port, "lookout/bridge/owner")["lookout/bridge/owner"]
    connection.close()


def test_two_bridges_that_come_at_once_are_one_in_the_end(broker: Mosquitto) -> None:
    board = Shown()
    first = open_target(target(broker), context(id="bridge-1"))
    with Reader(broker.port, "lookout/bridge/#") as reader:
        # The broker forgot who has the prefix, so that the second one may think it free.
        reader.publish("lookout/bridge/owner", "", retain=True)
        reader.publish("lookout/bridge/state", "", retain=True)
        second: Connection | None = None
        lost = 0
        try:
            second = open_target(target(broker), context(id="bridge-2"))
        except AwayError:
            lost += 1
        for _ in range(500):
            for connection in [row for row in (first, second) if row is not None]:
                try:
                    tended_for(connection, board, 1)
                except AwayError:
                    assert connection is second, "the earlier one stays"
                    lost += 1
                    second.close()
                    second = None
            if lost:
                break
        assert lost == 1
        online = {"lookout/bridge/state": b"online"}
        tended(first, board, lambda: retained(broker.port, "lookout/bridge/state") == online)
    first.close()


def test_a_trial_beside_the_bridge_changes_nothing(broker: Mosquitto) -> None:
    from dataclasses import replace

    keys = {"picture": True, "homeassistant": True}
    board, running = Shown(), open_target(target(broker, **keys), context())
    board.show([source()])
    tended(running, board, lambda: "lookout/sources/door/counts" in retained(broker.port, "#"))
    before = retained(broker.port, "#")
    trial = open_target(target(broker, **keys), replace(context(id="trial"), is_trial=True))
    assert trial.deliver([delivery(event(1, "trial"), jpeg=b"\xff\xd8")]) == [None]
    trial.close()
    running.tend(board)
    assert retained(broker.port, "#") == before
    running.close()


def test_a_broker_that_dies_returns_what_it_has_confirmed(broker: Mosquitto) -> None:
    connection = open_target(target(broker), context())
    assert connection.deliver(deliveries(1, 10)) == [None] * 10
    broker.kill()
    with pytest.raises(AwayError) as caught:
        connection.deliver(deliveries(11, 10))
    assert set(caught.value.settled) <= {None}
    connection.close()
    with pytest.raises(AwayError, match=r"127\.0\.0\.1:\d+: Connection refused"):
        open_target(target(broker), context())


def test_a_broker_that_hangs_holds_up_neither_delivery_nor_end(broker: Mosquitto) -> None:
    connection = open_target(target(broker), context())
    broker.pause()
    with pytest.raises(AwayError, match="confirms nothing within"):
        connection.deliver(deliveries(1, 10))
    connection.close()
    broker.resume()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_quality_of_service_confirms(broker: Mosquitto, qos: int) -> None:
    connection = open_target(target(broker, qos=qos), context())
    with Reader(broker.port, "lookout/events/#") as reader:
        assert connection.deliver(deliveries(1, 50)) == [None] * 50
        reader.wait(lambda row: len(row.messages) == 50)
    connection.close()


def test_refusals_have_reasons_and_hold_up_nothing(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic readwrite lookout/#\ntopic deny lookout/events/secret\n")
    lines = [f"acl_file {rules}", "max_packet_size 4096"]
    with Mosquitto(tmp_path / "mosquitto", lines) as broker:
        connection = open_target(target(broker), context())
        large = event(2, rule="r" * 5000)
        results = connection.deliver([delivery(event(1, "secret")), delivery(large), delivery(event(3))])
        assert results == [
            "the broker refuses it: Not authorized",
            "the broker refuses it: it is larger than the 4096 bytes that the broker takes",
            None,
        ]
        connection.close()


def test_a_prefix_that_may_not_be_written_is_said(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic read lookout/#\ntopic write lookout/events/#\n")
    with (
        Mosquitto(tmp_path / "mosquitto", [f"acl_file {rules}"]) as broker,
        pytest.raises(AwayError, match="does not let this bridge write lookout/bridge/owner: Not authorized"),
    ):
        open_target(target(broker), context())


def test_a_topic_that_is_none_is_refused(broker: Mosquitto) -> None:
    connection = open_target(target(broker, prefix="p" * 200), context())
    rows = [delivery(event(1, "x" * 30_000 + "#" * 20_000)), delivery(event(2))]
    results = connection.deliver(rows)
    assert results[0] is not None
    assert "is no topic" in results[0]
    assert results[1] is None
    connection.close()


def test_an_id_that_no_property_holds_is_refused(broker: Mosquitto) -> None:
    connection = open_target(target(broker), context())
    results = connection.deliver([delivery(event(1, id="x" * 70_000)), delivery(event(2))])
    assert results == ["the broker refuses it: a property of it is larger than 65535 bytes", None]
    connection.close()
