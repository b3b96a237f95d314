"""Changes that people make: they go to the daemon's own API, which checks them, and into the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.dashboard.guard import person_of
from daemon.dashboard.requests import CHANGE_TIMEOUT_S, Requests
from daemon.dashboard.watched import WatchedDaemon
from daemon.http.access import check_body, peer_of
from daemon.http.bodies import read_body

log = structlog.get_logger(__name__)
_TRUE = ("1", "true", "yes")
_FLEET_COMMANDS = ("drain", "undrain")
_JSON = "application/json"


class Changes:
    """Answers requests for changes.

    Args:
        daemon_of: the daemon of a request; raises HTTPException.
        on_changed: called after each, made or refused.
    """

    def __init__(
        self, daemon_of: Callable[[Request], WatchedDaemon], on_changed: Callable[[WatchedDaemon], Awaitable[None]]
    ) -> None:
        self._daemon_of, self._on_changed = daemon_of, on_changed
        self._changing, self._trying = Requests(2), Requests(2)

    async def add(self, request: Request) -> Response:
        return await self._forward(request, "POST", "sources", "source added")

    async def change(self, request: Request) -> Response:
        return await self._forward(request, "PATCH", f"sources/{request.path_params['s']}", "source changed")

    async def remove(self, request: Request) -> Response:
        return await self._forward(request, "DELETE", f"sources/{request.path_params['s']}", "source removed")

    async def command_fleet(self, request: Request) -> Response:
        command = request.path_params["command"]
        if command not in _FLEET_COMMANDS:
            raise HTTPException(404, "no such command")
        return await self._forward(request, "POST", f"fleet/{command}", f"fleet: {command}")

    async def _forward(self, request: Request, method: str, path: str, event: str) -> Response:
        """Send a change to the daemon, which keeps it for its next start where it can; with the browser's If-Match."""
        daemon, body = self._daemon_of(request), None
        if method != "DELETE":
            check_body(request)
            body = await read_body(request)
        query = {"persist": "true"} if daemon.facts.persists else {}
        if request.query_params.get("dry_run", "").lower() in _TRUE:
            return await self._try(daemon, body, request.path_params.get("s"))
        wanted = request.headers.get("if-match")
        send = partial(self._changing.send, daemon.api, method, path, timeout_s=CHANGE_TIMEOUT_S)
        answer = await send(query=query, headers={"If-Match": wanted} if wanted else {}, body=body)
        person = person_of(request)
        audit = {"daemon": daemon.name, "path": path, "by": person.name if person else "?", "peer": peer_of(request)}
        done = answer.status < 300
        log.info(event if done else f"{event}: refused", **audit, **({} if done else {"reason": answer.error}))
        await self._on_changed(daemon)
        headers = {"X-Persisted": str("persist" in query).lower()}
        if tag := answer.headers.get("etag"):
            headers["ETag"] = tag
        return Response(answer.body, answer.status, headers, media_type=_JSON if answer.body else None)

    async def _try(self, daemon: WatchedDaemon, body: bytes | None, source: str | None) -> Response:
        """The daemon's opinion of a change that is not made."""
        if body is None:
            lines = ["its frames and its counts end; its events stay in the journal"]
            return Response(msgspec.json.encode({"ok": True, "lines": lines}), media_type=_JSON)
        query = {"id": source} if source else {}
        send = partial(self._trying.send, daemon.api, "POST", "check", timeout_s=CHANGE_TIMEOUT_S)
        answer = await send(query=query, body=body)
        return Response(answer.body, answer.status, media_type=_JSON)
