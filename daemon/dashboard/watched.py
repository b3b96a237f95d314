"""The page's knowledge of one daemon. The event loop's thread alone uses it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from daemon.dashboard.history import Figures, Tracks
from daemon.dashboard.state_log import StateLog, StateSince, StoreState
from daemon.peers.addresses import DaemonAddress
from daemon.peers.api import DaemonApi
from daemon.peers.link import LinkState
from lookout.messages import Counts, Event, Metrics, SourceMetrics, Status, VideoFormat

_MAX_EVENTS = 500  # kept for a daemon without a journal
_WITHOUT_PACKETS = ("camera", "synthetic")
_LIVE_CODECS = ("h264", "hevc")


class Row(msgspec.Struct):
    """A source, as the daemon's HTTP API has it."""

    config: dict[str, Any]
    state: str
    format: VideoFormat | None = None
    failure: str | None = None


class PortAt(msgspec.Struct, frozen=True):
    """Where another API is, on the host of a daemon's HTTP API: that of its recordings, or of its bridge."""

    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class Facts(msgspec.Struct):
    """The answer of `GET /api/v1/daemon`.

    Attributes:
        recordings: None if it serves none.
        bridge: None if no account of one is known.
    """

    version: str | None = None
    model: str | None = None
    models: dict[str, Any] = {}
    fleet: str | None = None
    labels: list[str] = []
    tracked: list[str] = []
    persists: bool = False
    recordings: PortAt | None = None
    bridge: PortAt | None = None
    stores: list[StoreState] = []


class FleetSource(msgspec.Struct):
    """A source as its fleet knows it."""

    id: str
    state: str
    owner: str | None = None
    reason: str | None = None


