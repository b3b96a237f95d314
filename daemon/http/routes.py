"""One table of operations, from which the routes of the server and the OpenAPI document are made."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemon.http.access import Access, check_body
from daemon.http.answers import ERROR_HANDLERS, json_answer
from daemon.http.framing import Framing
from daemon.http.openapi import document
from daemon.http.operation import ANYTHING, Answer, Handler, Operation


def application(operations: Sequence[Operation], access: Access) -> Starlette:
    """The API. Where several paths fit, the first is taken."""

    async def describe(_: Request) -> Response:
        return json_answer(described)

    own = Operation("GET", "/openapi.json", describe, "local", "This", {200: Answer("This", ANYTHING)})
    table = [*operations, own]
    described = document(table)
    routes = [Route(row.path, _guarded(row, access), methods=[row.method]) for row in table]
    app = Starlette(routes=routes, exception_handlers=ERROR_HANDLERS, middleware=[Middleware(Framing)])
    app.router.redirect_slashes = False  # to whatever host the client has named
    return app


def _guarded(operation: Operation, access: Access) -> Handler:
    """Require the operation's right, and the type of its body."""

    async def guarded(request: Request) -> Response:
        access.admit(request, operation.right)
        if operation.body:
            check_body(request)
        return await operation.handler(request)

    return guarded
