"""NATS JetStream for the contract of targets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import nats
from nats.js.api import StreamConfig

from daemon.config.targets import NatsTarget
from daemon.redact import Secret
from tests.bridge.brokers.harness import WRONG_PASSWORD, Arrived
from tests.support.brokers import NatsServer
from tests.support.ports import free_port

PASSWORD = "r1ght-of-nats"  # noqa: S105 - of this server
_LIMIT = 1 << 16
_T = TypeVar("_T")


class NatsHarness:
    """
    Args:
        stream: further settings of the stream, which takes `lookout.>`.
    """

    def __init__(self, folder: Path, **stream: Any) -> None:
        login = f'authorization {{ user: lookout, password: "{PASSWORD}" }}'
        self.server = NatsServer(folder, f"{login}\nmax_payload: {_LIMIT}")
        self.kill, self.close, self.pause = self.server.kill, self.server.close, self.server.pause
        self.resume = self.server.resume
        self._stream, self._is_made = stream, False

    def start(self) -> None:
        self.server.start()
        if not self._is_made:
            self.ask(lambda js: js.add_stream(StreamConfig("lookout", subjects=["lookout.>"], **self._stream)))
            self._is_made = True

    def target(self, **changes: Any) -> NatsTarget:
        given: dict[str, Any] = {"name": "bus", "servers": [Secret(f"nats://127.0.0.1:{self.server.port}")]}
        return NatsTarget(**{**given, "user": Secret("lookout"), "password": Secret(PASSWORD), **changes})

    def unreachable(self) -> NatsTarget:
        return self.target(servers=[Secret(f"nats://127.0.0.1:{free_port()}")])

    def with_wrong_password(self) -> NatsTarget:
        return self.target(password=Secret(WRONG_PASSWORD))

    def read(self) -> Sequence[Arrived]:
        return self.ask(self._read)

    async def _read(self, js: Any) -> list[Arrived]:
        subscription = await js.subscribe("lookout.>", ordered_consumer=True)
        found: list[Arrived] = []
        left = (await js.stream_info("lookout")).state.messages
        for _ in range(left):
            message = await subscription.next_msg(timeout=30)
            if message.subject.startswith("lookout.event."):
                source = message.subject.rpartition(".")[2]
                found.append(Arrived(message.headers["Nats-Msg-Id"], message.data, source))
        return found

    def too_large(self) -> int | None:
        return _LIMIT

    def ask(self, request: Callable[[Any], Awaitable[_T]]) -> _T:
        """Of the server's JetStream, by a client of its own."""

        async def asked() -> _T:
            client = await nats.connect(
                f"nats://127.0.0.1:{self.server.port}", user="lookout", password=PASSWORD, connect_timeout=30
            )
            try:
                return await request(client.jetstream(timeout=30))
            finally:
                await client.close()

        return asyncio.run(asked())
