"""Recording as a daemon has it: which sources into which stores, and the processes that do it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog

from daemon.config.sources import AvConfig
from daemon.pipeline.outbox import Report
from daemon.recording.absence import Absence
from daemon.recording.clips import Claim
from daemon.recording.process.protocol import ClipTold
from daemon.recording.process.store_process import StoreFigures, StoreProcess
from daemon.recording.ring import UNIT_BYTES
from daemon.recording.source_recorder import Settings
from daemon.recording.streams.process import StreamState, stream_of
from daemon.recording.tracks.records import TrackingSettings
from lookout.messages import Clip, Store, topic

if TYPE_CHECKING:
    from daemon.analytics.event import Event
    from daemon.config.root import Config
    from daemon.config.sources import SourceConfig
    from daemon.pipeline.core import Core
    from daemon.pipeline.lane import Follower
    from daemon.recording.directory import RingDirectory
    from daemon.recording.streams.process import StreamsProcess
    from daemon.recording.tracks.tap import TrackTap
    from lookout.messages import Owner, State

log = structlog.get_logger(__name__)
_MIB, _GIB = 1 << 20, 1 << 30
_RING_BYTES, _LEAST_RING_BYTES = 48 * _MIB, 8 * _MIB
_SHARE = 10  # of the machine's memory, for all rings
Plan = Mapping[str, Settings]
"""How a source is recorded, by store."""


class Recording:
    """Any thread may call it. No method waits for a store.

    Args:
        stores, streams: its processes.
        owner: of a source, where several daemons share them.
        tracks: takes what lanes find.

    Attributes:
        packets: where captures put theirs.
    """

    def __init__(
        self,
        core: Core,
        directory: RingDirectory,
        stores: Mapping[str, StoreProcess],
        streams: StreamsProcess,
        owner: Callable[[str], Owner | None] | None,
        tracks: TrackTap,
    ) -> None:
        self._core, self.packets, self._stores, self._streams = core, directory, stores, streams
        self._owner, self._clock, self._tracks = owner, core.runtime.clock, tracks
        self._plans: dict[str, Plan] = {}
        self._own_streams: dict[str, AvConfig] = {}  # of `record.url`, by source
        self._changing = threading.RLock()
        self._since: int | None = None  # UTC ns; None before it is configured

    def start(self, config: Config) -> None:
        """Record what the configuration of the start says, unless a change came first."""
        with self._changing:
            if self._since is None:
                self.configure(config)

    def configure(self, config: Config) -> None:
        """Record what a configuration says, from now on."""
        with self._changing:
            if self._since is None:
                self._since = self._clock.utc_ns()
            self._configure_locked(config, self._since)

    def _configure_locked(self, config: Config, since: int) -> None:
        plans = {source.id: plan for source in config.active if (plan := plan_of(config, source))}
        streams = {
            source.id: stream_of(source, url)
            for source in config.active
            if isinstance(source, AvConfig) and source.id in plans and (url := source.recording.url) is not None
        }
        size = ring_bytes(config, sum(map(len, plans.values())))
        there = frozenset(source.id for source in config.active)
        absences = {
            store: Absence(
                since, frozenset(name for name, plan in plans.items() if store in plan), there, self._owner is not None
            )
            for store in self._stores
        }
        for source in [*self._plans]:
            for store in [*self._plans[source]]:
                if store not in plans.get(source, {}):
                    self._stores[store].forget(source, *absences[store].why(source), self._clock.utc_ns())
                    self.packets.drop(source, store)
        for source, plan in plans.items():
            feed = "stream" if source in streams else "capture"
            for store, settings in plan.items():
                self._record(source, store, settings, size, feed)
        for store, absence in absences.items():
            self._stores[store].explain(absence)
        self._plans, self._own_streams = plans, streams
        self._streams.want(streams)
        wanted = plans if config.record.tracks else {}
        self._tracks.use(
            {store: {source for source, plan in wanted.items() if store in plan} for store in self._stores}
        )

    @property
    def followers(self) -> Sequence[Follower]:
        """For lanes."""
        return [self._tracks]

    def _record(self, source: str, store: str, settings: Settings, size: int, feed: str) -> None:
        known = self._plans.get(source, {}).get(store)
        try:
            ring = self.packets.keep(source, store, size, "stream" if feed == "stream" else "capture")
        except OSError as error:
            log.error("a source cannot be recorded", source=source, store=store, reason=error.strerror)
            return
        if known is None:
            self._stores[store].record(source, settings, ring)
        elif known != settings:
            self._stores[store].configure(source, settings)

    # --- what happens to sources -----------------------------------------------------------------------------------

    def on_state(self, source: str, state: State, reason: str | None, now_ns: int) -> None:
        """A capture has another state, since a monotonic time: why no video comes."""
        self._tracks.note(source, state, now_ns)
        if source not in self._own_streams:
            self._note(source, state, reason, self._clock.utc_ns())

    def on_stream(self, told: StreamState) -> None:
        """Likewise, a stream that is recorded alone."""
        self._note(told.source, told.state, told.reason, told.utc)

    def _note(self, source: str, state: State, reason: str | None, at: int) -> None:
        if state in ("up", "connecting"):  # why it connects was told before
            return
        for store in self._plans.get(source, ()):
            self._stores[store].note(source, at, "source_down", reason or _words(state))

    def request(self, event: Event, id: str) -> str | None:
        """Ask for the video around an event. Returns its path, None if its source is not recorded."""
        plan = self._plans.get(event.source)
        if plan is None:
            return None
        seen = event.began
        own = event.source in self._own_streams
        claim = Claim(id, None if own else seen.session, seen.pts, seen.captured_at)
        asked = [self._stores[store].claim(event.source, claim) for store in plan]
        return _path(event.source, id) if any(asked) else None

    # --- what stores tell ------------------------------------------------------------------------------------------

    def on_clip(self, store: str, told: ClipTold) -> None:
        message = Clip(
            instance=self._core.instance,
            source=told.source,
            index=0,
            id=told.id,
            store=store,
            events=told.events,
            begin=told.begin,
            end=told.end,
            covered=told.covered,
            state=told.state,
            path=_path(told.source, told.id),
            owner=self._owner(told.source) if self._owner else None,
        )
        self._core.outbox.report(Report(topic("clips", told.source), message))

    def on_store(self, told: StoreFigures) -> None:
        message = Store(
            instance=self._core.instance,
            index=0,
            at=self._clock.utc_ns(),
            store=told.name,
            cause=told.cause,
            reason=told.detail,
            bytes=told.bytes,
            free_bytes=told.free_bytes if told.free_bytes >= 0 else None,
        )
        self._core.outbox.report(Report(topic("stores", told.name), message))

    @property
    def figures(self) -> list[StoreFigures]:
        """Of all stores, as they were told of last."""
        return [store.figures for store in self._stores.values()]

    @property
    def stores(self) -> list[str]:
        """The names of all stores."""
        return [*self._stores]

    def trouble_of(self, store: str) -> str | None:
        """Why a store cannot be written to; None if it can."""
        row = self._stores[store].figures
        return f"store {row.name}: {row.cause}: {row.detail}" if row.cause else None

    @property
    def pids(self) -> list[int]:
        return [pid for store in self._stores.values() for pid in store.pids] + self._streams.pids


def plan_of(config: Config, source: SourceConfig) -> Plan:
    """How a source is recorded; empty if it is not."""
    if not (isinstance(source, AvConfig) and source.is_live):
        return {}
    record, own = config.record, source.recording
    mode = own.mode or record.mode
    if mode == "off":
        return {}
    pre = record.pre_s if own.pre_s is None else own.pre_s
    post = record.post_s if own.post_s is None else own.post_s
    tracked = config.tracking_of(source)
    tracking = TrackingSettings(round(tracked.timeout_s * 1e9), tracked.confirm_hits) if tracked else None
    found = {}
    for name, store in record.stores.items():
        if own.stores is not None and name not in own.stores:
            continue
        found[name] = Settings(
            continuous=mode == "continuous" and store.only is None,
            pre=round(pre * 1e9),
            post=round(post * 1e9),
            longest=round(record.max_clip_s * 1e9),
            max_bytes=None if own.max_gib is None else round(own.max_gib * _GIB),
            same_stream=own.url is None,
            tracking=tracking,
        )
    return found


def ring_bytes(config: Config, rings: int) -> int:
    """The size of each ring."""
    given = config.record.memory_mib
    if given == "auto":
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        with suppress(OSError, ValueError):  # no limit of a container
            from pathlib import Path

            memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
        size = min(_RING_BYTES, memory // _SHARE // max(1, rings))
    else:
        size = given * _MIB // max(1, rings)
    return max(_LEAST_RING_BYTES, size) // UNIT_BYTES * UNIT_BYTES


def _path(source: str, event: str) -> str:
    return f"/api/v1/recordings/{quote(source, safe='')}/clip.mp4?event={quote(event, safe='')}"


def _words(state: State) -> str:
    return {"stalled": "no picture comes", "ended": "it has ended"}.get(state, state)
