"""`lookout.testing`: its messages have the form of a daemon's, and its faults are those of the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import msgspec
import pytest
import zmq
from msgspec.structs import replace

from lookout.client import Subscriber
from lookout.messages import (
    KINDS,
    Clip,
    Detection,
    Detections,
    Dropped,
    Encoding,
    Message,
    Packets,
    Status,
    Store,
    Total,
    decode,
    kind_of,
)
from lookout.testing import Publisher, WaitingSubscriber
from tests.support.daemon import PATIENCE_S, ROOT, Lookout
from tests.support.documents import tokens_of

_PATIENCE_MS = round(PATIENCE_S * 1000)
_ENCODINGS: list[Encoding] = ["json", "msgpack"]
_OF_RECORDINGS = {"clips", "stores"}  # which a daemon without a camera has none of
_BOX = Detection("person", 0, 0.9, (10.0, 20.0, 40.0, 90.0))


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher(timeout_s=PATIENCE_S) as found:
        yield found


@pytest.fixture
def subscriber(publisher: Publisher) -> Iterator[WaitingSubscriber]:
    with WaitingSubscriber(publisher.endpoint, kinds=KINDS) as found:
        yield found


def _plain(payload: bytes) -> Any:
    return json.loads(payload) if payload[:1] == b"{" else msgspec.msgpack.decode(payload)


def _received(endpoint: str, kinds: set[str]) -> dict[str, tuple[bytes, bytes]]:
    """Topic and payload of a message of each kind, from a socket that knows nothing of Lookout."""
    found: dict[str, tuple[bytes, bytes]] = {}
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.subscribe(b"")
        socket.subscribe(b"packets/street/")
        socket.connect(endpoint)
        while kinds - set(found):
            assert socket.poll(_PATIENCE_MS), f"no message of {kinds - set(found)}"
            name, payload = socket.recv_multipart()
            kind = name.partition(b"/")[0].decode()
            if kind != "detections" or _plain(payload)["detections"]:
                found[kind] = name, payload
    return found


@pytest.fixture(scope="module", params=_ENCODINGS)
def of_a_daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The encoding of a daemon, and a message of each kind."""
    config = {
        "sources": [{"id": "street", "type": "synthetic", "width": 320, "height": 180}],
        "tracking": {"enabled": True},
        "monitor": {"interval_s": 0.5},
        "events": {"counts_interval_s": 0.5},
        "publisher": {"encoding": request.param},
    }
    rule = {"name": "all", "type": "object"}
    config["sources"][0]["rules"] = [rule]  # type: ignore[index]
    with Lookout(tmp_path_factory.mktemp("daemon"), config) as lookout:  # type: ignore[arg-type]
        return request.param, _received(lookout.endpoint, {*KINDS, "packets"} - _OF_RECORDINGS)


def test_a_daemons_messages_are_sent_as_the_daemon_does(of_a_daemon: Any) -> None:
    """Payload for payload, but for what the publisher numbers."""
    encoding, messages = of_a_daemon
    with (
        Publisher(encoding=encoding, timeout_s=PATIENCE_S) as publisher,
        zmq.Context() as context,
        context.socket(zmq.SUB) as socket,
    ):
        socket.subscribe(b"")
        socket.connect(publisher.endpoint)
        for name, payload in messages.values():
            publisher.send(decode(name, payload))
            assert socket.poll(_PATIENCE_MS)
            own_name, own = socket.recv_multipart()
            assert (own_name, own[:1] == b"{") == (name, payload[:1] == b"{")
            assert _plain(own) == _plain(payload) | {"instance": publisher.instance, "index": 0}


def _made_up(publisher: Publisher) -> list[Message]:
    """A message of each kind that has a method."""
    street = publisher.source("street")
    return [
        street.status("up"),
        street.detections([_BOX]),
        street.event("object", "appeared", track=7, label="person", box=_BOX.box),
        street.counts([Total(None, "object", "appeared", None, "person", 1)]),
        publisher.send(Packets(instance="", source="street", index=0, endpoint=None, reason="off")),
    ]


def test_made_up_messages_have_the_form_of_a_daemons(of_a_daemon: Any, publisher: Publisher) -> None:
    """The same fields, and values that the schema allows."""
    _, messages = of_a_daemon
    with Subscriber(publisher.endpoint, kinds=[*KINDS, "packets"]):
        for message in _made_up(publisher):
            kind = kind_of(message)
            name, payload = messages[kind]
            made = json.loads(msgspec.json.encode(message))
            assert made.keys() == json.loads(msgspec.json.encode(decode(name, payload))).keys()
            schema = json.loads((ROOT / "docs" / "schema" / f"{kind}.schema.json").read_text())
            jsonschema.Draft202012Validator(schema).validate(made)


def test_the_clients_subscriber_reads_what_was_sent(publisher: Publisher, subscriber: WaitingSubscriber) -> None:
    sent = _made_up(publisher)[:-1]
    assert subscriber.collect(len(sent), PATIENCE_S) == sent
    assert subscriber.lost == {}


