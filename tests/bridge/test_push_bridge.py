"""Pushes from a daemon's wire to the server, through the bridge's spool and threads."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from daemon.bridge.bridge import Bridge
from daemon.bridge.report import TargetReport
from daemon.clock import SystemClock
from daemon.config.bridge import BridgeConfig, check_bridge
from daemon.config.http import HttpConfig
from daemon.config.text import hook
from daemon.peers.addresses import DaemonAddress
from daemon.redact import Secret
from daemon.validation import convert
from tests.bridge.publisher import TOKEN, EventSource
from tests.support.daemon import PATIENCE_S, wait_until
from tests.support.events import logged
from tests.support.ports import free_port
from tests.support.pushes import HERE, JPEG, Asked, Ntfy, PushServer, Reply, raw_server

_HOUR_NS = 3_600_000_000_000


class Running:
    """A bridge between a daemon and servers of pushes."""

    def __init__(self, folder: Path, source: EventSource, targets: Sequence[dict[str, Any]]) -> None:
        rows = [{"allow": HERE, **row} for row in targets]
        config: BridgeConfig = convert({"spool": str(folder / "spool.sqlite"), "targets": rows}, BridgeConfig, hook)
        check_bridge(config, HttpConfig())
        address = DaemonAddress("here", source.endpoint, source.http, Secret(TOKEN))
        self.bridge = Bridge(config, [address], SystemClock())
        self.bridge.start()

    def target(self, name: str) -> TargetReport:
        (found,) = [row for row in self.bridge.report().targets if row.name == name]
        return found

    def wait_until(self, condition: Callable[[], object]) -> None:
        wait_until(condition, "the bridge")

    def wait_for_events(self, source: EventSource) -> None:
        """Until the bridge follows the wire."""
        self.wait_until(
            lambda: self.bridge.report().feeds[0].state == "up" and "/api/v1/events?limit=1" in source.requests
        )


@contextmanager
def running(folder: Path, source: EventSource, *targets: dict[str, Any]) -> Iterator[Running]:
    found = Running(folder, source, targets)
    try:
        yield found
    finally:
        found.bridge.stop()


@pytest.fixture
def source() -> Iterator[EventSource]:
    with EventSource(["door"]) as found:
        yield found


def pictured(source: EventSource, count: int = 1, **fields: Any) -> None:
    """Events whose pictures are there a moment later."""
    for _ in range(count):
        id = f"{source.instance}-picture-{len(source.events)}"
        (event,) = source.emit(1, id=id, snapshot=f"/api/v1/events/{id}/snapshot.jpg", **fields)
        source.pictures[event.id] = JPEG


def test_an_event_comes_with_its_picture_in_one_request(tmp_path: Path, source: EventSource) -> None:
    stand_in = Ntfy()
    with PushServer(stand_in) as server:
        phone = {"name": "phone", "type": "ntfy", "url": server.url("/topic"), "picture": True}
        with running(tmp_path, source, phone) as bridge:
            bridge.wait_for_events(source)
            pictured(source)
            bridge.wait_until(lambda: bridge.target("phone").delivered == 1)
        assert len(server.asked) == 1
    (message,) = stand_in.messages
    assert message["picture"] == JPEG
    assert message["message"].startswith("person at door, ")


def test_a_cooldown_thins_and_counts(tmp_path: Path, source: EventSource) -> None:
    stand_in = Ntfy()
    with PushServer(stand_in) as server:
        phone = {"name": "phone", "type": "ntfy", "url": server.url("/topic"), "cooldown_s": 60}
        with running(tmp_path, source, phone) as bridge:
            bridge.wait_for_events(source)
            source.emit(20)
            source.emit(1, rule="gate")
            bridge.wait_until(lambda: bridge.target("phone").spooled == 0 and bridge.target("phone").received == 21)
            account = bridge.target("phone")
    assert (account.delivered, account.thinned) == (2, 19)
    assert len(stand_in.messages) == 2


def test_after_an_hour_away_there_is_one_digest(tmp_path: Path, source: EventSource) -> None:
    stand_in = Ntfy()
    port = free_port()
    phone = {"name": "phone", "type": "ntfy", "url": f"http://127.0.0.1:{port}/topic", "picture": True}
    with running(tmp_path, source, phone) as bridge:
        bridge.wait_for_events(source)
        bridge.wait_until(lambda: bridge.target("phone").state == "away")
        begin = time_ns() - _HOUR_NS
        for number in range(150):
            source.emit(1, at=begin + number * 1_000_000_000)
        pictured(source, at=begin + 150_000_000_000)
        bridge.wait_until(lambda: bridge.target("phone").spooled == 151)
        with PushServer(stand_in, port=port):
            bridge.wait_until(lambda: bridge.target("phone").delivered == 151)
    (message,) = stand_in.messages
    assert message["message"].startswith("151 events while away, ")
    assert message["message"].endswith(": door 151 person")
    assert message["picture"] == JPEG


def test_a_server_that_hangs_makes_no_other_target_late(tmp_path: Path, source: EventSource) -> None:
    hanging = threading.Event()

    def hang(end: socket.socket, ending: threading.Event) -> None:
        end.recv(65536)
        hanging.set()
        ending.wait()

    with PushServer() as server, raw_server(hang) as port:
        stuck = {"name": "stuck", "type": "webhook", "url": f"http://127.0.0.1:{port}/x"}
        with running(tmp_path, source, stuck, {"name": "hook", "type": "webhook", "url": server.url()}) as bridge:
            bridge.wait_for_events(source)
            source.emit(1)
            assert hanging.wait(PATIENCE_S)
            source.emit(30)
            bridge.wait_until(lambda: bridge.target("hook").delivered == 31)
            assert bridge.target("stuck").delivered == 0
            bridge.bridge.stop()  # which ends the request that hangs, too
        assert [json.loads(asked.body)["number"] for asked in server.asked] == [event.number for event in source.events]


def test_a_target_that_is_gone_gets_nothing_more(tmp_path: Path, source: EventSource) -> None:
    with PushServer(lambda _: Reply(410)) as server:
        with running(tmp_path, source, {"name": "hook", "type": "webhook", "url": server.url()}) as bridge:
            bridge.wait_for_events(source)
            source.emit(3)
            bridge.wait_until(lambda: bridge.target("hook").state == "gone")
            source.emit(3)
            bridge.wait_until(lambda: bridge.target("hook").spooled == 6)
        assert len(server.asked) == 1


def test_no_secret_is_in_the_spool_the_log_or_a_report(tmp_path: Path, source: EventSource) -> None:
    replies = iter([Reply(500, b"s3cret"), Reply(422, b"s3cret"), Reply(301, headers={"Location": "http://s3cret"})])

    def answer(_: Asked) -> Reply:
        return next(replies, Reply())

    with PushServer(answer) as server, logged() as lines:
        hook_ = {"name": "hook", "type": "webhook", "url": server.url("/s3cret-path"), "headers": {"X-Key": "s3cret"}}
        with running(tmp_path, source, hook_) as bridge:
            bridge.wait_for_events(source)
            source.emit(5)
            bridge.wait_until(lambda: bridge.target("hook").spooled == 0 and bridge.target("hook").received == 5)
            report = repr(bridge.bridge.report())
            assert bridge.target("hook").dropped == {"refused": 2}
    told = [report, *map(repr, lines), *(path.read_bytes().decode("latin-1") for path in tmp_path.iterdir())]
    assert len(lines) > 2
    assert not [text for text in told if "s3cret" in text]
