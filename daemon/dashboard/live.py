"""Live video: one muxer for each watched source, and any number of viewers."""

from __future__ import annotations

import asyncio

import msgspec


class Seat:
    """One viewer of one source."""

    def __init__(self) -> None:
        self._queue: list[bytes | str] = []
        self._filled = asyncio.Event()

    def put(self, message: bytes | str) -> None:
        self._queue.append(message)
        self._filled.set()

    async def next(self) -> bytes | str:
        while not self._queue:
            self._filled.clear()
            await self._filled.wait()
        return self._queue.pop(0)


class Live:
    """All watched sources."""

    def join(self, daemon: str, source: str) -> Seat:  # noqa: ARG002
        seat = Seat()
        seat.put(msgspec.json.encode({"kind": "jpeg", "reason": "live video is not there yet"}).decode())
        return seat

    def leave(self, seat: Seat) -> None:
        """The viewer has gone."""
