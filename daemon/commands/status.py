"""`lookout status`: a running daemon at one moment, and whether all is well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from daemon.bridge.report import BridgeReport, TargetReport
from daemon.clock import local_text
from daemon.commands.running_daemon import RefusedError, RunningDaemon
from daemon.errors import LookoutError
from daemon.http.status_report import DaemonReport, SourceReport, TroubleReport
from daemon.redact import printable
from lookout.messages import GpuMetrics

LIMIT_S = 5.0  # of each of two answers
_PATH, _BRIDGE_PATH = "/api/v1/status", "/api/v1/bridge"
_MAX_ROWS = 40
_COLOURS = {
    "up": "green", "running": "green", "stalled": "yellow", "connecting": "yellow", "starting": "yellow",
    "stopping": "yellow", "away": "red", "gone": "red", "down": "red",
}  # fmt: skip


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon and its bridge at one moment.

    Attributes:
        ok: the daemon runs, and there is no trouble.
        url: that was asked.
        bridge: null where there is none, or it does not answer.
        troubles: of the daemon and of the bridge.
    """

    ok: bool
    url: str
    daemon: DaemonReport
    bridge: BridgeReport | None
    troubles: list[TroubleReport]


def status_of(daemon: RunningDaemon, limit_s: float = LIMIT_S) -> Status:
    """Ask the daemon, and its bridge where it has one, within `limit_s` each.

    Raises:
        LookoutError: the daemon cannot be asked; says why, and what to do.
    """
    try:
        found = _read(daemon, _PATH, DaemonReport, limit_s)
    except RefusedError as error:
        if error.status == 404:
            raise LookoutError(f"{daemon.url}{_PATH} is not known there: that Lookout is older, or none") from error
        raise
    bridge, troubles = None, [*found.troubles]
    if found.bridge is not None:
        try:
            bridge = _read(daemon.at_port(found.bridge), _BRIDGE_PATH, BridgeReport, limit_s)
            troubles += _of_bridge(bridge)
        except LookoutError as error:
            troubles.append(TroubleReport(what="bridge", since=found.at, reason=str(error)))
    is_well = found.state == "running" and not troubles
    return Status(ok=is_well, url=daemon.url, daemon=found, bridge=bridge, troubles=troubles)


def as_json(found: Status) -> str:
    """For programs."""
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode()


def show(found: Status, console: Console, *, every_source: bool) -> None:
    """Print it: what is in trouble comes first among the sources, and once more at the end with reasons."""
    for part in _parts(found, every_source=every_source):
        console.print(part)


def _read(daemon: RunningDaemon, path: str, kind: Any, limit_s: float) -> Any:
    try:
        return msgspec.convert(daemon.ask("GET", path, limit_s=limit_s), kind)
    except msgspec.ValidationError as error:
        raise LookoutError(f"{daemon.url}{path} does not answer as this Lookout does: {error}") from error


def _of_bridge(bridge: BridgeReport) -> Iterator[TroubleReport]:
    if bridge.spool.failure:
        yield TroubleReport(what="bridge's spool", since=bridge.at, reason=bridge.spool.failure)
    for feed in bridge.feeds:
        if feed.state in ("away", "gone", "off"):
            reason = feed.reason or feed.state
            yield TroubleReport(what=f"bridge hears {feed.daemon}", since=bridge.at, reason=reason)
    for target in bridge.targets:
        if target.state in ("away", "gone", "off"):
            yield TroubleReport(
                what=f"target {target.name}",
                since=target.since,
                reason=target.reason or f"it is {target.state}",
                retry_in_s=target.retry_in_s,
            )


def _parts(found: Status, *, every_source: bool) -> Iterator[RenderableType]:
    daemon = found.daemon
    yield _headline(found)
    if daemon.sources:
        rows = sorted(daemon.sources, key=lambda row: row.state in ("up", "ended", "disabled"))
        yield _sources(rows if every_source else rows[:_MAX_ROWS], daemon.at)
        if len(rows) > _MAX_ROWS and not every_source:
            yield f"and {len(rows) - _MAX_ROWS} more sources: --sources shows all"
    yield _models(daemon)
    if daemon.gpus:
        yield _gpus(daemon.gpus)
    if daemon.stores:
        yield _stores(daemon)
    if found.bridge:
        yield _targets(found.bridge.targets, daemon.at)
    yield _troubles(found.troubles, daemon.at) if found.troubles else Text("no troubles", "green")


