"""The accounts of bridges, as they tell them; the daemons' tokens stay here. The event loop's thread alone uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemon.bridge.report import BridgeReport
from daemon.clock import Clock
from daemon.dashboard.upstream import CutOffError, Upstream, Wanted
from daemon.dashboard.watched import WatchedDaemon
from daemon.peers.api import AwayError

_Handler = Callable[[Request], Awaitable[Response]]
_PATH: Final = "/api/v1/bridge"
_SILENCE_S: Final = 5.0
_MAX_BYTES: Final = 1 << 20  # of an account; one of 100 targets has 50 KiB
_FRESH_NS: Final = 2_000_000_000  # all viewers within this time get the same


class Bridges:
    """
    Args:
        daemon_of: the daemon of a request; raises HTTPException.
    """

    def __init__(self, daemon_of: Callable[[Request], WatchedDaemon], clock: Clock) -> None:
        self._daemon_of, self._clock = daemon_of, clock
        self._known: dict[str, tuple[int, bytes]] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    def routes(self, view: Callable[[_Handler], _Handler]) -> list[Route]:
        """
        Args:
            view: lets a person with that role alone through.
        """
        return [Route("/api/bridge/{d}", view(self._show), methods=["GET"])]

    async def _show(self, request: Request) -> Response:
        daemon = self._daemon_of(request)
        async with self._asking.setdefault(daemon.name, asyncio.Lock()):
            now, (at, account) = self._clock.monotonic_ns(), self._known.get(daemon.name, (0, b""))
            if not account or now - at > _FRESH_NS:
                account = await _asked(daemon)
                self._known[daemon.name] = self._clock.monotonic_ns(), account
        return Response(account, media_type="application/json", headers={"Cache-Control": "no-store"})


async def _asked(daemon: WatchedDaemon) -> bytes:
    """
    Raises:
        AwayError: there is no answer.
        HTTPException: the daemon has no bridge that tells, or it refuses the page.
    """
    api, found = daemon.api, daemon.facts.bridge
    if found is None:
        raise HTTPException(404, f"no bridge of {daemon.name} is known: set bridge.port in its configuration")
    wanted = Wanted("GET", _PATH, api.authorization, b"", _SILENCE_S)
    try:
        upstream = await Upstream.open((api.host, found.port), api.tls, wanted)
    except AwayError as error:
        daemon.mark_stale()  # it may have another port by now
        raise AwayError(f"the bridge of {daemon.name} does not answer: {error}") from error
    try:
        if upstream.status in (401, 403):
            raise HTTPException(502, f"the bridge of {daemon.name} refuses the page's token: it lacks the role")
        if upstream.status != 200:
            raise HTTPException(502, f"the bridge of {daemon.name} answers {upstream.status}")
        return _checked(daemon.name, await _content(upstream))
    except CutOffError as error:
        raise AwayError(f"the bridge of {daemon.name} breaks off: {error}") from error
    finally:
        upstream.close()


async def _content(upstream: Upstream) -> bytes:
    """
    Raises:
        CutOffError: there is too much of it.
    """
    content = b""
    async for piece in upstream.pieces():
        content += piece
        if len(content) > _MAX_BYTES:
            raise CutOffError("its account is too long")
    return content


def _checked(name: str, content: bytes) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(content, type=BridgeReport))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HTTPException(
            502, f"the bridge of {name} answers something else: is another program on its port?"
        ) from error
