"""The routes: health for service managers, metrics for Prometheus, sources and snapshots for operators."""

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
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemon import __version__
from daemon.analytics.events import EventPublisher
from daemon.capture.host import HostedCapture
from daemon.config import Config, HttpConfig, Role, SourceConfig, check
from daemon.control.changes import Changes, PersistSources
from daemon.control.source_store import SourceStore
from daemon.control.sources import SourceManager
from daemon.errors import ConfigError, LookoutError, StoppingError
from daemon.fleet.figures import FleetParts
from daemon.fleet.operations import UnknownError
from daemon.fleet.port import CoordinatorAwayError
from daemon.http.access import Access, Caller, check_body
from daemon.http.bodies import read_body
from daemon.http.events import EventReader
from daemon.http.exposition import CONTENT_TYPE, Exposition
from daemon.http.fleet import FleetCommands
from daemon.http.framing import Framing
from daemon.http.openapi import document
from daemon.http.rules import check_synthetic, patched, source_from
from daemon.http.snapshots import Snapshots
from daemon.http.trial import try_source
from daemon.monitoring.health import Health
from daemon.redact import Secret, scrub, written_of
from detectors.port import DetectorError

log = structlog.get_logger(__name__)
_CHANGE_TIMEOUT_S = 60.0  # a model may be built; sources take seconds
_SNAPSHOT_TIMEOUT_S = 5.0
_MAX_SNAPSHOTS = 4  # encoded at once
_MAX_WAITING = 32  # requests that wait for a snapshot
_TRUE = ("1", "true", "yes")
_Handler = Callable[[Request], Awaitable[Response]]
_Handled = Callable[[Request, Caller], Awaitable[Response]]
_Edit = Callable[[list[SourceConfig]], list[SourceConfig]]


@dataclass(frozen=True)
class ApiContext:
    """The parts of a daemon that the API shows and changes.

    Attributes:
        store: persists sources, None if that is not configured.
        read: reads the configuration file.
        facts: what a subscriber wants to know: instance, endpoint, model and labels.
        fleet: None for a daemon without one.
    """

    changes: Changes
    sources: SourceManager
    health: Health
    snapshots: Snapshots
    exposition: Exposition
    store: SourceStore | None
    read: Callable[[], Config]
    events: EventPublisher
    facts: Callable[[], dict[str, Any]]
    fleet: FleetParts | None = None


