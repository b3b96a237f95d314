"""Claims that the fleet's records do not show, though their sources run here: the coordinator is asked again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from daemon.clock import Clock
from daemon.fleet.records import FleetView

TIMEOUT_NS = 10_000_000_000  # the records of a claim may come so late


class MissingClaims:
    """A claim may end without its member: somebody deletes its record, or a restored coordinator never had it."""

    def __init__(self, member: str, clock: Clock) -> None:
        self._member, self._clock = member, clock
        self._since: dict[tuple[str, int], int] = {}  # by source and epoch
        self._next_ns = 0

    def due(self, epochs: Callable[[], Mapping[str, int]], view: FleetView | None) -> dict[str, int]:
        """The claims of `epochs`, by source, that the records have not shown for long. Looks now and then alone."""
        now = self._clock.monotonic_ns()
        if now < self._next_ns:
            return {}
        self._next_ns = now + TIMEOUT_NS // 10
        unseen = [row for row in epochs().items() if view is None or not self._shows(view, *row)]
        self._since = {row: self._since.get(row, now) for row in unseen}
        return {source: epoch for source, epoch in unseen if now - self._since[source, epoch] > TIMEOUT_NS}

    def settle(self, sources: Collection[str]) -> None:
        """The coordinator was asked about them."""
        self._since = {row: since for row, since in self._since.items() if row[0] not in sources}

    def _shows(self, view: FleetView, source: str, epoch: int) -> bool:
        owned = view.owned.get(source)
        return owned is not None and (owned.member, owned.epoch) == (self._member, epoch)
