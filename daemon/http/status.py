"""The whole daemon at one moment, for operators, and the level of its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from daemon import __version__
from daemon.config.root import Config, Level
from daemon.errors import ConfigError
from daemon.http.access import caller_of
from daemon.http.answers import json_answer
from daemon.http.bodies import read_body
from daemon.http.operation import Answer, Operation
from daemon.http.status_report import DaemonReport, ModelReport, SourceReport, StoreReport, TroubleReport
from daemon.http.submission import submit
from daemon.parts import DaemonParts
from daemon.pipeline.drop_causes import CAUSES
from daemon.pipeline.ledger import Counts
from daemon.redact import printable, scrub
from daemon.validation import convert
from lookout.messages import Metrics

log = structlog.get_logger(__name__)


class LogLevel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes:
    level: debug, info, warning or error.
    """

    level: Level


class StatusOperations:
    """
    Args:
        facts: port of the bridge's account and name of the fleet, as the schema `Daemon` has them.
    """

    def __init__(self, parts: DaemonParts, facts: Callable[[], Mapping[str, Any]]) -> None:
        self._parts, self._facts = parts, facts

    def operations(self) -> list[Operation]:
        level = {200: Answer("The level in use", LogLevel)}
        return [
            Operation("GET", "/api/v1/status", self._show, "view",
                      "Sources, models, stores and troubles, as `lookout status` shows them",
                      {200: Answer("All", DaemonReport)}),
            Operation("GET", "/api/v1/log", self._show_level, "view", "The level of the log", level),
            Operation("PUT", "/api/v1/log", self._set_level, "operate",
                      "Log from another level on, until a reload or a restart", level,
                      errors=(422, 503, 504), body=LogLevel),
        ]  # fmt: skip

    async def _show(self, _: Request) -> Response:
        return json_answer(report(self._parts, self._facts()))

    async def _show_level(self, _: Request) -> Response:
        return json_answer(LogLevel(level=self._parts.changes.config.log.level))

    async def _set_level(self, request: Request) -> Response:
        wanted, caller = _level_of(await read_body(request)), caller_of(request)

        def read(now: Config) -> Config:
            return msgspec.structs.replace(now, log=msgspec.structs.replace(now.log, level=wanted.level))

        await submit(self._parts.changes, read)
        log.warning("log level changed", level=wanted.level, by=caller.name, peer=caller.peer)
        return json_answer(wanted)


def _level_of(body: bytes) -> LogLevel:
    """
    Raises:
        ConfigError: it is something else.
    """
    try:
        raw = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise ConfigError(f"not JSON: {error}") from error
    found: LogLevel = convert(raw, LogLevel, None)
    return found


def report(parts: DaemonParts, facts: Mapping[str, Any]) -> DaemonReport:
    """All of the daemon now."""
    health, changes, last = parts.health, parts.changes, parts.monitor.last
    state, since = health.state
    sources = [*_sources(parts, last)]
    return DaemonReport(
        at=parts.core.runtime.clock.utc_ns(),
        state=state,
        since=since,
        version=__version__,
        instance=parts.core.instance,
        endpoint=parts.endpoint,
        fps=last.fps if last else None,
        cpu_percent=last.process.cpu_percent if last else None,
        rss_bytes=last.process.rss_bytes if last else None,
        sources=sources,
        models=[*_models(parts, last)],
        gpus=last.gpus if last else None,
        stores=[StoreReport(**row) for row in facts["stores"]],
        bridge=facts["bridge"]["port"] if facts["bridge"] else None,
        fleet=facts["fleet"],
        log_level=changes.config.log.level,
        reloads={"applied": changes.reloads[True], "refused": changes.reloads[False]},
        troubles=[*_troubles(parts, sources)],
    )


def _sources(parts: DaemonParts, last: Metrics | None) -> Iterator[SourceReport]:
    counts, clock = parts.core.ledger.counts(), parts.core.runtime.clock
    captures = {capture.id: capture for capture in parts.sources.captures}
    for source in parts.changes.config.sources:
        capture, count = captures.get(source.id), counts.get(source.id) or Counts.none()
        if capture is None:
            # An enabled one is being changed.
            yield SourceReport(id=source.id, state="connecting" if source.enabled else "disabled")
            continue
        heard, figures = parts.sources.states.of(source.id), last.sources.get(source.id) if last else None
        reason = capture.failure or (heard.reason if heard else None)
        left_ns = heard.retry_ns - clock.monotonic_ns() if heard and heard.retry_ns is not None else None
        yield SourceReport(
            id=source.id,
            state=capture.state,
            since=heard.since if heard else None,
            reason=printable(scrub(reason)) if reason else None,
            retry_in_s=None if left_ns is None or capture.state == "up" else round(max(0, left_ns) / 1e9, 3),
            captured_fps=figures.captured_fps if figures else None,
            published_fps=figures.published_fps if figures else None,
            captured=count.captured,
            published=count.published,
            dropped={cause: number for cause in CAUSES if (number := getattr(count.dropped, cause))},
        )


def _models(parts: DaemonParts, last: Metrics | None) -> Iterator[ModelReport]:
    for name, info in parts.detecting.infos.items():
        row = last.models.get(name) if last else None
        fps = row.published_fps if row else last.fps if last and not name else None
        yield ModelReport(
            name=name or None,
            model=info.name,
            backend=info.backend,
            precision=info.precision,
            gpu=info.gpu,
            fps=fps,
        )


def _troubles(parts: DaemonParts, sources: list[SourceReport]) -> Iterator[TroubleReport]:
    """Those of the daemon first, then each source that is down or stalled, is tried again, or has ended too early."""
    for row in parts.health.troubles():
        reason = row.reason.removeprefix(f"{row.what}: ")
        yield TroubleReport(what=row.what, since=row.since, reason=printable(scrub(reason)))
    failures = parts.sources.failures
    for source in sources:
        heard = parts.sources.states.of(source.id)
        is_down = heard is not None and heard.was_down and source.state in ("connecting", "stalled", "down")
        if heard is not None and (is_down or source.id in failures):
            reason = source.reason or f"it is {source.state}"
            what = f"source {source.id}"
            yield TroubleReport(what=what, since=heard.since, reason=reason, retry_in_s=source.retry_in_s)
