"""Messages of all daemons to all viewers, and what is remembered of them. The event loop's thread alone uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import msgspec
import structlog

from daemon.clock import Clock
from daemon.dashboard.history import Tracks
from daemon.dashboard.source_owners import joined
from daemon.dashboard.source_poller import SourcePoller
from daemon.dashboard.viewers import Selection, Viewer
from daemon.dashboard.watched import WatchedDaemon
from daemon.peers.addresses import DaemonAddress
from daemon.peers.link import Arrived, Link, LinkState
from lookout.epochs import Epochs
from lookout.messages import (
    Clip,
    Counts,
    Detections,
    Event,
    Message,
    Metrics,
    Owner,
    Packets,
    Status,
    Store,
    decode,
    topic,
)

log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode
_REFRESH_S = 0.5  # looks for daemons whose list of sources is out of date
_TICK_S = 2.0
_ANYWAY_S = 15.0  # asked this often while somebody looks
_WITHOUT_OWNER = (b'"owner":null}', b"\xa5owner\xc0")  # how messages end, for those that need not be read
_LINKED = ("status", "events", "counts", "metrics", "stores")
_KINDS = {Event: "event", Counts: "counts", Metrics: "metrics"}


class HubListener(Protocol):
    """Called in the event loop."""

    def on_packets(self, daemon: str, message: Packets) -> None:
        """The daemon says where the packets of a source are."""

    def on_change(self, daemon: str, source: str | None) -> None:
        """A source, or a daemon if `source` is None, has another state."""


class Hub:
    """All daemons and all viewers.

    Attributes:
        daemons: by name.
        loop: None before `start`.
        epochs: of all sources: what an earlier owner sends late is left out.
    """

    def __init__(self, addresses: Sequence[DaemonAddress], clock: Clock) -> None:
        self._clock = clock
        self.daemons = {row.name: WatchedDaemon(row, clock.utc_ns() / 1e9) for row in addresses}
        self.epochs = Epochs()
        self._links: dict[str, Link] = {}
        self._viewers: dict[Viewer, None] = {}
        self._poller = SourcePoller(clock)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._listeners: list[HubListener] = []
        self._watched: dict[str, frozenset[str]] = {}  # sources by daemon
        self._busy: set[str] = set()  # daemons whose last batch is being worked on
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """In the event loop: connect to all daemons."""
        self.loop = asyncio.get_running_loop()
        for name, daemon in self.daemons.items():
            link = Link(
                daemon.address, self._clock, _LINKED, partial(self._deliver, name), partial(self._tell_state, name)
            )
            self._links[name] = link
            link.start()
        keeping = [self._keep_fresh(daemon) for daemon in self.daemons.values()]
        self._tasks = [asyncio.ensure_future(work) for work in (*keeping, self._tick())]

    def close(self) -> None:
        """From any thread, after the event loop has ended or while it runs."""
        for link in self._links.values():
            link.close()

    def listen(self, listener: HubListener) -> None:
        """Tell it from now on."""
        self._listeners.append(listener)

    def _tell_change(self, daemon: str, source: str | None) -> None:
        for listener in self._listeners:
            listener.on_change(daemon, source)

    # --- viewers ---------------------------------------------------------------------------------------------------

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def join(self, viewer: Viewer) -> None:
        """Add a viewer, and tell it the state of everything."""
        self._viewers[viewer] = None
        viewer.put(self._time())
        for daemon in self.daemons.values():
            viewer.put(_encoded("daemon", daemon.name, daemon.entry()))
            daemon.mark_stale()
        self._want()

    def select(self, viewer: Viewer, selection: Selection) -> None:
        viewer.select(selection)
        if selection.metrics:
            for daemon in self.daemons.values():
                if daemon.figures.last:
                    viewer.put(_encoded("metrics", daemon.name, daemon.figures.last))
        self._want()

    def leave(self, viewer: Viewer) -> None:
        self._viewers.pop(viewer, None)
        self._want()

    def tell_all(self, message: dict[str, Any]) -> None:
        """Send a message of the page's own, with its `kind`, to all viewers."""
        self._tell(self._viewers, _encode(message))

    def keep_tracks(self, daemon: WatchedDaemon, source: str) -> Tracks:
        """The tracks of a source; they are kept from now on while somebody looks."""
        if source not in daemon.tracks:
            daemon.tracks[source] = Tracks()
            self._want()
        return daemon.tracks[source]

    def watch(self, daemon: str, sources: Iterable[str]) -> None:
        """Ask a daemon where the packets of these sources are, and no others."""
        self._watched[daemon] = frozenset(sources)
        self._want()

    def endpoint_of(self, daemon: str) -> str | None:
        """Where the messages of a daemon come from; None if unknown."""
        return self._links[daemon].endpoint if daemon in self._links else None

    def _want(self) -> None:
        """Tell the daemons' threads whose detections are wanted: of no source while nobody looks, and of none that the
        daemon has not told of: viewers may ask for any name."""
        asked: dict[str, set[str]] = {name: set() for name in self._links}
        for viewer in self._viewers:
            for name, source in viewer.sources:
                if name in asked:
                    asked[name].add(source)
        for name, link in self._links.items():
            daemon = self.daemons[name]
            tracked = daemon.tracked | daemon.tracks.keys() if self._viewers else set()
            watched = [topic("packets", source) for source in self._watched.get(name, ())]
            wanted = [*sorted(asked[name]), *sorted(tracked)]
            link.want([*watched, *(topic("detections", source) for source in wanted if daemon.knows(source))])

    def _tell(self, viewers: Iterable[Viewer], message: bytes, *, perishable: bool = False) -> None:
        for viewer in viewers:
            viewer.put(message, perishable=perishable)

    async def _tick(self) -> None:
        """Viewers hear something at least this often, or know that they are cut off; and they learn the time."""
        while True:
            await asyncio.sleep(_TICK_S)
            self._tell(self._viewers, self._time())

    def _time(self) -> bytes:
        return _encode({"kind": "tick", "at": self._clock.utc_ns() / 1e9})

    # --- from the daemons' threads ---------------------------------------------------------------------------------

    def _deliver(self, name: str, batch: Sequence[Arrived]) -> bool:
        """Called by a daemon's thread."""
        if name in self._busy or self.loop is None:
            return False
        self._busy.add(name)
        with suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(self._on_batch, name, batch)
        return True

    def _tell_state(self, name: str, state: LinkState, reason: str | None) -> None:
        """Called by a daemon's thread."""
        if self.loop is not None:
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._on_state, name, state, reason)

    def _on_state(self, name: str, state: LinkState, reason: str | None) -> None:
        daemon = self.daemons[name]
        if daemon.note_link(state, reason, self._clock.utc_ns() / 1e9):
            level = log.warning if state == "away" else log.info
            level(f"daemon {state}", daemon=name, **({"reason": reason} if reason else {}))
        if state == "away":
            daemon.note_away(daemon.since_s)
            for mate in self.daemons.values():  # which may have its sources by now
                if mate.facts.fleet is not None and mate.facts.fleet == daemon.facts.fleet:
                    mate.mark_stale()
        if state == "up":
            daemon.mark_stale()
        self._tell(self._viewers, _encoded("daemon", name, daemon.entry()))
        self._tell_change(name, None)

    def _on_batch(self, name: str, batch: Sequence[Arrived]) -> None:
        try:
            for arrived in batch:
                self._on_message(self.daemons[name], arrived)
        finally:
            self._busy.discard(name)

    def _on_message(self, daemon: WatchedDaemon, arrived: Arrived) -> None:
        try:
            if arrived.topic.startswith(b"detections/"):
                self._on_detections(daemon, arrived)
                return
            message = decode(*arrived)
        except ValueError as error:
            log.warning("a message is not understood", daemon=daemon.name, reason=str(error)[:200])
            return
        if daemon.note_instance(message.instance):
            self._tell(self._viewers, _encoded("daemon", daemon.name, daemon.entry()))
        if isinstance(message, Packets):
            for listener in self._listeners:
                listener.on_packets(daemon.name, message)
            return
        if isinstance(message, Clip):  # not subscribed to
            return
        if missed := daemon.note_index(arrived.topic, message.index):
            daemon.mark_stale()
            self._tell(self._viewers, _encode({"kind": "missed", "daemon": daemon.name, "messages": missed}))
        if isinstance(message, Store):
            daemon.states.note_store(message, self._clock.utc_ns() / 1e9)
            self._tell(self._viewers, _encoded("daemon", daemon.name, daemon.entry()))
        elif isinstance(message, Metrics) or self.admits(daemon.name, message.source, message.owner):
            self._remember(daemon, message)
            self._pass_on(daemon, message)

    def _pass_on(self, daemon: WatchedDaemon, message: Message) -> None:
        """Tell the viewers that want it."""
        if isinstance(message, Status):
            self._tell_change(daemon.name, message.source)
            trouble = daemon.states.trouble(message.source)
            row = {"kind": "status", "daemon": daemon.name, "message": message, "trouble": trouble}
            self._tell(self._viewers, _encode(row))
            return
        text = _encoded(_KINDS[type(message)], daemon.name, message)
        if isinstance(message, Metrics):
            wanting = (viewer for viewer in self._viewers if viewer.selection.metrics)
            self._tell(wanting, text, perishable=True)
            self._tell_drops(daemon)
        elif isinstance(message, Event):
            self._tell((viewer for viewer in self._viewers if viewer.selection.events), text)
        else:
            self._tell(self._viewers, text)

    def _on_detections(self, daemon: WatchedDaemon, arrived: Arrived) -> None:
        source = arrived.topic.split(b"/")[1].decode()
        payload = arrived.payload
        if not payload.endswith(_WITHOUT_OWNER) and not self.admits(daemon.name, source, _owner_of(payload)):
            return
        tracks = daemon.tracks.get(source)
        if tracks is None and source in daemon.tracked:
            tracks = daemon.tracks[source] = Tracks()
        if tracks is not None or payload[:1] != b"{":
            message = decode(*arrived)
            if isinstance(message, Detections) and tracks is not None:
                tracks.add(message)
            payload = payload if payload[:1] == b"{" else _encode(message)
        key = (daemon.name, source)
        watching = [viewer for viewer in self._viewers if key in viewer.sources]
        if watching:
            text = b'{"kind":"detections","daemon":"%b","message":%b}' % (daemon.name.encode(), payload)
            self._tell(watching, text, perishable=True)

    def sources(self) -> list[dict[str, Any]]:
        """All sources of all daemons: of a fleet each one once, as its owner has it."""
        return joined([*self.daemons.values()])

    def admits(self, daemon: str, source: str, owner: Owner | None) -> bool:
        """Whether a message or a packet is of a source's newest owner; any thread may ask."""
        if self.epochs.admits(source, owner):
            return True
        self.daemons[daemon].note_fenced()
        return False

    def _remember(self, daemon: WatchedDaemon, message: Message) -> None:
        if isinstance(message, Status):
            is_new = not daemon.knows(message.source)
            daemon.note_status(message, self._clock.utc_ns() / 1e9)
            if is_new:
                self._want()
        elif isinstance(message, Metrics):
            daemon.note_metrics(message)
            if link := self._links.get(daemon.name):
                link.expect(message.interval_s)
        elif isinstance(message, Counts):
            daemon.counts[message.source] = message
        elif isinstance(message, Event):
            daemon.events.append(message)

    def _tell_drops(self, daemon: WatchedDaemon) -> None:
        """After each report: rates of each source, and why frames were dropped."""
        if not self._viewers:
            return
        if daemon.fenced:
            self._tell(self._viewers, _encoded("daemon", daemon.name, daemon.entry()))
        for row in daemon.drops():
            self._tell(self._viewers, _encode({"kind": "drops", "daemon": daemon.name, **row}), perishable=True)

    # --- what the daemons' HTTP APIs tell --------------------------------------------------------------------------

    async def _keep_fresh(self, daemon: WatchedDaemon) -> None:
        """Ask a daemon for its sources where they may have changed."""
        asked_s = 0.0
        while True:
            await asyncio.sleep(_REFRESH_S)
            now = self._clock.monotonic_ns() / 1e9
            is_due = daemon.stale or (self._viewers and now - asked_s > _ANYWAY_S)
            if not (is_due and daemon.api.exists and daemon.state == "up"):
                continue
            asked_s = now
            try:
                await self.refresh(daemon)
            except Exception:
                log.exception("a daemon's sources cannot be asked for", daemon=daemon.name)

    async def refresh(self, daemon: WatchedDaemon) -> None:
        """Ask a daemon for its sources and facts; keeps what is known if it does not answer."""
        daemon.begin_poll()
        known = daemon.entry()
        problem = await self._poller.poll(daemon, self.daemons.values())
        if daemon.note_answer(problem) or daemon.entry() != known:
            self._tell(self._viewers, _encoded("daemon", daemon.name, daemon.entry()))
        if problem:
            return
        self._want()
        self._tell_change(daemon.name, None)
        self._tell(self._viewers, _encode({"kind": "sources", "daemon": daemon.name}))


class _Owned(msgspec.Struct):
    """The part of `detections` that is used here."""

    owner: Owner | None = None


_owned_json, _owned_msgpack = msgspec.json.Decoder(_Owned), msgspec.msgpack.Decoder(_Owned)


def _owner_of(payload: bytes) -> Owner | None:
    """Raises:
    ValueError: it does not fit the wire.
    """
    return (_owned_json if payload[:1] == b"{" else _owned_msgpack).decode(payload).owner


def _encoded(kind: str, daemon: str, message: object) -> bytes:
    if isinstance(message, dict):
        return _encode({"kind": kind, **message})
    return _encode({"kind": kind, "daemon": daemon, "message": message})