def test_messages_of_recordings_are_numbered_and_read(publisher: Publisher, subscriber: WaitingSubscriber) -> None:
    clip = Clip(instance="", source="door", index=0, id="e1", store="main", events=["e1"], begin=1, end=2, covered=1,
                state="ready", path="/api/v1/recordings/door/clip.mp4?event=e1")  # fmt: skip
    store = Store(instance="", index=0, at=1, store="main", cause="disk_full", reason="x", bytes=0, free_bytes=None)
    sent = [publisher.send(message) for message in (clip, store, replace(store, store="nas"), clip)]
    assert subscriber.collect(4, PATIENCE_S) == sent
    assert [message.index for message in sent] == [0, 0, 0, 1]  # each store has a topic
    for message in sent:
        schema = json.loads((ROOT / "docs" / "schema" / f"{kind_of(message)}.schema.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(json.loads(msgspec.json.encode(message)))


def test_a_dropped_frame_is_a_gap_in_seq_and_counted(publisher: Publisher, subscriber: WaitingSubscriber) -> None:
    door = publisher.source("door")
    door.detections()
    door.drop("stale")
    door.drop()
    door.detections()
    found: list[Any] = subscriber.collect(2, PATIENCE_S)
    assert [(message.seq, message.index) for message in found] == [(0, 0), (3, 1)]
    assert found[1].dropped == Dropped(stale=1, superseded=1)
    assert found[1].pts == 120_000_000
    assert subscriber.lost == {}


def test_a_lost_message_is_a_gap_in_index(publisher: Publisher, subscriber: WaitingSubscriber) -> None:
    door = publisher.source("door")
    door.detections()
    with publisher.losing():
        door.detections()
        door.event("zone", "entered")
    door.detections()
    found: list[Any] = subscriber.collect(2, PATIENCE_S)
    assert [(message.seq, message.index) for message in found] == [(0, 0), (2, 2)]
    assert subscriber.lost == {"detections/door/": 1}


def test_a_new_connection_has_a_new_session(publisher: Publisher, subscriber: WaitingSubscriber) -> None:
    door = publisher.source("door")
    first = door.detections().session
    door.reconnect()
    door.detections()
    _, *states, last = subscriber.collect(5, PATIENCE_S)
    rows = [(row.state, row.session == first) for row in states if isinstance(row, Status)]
    assert rows == [("down", True), ("connecting", False), ("up", False)]
    assert isinstance(last, Detections)
    assert (last.session == first, last.seq) == (False, 1)


def test_another_run_counts_from_0_and_nothing_is_lost(publisher: Publisher, subscriber: WaitingSubscriber) -> None:
    door = publisher.source("door")
    assert publisher.source("door") is door
    sent = [door.detections(), door.detections()]
    publisher.restart()
    sent.append(door.detections())
    assert subscriber.collect(3, PATIENCE_S) == sent
    assert [(row.seq, row.index) for row in sent] == [(0, 0), (1, 1), (0, 0)]
    assert sent[2].instance == publisher.instance != sent[1].instance
    assert subscriber.lost == {}


def test_a_malformed_message_is_an_error_and_the_next_is_read(
    publisher: Publisher, subscriber: WaitingSubscriber
) -> None:
    publisher.send_raw(b"detections/door/", b"{")
    publisher.source("door").detections()
    with pytest.raises(ValueError, match="does not fit the wire"):
        subscriber.collect(1, PATIENCE_S)
    assert len(subscriber.collect(1, PATIENCE_S)) == 1


def test_waits_have_an_end(publisher: Publisher, subscriber: WaitingSubscriber) -> None:
    publisher.source("door").detections()
    subscriber.collect(1, PATIENCE_S)
    with pytest.raises(TimeoutError, match="0 messages of 2 within 0 s"):
        subscriber.collect(2, 0)
    with pytest.raises(TimeoutError, match="no such message within 0 s"):
        subscriber.wait_for(lambda _: False, 0)


@pytest.mark.usefixtures("subscriber")
def test_a_publisher_waits_for_a_subscription(publisher: Publisher) -> None:
    publisher.wait_for_subscription(b"events/door/")
    with Publisher(timeout_s=0) as alone:
        with pytest.raises(TimeoutError, match="nobody has subscribed to anything in 0 s"):
            alone.source("door").detections()
        with pytest.raises(TimeoutError, match="nobody has subscribed to events/door/ in 0 s"):
            alone.wait_for_subscription(b"events/door/")


def test_the_documents_example_works() -> None:
    (text,) = [
        token.content
        for token in tokens_of(ROOT / "docs" / "wire.md")
        if token.type == "fence" and "lookout.testing" in token.content
    ]
    exec(compile(text, "wire.md", "exec"), {})  # noqa: S102 - our own
