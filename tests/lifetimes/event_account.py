"""The account of events at the end of a daemon: what was published, counted, and kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from daemon.analytics.event_publisher import EventPublisher
from daemon.analytics.journal_file import Query, read
from daemon.analytics.totals import Key
from lookout.messages import Event


class EventAccount:
    """Args:
    events: of a daemon that has ended.
    published: what a subscriber has heard of it.
    """

    def __init__(self, events: EventPublisher, published: Sequence[Event]) -> None:
        self._events, self._published = events, published

    def check(self) -> None:
        """Each event has a number of its own, is counted once, and is kept or counted as lost."""
        numbers = [event.number for event in self._published]
        assert numbers == sorted(set(numbers)), "events twice or out of order"
        counted, heard = dict(self._events.totals()), Counter(_key_of(event) for event in self._published)
        assert counted == heard, f"totals {counted}, events {dict(heard)}"
        if journal := self._events.journal:
            kept = (
                [event.number for event in read(journal.path, Query(limit=1_000_000))] if journal.last_written else []
            )
            assert set(kept) <= {*numbers}, "the journal has events that nobody heard of"
            lost = len(numbers) - len(kept)
            assert journal.lost == lost, (
                f"the journal says that it lost {journal.lost} events, and {lost} are not there"
            )


def _key_of(event: Event) -> Key:
    return Key(event.source, event.rule, event.kind, event.phase, event.direction, event.label)
