"""The events of one daemon, each once and in the order of their numbers, whatever the wire has lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec
import structlog

from daemon.bridge.journal_pages import Page
from daemon.bridge.messages import Loss
from daemon.bridge.records import Entry
from daemon.clock import Clock
from lookout.messages import Event

log = structlog.get_logger(__name__)
_MOST_HELD = 500  # events; later ones are read from the journal
_BEHIND_NS = 2_000_000_000  # the journal writes an event a moment after it was published
_PATIENCE_NS = 60_000_000_000  # of a journal that does not answer


class Place(msgspec.Struct, frozen=True):
    """How far a daemon's events are passed on.

    Attributes:
        instance: the run of the daemon that gave the last one.
        number: of the last event; all up to it are passed on or counted as lost.
    """

    instance: str
    number: int


class EventIntake:
    """Events come from the wire, and where numbers are missing, from pages of the journal: until those are read, events
    of the wire are held. One thread at a time uses it.

    Args:
        place: of the last run; None at the very first, which begins with what comes from now on.

    Attributes:
        place: None until the first event or answer of the journal.
        has_journal: the daemon may be asked for what is missing.
        is_held: the journal comes first.
        events, filled, lost: see `daemon.bridge.report.FeedReport`.
    """

    def __init__(self, daemon: str, place: Place | None, clock: Clock, *, has_journal: bool) -> None:
        self._daemon, self._clock = daemon, clock
        self.place, self.has_journal, self.is_held = place, has_journal, False
        self._held: deque[Event] = deque()
        self._has_more = self._was_away = True
        self._heard_ns = 0  # of the journal, or when events began to be held
        self._gap: tuple[int, int] | None = None  # the held event before which some are missing, and since when
        self.events = self.filled = self.lost = 0

    # --- the wire --------------------------------------------------------------------------------------------------

    def take(self, event: Event) -> Iterator[Entry]:
        """An event of the wire."""
        place = self._place_before(event)
        if not self.is_held and event.number > place.number + 1 and self.has_journal:
            self.hold()
        if self.is_held:
            if len(self._held) < _MOST_HELD:
                self._held.append(event)
            else:
                self._has_more = True
            return
        yield from self._passed_on(event)
        self._was_away = False

    def skip(self, event: Event) -> None:
        """An event of a former owner of its source: it is told by nobody, and it is no gap."""
        if not self.is_held and self.place is not None and event.number == self.place.number + 1:
            self.place = Place(event.instance, event.number)

    def on_away(self, *, has_journal: bool) -> None:
        """The connection is lost; the next one may find a journal."""
        self._was_away, self.has_journal = True, has_journal

    # --- the journal -----------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Take events from the journal first."""
        if not self.is_held:
            self.is_held, self._has_more, self._heard_ns = True, False, self._clock.monotonic_ns()

    def begin(self, newest: Page) -> None:
        """At the very first: pass on what is newer than all that is written."""
        if self.place is None:
            self.place = Place(newest.events[-1].instance if newest.events else "", newest.next)

    def may_lack(self, page: Page) -> bool:
        """The page begins with another run: the journal may have removed events before it."""
        place = self.place
        if place is None or not page.events or not place.instance:
            return False
        return page.events[0].instance != place.instance and page.events[0].number > place.number + 1

    def take_page(self, page: Page, before: Page | None = None) -> Iterator[Entry]:
        """The next events of the journal, and of the last page those of the wire that were held.

        Args:
            before: the newest event up to the place, where `may_lack`; the journal has removed some if it is another.
        """
        place, self._heard_ns = self.place, self._clock.monotonic_ns()
        if before is not None and place is not None and self.may_lack(page) and not before.ends_at(place.number):
            yield self._loss(None, place.number + 1, page.events[0].number - 1, "journal")
        for event in page.events:
            self.filled += self.place is None or event.number > self.place.number
            yield from self._passed_on(event)
        if not page.more:
            yield from self._release(page.next)

    def do_without(self) -> Iterator[Entry]:
        """The daemon keeps no events, or does not say which."""
        self.has_journal = False
        yield from self._release(None)

    @property
    def has_waited_too_long(self) -> bool:
        """Events are held, and the journal has not answered for a minute."""
        return self.is_held and self._clock.monotonic_ns() - self._heard_ns > _PATIENCE_NS

    def _release(self, written: int | None) -> Iterator[Entry]:
        """Pass on what was held.

        Args:
            written: the number up to which the journal was read; None without a journal.
        """
        while self._held:
            event, place = self._held[0], self.place
            is_gap = place is not None and event.number > place.number + 1
            if is_gap and written is not None and written < event.number - 1 and not self._is_overdue(event):
                return  # the journal is a moment behind
            self._held.popleft()
            yield from self._passed_on(event)
        self.is_held, self._has_more = self._has_more and self.has_journal, False

    # ---------------------------------------------------------------------------------------------------------------

    def _is_overdue(self, event: Event) -> bool:
        """The journal has had its time to write what lies before a held event."""
        now = self._clock.monotonic_ns()
        if self._gap is None or self._gap[0] != event.number:
            self._gap = event.number, now
        return now - self._gap[1] > _BEHIND_NS

    def _place_before(self, event: Event) -> Place:
        place = self.place
        if place is None:
            place = Place(event.instance, event.number - 1)
        elif event.instance != place.instance and event.number <= place.number and not self.is_held:
            log.warning("a daemon's numbers begin anew: its state was lost", daemon=self._daemon, number=event.number)
            place = Place(event.instance, event.number - 1)
        self.place = place
        return place

    def _passed_on(self, event: Event) -> Iterator[Entry]:
        place = self.place
        if place is not None and event.number <= place.number:
            return
        if place is not None and event.number > place.number + 1:
            first, last = place.number + 1, event.number - 1
            if event.instance == place.instance:
                yield self._loss(last - first + 1, first, last, "journal" if self.has_journal else "wire")
            elif not self.has_journal and self._was_away and place.instance:
                # Either run may have said something that nobody kept.
                yield self._loss(None, first, last, "wire")
        self.place = Place(event.instance, event.number)
        self.events += 1
        yield Entry("event", self._daemon, event.source, event.id, event.at, msgspec.json.encode(event))

    def _loss(self, count: int | None, first: int, last: int, cause: str) -> Entry:
        self.lost += 1 if count is None else count
        log.error("events are lost", daemon=self._daemon, events=count, first=first, last=last, cause=cause)
        id = f"{self._daemon}-{first}-{last}"
        now = self._clock.utc_ns()
        loss = Loss(id=id, daemon=self._daemon, count=count, first=first, last=last, at=now, cause=cause)  # type: ignore[arg-type]
        return Entry("loss", self._daemon, "", id, now, msgspec.json.encode(loss))
