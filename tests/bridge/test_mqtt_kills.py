"""Events arrive, all of them and in order, whatever dies: the bridge by kill -9, the broker again and again."""

from __future__ import annotations

import json
import random
import sys
import threading
from collections import Counter
from pathlib import Path
from time import monotonic, sleep

import pytest
import yaml

from tests.bridge.publisher import EventSource
from tests.bridge.test_homeassistant_real import BridgeProcess
from tests.support.mosquitto import Mosquitto, Reader

pytestmark = pytest.mark.needs("mosquitto")
WINDOW = 100
_PATIENCE_S = 120.0


def _run(folder: Path, events: int, rate: float, kills: int, restarts: int) -> tuple[list[int], int]:
    """Numbers of the events as another program gets them, and how many of them the broker itself sent again."""
    rng = random.Random(events)
    ends = ["bridge"] * kills + ["broker"] * restarts
    rng.shuffle(ends)
    lines = ["max_inflight_messages 0", "max_queued_messages 0"]
    with Mosquitto(folder / "mosquitto", lines) as broker, Reader(
        broker.port, "lookout/events/#", id="reader"
    ) as reader, EventSource(["door", "yard"]) as daemon:  # fmt: skip
        config = folder / "bridge.yaml"
        target = {"name": "home", "type": "mqtt", "url": f"mqtt://127.0.0.1:{broker.port}"}
        spool = str(folder / "spool.sqlite")
        config.write_text(
            yaml.safe_dump({"bridge": {"spool": spool, "daemons": [daemon.config()], "targets": [target]}})
        )
        bridge = BridgeProcess(config)
        bridge.start()
        emitting = threading.Thread(target=daemon.emit, args=(events,), kwargs={"rate": rate}, daemon=True)
        try:
            begun = _follow(daemon, reader)
            emitting.start()
            for end in ends:
                sleep(rng.uniform(0.3, 0.7) * events / rate / len(ends))
                if end == "bridge":
                    bridge.kill()
                    bridge.start()
                else:
                    broker.restart()
            emitting.join(_PATIENCE_S)
            wanted = {event.number for event in daemon.events if event.number >= begun}
            until = monotonic() + _PATIENCE_S
            while len({*_numbers(reader)} & wanted) < len(wanted):
                assert monotonic() < until, (len(wanted), (folder / "bridge.log").read_text()[-2000:])
                sleep(0.2)
        finally:
            bridge.kill()
        rows = list(zip(_numbers(reader), [row.dup for row in reader.messages], strict=True))
    numbers, by_broker, seen = [], 0, set[int]()
    for number, is_again in rows:
        if is_again and number in seen:
            by_broker += 1
        else:
            numbers.append(number)
            seen.add(number)
    assert {*numbers} >= wanted, "none is missing"
    return numbers, by_broker


def _follow(daemon: EventSource, reader: Reader) -> int:
    """Emit events until the first one comes: a new bridge begins with what happens from then on. Its number."""
    while not reader.messages:
        daemon.emit(1)
        sleep(0.2)
    return _numbers(reader)[0]


def _numbers(reader: Reader) -> list[int]:
    return [json.loads(row.payload)["number"] for row in [*reader.messages]]


def _check(numbers: list[int], events: int, deaths: int) -> None:
    first = list(dict.fromkeys(numbers))
    assert len(first) >= events
    assert first == sorted(first), "the order is kept"
    duplicates = sum(count - 1 for count in Counter(numbers).values())
    assert duplicates <= WINDOW * deaths
    sys.stdout.write(f"{events} events, {deaths} deaths: {duplicates} came twice\n")


def test_events_outlive_kills_of_the_bridge_and_restarts_of_the_broker(tmp_path: Path) -> None:
    numbers, _ = _run(tmp_path, events=300, rate=100, kills=2, restarts=1)
    _check(numbers, 300, 3)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_ten_thousand_events_outlive_fifty_kills_and_twenty_restarts(tmp_path: Path) -> None:
    numbers, by_broker = _run(tmp_path, events=10_000, rate=30, kills=50, restarts=20)
    sys.stdout.write(f"the broker itself sent {by_broker} again\n")
    _check(numbers, 10_000, 70)
