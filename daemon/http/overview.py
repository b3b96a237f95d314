"""The daemon as a whole: its figures for Prometheus, its configuration, and a reload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response

from daemon.config.root import Config
from daemon.control.changes import Changes
from daemon.control.source_store import SourceStore
from daemon.http.access import caller_of
from daemon.http.answers import json_answer, plain
from daemon.http.exposition import CONTENT_TYPE, OPEN_METRICS, OPEN_METRICS_TYPE, Exposition
from daemon.http.operation import OBJECT, Answer, Operation, record
from daemon.http.submission import submit

log = structlog.get_logger(__name__)
_STRINGS = {"type": "array", "items": {"type": "string"}}
_DAEMON = record(
    "Daemon",
    {
        "version": {"type": "string"},
        "instance": {"type": "string"},
        "endpoint": {"type": "string", "description": "where subscribers connect"},
        "model": {"type": "string", "description": "the first, where there are several"},
        "labels": {**_STRINGS, "description": "of all models"},
        "models": {
            "type": "object",
            "description": "several, by name",
            "additionalProperties": {
                "type": "object",
                "properties": {"model": {"type": "string"}, "labels": _STRINGS},
                "required": ["model", "labels"],
            },
        },
        "tracked": {**_STRINGS, "description": "sources whose objects have ids"},
        "persists": {"type": "boolean", "description": "persist=true is possible"},
        "fleet": {"type": ["string", "null"], "description": "the name of its fleet"},
        "stores": {
            "type": "array",
            "description": "of recordings",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "cause": {"type": ["string", "null"], "description": "why nothing can be written"},
                    "reason": {"type": ["string", "null"], "description": "in words"},
                    "bytes": {"type": "integer", "description": "of its recordings"},
                    "free_bytes": {"type": ["integer", "null"], "description": "of its disk"},
                },
                "required": ["name", "cause", "reason", "bytes", "free_bytes"],
            },
        },
        "recordings": {
            "type": ["object", "null"],
            "description": "the API of recordings, on the same address",
            "properties": {"port": {"type": "integer"}},
            "required": ["port"],
        },
        "bridge": {
            "type": ["object", "null"],
            "description": "the account of the bridge, on the same address",
            "properties": {"port": {"type": "integer"}},
            "required": ["port"],
        },
    },
)


class OverviewOperations:
    """
    Args:
        facts: what a subscriber wants to know, as the schema `Daemon` has it.
        store: persists sources, None if that is not configured.
        read: reads the configuration file.
    """

    def __init__(
        self,
        exposition: Exposition,
        facts: Callable[[], dict[str, Any]],
        changes: Changes,
        store: SourceStore | None,
        read: Callable[[], Config],
    ) -> None:
        self._exposition, self._facts, self._changes = exposition, facts, changes
        self._store, self._read = store, read
        self._scrapes = CapacityLimiter(1)

    def operations(self) -> list[Operation]:
        return [
            Operation("GET", "/metrics", self._metrics, "local", "Figures for Prometheus", {200: Answer("text")}),
            Operation("GET", "/api/v1/daemon", self._show_daemon, "view",
                      "This daemon, for the page", {200: Answer("It", _DAEMON)}),
            Operation("GET", "/api/v1/config", self._show_config, "view",
                      "Without secrets", {200: Answer("It", OBJECT)}),
            Operation("POST", "/api/v1/reload", self._reload, "operate",
                      "Read the file again", {200: Answer("What changed", OBJECT)},
                      errors=(409, 422, 503, 504)),
        ]  # fmt: skip

    async def _metrics(self, request: Request) -> Response:
        is_open = OPEN_METRICS in request.headers.get("accept", "")
        make = self._exposition.open_metrics if is_open else self._exposition.text
        text = await to_thread.run_sync(make, limiter=self._scrapes)
        return Response(text, media_type=OPEN_METRICS_TYPE if is_open else CONTENT_TYPE)

    async def _show_daemon(self, _: Request) -> Response:
        return json_answer(self._facts())

    async def _show_config(self, _: Request) -> Response:
        sources_from = str(self._store.path) if self._store and self._store.exists else None
        shown = {**plain(self._changes.config), "sources_from": sources_from}
        if shown["models"]:
            del shown["model"]  # it is the first of them
        return json_answer(shown)

    async def _reload(self, request: Request) -> Response:
        caller = caller_of(request)
        log.info("reload requested", by=caller.name, peer=caller.peer)
        change = await submit(self._changes, lambda _: self._read(), reloads=True)
        return json_answer(change.summary)
