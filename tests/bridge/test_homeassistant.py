"""What Home Assistant is told: its documents by its own schema, and when they come and go."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from daemon.bridge.mqtt.board import Board
from daemon.bridge.mqtt.homeassistant import EVENT_TYPES, SPREAD_S, Discovery, ident
from daemon.bridge.mqtt.topics import Topics, level
from daemon.bridge.port import Connection
from daemon.bridge.states import DaemonState
from daemon.bridge.targets.opening import open_target
from lookout.messages import EventKind, EventPhase, Owner, Total
from tests.bridge.test_mqtt import HOSTILE, target
from tests.bridge.told import Kept, Later, Shown, context, delivery, event, repeated, source, tended
from tests.support.mosquitto import Mosquitto, Reader, retained

_SCHEMA = json.loads((Path(__file__).parent / "homeassistant.schema.json").read_text())
_CHECK = Draft202012Validator(_SCHEMA)
_CONFIG = "homeassistant/device/lookout--here--door/config"
_OWNER = "lookout/bridge/owner"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path / "mosquitto") as broker:
        yield broker


def _documents(name: str, rule: str | None, label: str | None, *, has_pictures: bool = True) -> list[tuple[str, Any]]:
    """Topics and documents of a daemon and of a source with a zone and a line."""
    topics = Topics("lookout", ("here",))
    discovery = Discovery(topics, "homeassistant", has_several=False, has_pictures=has_pictures)
    row = source(name, zone=(rule, label), totals=[Total("gate", "line", "crossed", "forward", label, 3)])
    view = Board(topics, Kept()).view(row, DaemonState("here", True))
    found = [discovery.daemon(DaemonState("here", True)), discovery.source(view)]
    return [(topic, json.loads(body)) for topic, body in found]


def tell_start(reader: Reader, connection: Connection, board: Shown) -> None:
    """Say that Home Assistant has started. The bridge has heard it when it answers what another one asks afterwards."""
    id = f"another-{len(reader.messages)}"
    reader.publish("homeassistant/status", "online")
    reader.publish(_OWNER, json.dumps({"id": id, "since": 2**63 - 1}))

    def is_answered() -> bool:
        names = [json.loads(body)["id"] for body in reader.bodies(_OWNER)]
        return id in names and any(name.startswith("bridge-1/") for name in names[names.index(id) :])

    tended(connection, board, is_answered)


@pytest.mark.parametrize("has_pictures", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_documents_keep_home_assistants_schema(name: str, has_pictures: bool) -> None:
    for topic, document in _documents(name, name, name, has_pictures=has_pictures):
        _CHECK.validate(document)
        assert re.fullmatch(r"homeassistant/device/[a-zA-Z0-9_-]+/config", topic)


def test_a_camera_has_what_is_promised() -> None:
    (_, daemon), (topic, camera) = _documents("door", "yard", "person")
    assert topic == _CONFIG
    assert camera["device"]["via_device"] == daemon["device"]["identifiers"][0]
    assert {key: row["platform"] for key, row in camera["components"].items()} == {
        "connectivity": "binary_sensor", "fps": "sensor", "event": "event", "picture": "image",
        "occupancy--yard--person": "binary_sensor", "count--yard--person": "sensor",
        "total--gate--forward--person": "sensor",
    }  # fmt: skip
    here = [{"topic": "lookout/bridge/state"}, {"topic": "lookout/sources/door/availability"}]
    for key in ("fps", "occupancy--yard--person", "count--yard--person", "total--gate--forward--person"):
        assert (camera["components"][key]["availability"], camera["components"][key]["availability_mode"]) == (
            here,
            "all",
        )


def test_no_name_is_part_of_a_template() -> None:
    name = "{{ 1 + 1 }}'\""
    plain, hostile = _documents("door", "yard", "person"), _documents(name, name, name)

    def templates(documents: list[tuple[str, Any]]) -> set[str]:
        rows = (row for _, document in documents for row in document["components"].values())
        return {row["value_template"] for row in rows if "value_template" in row}

    assert templates(plain) == templates(hostile)


def test_every_kind_of_event_has_a_type() -> None:
    kinds, phases = {row.split(".")[0] for row in EVENT_TYPES}, {row.split(".")[1] for row in EVENT_TYPES}
    assert (kinds, phases) == ({*get_args(EventKind)}, {*get_args(EventPhase)})


_NAMES = st.text(max_size=12)


@settings(max_examples=50)
@given(st.lists(_NAMES, min_size=1, max_size=3), st.lists(_NAMES, min_size=1, max_size=3))
def test_different_names_have_different_ids(first: list[str], second: list[str]) -> None:
    assert (ident(*first) == ident(*second)) == (first == second)
    assert re.fullmatch(r"[A-Za-z0-9_-]*", ident(*first))


@settings(max_examples=50)
@given(_NAMES.filter(bool), _NAMES.filter(bool))
def test_different_names_have_different_topics(first: str, second: str) -> None:
    assert (level(first) == level(second)) == (first == second)
    assert not set("+#/\0$") & set(level(first))


@pytest.mark.needs("mosquitto")
def test_documents_come_again_when_home_assistant_starts(broker: Mosquitto) -> None:
    clock, board = Later(), Shown()
    board.show([source()])
    with (
        closing(open_target(target(broker, homeassistant=True), context(clock=clock))) as connection,
        Reader(broker.port, "#") as reader,
    ):
        tended(connection, board, lambda: bool(reader.bodies("lookout/sources/door/occupancy/yard/person")))
        before = len(reader.messages)
        tell_start(reader, connection, board)
        clock.pass_by(SPREAD_S)
        tended(connection, board, lambda: len(reader.bodies("lookout/sources/door/occupancy/yard/person")) == 2)
        again = [row.topic for row in reader.messages[before:]]
        assert again.index(_CONFIG) < again.index("lookout/sources/door/state"), "states come after their document"
        assert not [topic for topic in again if "events" in topic or topic.endswith("/event")]


@pytest.mark.needs("mosquitto")
def test_a_device_that_went_while_home_assistant_was_away_is_shown_and_taken_back(broker: Mosquitto) -> None:
    clock, board, memory = Later(), Shown(), Kept()
    keys = {"homeassistant": True}
    board.show([source(), source("gate")])
    with closing(open_target(target(broker, **keys), context(memory, clock=clock))) as connection:
        tended(connection, board, lambda: _CONFIG in retained(broker.port, "homeassistant/#"))
        board.show([source("gate")])
        tended(connection, board, lambda: _CONFIG not in retained(broker.port, "homeassistant/#"))
    with (
        closing(open_target(target(broker, **keys), context(memory, clock=clock))) as connection,
        Reader(broker.port, "homeassistant/#", _OWNER) as reader,
    ):
        for _ in range(2):
            tell_start(reader, connection, board)
            clock.pass_by(SPREAD_S)
            connection.tend(board)
            tended(connection, board, lambda: [body[:1] for body in reader.bodies(_CONFIG)][-2:] == [b"{", b""])
        tell_start(reader, connection, board)  # what it says to the second start is here
        (shown,) = filter(None, reader.bodies(_CONFIG))
        assert json.loads(shown)["device"]["name"] == "door"
        assert _CONFIG not in retained(broker.port, "homeassistant/#")


@pytest.mark.needs("mosquitto")
def test_a_device_is_taken_back_although_the_broker_hangs_meanwhile(broker: Mosquitto) -> None:
    clock, board, memory = Later(), Shown(), Kept()
    board.show([source(), source("gate")])
    with closing(open_target(target(broker, homeassistant=True), context(memory, clock=clock))) as connection:
        tended(connection, board, lambda: _CONFIG in retained(broker.port, "homeassistant/#"))
        board.show([source("gate")])
        tended(connection, board, lambda: _CONFIG not in retained(broker.port, "homeassistant/#"))
        clock.stand_still()  # the device is due at any moment of the seconds after the start
        with Reader(broker.port, _OWNER) as reader:
            tell_start(reader, connection, board)
        broker.pause()
        clock.pass_by(SPREAD_S)
        connection.tend(board)
    assert [key for key in memory.texts if key.startswith("gone ")], "the broker has taken nothing"
    broker.resume()
    clock = Later()
    with (
        closing(open_target(target(broker, homeassistant=True), context(memory, clock=clock))) as connection,
        Reader(broker.port, "homeassistant/#", _OWNER) as reader,
    ):
        tell_start(reader, connection, board)
        clock.pass_by(SPREAD_S)
        tended(connection, board, lambda: not [key for key in memory.texts if key.startswith("gone ")])
        reader.wait(lambda row: [body[:1] for body in row.bodies(_CONFIG)][-2:] == [b"{", b""])


@pytest.mark.needs("mosquitto")
def test_home_assistant_that_is_not_wanted_any_more_is_left(broker: Mosquitto) -> None:
    memory, board = Kept(), Shown()
    board.show([source()])
    with closing(open_target(target(broker, homeassistant=True), context(memory))) as connection:
        tended(connection, board, lambda: _CONFIG in retained(broker.port, "homeassistant/#"))
    with closing(open_target(target(broker), context(memory))) as connection:
        tended(connection, board, lambda: not retained(broker.port, "homeassistant/#"))
        assert "lookout/sources/door/state" in retained(broker.port, "lookout/#")


@pytest.mark.needs("mosquitto")
def test_a_picture_is_there_before_its_event(broker: Mosquitto) -> None:
    keys = {"homeassistant": True, "picture": True}
    with (
        closing(open_target(target(broker, **keys), context())) as connection,
        Reader(broker.port, "lookout/sources/+/event", "lookout/sources/+/picture", "lookout/events/#") as reader,
    ):
        connection.deliver([delivery(event(1), jpeg=b"\xff\xd8one"), *repeated([delivery(event(2))])])
        reader.wait(lambda row: len(row.messages) == 5)
        assert [row.topic.rpartition("/")[2] for row in reader.messages] == [
            "picture",
            "event",
            "door",
            "event",
            "door",
        ]
        first, second = map(json.loads, reader.bodies("lookout/sources/door/event"))
        assert (first["event_type"], first["id"], first["is_repeated"], second["is_repeated"]) == (
            "zone.entered", "5f0c2d1e-1", False, True,
        )  # fmt: skip
    kept = retained(broker.port, "lookout/sources/#", "lookout/events/#")
    assert kept == {"lookout/sources/door/picture": b"\xff\xd8one"}


def test_a_device_of_a_fleet_is_the_fleets() -> None:
    topics = Topics("lookout", ("a", "b"))
    discovery = Discovery(topics, "homeassistant", has_several=True, has_pictures=False)
    board = Board(topics, Kept())
    views = [
        board.view(source(daemon=name, owner=Owner(name, epoch, "yard")), DaemonState(name, True))
        for epoch, name in enumerate(("a", "b"))
    ]
    assert [discovery.source(view)[0] for view in views] == ["homeassistant/device/lookout--yard--door/config"] * 2
