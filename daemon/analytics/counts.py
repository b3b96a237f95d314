"""Counts of rules: totals since a date, and the tracks that are in a zone now."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_MAX_REMOVED = 1000  # removed sources whose totals are kept, in case that they come back


@dataclass(frozen=True, order=True)
class Total:
    """A number of events.

    Attributes:
        what: the direction of a line or gate ("forward", "backward"), otherwise the phase ("entered", "left", ...).
        since: UTC, ns: the time from which the rule counts.
    """

    source: str
    rule: str
    label: str
    what: str
    total: int
    since: int


@dataclass(frozen=True, order=True)
class Occupancy:
    """The number of tracks in a zone, or in the picture for a rule about objects, now."""

    source: str
    rule: str
    label: str
    tracks: int


@dataclass(frozen=True)
class CountSnapshot:
    """All counts at one time, in order of source, rule and label.

    Attributes:
        version: rises with each change of a count.
    """

    version: int
    totals: Sequence[Total]
    occupancy: Sequence[Occupancy]


class CountBook:
    """The counts of all sources. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[str, dict[tuple[str, str, str], int]] = {}
        self._since: dict[str, dict[str, int]] = {}
        self._inside: dict[str, dict[tuple[str, str], int]] = {}
        self._removed: dict[str, None] = {}  # the longest removed first
        self._version = 0

    def begin(self, source: str, rules: Iterable[str], utc_ns: int) -> None:
        """Count for these rules of a source, from this time unless they count already; forget its other rules."""
        names = set(rules)
        with self._lock:
            self._removed.pop(source, None)
            since = self._since.setdefault(source, {})
            for rule in names - since.keys():
                since[rule] = utc_ns
            for rule in since.keys() - names:
                self._discard(source, rule)
            self._version += 1

    def add(self, source: str, rule: str, label: str, what: str, inside: int = 0) -> None:
        """Count an event.

        Args:
            inside: the change of the number of tracks inside: 1, -1 or 0.
        """
        with self._lock:
            totals = self._totals.setdefault(source, {})
            totals[rule, label, what] = totals.get((rule, label, what), 0) + 1
            if inside:
                tracks = self._inside.setdefault(source, {})
                tracks[rule, label] = tracks.get((rule, label), 0) + inside
            self._version += 1

    def reset(self, source: str, rule: str, utc_ns: int) -> None:
        """Begin the totals of a rule again from 0; tracks inside stay."""
        with self._lock:
            totals = self._totals.get(source, {})
            for key in [key for key in totals if key[0] == rule]:
                del totals[key]
            if rule in self._since.get(source, {}):
                self._since[source][rule] = utc_ns
            self._version += 1

    def forget(self, source: str) -> None:
        """Forget a removed source in the end; its totals are kept for a while, in case that it comes back."""
        with self._lock:
            self._inside.pop(source, None)
            if source in self._since:
                self._removed[source] = None
            while len(self._removed) > _MAX_REMOVED:
                oldest = next(iter(self._removed))
                del self._removed[oldest]
                self._totals.pop(oldest, None)
                self._since.pop(oldest, None)
            self._version += 1

    def restore(self, totals: Iterable[Total]) -> None:
        """Take over the totals of an earlier process, before the first event."""
        with self._lock:
            for row in totals:
                self._totals.setdefault(row.source, {})[row.rule, row.label, row.what] = row.total
                since = self._since.setdefault(row.source, {})
                since[row.rule] = min(row.since, since.get(row.rule, row.since))
            self._version += 1

    @property
    def version(self) -> int:
        """Rises with each change of a count."""
        return self._version

    def snapshot(self) -> CountSnapshot:
        """All counts now."""
        with self._lock:
            totals = [
                Total(source, rule, label, what, total, self._since.get(source, {}).get(rule, 0))
                for source, rows in self._totals.items()
                for (rule, label, what), total in rows.items()
            ]
            occupancy = [
                Occupancy(source, rule, label, tracks)
                for source, rows in self._inside.items()
                for (rule, label), tracks in rows.items()
            ]
            return CountSnapshot(self._version, sorted(totals), sorted(occupancy))

    def _discard(self, source: str, rule: str) -> None:
        del self._since[source][rule]
        totals, inside = self._totals.get(source, {}), self._inside.get(source, {})
        for key in [key for key in totals if key[0] == rule]:
            del totals[key]
        for pair in [pair for pair in inside if pair[0] == rule]:
            del inside[pair]
