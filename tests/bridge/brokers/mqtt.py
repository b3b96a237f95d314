"""Mosquitto for the contract of targets."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from daemon.config.targets import MqttTarget
from daemon.redact import Secret
from tests.bridge.brokers.harness import WRONG_PASSWORD, Arrived
from tests.support.mosquitto import Mosquitto, Reader
from tests.support.ports import free_port

USER, PASSWORD = "lookout", "r1ght-of-mqtt"  # of this broker
_LIMIT = 200_000
_EVENTS, _MARK = "lookout/events/", "tests/mark"


class MqttHarness:
    """Another program reads from the start: a broker keeps nothing for those who come later."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        passwords = folder / "passwords"
        subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, USER, PASSWORD], check=True, timeout=30)
        lines = [f"password_file {passwords}", f"max_packet_size {_LIMIT}", "max_inflight_messages 0"]
        self.broker = Mosquitto(folder, [*lines, "allow_anonymous false", "max_queued_messages 0"])
        self.kill, self.pause, self.resume = self.broker.kill, self.broker.pause, self.broker.resume
        self._reader: Reader | None = None
        self._marks = 0

    def target(self, **changes: Any) -> MqttTarget:
        given = {"name": "home", "url": Secret(f"mqtt://127.0.0.1:{self.broker.port}"), "user": Secret(USER)}
        return MqttTarget(**{**given, "password": Secret(PASSWORD), **changes})

    def unreachable(self) -> MqttTarget:
        return self.target(url=Secret(f"mqtt://127.0.0.1:{free_port()}"))

    def with_wrong_password(self) -> MqttTarget:
        return self.target(password=Secret(WRONG_PASSWORD))

    def start(self) -> None:
        self.broker.start()
        if self._reader is None:
            self._reader = Reader(self.broker.port, f"{_EVENTS}#", _MARK, login=(USER, PASSWORD), qos=0)
        else:
            self._reader.await_return()

    def read(self) -> Sequence[Arrived]:
        """What the other program has got before a message that it sends now."""
        assert self._reader is not None
        self._marks += 1
        mark = str(self._marks)
        self._reader.publish(_MARK, mark)
        self._reader.wait(lambda row: mark.encode() in row.bodies(_MARK))
        rows = [row for row in self._reader.messages if row.topic != _MARK]
        return [Arrived(row.id, row.payload, row.topic.removeprefix(_EVENTS)) for row in rows]

    def too_large(self) -> int | None:
        return _LIMIT

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self.broker.__exit__()
