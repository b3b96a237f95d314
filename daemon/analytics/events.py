"""Events leave the lanes: numbered, counted, on their way to subscribers and to the journal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from daemon import messages
from daemon.analytics.event import Event
from daemon.analytics.journal import Journal
from daemon.analytics.snapshots import EventSnapshots
from daemon.analytics.totals import Key, Totals
from daemon.clock import Clock
from daemon.messages import Owner, topic
from daemon.pipeline.outbox import Outbox, Report

_SOON_NS = 1_000_000_000  # at most one message of counts a source in this time, unless the interval is shorter


@dataclass(frozen=True)
class Identity:
    """The daemon's run, as its messages name it.

    Attributes:
        owner: the owner of a source now; None for a daemon that shares its sources with no other.
    """

    instance: str
    owner: Callable[[str], Owner | None] | None = None

    def owner_of(self, source: str) -> Owner | None:
        return self.owner(source) if self.owner else None


@dataclass(frozen=True)
class Stores:
    """Where events are kept; None for nowhere."""

    journal: Journal | None = None
    snapshots: EventSnapshots | None = None


class EventPublisher:
    """Takes the events of all sources. No method blocks.

    Args:
        counts_interval_s: between two messages of counts about a source that nothing happened to.

    Attributes:
        journal, snapshots: of the stores.
    """

    def __init__(
        self, identity: Identity, outbox: Outbox, stores: Stores, counts_interval_s: float, clock: Clock
    ) -> None:
        journal = self.journal = stores.journal
        self.snapshots = stores.snapshots
        self._identity, self._outbox, self._clock = identity, outbox, clock
        self._is_shared = identity.owner is not None  # sources come and go with their owner, and so do totals
        self._interval_ns = round(counts_interval_s * 1e9)
        self._number = journal.first if journal else clock.utc_ns() // 1_000_000
        self._totals = Totals(clock.utc_ns())
        self._sources: dict[str, int] = {}  # monotonic ns of the last message of counts
        self._changed: set[str] = set()
        self._lock = threading.Lock()
        if journal:
            journal.restore = self._restore
            if journal.earlier and not self._is_shared:
                self._totals.restore(*journal.earlier)

    def on_event(self, event: Event) -> None:
        """Publish an event, keep it, and count it; called by the lane that found it."""
        with self._lock:  # so that the outbox has events in the order of their numbers
            number, self._number = self._number, self._number + 1
            id = f"{self._identity.instance}-{number}"
            pictured = self.snapshots is not None and self.snapshots.request(event, id)
            snapshot = f"/api/v1/events/{id}/snapshot.jpg" if pictured else None
            message = _message_of(event, number, self._identity, snapshot)
            key = self._totals.add(event)
            self._changed.add(event.source)
            self._sources.setdefault(event.source, 0)
            self._outbox.report(Report(topic("events", event.source), message))
            if self.journal:
                self.journal.put(message, None if self._is_shared else key)

    def expect(self, sources: Iterable[str]) -> None:
        """Publish counts of these sources even before their first event."""
        with self._lock:
            for source in sources:
                self._sources.setdefault(source, 0)
                self._changed.add(source)

    def begin(self, source: str) -> None:
        """Count the events of a source from now on, not those of an earlier owner: call it before its first frame."""
        with self._lock:
            self._totals.begin(source, self._clock.utc_ns())

    def forget(self, source: str) -> None:
        """Publish no more counts of a removed source. Its totals stay, unless another daemon may own it next."""
        with self._lock:
            self._totals.forget(source)
            if self._is_shared:
                self._totals.end(source)
            self._sources.pop(source, None)
            self._changed.discard(source)

    def tick(self, now_ns: int) -> None:
        """Publish the counts that are due; called about once a second with the monotonic time."""
        with self._lock:
            soon = min(_SOON_NS, self._interval_ns)
            due = [source for source, sent in self._sources.items() if self._is_due(source, now_ns - sent, soon)]
            self._report_counts(due, now_ns)

    def flush(self) -> None:
        """Publish the counts that have changed; at the end."""
        with self._lock:
            self._report_counts([*self._changed & self._sources.keys()], self._clock.monotonic_ns())

    def counts(self) -> list[messages.Counts]:
        """Of all sources with events, or with rules, now."""
        with self._lock:
            return [self._counts_of(source) for source in {**self._sources, **dict.fromkeys(self._totals.sources)}]

    def totals(self) -> list[tuple[Key, int]]:
        with self._lock:
            return self._totals.items()

    def occupancies(self) -> list[tuple[str, str | None, int]]:
        """Source, zone (None for the picture), and number of tracks in it."""
        with self._lock:
            return [*self._totals.occupancies()]

    @property
    def uncounted(self) -> int:
        """Events that are in no total, because there are too many of those."""
        return self._totals.uncounted

    def _is_due(self, source: str, age_ns: int, soon: int) -> bool:
        return age_ns >= (soon if source in self._changed else self._interval_ns)

    def _report_counts(self, sources: list[str], now_ns: int) -> None:
        for source in sources:
            self._sources[source] = now_ns
            self._changed.discard(source)
            self._outbox.report(Report(topic("counts", source), self._counts_of(source)))

    def _counts_of(self, source: str) -> messages.Counts:
        return messages.Counts(
            instance=self._identity.instance,
            source=source,
            index=0,
            at=self._clock.utc_ns(),
            since=self._totals.since_of(source),
            totals=self._totals.totals(source),
            occupancy=self._totals.occupancy(source),
            owner=self._identity.owner_of(source),
        )

    def _restore(self, since: int, totals: dict[Key, int]) -> None:
        """Add the totals of a journal that was opened after the first event, and go on above its numbers."""
        with self._lock:
            if not self._is_shared:
                self._totals.restore(since, totals)
            if self.journal:
                self._number = max(self._number, self.journal.reserved)


def _message_of(event: Event, number: int, identity: Identity, snapshot: str | None) -> messages.Event:
    began, confirmed, box = event.began, event.confirmed, event.box
    return messages.Event(
        id=f"{identity.instance}-{number}",
        number=number,
        instance=identity.instance,
        source=event.source,
        session=began.session,
        index=0,
        kind=event.kind,
        phase=event.phase,
        seq=began.seq,
        pts=began.pts,
        at=began.captured_at,
        confirmed_seq=confirmed.seq,
        confirmed_at=confirmed.captured_at,
        rule=event.rule,
        direction=event.direction,
        track=event.track,
        label=event.label,
        box=None if box is None else (round(box[0], 2), round(box[1], 2), round(box[2], 2), round(box[3], 2)),
        dwell=event.dwell_ns,
        count=event.count,
        reason=event.reason,
        unseen=messages.Unseen(event.unseen.frames, event.unseen.longest_ns),
        snapshot=snapshot,
        attribute=event.attribute,
        owner=identity.owner_of(event.source),
    )