def _headline(found: Status) -> Text:
    daemon = found.daemon
    up = sum(row.state == "up" for row in daemon.sources)
    enabled = sum(row.state != "disabled" for row in daemon.sources)
    facts = [
        f"Lookout {daemon.version} at {found.url}",
        f"{daemon.state} since {local_text(daemon.since)}",
        f"{up} of {enabled} sources up",
    ]
    facts += [] if daemon.fps is None else [f"{daemon.fps:g} frames/s"]
    facts += [] if daemon.cpu_percent is None else [f"CPU {daemon.cpu_percent:.0f} %"]
    facts += [] if daemon.rss_bytes is None else [f"{daemon.rss_bytes >> 20} MiB"]
    facts += [f"fleet {daemon.fleet}"] if daemon.fleet else []
    facts += [f"log level {daemon.log_level}"] if daemon.log_level != "info" else []
    refused = daemon.reloads.get("refused", 0)
    facts += [f"{refused} {'reload was' if refused == 1 else 'reloads were'} refused"] if refused else []
    return Text(printable("; ".join(facts)))


def _sources(rows: Sequence[SourceReport], at: int) -> Table:
    table = Table("source", "state", "since", "frames/s", "published", "dropped")
    for row in rows:
        dropped = [f"{cause} {count}" for cause, count in sorted(row.dropped.items(), key=lambda one: -one[1])]
        notes = [f"({row.reason})"] if row.reason and row.state == "up" else []
        counts = _rate(row), str(row.published), _text(", ".join([*dropped, *notes]))
        table.add_row(_text(row.id), _state(row.state), _since(row.since, at), *counts)
    return table


def _rate(row: SourceReport) -> str:
    if row.published_fps is None or row.captured_fps is None:
        return ""
    return f"{row.published_fps:g} of {row.captured_fps:g}"


def _since(since: int | None, at: int) -> str:
    """By the clock on the wall; of another day than the report's with its date."""
    if since is None:
        return ""
    text = local_text(since)
    return text[11:19] if text[:10] == local_text(at)[:10] else text[:16]


def _models(daemon: DaemonReport) -> Table:
    table = Table("model", "file", "runs on", "precision", "frames/s")
    for row in daemon.models:
        place = row.backend if row.gpu is None else f"{row.backend}, GPU {row.gpu}"
        rate = "" if row.fps is None else f"{row.fps:g}"
        table.add_row(_text(row.name or ""), _text(row.model), _text(place), _text(row.precision), rate)
    return table


def _gpus(rows: Sequence[GpuMetrics]) -> Table:
    table = Table("GPU", "busy", "decoder", "memory", "power")
    for row in rows:
        memory = [f"{size >> 20}" for size in (row.memory_used_bytes, row.memory_total_bytes) if size is not None]
        table.add_row(
            _text(row.name),
            _percent(row.utilisation),
            _percent(row.decoder_utilisation),
            f"{' of '.join(memory)} MiB" if memory else "?",
            "?" if row.power_w is None else f"{row.power_w:.0f} W",
        )
    return table


def _stores(daemon: DaemonReport) -> Table:
    table = Table("store", "state", "recordings", "free")
    for row in daemon.stores:
        free = "?" if row.free_bytes is None else f"{row.free_bytes / (1 << 30):.1f} GiB"
        state = _state("down") if row.cause else Text("written", "green")
        table.add_row(_text(row.name), state, f"{row.bytes / (1 << 30):.1f} GiB", free)
    return table


def _targets(rows: Sequence[TargetReport], at: int) -> Table:
    table = Table("target", "type", "state", "since", "delivered", "dropped", "waiting")
    for row in rows:
        counts = str(row.delivered), str(sum(row.dropped.values())), str(row.spooled)
        table.add_row(_text(row.name), _text(row.type), _state(row.state), _since(row.since, at), *counts)
    return table


def _troubles(rows: Sequence[TroubleReport], at: int) -> Table:
    table = Table("trouble", "since", "why", title="Troubles", title_style="red", title_justify="left")
    for row in rows[:_MAX_ROWS]:
        table.add_row(_text(row.what), _since(row.since, at), _text(f"{row.reason}{_next_try(row.retry_in_s)}"))
    if len(rows) > _MAX_ROWS:
        table.add_row(f"and {len(rows) - _MAX_ROWS} more", "", "--json has all")
    return table


def _next_try(seconds: float | None) -> str:
    return "" if seconds is None else f"; next try in {seconds:.0f} s" if seconds >= 0.5 else "; it is tried now"


def _percent(share: int | None) -> str:
    return "?" if share is None else f"{share} %"


def _state(state: str) -> Text:
    return Text(state, _COLOURS.get(state, ""))


def _text(text: str) -> Text:
    return Text(printable(text))