class Routes:
    """All routes of one daemon."""

    def __init__(self, context: ApiContext, config: HttpConfig, access: Access) -> None:
        self._context, self._config, self._access = context, config, access
        self._events = EventReader(context.events)
        self._fleet = FleetCommands(context.fleet) if context.fleet else None
        self._snapshots, self._waiting = CapacityLimiter(_MAX_SNAPSHOTS), 0
        self._scrapes, self._trials = CapacityLimiter(1), CapacityLimiter(2)
        self._tag_key = secrets.token_bytes()

    def starlette(self) -> Starlette:
        view, operate = partial(self._guarded, "view"), partial(self._guarded, "operate")
        one = "/api/v1/sources/{id}"
        routes = [
            Route("/live", self._live, methods=["GET"]),
            Route("/ready", self._ready, methods=["GET"]),
            Route("/startup", self._startup, methods=["GET"]),
            Route("/openapi.json", self._viewable(self._openapi), methods=["GET"]),
            Route("/metrics", self._viewable(self._metrics), methods=["GET"]),
            Route("/api/v1/sources", view(self._list), methods=["GET"]),
            Route("/api/v1/sources", operate(self._add, has_body=True), methods=["POST"]),
            Route("/api/v1/check", operate(self._check, has_body=True), methods=["POST"]),
            Route(one, view(self._show), methods=["GET"]),
            Route(one, operate(self._replace, has_body=True), methods=["PUT"]),
            Route(one, operate(self._patch, has_body=True), methods=["PATCH"]),
            Route(one, operate(self._remove), methods=["DELETE"]),
            Route(f"{one}/snapshot.jpg", view(self._snapshot), methods=["GET"]),
            Route("/api/v1/events", view(self._list_events), methods=["GET"]),
            Route("/api/v1/events/{id}/snapshot.jpg", view(self._show_event), methods=["GET"]),
            Route("/api/v1/counts", view(self._list_counts), methods=["GET"]),
            Route("/api/v1/daemon", view(self._show_daemon), methods=["GET"]),
            Route("/api/v1/config", view(self._show_config), methods=["GET"]),
            Route("/api/v1/reload", operate(self._reload), methods=["POST"]),
            Route("/api/v1/fleet", view(self._show_fleet), methods=["GET"]),
            Route("/api/v1/fleet/{command}", operate(self._command_fleet, has_body=True), methods=["POST"]),
        ]
        handlers: dict[Any, Any] = {
            HTTPException: _failed,
            _GoneError: _gone,
            _ChangedError: _changed,
            UnknownError: _gone,
            CoordinatorAwayError: _away,
            LookoutError: _refused,
            DetectorError: _refused,
        }
        return Starlette(routes=routes, exception_handlers=handlers, middleware=[Middleware(Framing)])

    # --- health ----------------------------------------------------------------------------------------------------

    async def _live(self, request: Request) -> Response:
        return self._health(request, self._context.health.problems(), self._context.health.warnings())

    async def _startup(self, request: Request) -> Response:
        reasons = (
            [] if self._context.health.is_ready else ["the model is being opened, or the sources have not started"]
        )
        return self._health(request, reasons)

    async def _ready(self, request: Request) -> Response:
        """Started, alive, the model at hand, and at least one source up, if there are any."""
        reasons = [*self._context.health.problems(), *self._context.health.waits_for()]
        if not self._context.health.is_ready:
            reasons.append("not started, or stopping")
        captures = self._context.sources.captures
        if captures and not any(capture.state in ("up", "ended") for capture in captures):
            states = ", ".join(f"{capture.id} {capture.state}" for capture in captures[:10])
            reasons.append(f"no source is up: {states}")
        return self._health(request, reasons)

    def _health(self, request: Request, reasons: list[str], warnings: Sequence[str] = ()) -> Response:
        """Health is public; its reasons name parts and sources, and are not. Warnings do not change the status."""
        shown = [*reasons, *warnings] if self._access.may_view(request) else []
        return _json({"ok": not reasons, "reasons": shown}, 503 if reasons else 200)

    async def _metrics(self, _: Request) -> Response:
        text = await to_thread.run_sync(self._context.exposition.text, limiter=self._scrapes)
        return Response(text, media_type=CONTENT_TYPE)

    async def _openapi(self, _: Request) -> Response:
        return _json(document())

    # --- sources ---------------------------------------------------------------------------------------------------

    async def _list(self, _: Request, __: Caller) -> Response:
        captures = {capture.id: capture for capture in self._context.sources.captures}
        return _json([_row(source, captures.get(source.id)) for source in self._context.changes.config.sources])

    async def _show(self, request: Request, _: Caller) -> Response:
        return self._answer(self._source_of(request))

    async def _add(self, request: Request, caller: Caller) -> Response:
        source = source_from(await read_body(request), self._config)
        limit = self._config.max_sources

        def add(rows: list[SourceConfig]) -> list[SourceConfig]:
            if any(other.id == source.id for other in rows):
                raise LookoutError(f"there is a source {source.id!r} already: PUT or PATCH changes it")
            if len(rows) >= limit:
                raise LookoutError(f"there are {limit} sources already, the most that are allowed")
            return [*rows, source]

        await self._edit(request, caller, "source added", source.id, add)
        return self._answer(source, 201) if self._fleet is None else _json(_pending(source), 202)

    async def _replace(self, request: Request, caller: Caller) -> Response:
        body, id = await read_body(request), self._source_of(request).id
        return await self._change(request, caller, id, lambda old: source_from(body, self._config, old, id))

    async def _patch(self, request: Request, caller: Caller) -> Response:
        body, id = await read_body(request), self._source_of(request).id
        return await self._change(request, caller, id, lambda old: patched(body, self._config, old))

    async def _change(
        self, request: Request, caller: Caller, id: str, new: Callable[[SourceConfig], SourceConfig]
    ) -> Response:
        """Replace a source by one that is made from it when the change is applied."""
        wanted, made = request.headers.get("if-match"), list[SourceConfig]()

        def change(rows: list[SourceConfig]) -> list[SourceConfig]:
            index = _index_of(id, rows)
            if wanted not in (None, "*", self._tag(rows[index])):
                raise _ChangedError("the source was changed meanwhile: GET it again")
            made.append(new(rows[index]))
            return [*rows[:index], made[-1], *rows[index + 1 :]]

        await self._edit(request, caller, "source changed", id, change)
        return self._answer(made[-1])

    async def _check(self, request: Request, caller: Caller) -> Response:  # noqa: ARG002
        """Whether a source could be added, or changed if `id` names one; says what would be refused, or goes wrong."""
        body, id = await read_body(request), request.query_params.get("id")
        checked: list[SourceConfig] = []

        def read(now: Config) -> Config:
            old = next((row for row in now.sources if row.id == id), None)
            if id is not None and old is None:
                raise _GoneError("no such source")
            source = patched(body, self._config, old) if old else source_from(body, self._config)
            if old is None and any(row.id == source.id for row in now.sources):
                raise LookoutError(f"there is a source {source.id!r} already")
            checked[:] = [source]
            rows = [source if row is old else row for row in now.sources]
            rows += [] if old else [source]
            if not self._config.allow_local:
                check_synthetic(rows, now.sources)
            return check(msgspec.structs.replace(now, sources=rows), may_be_empty=True)

        try:
            change = await self._submit(read, dry_run=True)
        except (LookoutError, DetectorError) as error:
            return _json({"ok": False, "lines": [str(error)]})
        ok, lines = True, list[str]()
        if checked[0].enabled and checked[0] in (*change.added, *change.changed):
            ok, lines = await to_thread.run_sync(try_source, checked[0], limiter=self._trials)
        return _json({"ok": ok, "lines": [scrub(line) for line in lines] or ["ok: it would go on without a restart"]})

    async def _remove(self, request: Request, caller: Caller) -> Response:
        id = self._source_of(request).id

        def remove(rows: list[SourceConfig]) -> list[SourceConfig]:
            index = _index_of(id, rows)
            return [*rows[:index], *rows[index + 1 :]]

        await self._edit(request, caller, "source removed", id, remove)
        return Response(status_code=204)

    async def _snapshot(self, request: Request, _: Caller) -> Response:
        source = self._source_of(request)
        state = self._row(source)["state"]
        if state == "disabled":
            raise HTTPException(409, f"the source {source.id!r} is disabled: PATCH it with enabled: true")
        if state != "up":
            raise HTTPException(503, f"the source {source.id!r} is {state}", {"Retry-After": "5"})
        if self._waiting >= _MAX_WAITING:
            raise HTTPException(503, f"{_MAX_WAITING} snapshots are waited for already", {"Retry-After": "1"})
        boxes = request.query_params.get("boxes", "false").lower() in _TRUE
        render = partial(self._context.snapshots.jpeg, source.id, _SNAPSHOT_TIMEOUT_S, boxes=boxes)
        self._waiting += 1
        try:
            picture, frame = await to_thread.run_sync(render, limiter=self._snapshots)
        except StoppingError as error:
            raise HTTPException(503, str(error)) from error
        except LookoutError as error:
            raise HTTPException(504, str(error)) from error
        finally:
            self._waiting -= 1
        headers = {"Cache-Control": "no-store", "X-Seq": str(frame.seq), "X-Captured-At": str(frame.captured_at)}
        if frame.pts is not None:
            headers["X-Pts"] = str(frame.pts)
        return Response(picture, media_type="image/jpeg", headers=headers)

    async def _list_events(self, request: Request, _: Caller) -> Response:
        return _json(await self._events.events(request))

    async def _show_event(self, request: Request, _: Caller) -> Response:
        return Response(await self._events.snapshot(request), media_type="image/jpeg")

    async def _list_counts(self, request: Request, _: Caller) -> Response:
        return _json(self._events.counts(request))

    async def _show_daemon(self, _: Request, __: Caller) -> Response:
        facts = self._context.facts()
        persists = self._context.store is not None or self._fleet is not None
        fleet = self._context.fleet.name if self._context.fleet else None
        return _json({**facts, "version": __version__, "persists": persists, "fleet": fleet})

    async def _show_config(self, _: Request, __: Caller) -> Response:
        rules = self._context.store is not None and self._context.store.exists
        return _json(
            {
                **_plain(self._context.changes.config),
                "sources_from": str(self._context.store.path) if rules and self._context.store else None,
            }
        )

    async def _reload(self, _: Request, caller: Caller) -> Response:
        log.info("reload requested", by=caller.name, peer=caller.peer)
        change = await self._submit(lambda _: self._context.read(), reloads=True)
        return _json(change.summary)

    async def _show_fleet(self, _: Request, __: Caller) -> Response:
        return _json(await self._fleet_or_404().status())

    async def _command_fleet(self, request: Request, caller: Caller) -> Response:
        fleet, name = self._fleet_or_404(), request.path_params["command"]
        commands = {"drain": fleet.drain, "undrain": fleet.undrain, "move": fleet.move, "rebalance": fleet.rebalance}
        if name not in commands:
            raise HTTPException(404, f"no such command of a fleet: there are {', '.join(commands)}")
        return _json(await commands[name](request, caller))

    def _fleet_or_404(self) -> FleetCommands:
        if self._fleet is None:
            raise HTTPException(404, "this daemon is in no fleet: see `fleet` in its configuration")
        return self._fleet

    async def _edit(self, request: Request, caller: Caller, event: str, id: str, edit: _Edit) -> None:
        """Change the list of sources, persist it if the request says so, and log the change with its caller."""
        persist = request.query_params.get("persist", "false").lower() in _TRUE and self._fleet is None
        if persist and self._context.store is None:
            raise HTTPException(400, "persist: http.sources_file is not set")
        edited: list[tuple[Sequence[SourceConfig], Sequence[SourceConfig]]] = []

        def read(now: Config) -> Config:
            rows = edit(list(now.sources))
            if keys := _changed_keys(id, now.sources, rows):
                audit["keys"] = keys
            if not self._config.allow_local:
                check_synthetic(rows, now.sources)
            edited[:] = [(now.sources, rows)]
            return check(msgspec.structs.replace(now, sources=rows), may_be_empty=True)

        audit: dict[str, object] = {"source": id, "by": caller.name, "peer": caller.peer, "persisted": persist}
        try:
            if self._fleet:  # the fleet's member puts it into effect, here or elsewhere
                await self._submit(read, dry_run=True)
                await self._fleet.write(*edited[0])
            else:
                await self._submit(read, persist=self._context.store.write if persist and self._context.store else None)
        except HTTPException as error:
            log.info(f"{event}: not done", reason=error.detail, **audit)
            raise
        log.info(event, **audit)

    async def _submit(
        self,
        read: Callable[[Config], Config],
        *,
        reloads: bool = False,
        persist: PersistSources | None = None,
        dry_run: bool = False,
    ) -> Any:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def notify(_: object) -> None:
            with suppress(RuntimeError):  # the server has stopped
                loop.call_soon_threadsafe(done.set)

        future = self._context.changes.submit(read, reloads=reloads, persist=persist, dry_run=dry_run)
        future.add_done_callback(notify)
        try:
            await asyncio.wait_for(done.wait(), _CHANGE_TIMEOUT_S)
            return future.result()
        except asyncio.TimeoutError as error:
            raise HTTPException(504, "it takes longer than a minute, and goes on") from error
        except StoppingError as error:
            raise HTTPException(503, str(error)) from error

    def _source_of(self, request: Request) -> SourceConfig:
        id = request.path_params["id"]
        for source in self._context.changes.config.sources:
            if source.id == id:
                return source
        raise HTTPException(404, "no such source")

    def _answer(self, source: SourceConfig, status: int = 200) -> Response:
        response = _json(self._row(source), status)
        response.headers["ETag"] = self._tag(source)
        return response

    def _tag(self, source: SourceConfig) -> str:
        """An ETag of the source's configuration, secrets included."""
        content = msgspec.json.encode(source, enc_hook=written_of)
        return f'"{hmac.digest(self._tag_key, content, "sha256").hex()[:32]}"'

    def _row(self, source: SourceConfig) -> dict[str, Any]:
        return _row(source, next((row for row in self._context.sources.captures if row.id == source.id), None))

    def _guarded(self, role: Role, handler: _Handled, *, has_body: bool = False) -> _Handler:
        """Require a token with that role.

        Args:
            has_body: the request has a body.
        """

        async def guarded(request: Request) -> Response:
            caller = self._access.caller(request, role)
            if has_body:
                check_body(request)
            return await handler(request, caller)

        return guarded

    def _viewable(self, handler: _Handler) -> _Handler:
        """Require the right to see metrics."""

        async def guarded(request: Request) -> Response:
            self._access.check_may_view(request)
            return await handler(request)

        return guarded


