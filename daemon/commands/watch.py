"""`lookout watch`: shows the messages of a running daemon, as a table or as JSON lines."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from daemon.commands.events import line_of, messages_while_read
from daemon.pipeline.drawing import settled
from daemon.redact import printable
from lookout.client import Subscriber
from lookout.messages import (
    Clip,
    Counts,
    Detection,
    Detections,
    Dropped,
    Event,
    Message,
    Metrics,
    Packets,
    Status,
    Store,
)

_WINDOW_S = 5.0
_REFRESH_S = 0.25
_MAX_TRACKS = 6  # of a source that are shown one by one


def once(subscriber: Subscriber, endpoint: str, timeout_s: float, as_json: bool) -> int:
    """0 when detections arrive, 1 if none do in time."""
    message = subscriber.receive(timeout_s)
    if message is None:
        click.echo(f"no detections from {endpoint} within {timeout_s:g} s: check that it runs, and the key", err=True)
        return 1
    if as_json:
        _print_json(message)
    else:
        assert isinstance(message, Detections)  # noqa: S101 - the only subscription
        found = ", ".join(map(_named, message.detections)) or "nothing"
        click.echo(printable(f"{message.source}: frame {message.seq}, {found}, {message.latency.total / 1e6:.1f} ms"))
    return 0


def lines(subscriber: Subscriber) -> int:
    """Print every message as a line of JSON, until interrupted, or until nobody reads."""
    for message in messages_while_read(subscriber):
        _print_json(message)
    return 0


def table(subscriber: Subscriber, endpoint: str) -> int:
    """Show a live table until interrupted."""
    view = View(endpoint)
    with Live(console=Console(), auto_refresh=False, transient=False) as live:
        due = monotonic()
        while True:
            message = subscriber.receive(_REFRESH_S)
            if message is not None:
                view.add(message)
            if monotonic() >= due:
                due = monotonic() + _REFRESH_S
                live.update(view.render(subscriber), refresh=True)


@dataclass
class _Row:
    state: str = "?"
    reason: str = ""
    size: str = ""
    seen: Sequence[Detection] = ()
    arrivals: deque[tuple[float, int]] = field(default_factory=deque)  # monotonic seconds, total latency in ns
    dropped: Dropped = field(default_factory=Dropped)


class View:
    """A table of sources, from their messages."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._rows: dict[str, _Row] = {}
        self._metrics: Metrics | None = None
        self._event: Event | None = None  # the last

    def add(self, message: Message) -> None:
        if isinstance(message, Metrics):
            self._metrics = message
            return
        if isinstance(message, Event | Counts | Packets | Clip | Store):
            self._event = message if isinstance(message, Event) else self._event
            return
        row = self._rows.setdefault(message.source, _Row())
        if isinstance(message, Status):
            row.state = message.state
            row.reason = message.reason or ""
            return
        row.state, row.reason = "up", ""
        row.size = f"{message.image.width}x{message.image.height}"
        row.seen = message.detections
        row.dropped = message.dropped
        row.arrivals.append((monotonic(), message.latency.total))

    def render(self, subscriber: Subscriber) -> Table:
        table = Table(title=f"Lookout at {self._endpoint}", title_justify="left", caption=self._caption(subscriber))
        for name in ("source", "state", "size", "fps", "p95 ms", "dropped", "sees"):
            table.add_column(name, justify="right" if name in ("fps", "p95 ms", "dropped") else "left")
        for source, row in sorted(self._rows.items()):
            fps, p95 = _recent(row.arrivals)
            dropped = ", ".join(f"{n} {cause}" for cause, n in msgspec.structs.asdict(row.dropped).items() if n) or "0"
            sees = _summary(row.seen) or row.reason or "-"
            cells = (source, row.state, row.size, f"{fps:.1f}", f"{p95:.1f}", dropped, sees)
            table.add_row(*(Text(printable(cell)) for cell in cells))
        if not self._rows:
            table.add_row("...", "no message yet: check that it runs, and the key")
        return table

    def _caption(self, subscriber: Subscriber) -> Text:
        parts = [f"{subscriber.received} messages, {sum(subscriber.lost.values())} lost"]
        if fenced := sum(subscriber.fenced.values()):
            parts.append(f"{fenced} left out: late, of an earlier owner")
        if subscriber.failure:
            parts.append(f"the fleet's members are not known now: {subscriber.failure}")
        if self._metrics:
            process = self._metrics.process
            parts.append(f"daemon: CPU {process.cpu_percent:.0f} %, {process.rss_bytes >> 20} MiB")
            parts.extend(f"{gpu.name}: {gpu.utilisation} %, {gpu.power_w} W" for gpu in self._metrics.gpus or [])
        if self._event:
            parts.append(f"last event: {line_of(self._event)}")
        return Text(printable(" · ".join(parts)))


def _summary(found: Sequence[Detection]) -> str:
    """The first tracks one by one, and how many of each label there are beside them."""
    tracked = sorted((one for one in found if one.track_id is not None), key=lambda one: one.track_id or 0)
    others = Counter(one.track_label or one.label for one in tracked[_MAX_TRACKS:])
    others.update(one.label for one in found if one.track_id is None)
    counts = [f"{count} {label}" for label, count in sorted(others.items())]
    return ", ".join([*map(_named, tracked[:_MAX_TRACKS]), *counts])


def _named(found: Detection) -> str:
    """A label; with a track its id, the track's label, the confidence and the settled attributes."""
    if found.track_id is None:
        return found.label
    name = f"#{found.track_id} {found.track_label or found.label} {found.confidence:.2f}"
    return " ".join((name, *(settled(found.attributes) if found.attributes else ())))


def _recent(arrivals: deque[tuple[float, int]]) -> tuple[float, float]:
    """Messages per second, and p95 latency in ms, over the window."""
    now = monotonic()
    while arrivals and now - arrivals[0][0] > _WINDOW_S:
        arrivals.popleft()
    if len(arrivals) < 2:
        return 0.0, 0.0
    latencies = sorted(latency for _, latency in arrivals)
    span = arrivals[-1][0] - arrivals[0][0]
    return (len(arrivals) - 1) / span if span else 0.0, latencies[int(0.95 * (len(latencies) - 1))] / 1e6


def _print_json(message: Message) -> None:
    sys.stdout.write(msgspec.json.encode(message).decode() + "\n")
    sys.stdout.flush()
