"""Pictures of events, asked of a daemon that has them a moment later, or never."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from daemon.bridge.messages import Notice
from daemon.bridge.push.pictures import MAX_BYTES, EventPictures
from daemon.bridge.records import Picture, Record
from daemon.peers.addresses import DaemonAddress
from daemon.peers.api import DaemonApi
from daemon.redact import Secret
from tests.support.pushes import AT, JPEG, Asked, PushServer, Reply, event_record, record

LONG_S = 60.0


def api_of(server: PushServer, token: str | None = "t0ken") -> DaemonApi:  # noqa: S107 - of these tests
    address = DaemonAddress("hall", None, server.url(""), Secret(token) if token else None)
    return DaemonApi(address)


def got(answer: Callable[[Asked], Reply], seconds: float = LONG_S, row: Record | None = None) -> Picture | None:
    with PushServer(answer) as server:
        return EventPictures({"hall": api_of(server)}).get(row or event_record(), seconds)


def in_turn(*replies: Reply) -> Callable[[Asked], Reply]:
    rows = list(replies)
    return lambda _: rows.pop(0) if len(rows) > 1 else rows[0]


def test_the_picture_is_asked_of_the_events_daemon() -> None:
    with PushServer(lambda _: Reply(200, JPEG)) as server, PushServer() as other:
        pictures = EventPictures({"hall": api_of(server), "yard": api_of(other)})
        assert pictures.get(event_record(), LONG_S) == Picture(JPEG)
        (asked,) = server.asked
        assert asked.path == "/api/v1/events/run-1/snapshot.jpg?width=1280"
        assert asked.headers["authorization"] == "Bearer t0ken"
        assert not other.asked


@pytest.mark.parametrize("status", [404, 503])
def test_a_picture_may_be_a_moment_behind_its_event(status: int) -> None:
    assert got(in_turn(Reply(status), Reply(status), Reply(200, JPEG))) == Picture(JPEG)


def test_a_picture_that_does_not_come_is_a_reason() -> None:
    found = got(in_turn(Reply(404, b'{"error":"no picture of this event: it had none, or it is gone"}')), 1.0)
    assert found == Picture(None, "it is not there: no picture of this event: it had none, or it is gone")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(401, b'{"error":"no such token"}'), "it is not there: no such token"),
        (Reply(200, b"<html>"), "the daemon's answer is no picture"),
        (Reply(200, b"\xff\xd8" + bytes(MAX_BYTES)), "it has more than 5 MiB"),
    ],
)
def test_what_is_no_picture_is_a_reason(reply: Reply, reason: str) -> None:
    assert got(lambda _: reply) == Picture(None, reason)


def test_a_picture_of_too_many_bytes_is_asked_for_in_small() -> None:
    def answer(asked: Asked) -> Reply:
        return Reply(200, JPEG if asked.path.endswith("width=640") else b"\xff\xd8" + bytes(MAX_BYTES))

    assert got(answer) == Picture(JPEG)


def test_a_daemon_that_is_away_is_a_reason() -> None:
    with PushServer() as server:
        api = api_of(server)
    found = EventPictures({"hall": api}).get(event_record(), LONG_S)
    assert found == Picture(None, "the HTTP API of hall does not answer: Connection refused")


def test_a_daemon_whose_api_is_not_known_is_a_reason() -> None:
    with PushServer() as server:
        for pictures in (EventPictures({}), EventPictures({"hall": api_of(server, None)})):
            found = pictures.get(event_record(), LONG_S)
            assert found is not None
            assert found.reason == "the bridge does not know the HTTP API of hall, or has no token for it"


@pytest.mark.parametrize("snapshot", [None, "https://elsewhere.example/x.jpg", "/api/v1/config", "/api/v1/../x"])
def test_nothing_else_is_asked_for(snapshot: Any) -> None:
    with PushServer() as server:
        pictures = EventPictures({"hall": api_of(server)})
        assert pictures.get(event_record(snapshot=snapshot), LONG_S) is None
        notice = Notice(id="n", daemon="hall", about="source", name="door", condition="down", since=AT, at=AT)
        assert pictures.get(record("status", notice), LONG_S) is None
        assert not server.asked


def test_a_stop_ends_the_wait() -> None:
    with PushServer(lambda _: Reply(404)) as server:
        pictures = EventPictures({"hall": api_of(server)})
        pictures.close()
        found = pictures.get(event_record(), LONG_S)
    assert found is not None
    assert found.jpeg is None
