"""Events arrive, all of them and in order, whatever dies: the bridge by kill -9, the broker again and again."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.bridge.mqtt_deaths import run

pytestmark = pytest.mark.needs("mosquitto")
WINDOW = 100


def _check(numbers: list[int], events: int, deaths: int) -> None:
    first = list(dict.fromkeys(numbers))
    assert len(first) >= events
    assert first == sorted(first), "the order is kept"
    duplicates = sum(count - 1 for count in Counter(numbers).values())
    assert duplicates <= WINDOW * deaths
    sys.stdout.write(f"{events} events, {deaths} deaths: {duplicates} came twice\n")


def test_events_outlive_kills_of_the_bridge_and_restarts_of_the_broker(tmp_path: Path) -> None:
    numbers, _ = run(tmp_path, events=300, rate=100, kills=2, restarts=1)
    _check(numbers, 300, 3)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_ten_thousand_events_outlive_fifty_kills_and_twenty_restarts(tmp_path: Path) -> None:
    numbers, by_broker = run(tmp_path, events=10_000, rate=40, kills=50, restarts=20)
    sys.stdout.write(f"the broker itself sent {by_broker} again\n")
    _check(numbers, 10_000, 70)
