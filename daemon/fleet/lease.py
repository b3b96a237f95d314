"""The lease of this daemon, as the fence and the member see it while something else renews it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from daemon.fleet.lease_page import LeaseState
from daemon.fleet.port import Renewal


class Lease(Protocol):
    """All times are of `boottime_ns`, which counts the time that the machine was suspended. No method blocks.

    Attributes:
        valid_until: the lease holds until then, as far as was confirmed.
        looked: when its keeper last had a turn: a keeper that is paused says nothing.
    """

    @property
    def valid_until(self) -> int: ...
    @property
    def looked(self) -> int: ...
    @property
    def state(self) -> LeaseState:
        """See `LeaseState`."""
        ...


class LeaseKeeper(Lease, Protocol):
    """Renews a lease."""

    def start(self) -> None: ...

    def beat(self) -> None:
        """The member lives: without beats for half of the lease's time the keeper does not renew it."""
        ...

    def stop(self) -> None:
        """Renew no more, within a short time. The lease is left as it is."""
        ...


KeepLease = Callable[[Renewal, float], LeaseKeeper]
"""Makes the keeper of a lease of so many seconds."""
