"""The paths: health for service managers, metrics for Prometheus, sources and snapshots for operators."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import structlog
from anyio import CapacityLimiter, fail_after, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from daemon.config import Config, HttpConfig, Role, SourceConfig, check
from daemon.control.changes import Changes, PersistSources
from daemon.control.source_store import SourceStore
from daemon.control.sources import AnyCapture, SourceManager
from daemon.errors import ConfigError, LookoutError, StoppingError
from daemon.http.access import Access, Caller, check_body
from daemon.http.exposition import CONTENT_TYPE, Exposition
from daemon.http.framing import Framing
from daemon.http.openapi import document
from daemon.http.rules import MOST_BODY, check_drawn, patched, source_from
from daemon.http.snapshots import Snapshots
from daemon.monitoring.health import Health
from daemon.redact import Secret, scrub, written_of
from detectors.port import DetectorError

log = structlog.get_logger(__name__)
_CHANGE_TIMEOUT_S = 60.0  # a model may be built meanwhile; sources take seconds
_SNAPSHOT_S = 5.0
_BODY_S = 10.0
_SNAPSHOTS = 4  # made at once
_WAITING = 32  # for them
_TRUE = ("1", "true", "yes")
_Handler = Callable[[Request], Awaitable[Response]]
_Handled = Callable[[Request, Caller], Awaitable[Response]]
_Edit = Callable[[list[SourceConfig]], list[SourceConfig]]


@dataclass(frozen=True)
class Parts:
    """The parts of a daemon that are shown and changed over HTTP.

    Attributes:
        kept: where sources that are to outlive the process are written, None for nowhere.
        read: the configuration file, as it is now.
    """

    changes: Changes
    sources: SourceManager
    health: Health
    snapshots: Snapshots
    exposition: Exposition
    kept: SourceStore | None
    read: Callable[[], Config]


class Routes:
    """All of it over one daemon."""

    def __init__(self, parts: Parts, config: HttpConfig, access: Access) -> None:
        self._to, self._config, self._access = parts, config, access
        self._snapshots, self._waiting = CapacityLimiter(_SNAPSHOTS), 0
        self._scrapes = CapacityLimiter(1)
        self._tag_key = secrets.token_bytes()

    def starlette(self) -> Starlette:
        view, operate = partial(self._guarded, "view"), partial(self._guarded, "operate")
        one = "/api/v1/sources/{id}"
        routes = [
            Route("/live", self._live, methods=["GET"]),
            Route("/ready", self._ready, methods=["GET"]),
            Route("/startup", self._startup, methods=["GET"]),
            Route("/openapi.json", self._seen(self._openapi), methods=["GET"]),
            Route("/metrics", self._seen(self._metrics), methods=["GET"]),
            Route("/api/v1/sources", view(self._list), methods=["GET"]),
            Route("/api/v1/sources", operate(self._add, sends=True), methods=["POST"]),
            Route(one, view(self._show), methods=["GET"]),
            Route(one, operate(self._replace, sends=True), methods=["PUT"]),
            Route(one, operate(self._patch, sends=True), methods=["PATCH"]),
            Route(one, operate(self._remove), methods=["DELETE"]),
            Route(f"{one}/snapshot.jpg", view(self._snapshot), methods=["GET"]),
            Route("/api/v1/config", view(self._show_config), methods=["GET"]),
            Route("/api/v1/reload", operate(self._reload), methods=["POST"]),
        ]
        handlers: dict[Any, Any] = {
            HTTPException: _failed,
            _GoneError: _gone,
            _ChangedError: _changed,
            LookoutError: _refused,
            DetectorError: _refused,
        }
        return Starlette(routes=routes, exception_handlers=handlers, middleware=[Middleware(Framing)])

    # --- health ----------------------------------------------------------------------------------------------------

    async def _live(self, request: Request) -> Response:
        return self._health(request, self._to.health.problems(), self._to.health.warnings())

    async def _startup(self, request: Request) -> Response:
        reasons = [] if self._to.health.is_ready else ["the model is opened, or sources are not begun with"]
        return self._health(request, reasons)

    async def _ready(self, request: Request) -> Response:
        """Started, alive, and frames come of one source at least, if there are any."""
        reasons = self._to.health.problems()
        if not self._to.health.is_ready:
            reasons.append("not started, or stopping")
        captures = self._to.sources.captures
        if captures and not any(capture.state in ("up", "ended") for capture in captures):
            states = ", ".join(f"{capture.id} {capture.state}" for capture in captures[:10])
            reasons.append(f"no source is up: {states}")
        return self._health(request, reasons)

    def _health(self, request: Request, reasons: list[str], warnings: Sequence[str] = ()) -> Response:
        """Anybody may know whether it works; why it does not names parts and sources. Warnings change nothing."""
        told = [*reasons, *warnings] if self._access.may_see(request) else []
        return _json({"ok": not reasons, "reasons": told}, 503 if reasons else 200)

    async def _metrics(self, _: Request) -> Response:
        text = await to_thread.run_sync(self._to.exposition.text, limiter=self._scrapes)
        return Response(text, media_type=CONTENT_TYPE)

    async def _openapi(self, _: Request) -> Response:
        return _json(document())

    # --- sources ---------------------------------------------------------------------------------------------------

    async def _list(self, _: Request, __: Caller) -> Response:
        captures = {capture.id: capture for capture in self._to.sources.captures}
        return _json([_row(source, captures.get(source.id)) for source in self._to.changes.config.sources])

    async def _show(self, request: Request, _: Caller) -> Response:
        return self._answer(self._known(request))

    async def _add(self, request: Request, caller: Caller) -> Response:
        source = source_from(await _body(request), self._config)
        most = self._config.max_sources

        def add(rows: list[SourceConfig]) -> list[SourceConfig]:
            if any(other.id == source.id for other in rows):
                raise LookoutError(f"there is a source {source.id!r} already: PUT or PATCH changes it")
            if len(rows) >= most:
                raise LookoutError(f"there are {most} sources, and no more are allowed")
            return [*rows, source]

        await self._go_over(request, caller, "source added", source.id, add)
        return self._answer(source, 201)

    async def _replace(self, request: Request, caller: Caller) -> Response:
        body, id = await _body(request), self._known(request).id
        return await self._change(request, caller, id, lambda old: source_from(body, self._config, old, id))

    async def _patch(self, request: Request, caller: Caller) -> Response:
        body, id = await _body(request), self._known(request).id
        return await self._change(request, caller, id, lambda old: patched(body, self._config, old))

    async def _change(
        self, request: Request, caller: Caller, id: str, new: Callable[[SourceConfig], SourceConfig]
    ) -> Response:
        """To another source of this id, made from the one that is there when its turn comes."""
        wanted, made = request.headers.get("if-match"), list[SourceConfig]()

        def change(rows: list[SourceConfig]) -> list[SourceConfig]:
            place = _place_of(id, rows)
            if wanted not in (None, "*", self._tag(rows[place])):
                raise _ChangedError("the source was changed meanwhile: GET it again")
            made.append(new(rows[place]))
            return [*rows[:place], made[-1], *rows[place + 1 :]]

        await self._go_over(request, caller, "source changed", id, change)
        return self._answer(made[-1])

    async def _remove(self, request: Request, caller: Caller) -> Response:
        id = self._known(request).id

        def remove(rows: list[SourceConfig]) -> list[SourceConfig]:
            place = _place_of(id, rows)
            return [*rows[:place], *rows[place + 1 :]]

        await self._go_over(request, caller, "source removed", id, remove)
        return Response(status_code=204)

    async def _snapshot(self, request: Request, _: Caller) -> Response:
        source = self._known(request)
        state = self._row(source)["state"]
        if state == "disabled":
            raise HTTPException(409, f"the source {source.id!r} is disabled: PATCH it with enabled: true")
        if state != "up":
            raise HTTPException(503, f"the source {source.id!r} is {state}", {"Retry-After": "5"})
        if self._waiting >= _WAITING:
            raise HTTPException(503, f"{_WAITING} snapshots are waited for already", {"Retry-After": "1"})
        boxes = request.query_params.get("boxes", "false").lower() in _TRUE
        take = partial(self._to.snapshots.jpeg, source.id, _SNAPSHOT_S, boxes=boxes)
        self._waiting += 1
        try:
            picture = await to_thread.run_sync(take, limiter=self._snapshots)
        except StoppingError as error:
            raise HTTPException(503, str(error)) from error
        except LookoutError as error:
            raise HTTPException(504, str(error)) from error
        finally:
            self._waiting -= 1
        return Response(picture, media_type="image/jpeg", headers={"Cache-Control": "no-store"})

    async def _show_config(self, _: Request, __: Caller) -> Response:
        rules = self._to.kept is not None and self._to.kept.exists
        return _json(
            {
                **_plain(self._to.changes.config),
                "sources_from": str(self._to.kept.path) if rules and self._to.kept else None,
            }
        )

    async def _reload(self, _: Request, caller: Caller) -> Response:
        log.info("reload asked for", by=caller.name, peer=caller.peer)
        change = await self._wait(lambda _: self._to.read(), reloads=True)
        return _json(change.summary)

    async def _go_over(self, request: Request, caller: Caller, what: str, id: str, edit: _Edit) -> None:
        """To the configuration with other sources; kept, if that is asked for. It is logged whose doing it is."""
        keep = request.query_params.get("persist", "false").lower() in _TRUE
        if keep and self._to.kept is None:
            raise HTTPException(400, "persist: there is nowhere to: set http.sources_file")

        def read(now: Config) -> Config:
            rows = edit(list(now.sources))
            if keys := _changed_keys(id, now.sources, rows):
                audit["keys"] = keys
            if not self._config.allow_local:
                check_drawn(rows, now.sources)
            return check(msgspec.structs.replace(now, sources=rows), may_be_empty=True)

        audit: dict[str, object] = {"source": id, "by": caller.name, "peer": caller.peer, "persisted": keep}
        try:
            await self._wait(read, persist=self._to.kept.write if keep and self._to.kept else None)
        except HTTPException as error:
            log.info(f"{what}: not yet", reason=error.detail, **audit)
            raise
        log.info(what, **audit)

    async def _wait(
        self, read: Callable[[Config], Config], *, reloads: bool = False, persist: PersistSources | None = None
    ) -> Any:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def tell(_: object) -> None:
            with suppress(RuntimeError):  # the server has stopped meanwhile
                loop.call_soon_threadsafe(done.set)

        future = self._to.changes.submit(read, reloads=reloads, persist=persist)
        future.add_done_callback(tell)
        try:
            await asyncio.wait_for(done.wait(), _CHANGE_TIMEOUT_S)
            return future.result()
        except asyncio.TimeoutError as error:
            raise HTTPException(504, "it takes longer than a minute, and goes on") from error
        except StoppingError as error:
            raise HTTPException(503, str(error)) from error

    def _known(self, request: Request) -> SourceConfig:
        id = request.path_params["id"]
        for source in self._to.changes.config.sources:
            if source.id == id:
                return source
        raise HTTPException(404, "no such source")

    def _answer(self, source: SourceConfig, status: int = 200) -> Response:
        response = _json(self._row(source), status)
        response.headers["ETag"] = self._tag(source)
        return response

    def _tag(self, source: SourceConfig) -> str:
        """Another one for another configuration of the source, secrets included."""
        content = msgspec.json.encode(source, enc_hook=written_of)
        return f'"{hmac.digest(self._tag_key, content, "sha256").hex()[:32]}"'

    def _row(self, source: SourceConfig) -> dict[str, Any]:
        return _row(source, next((row for row in self._to.sources.captures if row.id == source.id), None))

    def _guarded(self, role: Role, handler: _Handled, *, sends: bool = False) -> _Handler:
        """Only with a token of that role.

        Args:
            sends: there is a body.
        """

        async def guarded(request: Request) -> Response:
            caller = self._access.caller(request, role)
            if sends:
                check_body(request)
            return await handler(request, caller)

        return guarded

    def _seen(self, handler: _Handler) -> _Handler:
        """By whoever may see figures."""

        async def guarded(request: Request) -> Response:
            self._access.check_sees(request)
            return await handler(request)

        return guarded


async def _body(request: Request) -> bytes:
    """Of a size that a source may have, in the time that it may take."""
    content = b""
    try:
        with fail_after(_BODY_S):
            async for chunk in request.stream():
                content += chunk
                if len(content) > MOST_BODY:
                    raise HTTPException(413, f"more than {MOST_BODY} bytes")
    except TimeoutError as error:
        raise HTTPException(408, f"the request was not whole within {_BODY_S:g} s") from error
    except ClientDisconnect as error:
        raise HTTPException(400, "the request broke off") from error
    return content


def _row(source: SourceConfig, capture: AnyCapture | None) -> dict[str, Any]:
    """A source as the API shows it."""
    return {
        "config": _plain(source),
        "state": capture.state if capture else "ended" if source.enabled else "disabled",
        "format": _plain(capture.format) if capture and capture.format else None,
        "failure": scrub(capture.failure) if capture and capture.failure else None,
    }


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


class _ChangedError(LookoutError):
    """The source is not the one that the client has seen."""


def _changed_keys(id: str, before: Sequence[SourceConfig], after: Sequence[SourceConfig]) -> list[str]:
    """Of a source that is in both."""
    old, new = ({row.id: msgspec.structs.asdict(row) for row in rows}.get(id) for rows in (before, after))
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key)) if old and new else []


def _place_of(id: str, rows: list[SourceConfig]) -> int:
    for place, row in enumerate(rows):
        if row.id == id:
            return place
    raise _GoneError("no such source")


async def _gone(_: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 404)


async def _changed(_: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 412)


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - starlette calls it for nothing else
    response = _json({"error": error.detail}, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _refused(_: Request, error: Exception) -> Response:
    """Something that the caller can mend."""
    return _json({"error": str(error)}, 422 if isinstance(error, ConfigError) else 409)