class WatchedDaemon:
    """One daemon.

    Attributes:
        api_problem: why its HTTP API does not answer; None if it does, or there is none.
        rows: its sources by id, as its HTTP API told last; empty without one.
        statuses: the last status of each source.
        states: of its sources and stores: since when, and why.
        stale: `rows` should be asked for again.
        fenced: messages that were left out, because another daemon is the source's owner now.
        missed: messages about sources that were sent, and did not come.
        in_fleet: what its fleet says of all sources, by id; None if it was not asked.
    """

    def __init__(self, address: DaemonAddress, now_s: float) -> None:
        self.address, self.api = address, DaemonApi(address)
        self.state: LinkState = "connecting"
        self.reason: str | None = None
        self.api_problem: str | None = None
        self.since_s = now_s
        self.instance: str | None = None
        self.facts = Facts()
        self.rows: dict[str, Row] = {}
        self.statuses: dict[str, Status] = {}
        self.counts: dict[str, Counts] = {}
        self.figures = Figures()
        self.tracks: dict[str, Tracks] = {}
        self.events: deque[Event] = deque(maxlen=_MAX_EVENTS)
        self.states = StateLog()
        self.stale = True
        self.fenced = self.missed = 0
        self.in_fleet: dict[str, FleetSource] | None = None
        self._expected: dict[bytes, int] = {}  # the next number of each topic

    @property
    def name(self) -> str:
        return self.address.name

    def entry(self) -> dict[str, Any]:
        """As `GET /api/daemons` shows it."""
        return {
            "name": self.name,
            "endpoint": self.address.endpoint or self.address.http,
            "state": self.state,
            "reason": self.reason or self.api_problem,
            "instance": self.instance,
            "version": self.facts.version,
            "model": self.facts.model,
            "models": [*self.facts.models],
            "fleet": self.facts.fleet,
            "since": self.since_s,
            "http": self.api.exists,
            "persists": self.facts.persists,
            "recordings": self.facts.recordings is not None,
            "bridge": self.facts.bridge is not None,
            "fenced": self.fenced,
            "missed": self.missed,
            "stores": [*self.states.stores.values()],
        }

    def mark_stale(self) -> None:
        """Its sources may have changed."""
        self.stale = True

    def begin_poll(self) -> None:
        """It is asked for its sources."""
        self.stale = False

    def note_answer(self, problem: str | None) -> bool:
        """Note why its HTTP API does not answer, or that it does; whether that is new."""
        is_new, self.api_problem = problem != self.api_problem, problem
        return is_new

    def note_facts(self, facts: Facts, now_s: float) -> None:
        self.facts = facts
        self.states.note_stores(facts.stores, now_s)

    def note_fleet(self, sources: dict[str, FleetSource] | None) -> None:
        self.in_fleet = sources

    def note_fenced(self) -> None:
        """A message was left out."""
        self.fenced += 1

    def note_link(self, state: LinkState, reason: str | None, now_s: float) -> bool:
        """Note the state of the connection for messages; whether it is another one."""
        is_new = state != self.state
        if is_new:
            self.since_s = now_s
        self.state, self.reason = state, reason
        return is_new

    def note_instance(self, instance: str) -> bool:
        """Note the daemon's run; whether it is a new one, of which nothing is known."""
        if instance == self.instance:
            return False
        is_new, self.instance = self.instance is not None, instance
        if is_new:
            self.statuses.clear()
            self.counts.clear()
            self._expected.clear()
        self.stale = True
        return is_new

    def note_index(self, topic: bytes, index: int) -> int:
        """Note the number of a message on its topic; returns how many before it did not come."""
        missed = max(0, index - self._expected.get(topic, index))
        self._expected[topic] = index + 1
        self.missed += missed
        return missed

    def note_status(self, message: Status, now_s: float) -> None:
        known = self.statuses.get(message.source)
        if known is None or message.state == "ended" or message.source not in self.rows:
            self.stale = True  # it may be new, changed or removed
        self.statuses[message.source] = message
        state = StateSince(message.at / 1e9, message.state, message.reason)
        self.states.note(message.source, state, now_s, message.retry_in_s)

    def note_away(self, now_s: float) -> None:
        """The daemon is away, and so are its sources."""
        for source in self.sources:
            self.states.note(source, StateSince(now_s, "away", self.reason), now_s)

    def note_rows(self, rows: list[Row]) -> None:
        self.rows = {str(row.config.get("id")): row for row in rows}
        for source in self.statuses.keys() - self.rows.keys():
            del self.statuses[source]
            self.counts.pop(source, None)
            self.tracks.pop(source, None)
        self.states.keep(self.rows)

    def knows(self, source: str) -> bool:
        """Whether the daemon has told of such a source."""
        return source in self.rows or source in self.statuses

    @property
    def sources(self) -> list[str]:
        return [*self.rows] if self.api.exists and self.rows else sorted(self.statuses)

    @property
    def tracked(self) -> set[str]:
        """Sources of which the last minute's tracks are kept."""
        return {id for id, row in self.rows.items() if row.config.get("enabled", True) and row.config.get("rules")}

    def source(self, id: str) -> dict[str, Any] | None:
        """A source, as `GET /api/sources` shows it; None if there is none."""
        row, status = self.rows.get(id), self.statuses.get(id)
        if row is None and status is None:
            return None
        config = row.config if row else {}
        is_enabled = bool(config.get("enabled", True))
        format = (status.format if status and status.format else None) or (row.format if row else None)
        figures = self.figures.last.sources.get(id) if self.figures.last else None
        captured = _per_model(figures, figures.captured_fps) if figures else None
        return {
            "daemon": self.name,
            "id": id,
            "state": self._state(id),
            "reason": self._reason(id),
            "trouble": self.states.trouble(id) if is_enabled else None,
            "session": status.session if status else None,
            "type": config.get("type"),
            "fps": format.fps if format and format.fps else captured,
            "captured_fps": captured,
            "analysed_fps": _per_model(figures, figures.published_fps) if figures else None,
            "drops": self.figures.drops_per_minute(id),
            "latency": figures.latency if figures else None,
            "width": format.width if format else None,
            "height": format.height if format else None,
            "pixel_aspect": format.pixel_aspect if format else 1.0,
            "codec": format.codec if format else None,
            "decoder": format.decoder if format else None,
            "notes": format.notes if format else (),
            "live": self._live(config, format),
            "rules": config.get("rules", []),
            "tracking": id in self.facts.tracked,
            "enabled": is_enabled,
            "labels": config.get("labels"),
            "counts": self.counts.get(id),
        }

    def _state(self, id: str) -> str:
        row, status = self.rows.get(id), self.statuses.get(id)
        if self.state != "up":
            return "away"
        if row is not None and not row.config.get("enabled", True):
            return "disabled"
        return status.state if status else row.state if row else "connecting"

    def epoch(self, id: str) -> int:
        """Of its ownership of a source, as its last status says; -1 if it is not known."""
        status = self.statuses.get(id)
        return status.owner.epoch if status and status.owner else -1

    def _reason(self, id: str) -> str | None:
        row, status = self.rows.get(id), self.statuses.get(id)
        if self.state != "up":
            return self.reason
        return (status.reason if status else None) or (row.failure if row else None)

    @staticmethod
    def _live(config: dict[str, Any], format: VideoFormat | None) -> str | None:
        """How it is shown: as video, or as stills; None while nobody knows."""
        if format is not None:
            return "mse" if format.codec in _LIVE_CODECS else "jpeg"
        return "jpeg" if config.get("type") in _WITHOUT_PACKETS else None

    def drops(self) -> Iterator[dict[str, Any]]:
        """Rates of each source in the last report, and why frames were dropped."""
        for source, row in self.figures.last.sources.items() if self.figures.last else ():
            yield {
                "source": source,
                "per_minute": self.figures.drops_per_minute(source),
                "captured_fps": _per_model(row, row.captured_fps),
                "analysed_fps": _per_model(row, row.published_fps),
            }

    def note_metrics(self, message: Metrics) -> None:
        self.figures.add(message)
        for source in self.tracks.keys() - message.sources.keys():
            del self.tracks[source]


def _per_model(figures: SourceMetrics, fps: float) -> float:
    """A rate of frames, of which several models each count their own."""
    return round(fps / max(1, len(figures.models)), 2)
