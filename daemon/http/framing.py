"""Refuses requests of ambiguous length, which a proxy in front may have read differently."""

from __future__ import annotations

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class Framing:
    """Refuses a request with both Content-Length and Transfer-Encoding, and closes the connection (RFC 9112, 6.1)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope.get("headers", ())}
        if {b"content-length", b"transfer-encoding"} <= names:
            refusal = PlainTextResponse("Content-Length or Transfer-Encoding, not both", 400, {"Connection": "close"})
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)
