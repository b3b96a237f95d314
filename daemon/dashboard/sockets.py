"""The page's WebSockets: the feed of messages, and live video."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from daemon.clock import Clock
from daemon.dashboard.hub import Hub
from daemon.dashboard.live import Live
from daemon.dashboard.viewer_queue import Progress
from daemon.dashboard.viewers import ClientMessage, Viewer

log = structlog.get_logger(__name__)
_message = msgspec.json.Decoder(ClientMessage).decode
_progress = msgspec.json.Decoder(Progress).decode
_MAX_PER_S, _MAX_AT_ONCE = 5.0, 50.0  # messages of a client
_BUSY, _WRONG = 1013, 1008


@dataclass(frozen=True)
class Viewing:
    """Whether the viewer of a WebSocket may go on.

    Attributes:
        allowed: whether it is signed in now.
        ended: waits until it is not.
    """

    allowed: Callable[[], bool]
    ended: Callable[[], Awaitable[None]]


class Sockets:
    """Serves WebSockets of people who may view.

    Args:
        limit: WebSockets at once.
    """

    def __init__(self, limit: int, hub: Hub, live: Live, clock: Clock) -> None:
        self._limit, self._hub, self._live, self._clock = limit, hub, live, clock
        self._open = 0

    async def feed(self, socket: WebSocket, viewing: Viewing) -> None:
        """One tab's feed, until it leaves, or its viewer has signed out."""
        viewer = Viewer(self._clock)

        async def send() -> None:
            while True:
                await socket.send_text(await viewer.next())

        async def receive() -> None:
            async for text in _texts(socket, viewing.allowed):
                message = _message(text)
                viewer.report(message)
                if (selection := message.selection()) is not None:
                    self._hub.select(viewer, selection)

        if not await self._accept(socket):
            return
        try:
            self._hub.join(viewer)
            await _until_one_ends(socket, send(), receive(), _signed_out(viewing))
        finally:
            self._hub.leave(viewer)
            self._open -= 1

    async def live(self, socket: WebSocket, viewing: Viewing, daemon: str, source: str) -> None:
        """Live video of a source, likewise."""
        if not await self._accept(socket):
            return
        try:
            queue = self._live.join(daemon, source)

            async def send() -> None:
                while True:
                    message = await queue.next()
                    if isinstance(message, bytes):
                        await socket.send_bytes(message)
                    else:
                        await socket.send_text(message)

            async def receive() -> None:
                async for text in _texts(socket, viewing.allowed):
                    queue.report(_progress(text))

            try:
                await _until_one_ends(socket, send(), receive(), _signed_out(viewing))
            finally:
                self._live.leave(queue)
        finally:
            self._open -= 1

    async def _accept(self, socket: WebSocket) -> bool:
        if self._open >= self._limit:
            log.warning("a viewer is turned away", limit=self._limit)
            await socket.close(_BUSY)
            return False
        self._open += 1
        try:
            await socket.accept()
        except BaseException:
            self._open -= 1
            raise
        return True


class _RefusedError(Exception):
    """The client sends without pause, or its viewer has signed out."""


class _TokenBucket:
    """Bounds the messages of a client."""

    def __init__(self) -> None:
        self._at, self._left = asyncio.get_running_loop().time(), _MAX_AT_ONCE

    def spend(self) -> None:
        now = asyncio.get_running_loop().time()
        self._left = min(_MAX_AT_ONCE, self._left + (now - self._at) * _MAX_PER_S) - 1
        self._at = now
        if self._left < 0:
            raise _RefusedError


async def _signed_out(viewing: Viewing) -> None:
    """In another tab, perhaps."""
    await viewing.ended()
    raise _RefusedError


async def _texts(socket: WebSocket, may_view: Callable[[], bool]) -> AsyncIterator[str]:
    """The messages of a client. It says what has come, or gets no more: so a session that is too old is noticed."""
    bucket = _TokenBucket()
    while True:
        text = await socket.receive_text()
        bucket.spend()
        if not may_view():
            raise _RefusedError
        yield text


async def _until_one_ends(socket: WebSocket, *works: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends; a client that breaks the rules is told by the code."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    except WebSocketDisconnect:
        return
    except (_RefusedError, msgspec.MsgspecError, KeyError, RuntimeError):
        with suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(_WRONG)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
