"""The paths: health for service managers, metrics for Prometheus, sources and snapshots for operators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from daemon.changes import KeepSources
from daemon.config import Config, HttpConfig, SourceConfig, check
from daemon.errors import ConfigError, LookoutError, StoppingError
from daemon.http.exposition import CONTENT_TYPE, Exposition
from daemon.http.openapi import document
from daemon.http.rules import MOST_BODY, knows, source_from
from daemon.kept import Kept
from daemon.redact import Secret
from detectors.port import DetectorError

if TYPE_CHECKING:
    from daemon.app import App

_PATIENCE_S = 60.0  # a model may be built meanwhile; sources take seconds
_SNAPSHOT_S = 5.0
_Handler = Callable[[Request], Awaitable[Response]]


class Routes:
    """All of it over one daemon.

    Args:
        kept: where sources that are to outlive the process are written, None for nowhere.
        read: the configuration file, as it is now.
    """

    def __init__(
        self, app: App, config: HttpConfig, exposition: Exposition, kept: Kept | None, read: Callable[[], Config]
    ) -> None:
        self._app, self._config, self._exposition = app, config, exposition
        self._kept, self._read = kept, read
        self._token = config.secret()

    def starlette(self) -> Starlette:
        own = self._authorised
        one = "/api/v1/sources/{id}"
        routes = [
            Route("/live", self._live, methods=["GET"]),
            Route("/ready", self._ready, methods=["GET"]),
            Route("/startup", self._startup, methods=["GET"]),
            Route("/openapi.json", self._openapi, methods=["GET"]),
            Route("/metrics", own(self._metrics, reading=True), methods=["GET"]),
            Route("/api/v1/sources", own(self._list), methods=["GET"]),
            Route("/api/v1/sources", own(self._add), methods=["POST"]),
            Route(one, own(self._show), methods=["GET"]),
            Route(one, own(self._change), methods=["PUT"]),
            Route(one, own(self._remove), methods=["DELETE"]),
            Route(f"{one}/snapshot.jpg", own(self._snapshot), methods=["GET"]),
            Route("/api/v1/config", own(self._show_config), methods=["GET"]),
            Route("/api/v1/reload", own(self._reload), methods=["POST"]),
        ]
        handlers: dict[Any, Any] = {
            HTTPException: _failed,
            _GoneError: _gone,
            LookoutError: _refused,
            DetectorError: _refused,
        }
        return Starlette(routes=routes, exception_handlers=handlers)

    # --- health ----------------------------------------------------------------------------------------------------

    async def _live(self, _: Request) -> Response:
        return _health(self._app.problems(), self._app.warnings())

    async def _startup(self, _: Request) -> Response:
        return _health([] if self._app.is_ready else ["the model is opened, or sources are not begun with"])

    async def _ready(self, _: Request) -> Response:
        """Started, alive, and frames come of one source at least, if there are any."""
        reasons = self._app.problems()
        if not self._app.is_ready:
            reasons.append("not started, or stopping")
        captures = self._app.sources.captures
        if captures and not any(capture.state in ("up", "ended") for capture in captures):
            states = ", ".join(f"{capture.id} {capture.state}" for capture in captures[:10])
            reasons.append(f"no source is up: {states}")
        return _health(reasons)

    async def _metrics(self, _: Request) -> Response:
        return Response(await run_in_threadpool(self._exposition.text), media_type=CONTENT_TYPE)

    async def _openapi(self, _: Request) -> Response:
        return _json(document())

    # --- sources ---------------------------------------------------------------------------------------------------

    async def _list(self, _: Request) -> Response:
        return _json([self._row(source) for source in self._app.config.sources])

    async def _show(self, request: Request) -> Response:
        return _json(self._row(self._known(request)))

    async def _add(self, request: Request) -> Response:
        source = source_from(await _body(request), self._config)
        most = self._config.max_sources

        def add(rows: list[SourceConfig]) -> list[SourceConfig]:
            if any(other.id == source.id for other in rows):
                raise LookoutError(f"there is a source {source.id!r} already: PUT changes it")
            if len(rows) >= most:
                raise LookoutError(f"there are {most} sources, and no more are allowed")
            return [*rows, source]

        await self._go_over(request, add)
        return _json(self._row(source), 201)

    async def _change(self, request: Request) -> Response:
        id = self._known(request).id
        source = source_from(await _body(request), self._config, id)
        await self._go_over(request, lambda rows: [source if row.id == id else row for row in _with(rows, id)])
        return _json(self._row(source))

    async def _remove(self, request: Request) -> Response:
        id = self._known(request).id
        await self._go_over(request, lambda rows: [row for row in _with(rows, id) if row.id != id])
        return Response(status_code=204)

    async def _snapshot(self, request: Request) -> Response:
        source = self._known(request)
        if not source.enabled:
            raise HTTPException(409, f"the source {source.id!r} is disabled: PUT it with enabled: true")
        boxes = request.query_params.get("boxes", "false").lower() in ("1", "true", "yes")
        try:
            picture = await run_in_threadpool(self._app.snapshots.take, source.id, _SNAPSHOT_S, boxes=boxes)
        except StoppingError as error:
            raise HTTPException(503, str(error)) from error
        except LookoutError as error:
            raise HTTPException(504, str(error)) from error
        return Response(picture, media_type="image/jpeg", headers={"Cache-Control": "no-store"})

    async def _show_config(self, _: Request) -> Response:
        return _json(_plain(self._app.config))

    async def _reload(self, _: Request) -> Response:
        change = await self._wait(lambda _: self._read(), from_file=True)
        return _json(change.words)

    async def _go_over(self, request: Request, edit: Callable[[list[SourceConfig]], list[SourceConfig]]) -> None:
        """To the configuration with other sources; kept, if that is asked for."""
        keep = request.query_params.get("persist", "false").lower() in ("1", "true", "yes")
        if keep and self._kept is None:
            raise HTTPException(400, "persist: there is nowhere to: set http.sources_file")

        def read(now: Config) -> Config:
            return check(msgspec.structs.replace(now, sources=edit(list(now.sources))), may_be_empty=True)

        await self._wait(read, keep=self._kept.write if keep and self._kept else None)

    async def _wait(
        self, read: Callable[[Config], Config], *, from_file: bool = False, keep: KeepSources | None = None
    ) -> Any:
        future = self._app.reload(read, from_file=from_file, keep=keep)
        try:
            return await run_in_threadpool(future.result, _PATIENCE_S)
        except LateError as error:
            raise HTTPException(504, "it takes longer than a minute, and goes on") from error
        except StoppingError as error:
            raise HTTPException(503, str(error)) from error

    def _known(self, request: Request) -> SourceConfig:
        id = request.path_params["id"]
        for source in self._app.config.sources:
            if source.id == id:
                return source
        raise HTTPException(404, "no such source")

    def _row(self, source: SourceConfig) -> dict[str, Any]:
        capture = next((row for row in self._app.sources.captures if row.id == source.id), None)
        return {
            "config": _plain(source),
            "state": capture.state if capture else "ended" if source.enabled else "disabled",
            "format": _plain(capture.format) if capture and capture.format else None,
            "failure": capture.failure if capture else None,
        }

    def _authorised(self, handler: _Handler, *, reading: bool = False) -> _Handler:
        """Only with the token. Where there is none, figures may be read, and nothing else may be done."""

        async def guarded(request: Request) -> Response:
            if self._token is None and not reading:
                raise HTTPException(403, "the API needs a token: set http.token or http.token_file")
            if self._token is not None and not knows(self._token, request.headers.get("authorization")):
                raise HTTPException(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})
            return await handler(request)

        return guarded


async def _body(request: Request) -> bytes:
    """Of a size that a source may have."""
    content = b""
    try:
        async for chunk in request.stream():
            content += chunk
            if len(content) > MOST_BODY:
                raise HTTPException(413, f"more than {MOST_BODY} bytes")
    except ClientDisconnect as error:
        raise HTTPException(400, "the request broke off") from error
    return content


def _health(reasons: list[str], warnings: Sequence[str] = ()) -> Response:
    """Warnings are told, and change nothing."""
    return _json({"ok": not reasons, "reasons": [*reasons, *warnings]}, 503 if reasons else 200)


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def _plain(value: object) -> Any:
    """As JSON has it; secrets show themselves as they always do."""
    return msgspec.to_builtins(value, enc_hook=_hook)


def _hook(value: object) -> str:
    if isinstance(value, Secret | Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form here")


class _GoneError(LookoutError):
    """The source was removed meanwhile."""


def _with(rows: list[SourceConfig], id: str) -> list[SourceConfig]:
    """The sources, of which this must be one still."""
    if all(row.id != id for row in rows):
        raise _GoneError("no such source")
    return rows


async def _gone(_: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 404)


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - starlette calls it for nothing else
    response = _json({"error": error.detail}, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _refused(_: Request, error: Exception) -> Response:
    """Something that the caller can mend."""
    return _json({"error": str(error)}, 422 if isinstance(error, ConfigError) else 409)
