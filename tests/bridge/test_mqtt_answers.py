"""MQTT against brokers that refuse for a while, or answer late."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import closing
from threading import Thread
from typing import Any

import pytest

from daemon.bridge.port import AwayError
from daemon.bridge.records import Delivery
from daemon.bridge.targets import mqtt
from daemon.bridge.targets.mqtt import MqttConnection
from daemon.bridge.targets.opening import open_target
from daemon.clock import SystemClock
from daemon.config.targets import MqttTarget
from daemon.redact import Secret
from tests.bridge.mqtt_answers import AnsweringBroker
from tests.bridge.told import context, deliveries
from tests.support.daemon import wait_until

_BUSY, _ODD = 0x97, 0x83  # quota exceeded, implementation specific error


class _Hasty(SystemClock):
    """A second passes at each look, while `may_pass`; otherwise it is the machine's."""

    def __init__(self) -> None:
        self.may_pass: Callable[[], bool] = lambda: False
        self._ahead_s = 0

    def monotonic_ns(self) -> int:
        self._ahead_s += self.may_pass()
        return SystemClock.monotonic_ns() + self._ahead_s * 1_000_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Hasty:
    monkeypatch.setattr(mqtt, "_TEND_S", 0.02)  # between two looks
    return _Hasty()


def _opened(broker: AnsweringBroker, clock: _Hasty) -> MqttConnection:
    target = MqttTarget(name="home", url=Secret(f"mqtt://127.0.0.1:{broker.port}"))
    found = open_target(target, context(clock=clock))
    assert isinstance(found, MqttConnection)
    return found


def _delivered(connection: MqttConnection, rows: Sequence[Delivery]) -> list[str | None]:
    """As the bridge does it: what has no result comes again."""
    found: list[str | None] = []
    for _ in range(200):
        found += connection.deliver(rows[len(found) :])
        if len(found) == len(rows):
            return found
    raise AssertionError(f"only {len(found)} have a result")


def test_a_record_that_is_refused_for_now_goes_again_alone_and_is_given_up(clock: _Hasty) -> None:
    rows = deliveries(1, 20)
    odd = rows[2].record.body
    with (
        AnsweringBroker(lambda _, body: _ODD if body == odd else 0) as broker,
        closing(_opened(broker, clock)) as connection,
    ):
        clock.may_pass = lambda: connection._outbox.is_waiting
        results = _delivered(connection, rows)
        assert results == [None, None, "the broker refuses it: Implementation specific error", *[None] * 17]
        assert broker.bodies.count(odd) == 11
        assert len(broker.bodies) == 20 + 10, "what the broker has taken does not go again"


def test_a_quota_is_waited_for_without_a_flood(clock: _Hasty) -> None:
    rows, refused = deliveries(1, 5), 0

    def code(topic: str, _body: bytes) -> int:
        nonlocal refused
        if not topic.startswith("lookout/events/") or refused == 25:
            return 0
        refused += 1
        return _BUSY

    with AnsweringBroker(code) as broker, closing(_opened(broker, clock)) as connection:
        clock.may_pass = lambda: connection._outbox.is_waiting
        assert _delivered(connection, rows) == [None] * 5
        first = rows[0].record.body
        assert broker.bodies[:5] == [row.record.body for row in rows]
        assert broker.bodies[5:26] == [first] * 21, "one goes again until it is taken"
        assert broker.bodies[26:] == [row.record.body for row in rows[1:]]


@pytest.mark.parametrize("kept_back", [1, 15])
def test_what_a_slow_broker_has_is_not_sent_again(kept_back: int, clock: _Hasty) -> None:
    rows = deliveries(1, 20)
    early, late = rows[: 20 - kept_back], rows[20 - kept_back :]
    kept = {row.record.body for row in late}
    with (
        AnsweringBroker(lambda _, body: None if body in kept else 0) as broker,
        closing(_opened(broker, clock)) as connection,
    ):
        clock.may_pass = lambda: connection._outbox._under_way == kept_back
        assert connection.deliver(rows) == [None] * len(early)
        clock.may_pass = lambda: False
        broker.release()
        assert _delivered(connection, late) == [None] * kept_back
        assert broker.bodies == [row.record.body for row in rows]


def _closing_server(listener: socket.socket, times: int) -> None:
    for _ in range(times):
        listener.accept()[0].close()


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_failed_connections_hold_no_descriptors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = Thread(target=_closing_server, args=(listener, 6))
        serving.start()
        keys: dict[str, Any] = {"name": "home", "url": Secret(f"mqtt://127.0.0.1:{listener.getsockname()[1]}")}
        counts = []
        gc.disable()
        try:
            for _ in range(6):
                with pytest.raises(AwayError):
                    open_target(MqttTarget(**keys), context())
                counts.append(_descriptors())
            # Each would leave two. Other threads open some, and close them soon.
            wait_until(lambda: _descriptors() - min(counts) <= 2, "they are closed")
        finally:
            gc.enable()
        serving.join()
