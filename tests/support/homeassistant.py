"""A real Home Assistant in a process of its own, with its MQTT and a probe of the tests.

`python -m tests.homeassistant FOLDER` installs it, and LOOKOUT_HOMEASSISTANT names the folder.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.support.needs import HOMEASSISTANT
from tests.support.ports import free_port

_TESTS = Path(__file__).resolve().parents[1] / "homeassistant"
PYTHON = HOMEASSISTANT / "bin" / "python"
_WITHIN_S = 600.0


class Found(msgspec.Struct, frozen=True):
    """What Home Assistant knows.

    Attributes:
        states: by entity: state and attributes.
        changes: of event entities: entity, state before, state, id of the event.
        pictures: bytes of each.
        told: data of the events `lookout_told`, which a script of a test may fire.
        connected_at: when it last connected to the broker, by the monotonic clock of this machine, s; None while it is
            not connected, and where it was before the probe began.
    """

    is_running: bool
    states: dict[str, tuple[str, dict[str, Any]]]
    devices: list[dict[str, Any]]
    entities: dict[str, str]
    changes: list[tuple[str, str | None, str, str | None]]
    pictures: dict[str, int]
    told: list[dict[str, Any]]
    connected_at: float | None

    def state(self, entity: str) -> str | None:
        row = self.states.get(entity)
        return None if row is None else row[0]

    @staticmethod
    def fired_in(changes: Sequence[tuple[str, str | None, str, str | None]], entity: str) -> list[str | None]:
        """Ids of the events for which an entity fired, as the blueprint sees it: it does not count that one is back."""
        return [
            id
            for name, before, now, id in changes
            if name == entity and before not in (None, "unavailable", now) and now not in ("unavailable", "unknown")
        ]


class HomeAssistant:
    """
    Args:
        folder: its configuration.
        more: further lines of configuration.yaml.
    """

    def __init__(self, folder: Path, broker: int, more: str = "") -> None:
        self._folder, self._socket = folder, folder / "probe"
        self._process: subprocess.Popen[bytes] | None = None
        self.changes: list[tuple[str, str | None, str, str | None]] = []
        (folder / ".storage").mkdir(parents=True)
        components = folder / "custom_components"
        components.mkdir()
        (components / "lookout_probe").symlink_to(_TESTS / "probe")
        (folder / "configuration.yaml").write_text(
            f"http: {{server_host: 127.0.0.1, server_port: {free_port()}}}\n"
            f"lookout_probe: {{socket: {json.dumps(str(self._socket))}}}\n"
            "logger: {default: warning}\n" + more
        )
        entry = {
            "created_at": "2026-01-01T00:00:00+00:00", "modified_at": "2026-01-01T00:00:00+00:00", "entry_id": "mqtt",
            "data": {"broker": "127.0.0.1", "port": broker, "discovery": True}, "disabled_by": None,
            "discovery_keys": {}, "domain": "mqtt", "minor_version": 1, "options": {},
            "pref_disable_new_entities": False, "pref_disable_polling": False, "source": "user", "title": "mosquitto",
            "unique_id": None, "version": 1,
        }  # fmt: skip
        store = {"version": 1, "minor_version": 4, "key": "core.config_entries", "data": {"entries": [entry]}}
        (folder / ".storage" / "core.config_entries").write_text(json.dumps(store))

    def start(self) -> None:
        self._socket.unlink(missing_ok=True)
        with (self._folder / "out").open("ab") as out:
            self._process = subprocess.Popen(
                [PYTHON, str(_TESTS / "run.py"), str(self._folder)], stdout=out, stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": ""},
            )  # fmt: skip
        self.wait(lambda found: found.is_running, _WITHIN_S)

    def stop(self) -> None:
        """An orderly end."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def ask(self) -> Found | None:
        """What it knows now; None before it answers."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(10)
            try:
                probe.connect(str(self._socket))
                parts = []
                while part := probe.recv(1 << 20):
                    parts.append(part)
            except OSError:
                return None
        return msgspec.json.decode(b"".join(parts), type=Found)

    def wait(self, condition: Callable[[Found], bool], seconds: float = 30.0) -> Found:
        """What it knows as soon as something is true of it."""
        end = time.monotonic() + seconds
        while True:
            found = self.ask()
            if found is not None and condition(found):
                return found
            assert self._process is not None
            assert self._process.poll() is None, (self._folder / "out").read_text()[-3000:]
            assert time.monotonic() < end, f"{found}\n{self.log()[-3000:]}"
            time.sleep(0.1)

    def log(self) -> str:
        """Warnings and errors."""
        file = self._folder / "home-assistant.log"
        return file.read_text() if file.exists() else ""

    def __enter__(self) -> HomeAssistant:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        if (found := self.ask()) is not None:
            self.changes += found.changes
        self._process.send_signal(number)
        self._process.wait(60)
        self._process = None
