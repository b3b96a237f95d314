"""The events of one daemon, each once and in the order of their numbers, whatever the wire has lost."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import structlog

from daemon.bridge.journal_pages import JournalPages, NoJournalError
from daemon.bridge.messages import Loss
from daemon.bridge.records import Entry
from daemon.clock import Clock
from daemon.peers.api import AwayError
from daemon.system.stop_token import StopToken
from lookoutd.messages import Event

log = structlog.get_logger(__name__)
_BEHIND_S = 2.0  # the journal writes an event a moment after it was published
_ASK_S = 0.05
_TRIES, _TRY_S = 5, 0.5  # of an API that does not answer, before what it may have is given up


class Place(msgspec.Struct):
    """How far a daemon's events are passed on.

    Attributes:
        instance: the run of the daemon that gave the last one.
        number: of the last event; all up to it are passed on or counted as lost.
    """

    instance: str
    number: int


class EventIntake:
    """One thread uses it.

    Args:
        place: of the last run; None at the very first, which begins with what comes from now on.
        ending: ends waits.

    Attributes:
        place: None until the first event or answer of the journal.
        events, filled, lost: see `daemon.bridge.report.FeedReport`.
    """

    def __init__(
        self, daemon: str, journal: JournalPages, place: Place | None, clock: Clock, ending: StopToken
    ) -> None:
        self._daemon, self._journal, self._clock, self._ending = daemon, journal, clock, ending
        self._has_journal = journal.exists
        self._was_away = True
        self.place = place
        self.events = self.filled = self.lost = 0

    def take(self, event: Event) -> Iterator[Entry]:
        """An event of the wire, with those that are missing before it."""
        place = self.place
        if place is None:
            self.place = place = Place(event.instance, event.number - 1)
        if event.instance != place.instance and event.number <= place.number:
            log.warning("a daemon's numbers begin anew: its state was lost", daemon=self._daemon, number=event.number)
            self.place = place = Place(event.instance, event.number - 1)
        if event.number <= place.number:
            return
        if event.number > place.number + 1 or event.instance != place.instance:
            yield from self._fill(event.number)
        yield from self._passed_on(event)
        self._was_away = False

    def catch_up(self) -> Iterator[Entry]:
        """What the journal has and the wire has not given: after a connection, and now and then.

        Raises:
            AwayError: the journal does not answer now.
        """
        if not self._has_journal:
            return
        try:
            if self.place is None:
                newest = self._journal.newest()
                instance = newest.events[-1].instance if newest.events else ""
                self.place = Place(instance, newest.next)
                return
            yield from self._read(None)
        except NoJournalError:
            self._has_journal = False

    def on_away(self) -> None:
        """The connection is lost."""
        self._was_away, self._has_journal = True, self._journal.exists

    def _fill(self, before: int) -> Iterator[Entry]:
        """The events before this number that the journal has."""
        for _ in range(_TRIES if self._has_journal else 0):
            try:
                yield from self._read(before)
            except NoJournalError:
                self._has_journal = False
            except AwayError as error:
                reason = str(error)
                if self._clock.wait(self._ending, _TRY_S):
                    break
                continue
            return
        else:
            if self._has_journal:
                log.warning("events are missing, and the journal does not answer", daemon=self._daemon, reason=reason)
        place = self.place
        if place and place.instance and self._was_away and not self._has_journal:
            # Another run may have said something that nobody kept.
            yield from self._unknown_loss(before, place)

    def _unknown_loss(self, before: int, place: Place) -> Iterator[Entry]:
        if before > place.number + 1:
            yield self._loss(None, place.number + 1, before - 1, "wire")
            self.place = Place("", before - 1)

    def _read(self, before: int | None) -> Iterator[Entry]:
        """Pages, until the journal has written what is before this number."""
        place = self.place
        assert place is not None  # noqa: S101 - both callers have one
        until = self._clock.monotonic_ns() + round(_BEHIND_S * 1e9)
        is_first = True
        while not self._ending.is_set:
            page = self._journal.after(self.place.number if self.place else 0, before)
            if is_first and page.events and page.events[0].instance != place.instance and place.instance:
                yield from self._pruned(page.events[0].number)
            is_first = is_first and not page.events
            for event in page.events:
                self.filled += 1
                yield from self._passed_on(event)
            if page.more:
                continue
            if before is None or page.next >= before - 1 or self._clock.monotonic_ns() > until:
                return
            self._clock.wait(self._ending, _ASK_S)

    def _pruned(self, first: int) -> Iterator[Entry]:
        """Of another run than the last known event: whether the journal has removed some between them."""
        place = self.place
        assert place is not None  # noqa: S101 - the caller has one
        if first <= place.number + 1:  # nothing can be between them
            return
        newest = self._journal.newest(place.number + 1)
        if not newest.events or newest.events[-1].number != place.number:
            yield self._loss(None, place.number + 1, first - 1, "journal")

    def _passed_on(self, event: Event) -> Iterator[Entry]:
        place = self.place
        if place is not None and event.number <= place.number:
            return
        if place is not None and event.instance == place.instance and event.number > place.number + 1:
            count = event.number - place.number - 1
            cause = "journal" if self._has_journal else "wire"
            yield self._loss(count, place.number + 1, event.number - 1, cause)
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
