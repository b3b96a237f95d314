"""Pairs that need a real server: secrets that change while it is tried again, and Home Assistant that starts while the
broker comes back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from daemon.bridge.bridge import Bridge
from daemon.bridge.report import TargetReport
from daemon.clock import SystemClock
from daemon.config.bridge import BridgeConfig
from daemon.config.text import hook
from daemon.peers.addresses import DaemonAddress
from daemon.redact import Secret
from daemon.validation import convert
from tests.bridge.publisher import TOKEN, EventSource
from tests.support.daemon import wait_until
from tests.support.mosquitto import Mosquitto, Reader, retained
from tests.support.pushes import HERE, Asked, PushServer, Reply

OLD, NEW = "whsec_" + "b2xk" * 8, "whsec_" + "bmV3" * 8
_CONFIGS = "homeassistant/device/#"


@pytest.fixture
def source() -> Iterator[EventSource]:
    with EventSource(["door", "yard"]) as found:
        yield found


@contextmanager
def _bridge(folder: Path, source: EventSource, target: dict[str, Any]) -> Iterator[Bridge]:
    raw = {"spool": str(folder / "spool.sqlite"), "targets": [target]}
    config: BridgeConfig = convert(raw, BridgeConfig, hook)
    bridge = Bridge(config, [DaemonAddress("here", source.endpoint, source.http, Secret(TOKEN))], SystemClock())
    bridge.start()
    try:
        wait_until(lambda: bridge.report().feeds[0].state == "up", "it hears the daemon")
        wait_until(lambda: "/api/v1/events?limit=1" in source.requests, "it knows where to begin")
        yield bridge
    finally:
        bridge.stop()


def _account(bridge: Bridge) -> TargetReport:
    (found,) = bridge.report().targets
    return found


def _verifies(secret: str, asked: Asked) -> bool:
    try:
        Webhook(secret).verify(asked.body, dict(asked.headers))
    except WebhookVerificationError:
        return False
    return True


def test_secrets_that_change_while_a_message_is_tried_again(tmp_path: Path, source: EventSource) -> None:
    """The old one, both, the new one: each try is signed with those of its moment, and no message is lost."""
    file = tmp_path / "secrets"
    file.write_text(f"{OLD}\n")
    is_away = True

    def answer(asked: Asked) -> Reply:  # noqa: ARG001 - it answers all alike
        return Reply(503, headers={"Retry-After": "1"}) if is_away else Reply()

    with PushServer(answer) as server:
        target = {
            "name": "hook",
            "type": "webhook",
            "url": server.url("/hook"),
            "secrets_file": str(file),
            "allow": HERE,
        }
        with _bridge(tmp_path, source, target) as bridge:
            source.emit(3)
            wait_until(lambda: server.asked, "it is tried")
            tried = len(server.asked)
            file.write_text(f"{NEW}\n{OLD}\n")
            wait_until(lambda: _signed_by_both(server.asked[tried:]), "both sign")
            file.write_text(f"{NEW}\n")
            is_away = False
            wait_until(lambda: _account(bridge).delivered == 3, "all are taken")
            account = _account(bridge)
    assert (account.received, account.dropped) == (3, {})
    assert _verifies(OLD, server.asked[0])
    taken = server.asked[-2:]
    assert [_verifies(NEW, asked) for asked in taken] == [True, True]
    assert [_verifies(OLD, asked) for asked in taken] == [False, False]
    ids = list(dict.fromkeys(asked.headers["webhook-id"] for asked in server.asked))
    assert len(ids) == 3


def _signed_by_both(tries: Sequence[Asked]) -> bool:
    return any(_verifies(OLD, asked) and _verifies(NEW, asked) for asked in tries)


def _born(reader: Reader) -> bool:
    """Home Assistant says that it has started."""
    reader.publish("homeassistant/status", "online")
    return True


@pytest.mark.needs("mosquitto")
def test_home_assistant_starts_while_the_broker_comes_back(tmp_path: Path, source: EventSource) -> None:
    """A broker that has forgotten all: documents and states are there again, once or twice each, and no event is."""
    with Mosquitto(tmp_path / "mosquitto", keeps=False) as broker:
        target = {"name": "home", "type": "mqtt", "url": f"mqtt://127.0.0.1:{broker.port}", "homeassistant": True}
        with _bridge(tmp_path, source, target) as bridge:
            for name in source.sources:
                source.status(name, "up")
            wait_until(lambda: len(retained(broker.port, _CONFIGS)) >= 3, "the daemon and both cameras are devices")
            before = set(retained(broker.port, "#"))
            broker.kill()
            source.emit(5)
            broker.start()
            with Reader(broker.port, "#") as reader:
                wait_until(lambda: _born(reader) and _account(bridge).delivered == 5, "all events are there")
                wait_until(lambda: before <= set(retained(broker.port, "#")), "all is retained again")
                after = retained(broker.port, "#")
                account = _account(bridge)
                told = [row.topic for row in reader.messages if row.topic.startswith("homeassistant/device")]
    assert (account.received, account.delivered, account.dropped) == (5, 5, {})
    births = sum(row.topic == "homeassistant/status" for row in reader.messages)
    assert max(told.count(topic) for topic in told) <= births + 2
    assert [topic for topic in after if "/events/" in topic] == []
