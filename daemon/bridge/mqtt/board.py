"""The states of daemons and sources as retained topics.

| topic | body |
|---|---|
| `daemons/DAEMON/state` | online, offline |
| `daemons/DAEMON/fps` | published frames a second of all its sources |
| `sources/SOURCE/state` | connecting, up, stalled, down, ended; unknown while its daemon is down |
| `sources/SOURCE/availability` | online where the source is up and its daemon is there, otherwise offline |
| `sources/SOURCE/fps` | published frames a second |
| `sources/SOURCE/status`, `counts` | the messages of the wire, as JSON |
| `sources/SOURCE/occupancy/ZONE/LABEL` | tracks in a zone now; `_` for the picture as a whole |
| `sources/SOURCE/totals/RULE/DIRECTION/LABEL` | tracks that crossed a line or passed a gate |
| `sources/SOURCE/picture` | JPEG of its last event, from the delivery of the event |
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
import structlog

from daemon.bridge.mqtt.claim import OFFLINE, ONLINE
from daemon.bridge.mqtt.retained import About, Wanted
from daemon.bridge.mqtt.topics import Topics, level
from daemon.bridge.states import DaemonState, SourceState, States
from daemon.bridge.targets.opening import Memory
from lookout.messages import Counts, Owner, Total

log = structlog.get_logger(__name__)
MAX_ROWS = 200  # zones and labels, and lines and labels, of a source
_KEY = "rows "  # of the memory, before daemon and source
_CROSSING = ("line", "gate")


class Zone(NamedTuple):
    """Tracks of a label in a zone.

    Attributes:
        rule: None for the picture as a whole.
    """

    rule: str | None
    label: str | None


class Line(NamedTuple):
    """Tracks of a label that cross a line, or pass a gate, in a direction."""

    rule: str
    direction: str
    label: str | None


class Rows(msgspec.Struct, frozen=True):
    """Zones and lines of a source that have counted anything. An empty zone is in no message, but has a state."""

    zones: tuple[Zone, ...] = ()
    lines: tuple[Line, ...] = ()


class SourceView(NamedTuple):
    """A source as it is told.

    Attributes:
        fps: None while unknown.
    """

    state: SourceState
    is_up: bool
    daemon_is_up: bool
    fps: float | None
    rows: Rows
    base: str

    def is_told_as(self, other: SourceView) -> bool:
        """Whether the same topics say the same of it; events are no states."""
        one, two = self.state, other.state
        return one.status is two.status and one.counts is two.counts and self[1:] == other[1:]


class Board:
    """Keeps what has been counted at each source, in the memory of the target too."""

    def __init__(self, topics: Topics, memory: Memory) -> None:
        self._topics, self._memory = topics, memory
        self._rows = dict(_stored(memory.read()))

    def view(self, state: SourceState, daemon: DaemonState | None) -> SourceView:
        daemon_is_up = daemon is not None and daemon.is_up
        is_up = daemon_is_up and state.status is not None and state.status.state == "up"
        fps = None
        if daemon is not None and daemon.metrics is not None:
            found = daemon.metrics.sources.get(state.source)
            fps = None if found is None else round(found.published_fps, 1)
        rows = self._learn(state)
        base = self._topics.source(state.daemon, state.source, owner_of(state))
        return SourceView(state, is_up, daemon_is_up, fps if daemon_is_up else None, rows, base)

    def forget(self, about: About) -> None:
        """A source was removed."""
        if self._rows.pop(about, None) is not None:
            self._memory.write(_key(about), None)

    @property
    def sources(self) -> list[About]:
        """Those that something is kept of."""
        return [*self._rows]

    def _learn(self, state: SourceState) -> Rows:
        key = about_of(state.daemon, state.source, owner_of(state))
        known = self._rows.get(key, Rows())
        if state.counts is None:
            return known
        zones = dict.fromkeys(known.zones) | dict.fromkeys(_zones(state.counts))
        lines = dict.fromkeys(known.lines) | dict.fromkeys(map(_line, _crossings(state.counts)))
        found = Rows(tuple(zones)[:MAX_ROWS], tuple(lines)[:MAX_ROWS])
        if found != known:
            self._rows[key] = found
            self._memory.write(_key(key), msgspec.json.encode(found).decode())
            if max(len(zones), len(lines)) > MAX_ROWS:
                log.warning("a source has more zones and labels than are told", source=state.source, most=MAX_ROWS)
        return found


def owner_of(state: SourceState) -> Owner | None:
    message = state.status or state.counts
    return None if message is None else message.owner


def about_of(daemon: str, source: str, owner: Owner | None) -> About:
    """Of a topic of a source; one of a fleet may be with any daemon next."""
    return About("" if owner is not None and owner.fleet else daemon, source)


def newest(states: States) -> dict[tuple[str, str], SourceState]:
    """The sources; of one that several daemons of a fleet have had, the newest owner's."""
    found: dict[tuple[str, str], SourceState] = {}
    for state in states.sources.values():
        owner = owner_of(state)
        key = (state.daemon, state.source) if owner is None or not owner.fleet else (f"/{owner.fleet}", state.source)
        other = found.get(key)
        if other is None or _epoch(other) < _epoch(state):
            found[key] = state
    return found


