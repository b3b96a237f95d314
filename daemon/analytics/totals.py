"""Events in numbers: totals since counting began, and the tracks that are in each zone now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from daemon.analytics.event import Event
from lookout import messages

MAX_KEYS = 100_000  # of totals, over all sources


class Key(NamedTuple):
    """Events that are counted together."""

    source: str
    rule: str | None
    kind: messages.EventKind
    phase: messages.EventPhase
    direction: messages.Direction | None
    label: str | None


_key = tuple.__new__  # `Key` in half the time


class Totals:
    """The caller holds a lock.

    A zone's occupancy comes from its events: each stay has one that begins it and one that ends it, whatever ended it.
    The track tells which stay ends: its label may have changed.

    Args:
        since: UTC, ns, when counting began.

    Attributes:
        uncounted: events beyond `MAX_KEYS`.
    """

    def __init__(self, since: int) -> None:
        self.since = since
        self.uncounted = 0
        self._totals: dict[str, dict[Key, int]] = {}  # by source
        self._inside: dict[str, dict[tuple[str | None, int], str | None]] = {}  # by source: label by rule and track
        self._zones: dict[str, dict[str | None, None]] = {}  # by source: those that had a track, in order
        self._begun: dict[str, int] = {}  # by source: UTC, ns, where it differs from `since`
        self._keys = 0

    def restore(self, since: int, totals: Mapping[Key, int]) -> None:
        """Add the totals of earlier runs."""
        self.since = min(self.since, since)
        for key, count in totals.items():
            self._add(key, count)

    def since_of(self, source: str) -> int:
        """UTC, ns, when counting of a source began."""
        return self._begun.get(source, self.since)

    def begin(self, source: str, since: int) -> None:
        """Count a source anew."""
        self.end(source)
        self._begun[source] = since

    def end(self, source: str) -> None:
        """Drop the totals of a source."""
        self._keys -= len(self._totals.pop(source, ()))
        self._begun.pop(source, None)

    def add(self, event: Event) -> Key | None:
        """Count an event; returns the total that grew by one, None if there are too many."""
        kind = event.kind
        key = _key(Key, (event.source, event.rule, kind, event.phase, event.direction, event.label))
        if (kind == "zone" or kind == "object") and event.track is not None:  # noqa: PLR1714 - costs less
            self._move(event, event.track)
        return key if self._add(key, 1) else None

    def items(self) -> list[tuple[Key, int]]:
        return [row for totals in self._totals.values() for row in totals.items()]

    @property
    def sources(self) -> list[str]:
        """Ids with a total."""
        return [*self._totals]

    def totals(self, source: str) -> list[messages.Total]:
        return [
            messages.Total(rule, kind, phase, direction, label, count)
            for (_, rule, kind, phase, direction, label), count in self._totals.get(source, {}).items()
        ]

    def occupancy(self, source: str) -> list[messages.Occupancy]:
        """Of each zone with a track in it."""
        inside = self._inside.get(source)
        if not inside:
            return []
        labels: dict[tuple[str | None, str | None], int] = {}
        for (rule, _), label in inside.items():
            row = rule, label
            labels[row] = labels.get(row, 0) + 1
        return [messages.Occupancy(rule, label, count) for (rule, label), count in labels.items()]

    def occupancies(self) -> Iterator[tuple[str, str | None, int]]:
        """Source, zone and number of tracks; also of zones that are empty again."""
        for source, zones in self._zones.items():
            tracks = Counter(rule for rule, _ in self._inside[source])
            for rule in zones:
                yield source, rule, tracks[rule]

    def forget(self, source: str) -> None:
        """Nothing is in the zones of a removed source; its totals stay."""
        self._inside.pop(source, None)
        self._zones.pop(source, None)

    def _add(self, key: Key, count: int) -> bool:
        totals = self._totals.get(key.source)
        if totals is None:
            totals = self._totals[key.source] = {}
        before = totals.get(key)
        if before is None:
            if self._keys >= MAX_KEYS:
                self.uncounted += count
                return False
            self._keys += 1
            before = 0
        totals[key] = before + count
        return True

    def _move(self, event: Event, track: int) -> None:
        source, phase = event.source, event.phase
        inside = self._inside.get(source)
        if inside is None:
            inside = self._inside[source] = {}
        if phase in ("entered", "appeared"):
            self._zones.setdefault(source, {})[event.rule] = None
            inside[event.rule, track] = event.label
        elif phase == "left":
            inside.pop((event.rule, track), None)
