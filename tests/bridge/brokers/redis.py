"""Redis for the contract of targets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis

from daemon.config.targets import RedisTarget
from daemon.redact import Secret
from tests.bridge.brokers.harness import WRONG_PASSWORD, Arrived
from tests.support.brokers import RedisServer
from tests.support.ports import free_port

PASSWORD = "r1ght-of-redis"  # noqa: S105 - of this server


class RedisHarness:
    def __init__(self, folder: Path) -> None:
        self.server = RedisServer(folder, "--requirepass", PASSWORD)
        self.start, self.kill, self.close = self.server.start, self.server.kill, self.server.close
        self.pause, self.resume = self.server.pause, self.server.resume

    def target(self, **changes: Any) -> RedisTarget:
        given: dict[str, Any] = {"name": "cache", "url": Secret(f"redis://127.0.0.1:{self.server.port}/0")}
        return RedisTarget(**{**given, "password": Secret(PASSWORD), **changes})

    def unreachable(self) -> RedisTarget:
        return self.target(url=Secret(f"redis://127.0.0.1:{free_port()}"))

    def with_wrong_password(self) -> RedisTarget:
        return self.target(password=Secret(WRONG_PASSWORD))

    def read(self) -> Sequence[Arrived]:
        with self.client() as client:
            rows: Any = client.xrange("lookout:event")
        return [
            Arrived(fields[b"id"].decode(), fields[b"body"], fields[b"source"].decode()) for _, fields in rows
        ]  # fmt: skip

    def too_large(self) -> int | None:
        return None

    def client(self) -> redis.Redis:
        return redis.Redis(host="127.0.0.1", port=self.server.port, password=PASSWORD)
