"""A member's own part in its fleet, and the parts of it that HTTP shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from daemon.fleet.placer import Placer
from daemon.fleet.port import Coordinator
from daemon.fleet.records import FleetView
from daemon.fleet.status import FleetStatus, status_of

LeaseWord = Literal["none", "renewed", "refused", "away", "lost"]


class OwnFigures(msgspec.Struct, frozen=True, kw_only=True):
    """This member, as it is now.

    Attributes:
        coordinator_up: the last call to the coordinator had an answer.
        lease: `refused` by a coordinator that answers, `away` while it does not, `none` while this daemon is no member.
        lease_age_s: since the last confirmed renewal, None without a lease.
        lease_valid_s: until the lease ends, as far as was confirmed; below 0 after its end.
        owned: sources that this member may publish for.
        problem: why this daemon has no source of the fleet, or cannot place any.
    """

    member: str
    coordinator_up: bool
    lease: LeaseWord
    lease_age_s: float | None = None
    lease_valid_s: float | None = None
    owned: int = 0
    problem: str | None = None


@dataclass(frozen=True)
class FleetParts:
    """Parts of a member for HTTP and metrics.

    Attributes:
        name: of the fleet.
        view: the newest records, None before the first.
        open: a connection for one command of an operator.
        own: this member.
        placer: of this member.
    """

    name: str
    view: Callable[[], FleetView | None]
    open: Callable[[], Coordinator]
    own: Callable[[], OwnFigures]
    placer: Placer


class StatusCache:
    """The status of a fleet, computed once for each view. Several threads may call it."""

    def __init__(self, parts: FleetParts) -> None:
        self._parts = parts
        self._newest: tuple[FleetView, FleetStatus] | None = None

    def get(self) -> FleetStatus | None:
        """None before the first records."""
        view, newest = self._parts.view(), self._newest
        if view is None:
            return None
        if newest is None or newest[0] is not view:
            self._newest = newest = view, status_of(view, self._parts.name)
        return newest[1]
