"""A bridge that is killed, and a broker that is started again, while events come."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic, sleep

import yaml

from tests.bridge.publisher import EventSource
from tests.support.daemon import ROOT
from tests.support.mosquitto import Mosquitto, Reader

_PATIENCE_S = 120.0


class BridgeProcess:
    """`lookout bridge` with a configuration."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "daemon", "bridge", "-c", str(self._config)]
        with (self._config.parent / "bridge.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env={**os.environ})

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None


def run(folder: Path, events: int, rate: float, kills: int, restarts: int) -> tuple[list[int], int]:
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
            emitting.join(events / rate + _PATIENCE_S)
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
