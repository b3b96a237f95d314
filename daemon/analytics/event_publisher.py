"""Events leave the lanes: numbered, counted, on their way to subscribers and to the journal."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from daemon.analytics.event import Event
from daemon.analytics.event_message import Identity, message_of
from daemon.analytics.journal import Journal
from daemon.analytics.snapshots import EventSnapshots
from daemon.analytics.totals import Key, Totals
from daemon.clock import Clock
from daemon.pipeline.outbox import Outbox, Report
from lookout import messages
from lookout.messages import topic

_SOON_NS = 1_000_000_000  # at most one message of counts a source in this time, unless the interval is shorter


class Clips(Protocol):
    """Video of events: `daemon.recording.recording.Recording`."""

    def request(self, event: Event, id: str) -> str | None:
        """Ask for the video around an event; the path where it will be, None if there will be none. Returns at once."""
        ...


@dataclass(frozen=True)
class Stores:
    """Where events are kept; None for nowhere."""

    journal: Journal | None = None
    snapshots: EventSnapshots | None = None
    clips: Clips | None = None


class _Source:
    """A source whose counts are published.

    Attributes:
        events, counts: topics.
        sent_ns: monotonic ns of the last message of counts.
        has_changed: since then.
    """

    __slots__ = ("counts", "events", "has_changed", "sent_ns")

    def __init__(self, source: str) -> None:
        self.events, self.counts = topic("events", source), topic("counts", source)
        self.sent_ns = 0
        self.has_changed = True


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
        self.snapshots, self._clips = stores.snapshots, stores.clips
        self._identity, self._outbox, self._clock = identity, outbox, clock
        self._is_shared = identity.owner is not None  # sources come and go with their owner, and so do totals
        self._interval_ns = round(counts_interval_s * 1e9)
        self._number = journal.first if journal else clock.utc_ns() // 1_000_000
        self._totals = Totals(clock.utc_ns())
        self._sources: dict[str, _Source] = {}
        self._found: deque[Event] = deque()
        self._lock = threading.Lock()
        self._take_earlier()

    def on_event(self, event: Event) -> None:
        """Publish an event, keep it, and count it."""
        self._found.append(event)
        self.deliver()

    @property
    def hold(self) -> Callable[[Event], None]:
        """A function that takes an event, from any thread, and leaves it for the next `deliver`."""
        return self._found.append

    def deliver(self) -> None:
        """Publish, keep and count all events that were taken, in that order; another thread's too.

        Those of a batch come together: an event alone finds the processor's caches cold, and costs three times as much.
        """
        with self._lock:  # so that the outbox has events in the order of their numbers
            while self._found:
                self._publish(self._found.popleft())

    def _publish(self, event: Event) -> None:
        self._take_earlier()
        number = self._number
        self._number = number + 1
        id = f"{self._identity.instance}-{number}"
        pictured = self.snapshots is not None and self.snapshots.request(event, id)
        snapshot = f"/api/v1/events/{id}/snapshot.jpg" if pictured else None
        clip = self._clips.request(event, id) if self._clips else None
        message = message_of(event, number, id, self._identity, snapshot, clip)
        key = self._totals.add(event)
        source = self._sources.get(event.source) or self._added(event.source)
        source.has_changed = True
        self._outbox.report(Report(source.events, message))
        if self.journal is not None:
            self.journal.put(message, None if self._is_shared else key)

    def expect(self, sources: Iterable[str]) -> None:
        """Publish counts of these sources even before their first event."""
        with self._lock:
            for source in sources:
                (self._sources.get(source) or self._added(source)).has_changed = True

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

    def tick(self, now_ns: int) -> None:
        """Publish the counts that are due; called about once a second with the monotonic time."""
        soon = min(_SOON_NS, self._interval_ns)
        with self._lock:
            self._take_earlier()
            due = [
                name
                for name, source in self._sources.items()
                if now_ns - source.sent_ns >= (soon if source.has_changed else self._interval_ns)
            ]
        self._report_counts(due, now_ns)

    def flush(self) -> None:
        """Publish the counts that have changed; at the end."""
        self.deliver()
        with self._lock:
            changed = [name for name, source in self._sources.items() if source.has_changed]
        self._report_counts(changed, self._clock.monotonic_ns())

    def counts(self) -> list[messages.Counts]:
        """Of all sources with events, or with rules, now."""
        with self._lock:
            self._take_earlier()
            return [self._counts_of(source) for source in {**self._sources, **dict.fromkeys(self._totals.sources)}]

    def totals(self) -> list[tuple[Key, int]]:
        with self._lock:
            self._take_earlier()
            return self._totals.items()

    def occupancies(self) -> list[tuple[str, str | None, int]]:
        """Source, zone (None for the picture), and number of tracks in it."""
        with self._lock:
            return [*self._totals.occupancies()]

    @property
    def uncounted(self) -> int:
        """Events that are in no total, because there are too many of those."""
        return self._totals.uncounted

    def _added(self, name: str) -> _Source:
        source = self._sources[name] = _Source(name)
        return source

    def _report_counts(self, names: list[str], now_ns: int) -> None:
        for name in names:
            with self._lock:  # for one source at a time, so that no lane waits for those of all
                source = self._sources.get(name)
                if source is not None:
                    source.sent_ns, source.has_changed = now_ns, False
                    self._outbox.report(Report(source.counts, self._counts_of(name)))

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

    def _take_earlier(self) -> None:
        """Add the totals of a journal that was opened now, and go on above its numbers. Requires the lock."""
        if self.journal is None or self.journal.earlier is None:
            return
        earlier = self.journal.take_earlier()
        if earlier is not None and not self._is_shared:
            self._totals.restore(*earlier)
        self._number = max(self._number, self.journal.reserved)
