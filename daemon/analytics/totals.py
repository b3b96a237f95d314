"""Events in numbers: totals since counting began, and the tracks that are in each zone now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from daemon import messages
from daemon.analytics.event import Event

MAX_KEYS = 100_000  # of totals, over all sources


class Key(NamedTuple):
    """Events that are counted together."""

    source: str
    rule: str | None
    kind: messages.EventKind
    phase: messages.EventPhase
    direction: messages.Direction | None
    label: str | None


class Totals:
    """The caller holds a lock.

    A zone's occupancy comes from its events: each stay has one that begins it and one that ends it, whatever ended it.

    Args:
        since: UTC, ns, when counting began.

    Attributes:
        uncounted: events beyond `MAX_KEYS`.
    """

    def __init__(self, since: int) -> None:
        self.since = since
        self.uncounted = 0
        self._totals: dict[str, Counter[Key]] = {}  # by source
        self._inside: dict[str, Counter[tuple[str, str | None]]] = {}  # by source; rule and label
        self._keys = 0

    def restore(self, since: int, totals: Mapping[Key, int]) -> None:
        """Add the totals of earlier runs."""
        self.since = min(self.since, since)
        for key, count in totals.items():
            self._add(key, count)

    def add(self, event: Event) -> Key | None:
        """Count an event; returns the total that grew by one, None if there are too many."""
        key = Key(event.source, event.rule, event.kind, event.phase, event.direction, event.label)
        if event.kind == "zone" and event.rule is not None:
            self._move(event, event.rule)
        return key if self._add(key, 1) else None

    def items(self) -> list[tuple[Key, int]]:
        return [row for totals in self._totals.values() for row in totals.items()]

    @property
    def sources(self) -> list[str]:
        """Ids with a total."""
        return [*self._totals]

    def totals(self, source: str) -> list[messages.Total]:
        return [
            messages.Total(key.rule, key.kind, key.phase, key.direction, key.label, count)
            for key, count in self._totals.get(source, {}).items()
        ]

    def occupancy(self, source: str) -> list[messages.Occupancy]:
        """Of each zone with a track in it."""
        inside = self._inside.get(source, Counter())
        return [messages.Occupancy(rule, label, count) for (rule, label), count in inside.items() if count]

    def occupancies(self) -> Iterator[tuple[str, str, int]]:
        """Source, zone and number of tracks; also of zones that are empty again."""
        for source, inside in self._inside.items():
            zones = Counter[str]()
            for (rule, _), count in inside.items():
                zones[rule] += count
            for rule, count in zones.items():
                yield source, rule, count

    def forget(self, source: str) -> None:
        """Nothing is in the zones of a removed source; its totals stay."""
        self._inside.pop(source, None)

    def _add(self, key: Key, count: int) -> bool:
        totals = self._totals.setdefault(key.source, Counter())
        if key not in totals:
            if self._keys >= MAX_KEYS:
                self.uncounted += count
                return False
            self._keys += 1
        totals[key] += count
        return True

    def _move(self, event: Event, rule: str) -> None:
        inside = self._inside.setdefault(event.source, Counter())
        if event.phase == "entered":
            inside[rule, event.label] += 1
        elif event.phase == "left":
            inside[rule, event.label] = max(0, inside[rule, event.label] - 1)
