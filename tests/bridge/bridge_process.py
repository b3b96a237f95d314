"""`lookout bridge` as a process that may be killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import msgspec
import yaml

from daemon.config.targets import TargetConfig
from daemon.redact import Secret
from tests.bridge.brokers.harness import BrokerHarness
from tests.bridge.publisher import EventSource
from tests.support.ports import free_port

_ROOT = Path(__file__).resolve().parents[2]
_PATIENCE_S = 300.0
_TOKEN = "account-of-this-bridge"  # noqa: S105
WINDOW = 100
_READ_EVERY = 5  # troubles


class BridgeProcess:
    """A bridge of one target, with its configuration and its spool in a folder."""

    def __init__(self, folder: Path, source: EventSource, target: TargetConfig) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._port, self._log = free_port(), folder / "log"
        self._file = folder / "bridge.yaml"
        self._asking = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/api/v1/bridge", headers={"Authorization": f"Bearer {_TOKEN}"}
        )
        row = {"type": target.__struct_config__.tag, **msgspec.to_builtins(target, enc_hook=_plain)}
        bridge = {
            "spool": str(folder / "spool.sqlite"), "port": self._port, "targets": [row], "daemons": [source.config()],
        }  # fmt: skip
        http = {"tokens": [{"name": "test", "role": "view", "token": _TOKEN}]}
        self._file.write_text(yaml.safe_dump({"bridge": bridge, "http": http}))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "lookoutd", "bridge", "-c", str(self._file)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=_ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(_PATIENCE_S)
            self._process = None

    def stop(self) -> int:
        """In order; its exit code."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(_PATIENCE_S)
        self._process = None
        return code

    def look(self) -> dict[str, Any] | None:
        """The account of its target, which adds up; None while it does not answer."""
        try:
            with urllib.request.urlopen(self._asking, timeout=10) as answer:  # noqa: S310 - of this machine
                report: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError:
            raise
        except OSError:
            assert self._process is None or self._process.poll() is None, self._log.read_text()[-3000:]
            return None
        row: dict[str, Any] = report["targets"][0]
        told = row["delivered"] + row["filtered"] + row["thinned"] + sum(row["dropped"].values()) + row["spooled"]
        assert row["received"] == told, row
        return row

    def wait_until(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        until = monotonic() + _PATIENCE_S
        while (row := self.look()) is None or not condition(row):
            assert monotonic() < until, (row, self._log.read_text()[-3000:])
            sleep(0.05)
        return row


def endure(
    folder: Path, broker: BrokerHarness, *, events: int, kills: int, restarts: int, seed: int
) -> tuple[Sequence[str], Sequence[str]]:
    """Events go on while the bridge is killed and the broker is killed and started again, at any moment.

    Returns:
        The ids that the source has told since the first one that arrived, and those that the broker has.
    """
    chance = random.Random(seed)
    troubles = ["bridge"] * kills + ["broker"] * restarts
    chance.shuffle(troubles)
    with EventSource(["door", "yard", "gate"]) as source:
        bridge = BridgeProcess(folder, source, broker.target())
        bridge.start()
        try:
            bridge.wait_until(lambda row: row["received"] or not source.emit(1))
            early = len(source.events)  # some of them are before the bridge's time
            for place, trouble in enumerate(troubles):
                told = threading.Thread(target=source.emit, args=(events // len(troubles),), kwargs={"rate": 400.0})
                told.start()
                sleep(chance.uniform(0.0, 0.8))
                bridge.look()
                if trouble == "bridge":
                    bridge.kill()
                    bridge.start()
                else:
                    broker.kill()
                    sleep(chance.uniform(0.0, 0.3))
                    broker.start()
                told.join()
                bridge.wait_until(lambda row: row["state"] == "up")
                bridge.wait_until(lambda row: row["spooled"] < WINDOW)
                if place % _READ_EVERY == 0:
                    broker.read()  # one that keeps little is read in time
            source.emit(max(0, early + events - len(source.events)))
            row = bridge.wait_until(lambda row: not row["spooled"] and row["received"] > len(source.events) - early)
            assert bridge.stop() == 0
            assert row["dropped"] == {}
            ids = [event.id for event in source.events]
        finally:
            bridge.kill()
    arrived = [row.id for row in broker.read()]
    return ids[ids.index(arrived[0]) :], arrived


def _plain(value: object) -> object:
    return value.reveal() if isinstance(value, Secret) else str(value)
