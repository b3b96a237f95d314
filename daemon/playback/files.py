"""Files of recordings by their ids, a range of bytes at a time. No path comes from a request."""

from __future__ import annotations

from functools import partial
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.http.operation import Answer, Operation
from daemon.playback.audit import Audit
from daemon.playback.opened import OpenedStore, OpenFile
from daemon.playback.queries import STORE, Query, id_of
from daemon.playback.ranges import HEADERS, asked_range, range_of
from daemon.playback.sending import Part, Sent, media
from daemon.playback.stores import Stores

MP4: Final = Answer("MP4", media_type="video/mp4")


class Files:
    """The event loop's thread alone uses it."""

    def __init__(self, stores: Stores, audit: Audit) -> None:
        self._stores, self._audit = stores, audit

    def operations(self) -> list[Operation]:
        return [
            Operation("GET", "/api/v1/recordings/files/{id}", self._file, "view", "Bytes of a file",
                      {200: MP4, 206: MP4, 304: Answer("As it was")}, (400, 404, 409, 416, 503), (STORE, *HEADERS)),
        ]  # fmt: skip

    async def _file(self, request: Request) -> Response:
        id, query = id_of(request), Query(request, STORE)
        store, file = await self._stores.first(partial(_open, id), query.text("store"))
        facts, headers = file.facts, {"ETag": file.tag, "Accept-Ranges": "bytes"}
        try:
            if request.headers.get("if-none-match") == file.tag:
                store.later(file.close)
                return Response(None, 304, headers)
            wanted = range_of(asked_range(request, file.tag), file.size)
        except HTTPException:
            store.later(file.close)
            raise
        self._audit.tell_once(
            request, "a recording is played", facts.id, source=facts.source, store=store.name, file=facts.id,
            begin=facts.begin, end=facts.end,
        )  # fmt: skip
        sent = Sent(store, [Part(file, wanted.begin, wanted.end - wanted.begin)])
        headers |= wanted.headers(file.size)
        status = 200 if wanted.is_whole else 206
        return media(request, sent, headers, status=status, on_end=partial(store.later, file.close))


def _open(id: str, opened: OpenedStore) -> OpenFile | None:
    facts = opened.index.file(id)
    return opened.open(facts) if facts else None
