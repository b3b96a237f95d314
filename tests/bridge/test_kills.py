"""A bridge that is killed while it passes on: nothing is missing, what comes again is bounded, and the order holds."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import pytest
import yaml

from tests.bridge.publisher import EventSource
from tests.support.daemon import PATIENCE_S, ROOT, wait_until
from tests.support.zygote import Started

_WINDOW = 100


class _Bridge:
    """`lookout bridge` with a file as its target."""

    def __init__(self, folder: Path, source: EventSource) -> None:
        self._lines, self._log = folder / "lines.jsonl", folder / "log.jsonl"
        self._config = folder / "bridge.yaml"
        bridge = {
            "spool": str(folder / "spool.sqlite"),
            "daemons": [source.config()],
            "targets": [{"name": "lines", "type": "file", "path": str(self._lines)}],
        }
        self._config.write_text(yaml.safe_dump({"bridge": bridge, "log": {"format": "json"}}))
        self.start()

    def start(self) -> None:
        with open(os.devnull, "r+") as nothing, self._log.open("a") as log:
            files = (nothing.fileno(), nothing.fileno(), log.fileno())
            self.process = Started(["bridge", "-c", str(self._config)], files, str(ROOT))

    def is_connected(self, times: int) -> bool:
        return self._log.read_text().count("a target is connected") >= times

    def numbers(self) -> list[int]:
        """Of the events in the file, in order; a line that is not whole is none."""
        rows = self._lines.read_text().split("\n")[:-1] if self._lines.exists() else []
        return [json.loads(row)["number"] for row in rows]

    def log(self) -> str:
        return self._log.read_text()

    def end(self, number: int) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("events", "rate", "kills"), [(300, 150.0, 2), pytest.param(10_000, 400.0, 50, marks=pytest.mark.long)]
)
def test_kills_lose_nothing_and_repeat_a_window_at_most(tmp_path: Path, events: int, rate: float, kills: int) -> None:
    chance = random.Random(events)
    with EventSource(["door", "yard"]) as source:
        bridge = _Bridge(tmp_path, source)
        try:
            wait_until(lambda: bridge.is_connected(1), "it is connected")
            wait_until(lambda: source.emit(1) and bridge.numbers(), "it begins")
            first = bridge.numbers()[0]
            for number in range(kills):
                before = chance.randrange(1, events // kills)
                source.emit(before, rate=rate)  # the bridge is wherever it is then
                assert bridge.end(signal.SIGKILL) == -signal.SIGKILL
                source.emit(events // kills - before, rate=rate)
                bridge.start()
                wait_until(lambda: bridge.is_connected(number + 2), "it is connected")  # noqa: B023 - called at once
            wanted = [event.number for event in source.events if event.number >= first]
            wait_until(lambda: bridge.numbers()[-1:] == wanted[-1:], "all is there")
            assert bridge.end(signal.SIGTERM) == 0
            told = bridge.numbers()
        finally:
            bridge.end(signal.SIGKILL)
    assert list(dict.fromkeys(told)) == wanted
    assert len(told) - len(wanted) <= kills * _WINDOW
    assert "Traceback" not in bridge.log()
