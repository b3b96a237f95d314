"""The page's own API: what docs/dashboard.md describes. Reads come from the hub; changes go to the daemons."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from daemon import __version__
from daemon.clock import Clock
from daemon.config.http import DashboardConfig, Role
from daemon.dashboard.bridges import Bridges
from daemon.dashboard.changes import Changes
from daemon.dashboard.event_list import EventList, query_of
from daemon.dashboard.guard import Guard, cookie_of, person_of
from daemon.dashboard.hub import Hub
from daemon.dashboard.live import Live
from daemon.dashboard.recordings import Recordings
from daemon.dashboard.requests import Requests
from daemon.dashboard.seen import SeenMarks
from daemon.dashboard.seen_routes import SeenRoutes
from daemon.dashboard.sessions import MAX_AGE_S, Sessions
from daemon.dashboard.sockets import Sockets, Viewing
from daemon.dashboard.static_files import StaticFiles
from daemon.dashboard.stills import Stills
from daemon.dashboard.watched import WatchedDaemon
from daemon.http.access import check_body, peer_of
from daemon.http.bodies import read_body
from daemon.http.framing import Framing
from daemon.peers.api import Answer, AwayError

_PAGES = (
    "/", "/login", "/events", "/recordings", "/health", "/sources", "/fleet", "/bridge", "/camera/{d}/{s}",
    "/rules/{d}/{s}", "/recordings/{d}/{s}",
)  # fmt: skip
_MAX_MINUTE_S = 60.0
_NOT_KEPT = "you are signed out, but the disk did not take it: restart the page and sign out again"
_SIZES = ("width", "box")  # of a picture
_Handler = Callable[[Request], Awaitable[Response]]


class PageRoutes:
    """All routes of the page."""

    def __init__(
        self, config: DashboardConfig, hub: Hub, live: Live, sessions: Sessions, marks: SeenMarks, clock: Clock
    ) -> None:
        self._config, self._hub, self._sessions, self._clock = config, hub, sessions, clock
        self._cookie = f"lookout_{config.port}"  # cookies do not know ports
        self._files, self._stills, self._events = StaticFiles(), Stills(clock), EventList(marks)
        self._seen = SeenRoutes(marks, hub.tell_all)
        self._fetching, self._changes = Requests(4), Changes(self._daemon_of, hub.refresh)
        self._sockets = Sockets(config.max_viewers, hub, live, clock)

    def starlette(self) -> Starlette:
        view, operate = partial(self._guarded, "view"), partial(self._guarded, "operate")
        routes = [
            *(Route(path, self._index, methods=["GET"]) for path in _PAGES),
            Route("/static/{name:path}", self._static, methods=["GET"]),
            Route("/api/session", self._session, methods=["GET"]),
            Route("/api/login", self._login, methods=["POST"]),
            Route("/api/logout", self._logout, methods=["POST"]),
            Route("/api/daemons", view(self._daemons), methods=["GET"]),
            Route("/api/sources", view(self._list_sources), methods=["GET"]),
            Route("/api/still/{d}/{s}", view(self._still), methods=["GET"]),
            Route("/api/events", view(self._list_events), methods=["GET"]),
            Route("/api/events/{d}/{id}", view(self._one_event), methods=["GET"]),
            Route("/api/events/{d}/{id}/snapshot", view(self._event_snapshot), methods=["GET"]),
            Route("/api/sources/{d}", operate(self._changes.add), methods=["POST"]),
            Route("/api/sources/{d}/{s}", operate(self._changes.change), methods=["PATCH"]),
            Route("/api/sources/{d}/{s}", operate(self._changes.remove), methods=["DELETE"]),
            Route("/api/sources/{d}/{s}/config", view(self._source_config), methods=["GET"]),
            Route("/api/sources/{d}/{s}/recent", view(self._recent), methods=["GET"]),
            Route("/api/sources/{d}/{s}/states", view(self._states), methods=["GET"]),
            Route("/api/health/{d}", view(self._health), methods=["GET"]),
            *self._seen.routes(view, operate),
            *Recordings(self._daemon_of, self._clock).routes(view, operate),
            *Bridges(self._daemon_of, self._clock).routes(view),
            Route("/api/fleets", view(self._list_fleets), methods=["GET"]),
            Route("/api/fleet/{d}/{command}", operate(self._changes.command_fleet), methods=["POST"]),
            WebSocketRoute("/api/feed", self._feed),
            WebSocketRoute("/api/live/{d}/{s}", self._live),
        ]
        routes.append(Route("/{path:path}", self._missing, methods=["GET"]))  # after all others
        guard = Middleware(Guard, config=self._config, sessions=self._sessions, cookie=self._cookie)
        handlers: dict[Any, Any] = {HTTPException: _failed, AwayError: _away}
        app = Starlette(routes=routes, exception_handlers=handlers, middleware=[Middleware(Framing), guard])
        app.router.redirect_slashes = False
        return app

    # --- the page, and who looks at it -----------------------------------------------------------------------------

    async def _index(self, request: Request) -> Response:
        return self._files.answer(request, "index.html")

    async def _missing(self, request: Request) -> Response:
        """The page, which says that this address leads nowhere; programs get a line."""
        if request.url.path.startswith(("/api/", "/static/")):
            raise HTTPException(404, "no such address")
        answer = self._files.answer(request, "index.html")
        answer.status_code = 404
        return answer

    async def _static(self, request: Request) -> Response:
        return self._files.answer(request, request.path_params["name"])

    async def _session(self, request: Request) -> Response:
        person = person_of(request)
        role = person.role if person else "none"
        return _json({"role": role, "login": self._sessions.needs_login, "version": __version__})

    async def _login(self, request: Request) -> Response:
        check_body(request)
        peer = peer_of(request)
        if wait := self._sessions.wait_s(peer):
            raise HTTPException(429, "too many attempts", {"Retry-After": str(int(wait) + 1)})
        cookie = await self._sessions.login(_decoded(await read_body(request), _Login).token, peer)
        if cookie is None:
            raise HTTPException(401, "the token is wrong")
        answer = Response(status_code=204)
        self._set_cookie(answer, cookie, MAX_AGE_S)
        return answer

    async def _logout(self, request: Request) -> Response:
        is_kept = await self._sessions.logout(cookie_of(request.headers, self._cookie) or "")
        answer = Response(status_code=204) if is_kept else _json({"error": _NOT_KEPT}, 503)
        self._set_cookie(answer, "", 0)
        return answer

    def _set_cookie(self, answer: Response, value: str, age_s: int) -> None:
        secure = self._config.tls_certificate is not None
        answer.set_cookie(self._cookie, value, max_age=age_s, httponly=True, samesite="strict", secure=secure, path="/")

    # --- what is seen ----------------------------------------------------------------------------------------------

    async def _daemons(self, _: Request) -> Response:
        return _json([daemon.entry() for daemon in self._hub.daemons.values()])

    async def _list_sources(self, _: Request) -> Response:
        return _json(self._hub.sources())

    async def _still(self, request: Request) -> Response:
        daemon, source = self._daemon_of(request), request.path_params["s"]
        if not daemon.knows(source):
            raise HTTPException(404, "no such source")
        still = await self._stills.get(daemon, source)
        if still.status != 200:
            raise HTTPException(still.status, still.reason, {"Retry-After": "2"})
        tag = f'"{still.captured_at}-{still.seq}"'
        headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
        headers |= {"X-Seq": still.seq, "X-Pts": still.pts, "X-Captured-At": still.captured_at}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(still.jpeg, media_type="image/jpeg", headers=headers)

    async def _list_events(self, request: Request) -> Response:
        query = query_of(request.query_params)
        daemons = [row for row in self._hub.daemons.values() if query.daemon in (None, row.name)]
        return _json(await self._events.find(daemons, query))

    async def _one_event(self, request: Request) -> Response:
        daemon = self._daemon_of(request)
        event = await self._events.one(daemon, request.path_params["id"])
        if event is None:
            raise HTTPException(404, "no such event: it is gone, or there never was one")
        return _json(self._events.row(daemon, event))

    async def _event_snapshot(self, request: Request) -> Response:
        path = f"events/{request.path_params['id']}/snapshot.jpg"
        query = {name: request.query_params[name][:100] for name in _SIZES if name in request.query_params}
        answer = await self._request(self._daemon_of(request), "GET", path, query)
        headers = {"Cache-Control": "private, max-age=86400"}  # it does not change
        return Response(answer.body, media_type="image/jpeg", headers=headers)

    async def _source_config(self, request: Request) -> Response:
        answer = await self._request(self._daemon_of(request), "GET", f"sources/{request.path_params['s']}")
        row = msgspec.json.decode(answer.body)
        return _json({**row, "tag": answer.headers.get("etag"), "labels": self._daemon_of(request).facts.labels})

    async def _recent(self, request: Request) -> Response:
        daemon, source = self._daemon_of(request), request.path_params["s"]
        if daemon.source(source) is None:
            raise HTTPException(404, "no such source")
        try:
            seconds = min(_MAX_MINUTE_S, max(1.0, float(request.query_params.get("seconds", "60"))))
        except ValueError as error:
            raise HTTPException(400, "seconds: is not a number") from error
        return _json(self._hub.keep_tracks(daemon, source).document(seconds))

    async def _states(self, request: Request) -> Response:
        daemon, source = self._daemon_of(request), request.path_params["s"]
        if daemon.source(source) is None:
            raise HTTPException(404, "no such source")
        return _json(daemon.states.of(source))

    async def _health(self, request: Request) -> Response:
        daemon = self._daemon_of(request)
        return _json({**daemon.figures.document(), "daemon": daemon.entry(), "viewers": self._hub.viewers})

    async def _list_fleets(self, _: Request) -> Response:
        """Each fleet as one of its members sees it: the first that answers."""
        members: dict[str, list[WatchedDaemon]] = {}
        for daemon in self._hub.daemons.values():
            if daemon.facts.fleet is not None and daemon.api.exists:
                members.setdefault(daemon.facts.fleet, []).append(daemon)
        return _json([await self._fleet_of(name, daemons) for name, daemons in sorted(members.items())])

    async def _fleet_of(self, name: str, daemons: list[WatchedDaemon]) -> dict[str, Any]:
        failure = ""
        for daemon in sorted(daemons, key=lambda row: row.state != "up"):
            try:
                answer = await self._request(daemon, "GET", "fleet")
            except (HTTPException, AwayError) as error:
                failure = error.detail if isinstance(error, HTTPException) else str(error)
            else:
                return {"daemon": daemon.name, **msgspec.json.decode(answer.body)}
        return {"name": name, "daemon": None, "failure": failure}

    async def _request(
        self, daemon: WatchedDaemon, method: str, path: str, query: Mapping[str, str] | None = None
    ) -> Answer:
        """Ask a daemon.

        Raises:
            HTTPException, AwayError: it refuses, or does not answer.
        """
        answer = await self._fetching.send(daemon.api, method, path, query=query)
        if answer.status != 200:
            raise HTTPException(answer.status if answer.status in (400, 404, 409, 503) else 502, answer.error)
        return answer

    # --- what goes on ----------------------------------------------------------------------------------------------

    async def _feed(self, socket: WebSocket) -> None:
        if await self._may_view(socket):
            await self._sockets.feed(socket, self._viewing(socket))

    async def _live(self, socket: WebSocket) -> None:
        if await self._may_view(socket):
            await self._sockets.live(socket, self._viewing(socket), socket.path_params["d"], socket.path_params["s"])

    def _viewing(self, socket: WebSocket) -> Viewing:
        cookie = cookie_of(socket.headers, self._cookie)
        return Viewing(lambda: self._sessions.person(cookie) is not None, lambda: self._sessions.wait_end(cookie))

    async def _may_view(self, socket: WebSocket) -> bool:
        if person_of(socket) is not None:
            return True
        with suppress(RuntimeError):
            await socket.close(1008)
        return False

    # ---------------------------------------------------------------------------------------------------------------

    def _daemon_of(self, request: Request) -> WatchedDaemon:
        found = self._hub.daemons.get(request.path_params["d"])
        if found is None:
            raise HTTPException(404, "no such daemon")
        return found

    def _guarded(self, role: Role, handler: _Handler) -> _Handler:
        """Require a person with that role."""

        async def guarded(request: Request) -> Response:
            person = person_of(request)
            if person is None:
                raise HTTPException(401, "log in first")
            if role == "operate" and not person.may_operate:
                raise HTTPException(403, f"the token of {person.name!r} may only view: its role must be operate")
            return await handler(request)

        return guarded


class _Login(msgspec.Struct, forbid_unknown_fields=True):
    token: str


def _decoded(content: bytes, kind: type[_Login]) -> _Login:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HTTPException(400, f"not understood: {str(error)[:100]}") from error


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - starlette calls it for nothing else
    answer = _json({"error": error.detail}, error.status_code)
    answer.headers.update(error.headers or {})
    return answer


async def _away(_: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 503)
