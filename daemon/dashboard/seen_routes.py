"""Marks of seen events over HTTP: all may see them, and the role operate makes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemon.dashboard.guard import person_of
from daemon.dashboard.seen import SeenMarks
from daemon.http.access import check_body, peer_of
from daemon.http.bodies import read_body

log = structlog.get_logger(__name__)
_Handler = Callable[[Request], Awaitable[Response]]
_Id = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z-]{1,64}-[0-9]{1,20}\Z")]


class _Order(msgspec.Struct, forbid_unknown_fields=True):
    """Events, by their ids."""

    ids: Annotated[list[_Id], msgspec.Meta(min_length=1, max_length=500)]


class SeenRoutes:
    """
    Args:
        tell: sends a message to all viewers.
    """

    def __init__(self, marks: SeenMarks, tell: Callable[[dict[str, Any]], None]) -> None:
        self._marks, self._tell = marks, tell

    def routes(self, view: Callable[[_Handler], _Handler], operate: Callable[[_Handler], _Handler]) -> list[Route]:
        return [
            Route("/api/seen", view(self._state), methods=["GET"]),
            Route("/api/seen", operate(self._mark), methods=["POST"]),
            Route("/api/seen", operate(self._unmark), methods=["DELETE"]),
        ]

    async def _state(self, _: Request) -> Response:
        return await self._answer()

    async def _mark(self, request: Request) -> Response:
        ids, by = await _ids(request), _name_of(request)
        marked = self._marks.mark(ids, by)
        if marked:
            mark = self._marks.of(marked[0])
            self._tell({"kind": "seen", "ids": marked, "by": by, "at": mark.at if mark else 0})
            log.info("events are marked as seen", count=len(marked), by=by, peer=peer_of(request))
        return await self._answer(marked=len(marked))

    async def _unmark(self, request: Request) -> Response:
        gone = self._marks.unmark(await _ids(request))
        if gone:
            self._tell({"kind": "unseen", "ids": gone})
            log.info("marks of events are taken back", count=len(gone), by=_name_of(request), peer=peer_of(request))
        return await self._answer(unmarked=len(gone))

    async def _answer(self, **rows: int) -> Response:
        kept = await self._marks.kept()
        content = msgspec.json.encode({**rows, "kept": kept, "reason": self._marks.problem})
        return Response(content, media_type="application/json")


async def _ids(request: Request) -> list[str]:
    """
    Raises:
        HTTPException: 400, 408, 413 or 415.
    """
    check_body(request)
    try:
        return msgspec.json.decode(await read_body(request), type=_Order).ids
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HTTPException(400, f"not understood: {str(error)[:100]}") from error


def _name_of(request: Request) -> str:
    person = person_of(request)
    return person.name if person else "?"
