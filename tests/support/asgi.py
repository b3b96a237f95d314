"""An application without a server: requests go to it as uvicorn would hand them over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

Pairs = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Answered:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class InProcess:
    """A client in one event loop.

    Args:
        token: sent with each request that has no header of its own for it.
    """

    def __init__(self, app: ASGIApp, loop: asyncio.AbstractEventLoop, token: str | None = None) -> None:
        self._app, self._loop, self._token = app, loop, token

    def get(self, target: str, **headers: str) -> Answered:
        return self.send("GET", target, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def send(self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: Any = b"") -> Answered:
        """
        Args:
            body: bytes, or something for JSON.
        """
        pairs = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
            pairs.append((b"content-type", b"application/json"))
        return self.raw(method, target.encode(), pairs, body)

    def raw(self, method: str, target: bytes, headers: Pairs, body: bytes = b"") -> Answered:
        """Any bytes."""
        return self._loop.run_until_complete(self._send(method, target, headers, body))

    async def _send(self, method: str, target: bytes, headers: Pairs, body: bytes) -> Answered:
        path, _, query = target.partition(b"?")
        pairs = [(b"host", b"recorder.example"), *headers]
        if self._token is not None and not any(name == b"authorization" for name, _ in pairs):
            pairs.append((b"authorization", f"Bearer {self._token}".encode()))
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": "",
            "method": method, "path": unquote(path.decode("ascii", "replace")), "raw_path": path,
            "query_string": query, "headers": pairs, "client": ("192.0.2.1", 1234), "server": ("192.0.2.2", 80),
        }  # fmt: skip
        incoming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Message] = []
        gone = asyncio.Event()

        async def receive() -> Message:
            if incoming:
                return incoming.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        begun, *rest = sent
        answer = b"".join(message.get("body", b"") for message in rest)
        told = {name.decode(): value.decode() for name, value in begun["headers"]}
        return Answered(begun["status"], told, answer)


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
