"""Bytes of recordings on their way to a client: never more than a piece of a file in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from daemon.playback.opened import OpenedStore, OpenFile, close_all
from daemon.playback.workers import StoreWorkers

log = structlog.get_logger(__name__)
_PIECE = 1 << 20


class Part(NamedTuple):
    """Bytes of an open file."""

    file: OpenFile
    offset: int
    size: int


class CutOffError(Exception):
    """An answer that has begun cannot be finished: the connection is closed, and the client sees that bytes lack."""


def media(
    request: Request,
    store: StoreWorkers,
    parts: Sequence[Part],
    headers: Mapping[str, str],
    *,
    beginning: bytes = b"",
    status: int = 200,
) -> Response:
    """An answer of MP4, whose files are closed at its end.

    Args:
        beginning: before the parts.
    """
    size = len(beginning) + sum(part.size for part in parts)
    told = {"Content-Length": str(size), "Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff",
            **headers}  # fmt: skip
    if request.method == "HEAD":
        _close(store, parts)
        return Response(None, status, told, "video/mp4")
    return _Media(_pieces(store, parts, beginning), status, told, "video/mp4", on_end=partial(_close, store, parts))


class _Media(StreamingResponse):
    """Calls a function at its end, also where it was never begun."""

    def __init__(self, *args: object, on_end: partial[None]) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._on_end = on_end

    async def __call__(self, *args: object) -> None:
        try:
            await super().__call__(*args)  # type: ignore[arg-type]
        finally:
            self._on_end()


async def _pieces(store: StoreWorkers, parts: Sequence[Part], beginning: bytes) -> AsyncIterator[bytes]:
    if beginning:
        yield beginning
    for file, offset, size in parts:
        for at in range(offset, offset + size, _PIECE):
            try:
                piece = await store.ask(partial(_read, file, at, min(_PIECE, offset + size - at)))
            except HTTPException as error:
                log.warning("video was cut off on its way", store=store.name, file=file.facts.id, reason=error.detail)
                raise CutOffError(error.detail) from error
            yield piece


def _read(file: OpenFile, offset: int, size: int, _: OpenedStore) -> bytes:
    return file.read(offset, size)


def _close(store: StoreWorkers, parts: Sequence[Part]) -> None:
    files = {id(part.file): part.file for part in parts}
    store.later(partial(close_all, list(files.values())))
