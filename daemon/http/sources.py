"""Sources over HTTP: they are listed, added, replaced, changed and removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.config.http import HttpConfig
from daemon.config.root import Config, check
from daemon.config.sources import SOURCE_KINDS, SourceConfig
from daemon.control.changes import Changes
from daemon.control.source_store import SourceStore
from daemon.errors import LookoutError
from daemon.http.access import caller_of
from daemon.http.answers import ChangedError, GoneError, json_answer
from daemon.http.bodies import read_body
from daemon.http.fleet import FleetCommands
from daemon.http.operation import Answer, Operation, Parameter, Schema, array, record, reference
from daemon.http.rules import check_synthetic, patched, source_from
from daemon.http.source_rows import SourceRows, pending_row
from daemon.http.submission import submit
from lookout.messages import VideoFormat

log = structlog.get_logger(__name__)
_Edit = Callable[[list[SourceConfig]], list[SourceConfig]]
_ALL, _ONE = "/api/v1/sources", "/api/v1/sources/{id}"
_TRUE = ("1", "true", "yes")
_SOURCE = Schema({"oneOf": [reference(kind) for kind in SOURCE_KINDS]}, "Source", SOURCE_KINDS)
_ROW = record(
    "Row",
    {
        "config": {"type": "object"},
        "state": {"enum": ["connecting", "up", "stalled", "down", "ended", "disabled"]},
        "format": {"anyOf": [{"type": "null"}, reference(VideoFormat)]},
        "failure": {"type": ["string", "null"]},
        "recording": {
            "type": ["object", "null"],
            "description": "null where there is no store",
            "properties": {
                "reason": {"type": ["string", "null"], "description": "why none of it is recorded"},
                "stores": {
                    "type": "object",
                    "description": "why it is not recorded now, by store; null where it is",
                    "additionalProperties": {
                        "type": "object",
                        "properties": {"cause": {"type": ["string", "null"]}, "detail": {"type": ["string", "null"]}},
                        "required": ["cause", "detail"],
                    },
                },
            },
            "required": ["reason", "stores"],
        },
    },
    VideoFormat,
)
PATCH = Schema({"type": "object", "description": "Keys of a source, by RFC 7396: null is the default."})
_IT = {200: Answer("It", _ROW)}
_PERSIST = Parameter("persist", {"type": "boolean"})
_TAG = Parameter("If-Match", {"type": "string"}, "header")
_OF_EDITS = (400, 409, 422, 503, 504)


class SourceOperations:
    """
    Args:
        store: persists sources, None if that is not configured.
        fleet: None for a daemon without one.
    """

    def __init__(
        self,
        rows: SourceRows,
        changes: Changes,
        config: HttpConfig,
        store: SourceStore | None,
        fleet: FleetCommands | None,
    ) -> None:
        self._rows, self._changes, self._config = rows, changes, config
        self._store, self._fleet = store, fleet

    def operations(self) -> list[Operation]:
        added = {201: Answer("It", _ROW), 202: Answer("It, for the fleet to place", _ROW)}
        return [
            Operation("GET", _ALL, self._list, "view", "The sources", {200: Answer("All", array(_ROW))}),
            Operation("POST", _ALL, self._add, "operate", "Add a source", added,
                      errors=_OF_EDITS, parameters=(_PERSIST,), body=_SOURCE),
            Operation("GET", _ONE, self._show, "view", "A source", _IT, errors=(404,)),
            Operation("PUT", _ONE, self._replace, "operate", "Replace it", _IT,
                      errors=(404, 412, *_OF_EDITS), parameters=(_PERSIST, _TAG), body=_SOURCE),
            Operation("PATCH", _ONE, self._patch, "operate", "Change some of its keys", _IT,
                      errors=(404, 412, *_OF_EDITS), parameters=(_PERSIST, _TAG), body=PATCH),
            Operation("DELETE", _ONE, self._remove, "operate", "Remove it", {204: Answer("Gone")},
                      errors=(404, *_OF_EDITS), parameters=(_PERSIST,)),
        ]  # fmt: skip

    async def _list(self, _: Request) -> Response:
        return json_answer(self._rows.all())

    async def _show(self, request: Request) -> Response:
        return self._rows.answer(self._rows.find(request))

    async def _add(self, request: Request) -> Response:
        source = source_from(await read_body(request), self._config)
        limit = self._config.max_sources

        def add(rows: list[SourceConfig]) -> list[SourceConfig]:
            if any(other.id == source.id for other in rows):
                raise LookoutError(f"there is a source {source.id!r} already: PUT or PATCH changes it")
            if len(rows) >= limit:
                raise LookoutError(f"there are {limit} sources already, the most that are allowed")
            return [*rows, source]

        await self._edit(request, "source added", source.id, add)
        return self._rows.answer(source, 201) if self._fleet is None else json_answer(pending_row(source), 202)

    async def _replace(self, request: Request) -> Response:
        body, id = await read_body(request), self._rows.find(request).id
        return await self._change(request, id, lambda old: source_from(body, self._config, old, id))

    async def _patch(self, request: Request) -> Response:
        body, id = await read_body(request), self._rows.find(request).id
        return await self._change(request, id, lambda old: patched(body, self._config, old))

    async def _change(self, request: Request, id: str, new: Callable[[SourceConfig], SourceConfig]) -> Response:
        """Replace a source by one that is made from it when the change is applied."""
        wanted, made = request.headers.get("if-match"), list[SourceConfig]()

        def change(rows: list[SourceConfig]) -> list[SourceConfig]:
            index = _index_of(id, rows)
            if wanted not in (None, "*", self._rows.tag(rows[index])):
                raise ChangedError("the source was changed meanwhile: GET it again")
            made.append(new(rows[index]))
            return [*rows[:index], made[-1], *rows[index + 1 :]]

        await self._edit(request, "source changed", id, change)
        return self._rows.answer(made[-1])

    async def _remove(self, request: Request) -> Response:
        id = self._rows.find(request).id

        def remove(rows: list[SourceConfig]) -> list[SourceConfig]:
            index = _index_of(id, rows)
            return [*rows[:index], *rows[index + 1 :]]

        await self._edit(request, "source removed", id, remove)
        return Response(status_code=204)

    async def _edit(self, request: Request, event: str, id: str, edit: _Edit) -> None:
        """Change the list of sources, persist it if the request says so, and log the change with its caller."""
        caller = caller_of(request)
        persist = request.query_params.get("persist", "false").lower() in _TRUE and self._fleet is None
        if persist and self._store is None:
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
                await submit(self._changes, read, dry_run=True)
                await self._fleet.write(*edited[0])
            else:
                await submit(self._changes, read, persist=self._store.write if persist and self._store else None)
        except HTTPException as error:
            log.info(f"{event}: not done", reason=error.detail, **audit)
            raise
        log.info(event, **audit)


def _changed_keys(id: str, before: Sequence[SourceConfig], after: Sequence[SourceConfig]) -> list[str]:
    """The keys that differ in a source that is in both lists."""
    old, new = ({row.id: msgspec.structs.asdict(row) for row in rows}.get(id) for rows in (before, after))
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key)) if old and new else []


def _index_of(id: str, rows: list[SourceConfig]) -> int:
    for index, row in enumerate(rows):
        if row.id == id:
            return index
    raise GoneError("no such source")