def daemon_topics(topics: Topics, state: DaemonState) -> Iterator[tuple[str, Wanted]]:
    base, about = topics.daemon(state.daemon), About(state.daemon)
    yield f"{base}/state", Wanted(about, ONLINE if state.is_up else OFFLINE)
    fps = state.metrics.fps if state.metrics is not None and state.is_up else None
    yield f"{base}/fps", Wanted(about, None if fps is None else b"%.1f" % fps)


def source_topics(view: SourceView) -> Iterator[tuple[str, Wanted]]:
    state, base = view.state, view.base
    about = about_of(state.daemon, state.source, owner_of(state))
    status, counts = state.status, state.counts
    shown = status.state if status is not None and view.daemon_is_up else "unknown"
    yield f"{base}/state", Wanted(about, shown.encode())
    yield f"{base}/availability", Wanted(about, ONLINE if view.is_up else OFFLINE)
    yield f"{base}/fps", Wanted(about, None if view.fps is None else b"%.1f" % view.fps)
    yield f"{base}/status", Wanted(about, None if status is None else msgspec.json.encode(status))
    yield f"{base}/counts", Wanted(about, None if counts is None else msgspec.json.encode(counts))
    inside, crossed = _tracks(counts), _crossed(counts)
    for zone in view.rows.zones:
        yield zone_topic(base, zone), Wanted(about, None if inside is None else b"%d" % inside.get(zone, 0))
    for line in view.rows.lines:
        yield line_topic(base, line), Wanted(about, None if crossed is None else b"%d" % crossed.get(line, 0))


def unknown_topics(topics: Topics, table: Iterable[tuple[str, About]], states: States) -> Iterator[tuple[str, Wanted]]:
    """Of sources that were told by an earlier connection, and that nobody has told since: their daemon is away."""
    bodies = {"state": b"unknown", "availability": OFFLINE}
    told = {about_of(row.daemon, row.source, owner_of(row)) for row in states.sources.values()}
    for topic, about in table:
        body = bodies.get(topics.kind_of(topic) or "")
        if body is None or not about.source or about in told:
            continue
        daemon = states.daemons.get(about.daemon)
        # A source of a fleet may be with any daemon: it is unknown while one is away and the others do not have it.
        is_away = not states.is_complete if not about.daemon else daemon is not None and not daemon.is_up
        if is_away:
            yield topic, Wanted(about, body)


def zone_topic(base: str, zone: Zone) -> str:
    return f"{base}/occupancy/{level(zone.rule)}/{level(zone.label)}"


def line_topic(base: str, line: Line) -> str:
    return f"{base}/totals/{level(line.rule)}/{level(line.direction)}/{level(line.label)}"


def picture_topic(base: str) -> str:
    return f"{base}/picture"


def _tracks(counts: Counts | None) -> Mapping[Zone, int] | None:
    return None if counts is None else {Zone(row.rule, row.label): row.count for row in counts.occupancy}


def _crossed(counts: Counts | None) -> Mapping[Line, int] | None:
    if counts is None:
        return None
    found: dict[Line, int] = {}
    for row in _crossings(counts):
        line = _line(row)
        found[line] = found.get(line, 0) + row.count
    return found


def _zones(counts: Counts) -> Iterator[Zone]:
    """Zones in which a track is or was: what began a stay counts."""
    for row in counts.totals:
        if (row.kind, row.phase) in (("zone", "entered"), ("object", "appeared")):
            yield Zone(row.rule, row.label)
    for occupied in counts.occupancy:
        yield Zone(occupied.rule, occupied.label)


def _crossings(counts: Counts) -> Iterator[Total]:
    return (row for row in counts.totals if row.kind in _CROSSING and row.rule is not None)


def _line(row: Total) -> Line:
    return Line(row.rule or "", row.direction or "any", row.label)


def _epoch(state: SourceState) -> int:
    owner = owner_of(state)
    return -1 if owner is None else owner.epoch


def _key(about: About) -> str:
    return _KEY + msgspec.json.encode(about).decode()


def _stored(memory: Mapping[str, str]) -> Iterator[tuple[About, Rows]]:
    for key, value in memory.items():
        if key.startswith(_KEY):
            with contextlib.suppress(msgspec.MsgspecError):
                about = msgspec.json.decode(key.removeprefix(_KEY), type=About)
                yield about, msgspec.json.decode(value, type=Rows)
