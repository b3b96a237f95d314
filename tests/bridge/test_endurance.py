"""The bridge and the broker are killed again and again: no event is missing, and all come in their order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.bridge.bridge_process import WINDOW, endure
from tests.bridge.brokers.harness import BrokerHarness
from tests.bridge.brokers.redis import RedisHarness
from tests.bridge.brokers.table import BROKERS

pytestmark = pytest.mark.needs("mosquitto", "nats-server", "redis-server")


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerHarness]:
    with closing(BROKERS[request.param](tmp_path / "broker")) as found:
        found.start()
        yield found


def _check(folder: Path, broker: BrokerHarness, *, events: int, kills: int, restarts: int) -> None:
    ids, arrived = endure(folder, broker, events=events, kills=kills, restarts=restarts, seed=7)
    assert list(dict.fromkeys(arrived)) == ids
    assert len(ids) >= events
    twice = len(arrived) - len(ids)
    print(f"{len(ids)} events, {kills} kills, {restarts} restarts: {twice} arrived twice")  # noqa: T201
    assert twice <= WINDOW * (kills + restarts)


@pytest.mark.long
def test_killed_twice(tmp_path: Path) -> None:
    """In a minute; `make test` kills the bridge in test_kills.py and test_mqtt_kills.py, and brokers in theirs."""
    with closing(RedisHarness(tmp_path / "broker")) as broker:
        broker.start()
        _check(tmp_path / "bridge", broker, events=300, kills=2, restarts=0)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_killed_fifty_times(tmp_path: Path, broker: BrokerHarness) -> None:
    _check(tmp_path / "bridge", broker, events=10_000, kills=50, restarts=20)
