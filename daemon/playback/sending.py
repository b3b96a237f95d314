"""Bytes of recordings on their way to a client: never more than a piece of a file in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from daemon.playback.opened import OpenedStore, OpenFile
from daemon.playback.workers import StoreWorkers

log = structlog.get_logger(__name__)
_PIECE = 1 << 20


class Part(NamedTuple):
    """Bytes of an open file."""

    file: OpenFile
    offset: int
    size: int


@dataclass(frozen=True)
class Sent:
    """
    Attributes:
        beginning: before the parts.
    """

    store: StoreWorkers
    parts: Sequence[Part]
    beginning: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of all."""
        return len(self.beginning) + sum(part.size for part in self.parts)

    def cut(self, begin: int, end: int) -> Sent:
        """The bytes from one place of all up to another one."""
        at, parts = len(self.beginning), list[Part]()
        for file, offset, size in self.parts:
            first, last = max(begin, at), min(end, at + size)
            if first < last:
                parts.append(Part(file, offset + first - at, last - first))
            at += size
        return Sent(self.store, parts, self.beginning[begin:end])


def plain(source: str) -> str:
    """The name of a source, for that of a download."""
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in source)


class CutOffError(Exception):
    """An answer that has begun cannot be finished: the connection is closed, and the client sees that bytes lack."""


def media(
    request: Request, sent: Sent, headers: Mapping[str, str], *, status: int = 200, on_end: Callable[[], None]
) -> Response:
    """An answer of MP4.

    Args:
        on_end: called once, also where the client has left.
    """
    told = {"Content-Length": str(sent.size), "Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff",
            **headers}  # fmt: skip
    if request.method == "HEAD":
        on_end()
        return Response(None, status, told, "video/mp4")
    return Streamed(_pieces(sent), status, told, "video/mp4", on_end=on_end)


class Streamed(StreamingResponse):
    """Calls a function at its end, also where it was never begun."""

    def __init__(self, *args: Any, on_end: Callable[[], None]) -> None:
        super().__init__(*args)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


async def _pieces(sent: Sent) -> AsyncIterator[bytes]:
    if sent.beginning:
        yield sent.beginning
    for file, offset, size in sent.parts:
        for at in range(offset, offset + size, _PIECE):
            try:
                piece = await sent.store.ask(partial(_read, file, at, min(_PIECE, offset + size - at)))
            except HTTPException as error:
                log.warning("video is cut off", store=sent.store.name, file=file.facts.id, reason=error.detail)
                raise CutOffError(error.detail) from error
            yield piece


def _read(file: OpenFile, offset: int, size: int, _: OpenedStore) -> bytes:
    return file.read(offset, size)
