"""When a member's Lease has ended, as one observer sees it: no clocks of two machines are compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from daemon.clock import Clock
from daemon.fleet.kubernetes_objects import Object

_GRACE_NS = 500_000_000
_AGAIN_NS = 1_000_000_000  # before an overdue Lease is named again


@dataclass
class _Seen:
    lease: Object
    overdue_ns: int


class Expiry:
    """Any thread may use it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    def observe(self, lease: Object) -> None:
        """A member's Lease as it is now."""
        name, before = lease.metadata.name, self._seen.get(lease.metadata.name)
        if before is not None and _last_renewal(before.lease) == _last_renewal(lease):
            before.lease = lease  # at its newest version
            return
        limit_ns = (lease.spec.lease_duration_seconds or 0) * 1_000_000_000 + _GRACE_NS
        self._seen[name] = _Seen(lease, self._clock.monotonic_ns() + limit_ns)

    def forget(self, name: str) -> None:
        self._seen.pop(name, None)

    def keep(self, names: Iterable[str]) -> None:
        """Forget all others."""
        for name in self._seen.keys() - {*names}:
            self.forget(name)

    def overdue(self) -> list[Object]:
        """Leases that were not renewed for their time, as they were seen last."""
        now = self._clock.monotonic_ns()
        found = [seen for seen in list(self._seen.values()) if now >= seen.overdue_ns]
        for seen in found:
            seen.overdue_ns = now + _AGAIN_NS
        return [seen.lease for seen in found]

    def is_overdue(self, lease: Object) -> bool:
        self.observe(lease)
        seen = self._seen.get(lease.metadata.name)
        return seen is not None and self._clock.monotonic_ns() >= seen.overdue_ns


def _last_renewal(lease: Object) -> tuple[str, str | None]:
    return lease.metadata.uid, lease.spec.renew_time
