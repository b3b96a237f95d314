"""Recordings of daemons, passed on to browsers as they come: the daemons' tokens stay here."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from daemon.clock import Clock
from daemon.dashboard.guard import person_of
from daemon.dashboard.seats import Seat, Seats
from daemon.dashboard.upstream import Upstream, Wanted
from daemon.dashboard.watched import WatchedDaemon
from daemon.http.access import Caller, check_body, peer_of
from daemon.http.bodies import read_body
from daemon.peers.api import AwayError
from daemon.playback.audit import Audit

_Handler = Callable[[Request], Awaitable[Response]]
_API: Final = "/api/v1/recordings"
_MAX_TARGET: Final = 300  # of the log
_SILENCE_S: Final = 20.0  # the daemon waits 5 s for each answer of a store
_WORK_S: Final = 120.0  # of what it has to find or to put together first
_MAX_SOURCE: Final = 64
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_VISIBLE = re.compile(r"[\x21-\x7e]*", re.ASCII)
_LINE = re.compile(r"[\x20-\x7e]*", re.ASCII)
_MAX_LINE: Final = 512  # of a header that is passed on
_FROM_THE_BEGINNING: Final = "bytes=0-"
_ASKED: Final = ("range", "if-range", "if-none-match")
_TOLD: Final = (
    "content-length", "content-range", "content-disposition", "accept-ranges", "etag", "retry-after",
    "x-lookout-clip", "x-session", "x-pts", "x-captured-at",
)  # fmt: skip
_KINDS: Final = ("application/json", "application/x-ndjson", "application/x-tar", "image/jpeg", "video/mp4")
_PASSED: Final = (200, 201, 204, 206, 304, 400, 404, 405, 408, 409, 413, 415, 416, 422, 429, 503, 504)
_EMPTY: Final = (204, 304)


class _Way(NamedTuple):
    """A request that is passed on.

    Attributes:
        path: of the page, behind `/api/recordings/{d}`; `{s}` is a source and `{id}` an id.
        is_work: its answer is long, or takes long to find.
        told: what the log says of it; empty for nothing.
        told_once: it says so once for all requests for the same within ten minutes.
    """

    method: str
    path: str
    is_work: bool = False
    told: str = ""
    told_once: bool = False


_VIEW: Final = (
    _Way("GET", ""),
    *(_Way("GET", f"/{{s}}/{name}") for name in ("spans", "fragments", "tracks", "activity", "locks")),
    _Way("GET", "/{s}/still", told="pictures of recordings are seen", told_once=True),
    _Way("GET", "/{s}/clip.mp4", is_work=True, told="a clip is taken"),
    # The last: a source may be named `files`.
    _Way("GET", "/files/{id}", told="a recording is played", told_once=True),
)
_OPERATE: Final = (
    _Way("POST", "/{s}/locks", told="video is kept"),
    _Way("DELETE", "/locks/{id}", told="video is kept no longer"),
    _Way("POST", "/{s}/exports", is_work=True, told="evidence is taken"),
)
_SEARCH: Final = _Way("POST", "/search", is_work=True, told="recordings are searched")


class Recordings:
    """Passes requests on. The event loop's thread alone uses it.

    Args:
        daemon_of: the daemon of a request; raises HTTPException.
    """

    def __init__(self, daemon_of: Callable[[Request], WatchedDaemon], clock: Clock) -> None:
        self._daemon_of, self._audit = daemon_of, Audit(clock)
        self._short, self._work = Seats("requests for recordings", 24, 64), Seats("clips and searches", 6, 14)

    def routes(self, view: Callable[[_Handler], _Handler], operate: Callable[[_Handler], _Handler]) -> list[Route]:
        """
        Args:
            view, operate: let a person with that role alone through.
        """
        rows = [(view, _VIEW), (operate, _OPERATE)]
        return [
            *(
                Route(f"/api/recordings/{{d}}{way.path}", right(partial(self._pass, way)), methods=[way.method])
                for right, ways in rows
                for way in ways
            ),
            Route("/api/search/{d}", view(partial(self._pass, _SEARCH)), methods=["POST"]),
        ]

    async def _pass(self, way: _Way, request: Request) -> Response:
        target, headers = _target(way, request), _asked(request)
        if way.method == "POST":
            check_body(request)
            headers["Content-Type"] = "application/json"
        daemon, caller = self._daemon_of(request), _note_caller(request)
        viewer = f"{caller.name} {caller.peer}"
        headers["X-Lookout-Viewer"] = sha256(viewer.encode()).hexdigest()[:16]
        # Before the body, which may come slowly.
        seat = (self._work if way.is_work else self._short).take(viewer, daemon.name)
        try:
            body = await read_body(request) if way.method == "POST" else b""
            wanted = Wanted(request.method, target, headers, body, _WORK_S if way.is_work else _SILENCE_S)
            upstream = await _until_left(request, _opened(daemon, wanted))
        except BaseException:
            seat.leave()
            raise
        if way.told and upstream.status < 300:
            self._tell(way, request, daemon.name, target)
        return _Passed(upstream, seat)

    def _tell(self, way: _Way, request: Request, daemon: str, target: str) -> None:
        """The daemon's log has the name of the page's token alone."""
        path, target = target.partition("?")[0], target[:_MAX_TARGET]
        goes_on = not request.headers.get("range", _FROM_THE_BEGINNING).startswith(_FROM_THE_BEGINNING)
        if way.told_once:
            self._audit.tell_once(request, way.told, f"{daemon} {path}", daemon=daemon, path=path)
        elif goes_on:  # a player that was cut off
            self._audit.tell_once(request, way.told, f"{daemon} {target}", daemon=daemon, target=target)
        else:
            self._audit.tell(request, way.told, daemon=daemon, target=target)


class _Passed(StreamingResponse):
    """The daemon's answer, and no more of its headers than a player needs."""

    def __init__(self, upstream: Upstream, seat: Seat) -> None:
        self._upstream, self._seat = upstream, seat
        told = upstream.headers
        headers = {name: told[name] for name in _TOLD if _LINE.fullmatch(told.get(name, "\n"))}
        kind = told.get("content-type", "").partition(";")[0].strip().lower()
        status = upstream.status
        if status in _EMPTY:
            super().__init__(upstream.pieces(), status, headers)
            return
        super().__init__(
            upstream.pieces(), status, headers, media_type=kind if kind in _KINDS else "application/octet-stream"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._upstream.close()
            self._seat.leave()


def _note_caller(request: Request) -> Caller:
    """The person who asks, as `daemon.http.access.caller_of` gives it."""
    person = person_of(request)
    name, role = (person.name, person.role) if person else ("?", "view")
    caller = request.scope["caller"] = Caller(name, role, peer_of(request))
    return caller


async def _opened(daemon: WatchedDaemon, wanted: Wanted) -> Upstream:
    """
    Raises:
        AwayError: there is no answer.
        HTTPException: the daemon serves no recordings, or refuses the page.
    """
    api, found = daemon.api, daemon.facts.recordings
    authorization = api.authorization
    if found is None:
        if daemon.facts.version is None:
            raise AwayError(f"the recordings of {daemon.name} are not known yet: its HTTP API has not answered")
        raise HTTPException(404, f"{daemon.name} serves no recordings: set record.port in its configuration")
    try:
        upstream = await Upstream.open(
            (api.host, found.port), api.tls, wanted._replace(headers={**wanted.headers, **authorization})
        )
    except AwayError as error:
        daemon.mark_stale()  # it may have another port by now
        raise AwayError(f"the recordings of {daemon.name} do not answer: {error}") from error
    if upstream.status in _PASSED:
        return upstream
    upstream.close()
    if upstream.status in (401, 403):
        raise HTTPException(502, f"the recordings of {daemon.name} refuse the page's token: it lacks the role")
    raise HTTPException(502, f"the recordings of {daemon.name} answer {upstream.status}")


async def _until_left(request: Request, opening: Awaitable[Upstream]) -> Upstream:
    """Wait for an answer no longer than the browser does.

    Raises:
        HTTPException: 400: the browser has left; and as `_opened`.
    """
    opened, left = asyncio.ensure_future(opening), asyncio.ensure_future(_has_left(request))
    try:
        await asyncio.wait({opened, left}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        _give_up(opened)
        raise
    finally:
        left.cancel()
    if opened.done():
        return opened.result()
    _give_up(opened)
    raise HTTPException(400, "the request broke off")


def _give_up(opened: asyncio.Future[Upstream]) -> None:
    opened.cancel()
    opened.add_done_callback(_drop)  # it may have come at the same moment


def _drop(opened: asyncio.Future[Upstream]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


async def _has_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _target(way: _Way, request: Request) -> str:
    """Path and query at the daemon. Nothing of the path comes from the request but a source, quoted, or an id.

    Raises:
        HTTPException: 404 or 400: no source, id or query looks so.
    """
    path, named = way.path, request.path_params
    if "s" in named:
        source: str = named["s"]
        is_quoted = re.search(rb"%(2f|5c|00)", request.scope.get("raw_path") or b"", re.IGNORECASE)
        if is_quoted or source in (".", "..") or len(source) > _MAX_SOURCE or not source.isprintable():
            raise HTTPException(404, "there is no such source")
        path = path.format(s=quote(source, safe=""))
    elif "id" in named:
        if not _ID.fullmatch(named["id"]):
            raise HTTPException(404, "there is nothing of this id: ids are 16 digits of 0-9 and a-f")
        path = path.format(id=named["id"])
    query = request.scope["query_string"].decode("latin-1")
    if not _VISIBLE.fullmatch(query):
        raise HTTPException(400, "the query has characters that must be percent-encoded")
    root = "/api/v1" if way is _SEARCH else _API
    return f"{root}{path}" + (f"?{query}" if query else "")


def _asked(request: Request) -> dict[str, str]:
    """Headers that are passed on.

    Raises:
        HTTPException: 400: one is given twice, or is no line.
    """
    found = {}
    for name in _ASKED:
        values = request.headers.getlist(name)
        if len(values) > 1 or not all(len(value) <= _MAX_LINE and _LINE.fullmatch(value) for value in values):
            raise HTTPException(400, f"{name} is to be one line of at most {_MAX_LINE} characters")
        if values:
            found[name] = values[0]
    return found