def _row(source: SourceConfig, capture: HostedCapture | None) -> dict[str, Any]:
    """A source in the API's format."""
    return {
        "config": _plain(source),
        "state": capture.state if capture else "ended" if source.enabled else "disabled",
        "format": _plain(capture.format) if capture and capture.format else None,
        "failure": scrub(capture.failure) if capture and capture.failure else None,
    }


def _pending(source: SourceConfig) -> dict[str, Any]:
    """A source that a member of the fleet is about to own, in the API's format."""
    state = "connecting" if source.enabled else "disabled"
    return {"config": _plain(source), "state": state, "format": None, "failure": None}


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def _plain(value: object) -> Any:
    """Plain JSON values; secrets are masked."""
    return msgspec.to_builtins(value, enc_hook=_hook)


def _hook(value: object) -> str:
    if isinstance(value, Secret | Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded")


class _GoneError(LookoutError):
    """The source was removed before the change was applied."""


class _ChangedError(LookoutError):
    """The source has changed since the client read it."""


def _changed_keys(id: str, before: Sequence[SourceConfig], after: Sequence[SourceConfig]) -> list[str]:
    """The keys that differ in a source that is in both lists."""
    old, new = ({row.id: msgspec.structs.asdict(row) for row in rows}.get(id) for rows in (before, after))
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key)) if old and new else []


def _index_of(id: str, rows: list[SourceConfig]) -> int:
    for index, row in enumerate(rows):
        if row.id == id:
            return index
    raise _GoneError("no such source")


async def _gone(_: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 404)


async def _changed(_: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 412)


async def _away(_: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 503)


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - starlette calls it for nothing else
    response = _json({"error": error.detail}, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _refused(_: Request, error: Exception) -> Response:
    """An error that the caller can correct."""
    return _json({"error": str(error)}, 422 if isinstance(error, ConfigError) else 409)
