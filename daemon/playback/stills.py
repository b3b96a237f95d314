"""Stills of the past: JPEGs, decoded a few at a time."""

from __future__ import annotations

from functools import partial

from anyio import CapacityLimiter, Semaphore, to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.http.operation import JPEG, Operation, Parameter
from daemon.playback.audit import Audit
from daemon.playback.clips import nothing
from daemon.playback.pictures import Encoded, decode, encoded_at, gaps_at
from daemon.playback.queries import AT, STORE, Query, source_of
from daemon.playback.stores import Stores

_AT_ONCE, _IN_MEMORY = 2, 6
_MAX_WAITING = 32
_WIDTHS = 16, 8192
_WIDTH = Parameter("width", {"type": "integer", "minimum": _WIDTHS[0], "maximum": _WIDTHS[1]})


class Stills:
    """The event loop's thread alone uses it."""

    def __init__(self, stores: Stores, audit: Audit) -> None:
        self._stores, self._audit = stores, audit
        self._limiter, self._in_memory = CapacityLimiter(_AT_ONCE), Semaphore(_IN_MEMORY)
        self._waiting = 0

    def operations(self) -> list[Operation]:
        return [
            Operation("GET", "/api/v1/recordings/{source}/still", self._still, "view", "The picture of a moment",
                      {200: JPEG}, (400, 404, 409, 503), (AT, _WIDTH, STORE)),
        ]  # fmt: skip

    async def _still(self, request: Request) -> Response:
        source, query = source_of(request), Query(request, AT, _WIDTH, STORE)
        at, width = query.time("at"), query.whole("width", *_WIDTHS)
        if self._waiting >= _MAX_WAITING:
            raise HTTPException(503, f"{_MAX_WAITING} stills are waited for already", {"Retry-After": "1"})
        self._waiting += 1
        try:
            async with self._in_memory:
                found = await self._encoded(source, at, query.text("store"))
                if isinstance(found, Response):
                    return found
                still = await to_thread.run_sync(partial(decode, found, width), limiter=self._limiter)
        finally:
            self._waiting -= 1
        self._audit.tell_once(request, "pictures of recordings are seen", source, source=source, first=still.shown_at)
        headers = {"Cache-Control": "private, no-store", "X-Session": still.session, "X-Pts": str(still.pts),
                   "X-Captured-At": str(still.shown_at)}  # fmt: skip
        return Response(still.jpeg, media_type="image/jpeg", headers=headers)

    async def _encoded(self, source: str, at: int, name: str | None) -> Encoded | Response:
        """From the first store that has it; or the answer that says why there is nothing."""
        try:
            return (await self._stores.first(partial(encoded_at, source, at), name))[1]
        except HTTPException as error:
            if error.status_code not in (404, 503):
                raise
        answers = await self._stores.of_source(source, partial(gaps_at, source, at), name)
        return nothing(next((gaps for gaps in answers.found.values() if gaps), []), answers.failed)
