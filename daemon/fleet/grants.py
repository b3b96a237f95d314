"""The fence of a member: it may publish for what it has claimed, while its lease holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from daemon.clock import Bell, Clock, boottime_ns
from daemon.fleet.lease import Lease
from daemon.fleet_config import OnCoordinatorLoss
from daemon.publish.ownership_fence import Grant, Grants
from lookout.messages import Owner

_NONE: Grants = MappingProxyType({})
_LOOKED_NS = 1_000_000_000  # a keeper that had no turn for so long knows nothing


class GrantedSources:
    """Implements `daemon.publish.ownership_fence.Fence`.

    Args:
        fleet: its name, for messages.
        on_loss: `keep` also sends while the coordinator is away, as long as the keeper of the lease says so.
        now: as in `Lease`.

    Attributes:
        member: as given.
        bell: of the member; rings when there is more in `forgotten`.
    """

    def __init__(
        self, member: str, fleet: str, on_loss: OnCoordinatorLoss, clock: Clock, now: Callable[[], int] = boottime_ns
    ) -> None:
        self.member, self._fleet, self._keeps = member, fleet, on_loss == "keep"
        self._clock, self._now = clock, now
        self._lease: Lease | None = None
        self._grants: dict[str, Grant] = {}  # replaced as a whole
        self._lock = threading.Lock()  # for those who replace it
        self.bell = Bell()
        self._forgotten: set[str] = set()

    def owner(self, source: str) -> Owner | None:
        grant = self._grants.get(source)
        return grant.owner if grant else None

    def grants(self) -> Grants:
        return self._grants if self.is_open else _NONE

    @property
    def is_open(self) -> bool:
        """Whether the lease holds now."""
        lease, now = self._lease, self._now()
        if lease is None or lease.state == "lost":
            return False
        if now < lease.valid_until:
            return True
        return self._keeps and lease.state == "away" and now - lease.looked < _LOOKED_NS

    def set_lease(self, lease: Lease | None) -> None:
        """Go by this lease from now on; without one nothing is sent."""
        self._lease = lease

    def add(self, epochs: Mapping[str, int]) -> None:
        """Sources that were claimed, with their epochs; before their first message is made."""
        since = self._clock.monotonic_ns()
        rows = {source: Grant(Owner(self.member, epoch, self._fleet), since) for source, epoch in epochs.items()}
        with self._lock:
            self._grants = {**self._grants, **rows}

    def remove(self, sources: Collection[str]) -> None:
        """Sources that may not be published for any more."""
        with self._lock:
            self._grants = {source: grant for source, grant in self._grants.items() if source not in sources}

    def clear(self) -> None:
        self.remove([*self._grants])

    def on_forgotten(self, source: str) -> None:
        with self._lock:
            self._forgotten.add(source)
        self.bell.ring()

    def forgotten(self) -> set[str]:
        """Removed sources whose last message is sent, unless they have come again."""
        with self._lock:
            return set(self._forgotten)

    def expect_last(self, sources: Collection[str]) -> None:
        """The last messages of these sources are still to be sent."""
        with self._lock:
            self._forgotten.difference_update(sources)
