"""Before every request and WebSocket: the Host that was asked, the Origin that asks, and headers on every answer."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daemon.config.http import DashboardConfig, is_loopback
from daemon.dashboard.sessions import Person, Sessions
from daemon.http.access import host_of

_SAFE = ("GET", "HEAD", "OPTIONS")
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self' blob:; "
    "connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """Refuses what a page of another origin can make a browser send, and says who asks in `scope["person"]`.

    A name that an attacker owns may resolve to this machine (DNS rebinding), and the browser then sends that name as
    Host. So a name must be known; an address needs no name server, and may be asked.

    Args:
        cookie: name of the session's cookie.
    """

    def __init__(self, app: ASGIApp, config: DashboardConfig, sessions: Sessions, cookie: str) -> None:
        self._app, self._sessions, self._cookie = app, sessions, cookie
        self._is_local = is_loopback(config.host)
        self._hosts = frozenset(_names(config))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        refusal = self._refusal(scope, connection)
        if refusal is not None:
            await _refuse(refusal, scope, receive, send)
            return
        scope["person"] = self._sessions.person(cookie_of(connection.headers, self._cookie))
        self._sessions.keep_soon()

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope, connection: HTTPConnection) -> str | None:
        host = host_of(connection).lower()
        if not self._is_known(host):
            return f"the page is not known as {host[:100]!r}: add the name to dashboard.hosts"
        headers = connection.headers
        if scope["type"] == "http" and scope["method"] in _SAFE:
            # Where no login is needed an image in a page of the internet would have clips made and pictures decoded.
            is_embedded = headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
            if is_embedded and headers.get("sec-fetch-mode") != "navigate" and scope["path"].startswith("/api/"):
                return "it is for the page itself: another site may link to it, and not embed it"
            return None
        if not _is_same(headers.get("origin"), headers.get("host", "")):
            return "a change must come from the page itself: its Origin is another"
        # Browsers differ in what a WebSocket's site is.
        if scope["type"] == "http" and headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return "a change must come from the page itself"
        return None

    def _is_known(self, host: str) -> bool:
        if host in self._hosts:
            return True
        try:
            address = ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            return False
        return address.is_loopback or not self._is_local


def cookie_of(headers: Headers, name: str) -> str | None:
    """The value of a cookie."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    return found.value if found else None


def person_of(connection: HTTPConnection) -> Person | None:
    """The person that `Guard` found."""
    found: Person | None = connection.scope.get("person")
    return found


def _names(config: DashboardConfig) -> Iterable[str]:
    yield from ("localhost", *(host.lower() for host in config.hosts))
    if not is_loopback(config.host):
        name = socket.gethostname().lower()
        yield from (name, f"{name}.local", config.host.lower())


def _is_same(origin: str | None, host: str) -> bool:
    """Whether an Origin is of this host and port. A proxy may have ended TLS, so that the schemes differ."""
    if not origin:
        return False
    try:
        parts = urlsplit(origin)
        found = parts.netloc.lower()
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(found) and found == host.lower()


async def _refuse(reason: str, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    await JSONResponse({"error": reason}, 403, {**_HEADERS, "Cache-Control": "no-store"})(scope, receive, send)
