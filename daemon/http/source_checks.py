"""A source is tried before it is added or changed: what would be refused, and whether it gives a picture."""

from __future__ import annotations

import msgspec
from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response

from daemon.config.http import HttpConfig
from daemon.config.root import Config, check
from daemon.config.sources import SourceConfig
from daemon.control.changes import Changes
from daemon.errors import LookoutError
from daemon.http.answers import GoneError, json_answer
from daemon.http.bodies import read_body
from daemon.http.operation import Answer, Operation, Parameter, record
from daemon.http.rules import check_synthetic, patched, source_from
from daemon.http.sources import PATCH
from daemon.http.submission import submit
from daemon.http.trial import try_source
from daemon.redact import scrub
from detectors.port import DetectorError

_CHECK = record("Check", {"ok": {"type": "boolean"}, "lines": {"type": "array", "items": {"type": "string"}}})
_MAX_TRIALS = 2  # at once


class CheckOperations:
    """Changes nothing."""

    def __init__(self, changes: Changes, config: HttpConfig) -> None:
        self._changes, self._config = changes, config
        self._trials = CapacityLimiter(_MAX_TRIALS)

    def operations(self) -> list[Operation]:
        return [
            Operation("POST", "/api/v1/check", self._check, "operate",
                      "Try a source that would be added, or changes of the one that `id` names",
                      {200: Answer("Whether it would work, and why not", _CHECK)},
                      errors=(422, 503, 504), parameters=(Parameter("id", {"type": "string"}),), body=PATCH)
        ]  # fmt: skip

    async def _check(self, request: Request) -> Response:
        """Whether a source could be added, or changed if `id` names one; says what would be refused, or goes wrong."""
        body, id = await read_body(request), request.query_params.get("id")
        checked: list[SourceConfig] = []

        def read(now: Config) -> Config:
            old = next((row for row in now.sources if row.id == id), None)
            if id is not None and old is None:
                raise GoneError("no such source")
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
            change = await submit(self._changes, read, dry_run=True)
        except (LookoutError, DetectorError) as error:
            return json_answer({"ok": False, "lines": [str(error)]})
        ok, lines = True, list[str]()
        if checked[0].enabled and checked[0] in (*change.added, *change.changed):
            ok, lines = await to_thread.run_sync(try_source, checked[0], limiter=self._trials)
        shown = [scrub(line) for line in lines] or ["ok: it would go on without a restart"]
        return json_answer({"ok": ok, "lines": shown})
