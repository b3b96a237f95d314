"""The membership that a daemon holds: with the keeper of its lease, and the fence that goes by this lease."""

from __future__ import annotations

import structlog

from daemon.errors import LookoutError
from daemon.fleet.grants import GrantedSources
from daemon.fleet.lease import KeepLease, LeaseKeeper
from daemon.fleet.port import Membership

log = structlog.get_logger(__name__)


class LeasedMembership:
    """One thread changes it.

    Args:
        keep: makes the keeper of a lease.

    Attributes:
        current: None while this daemon is no member.
        lease: of the current one.
        joins: memberships that were taken.
        lost: leases that ended under this daemon.
    """

    def __init__(self, grants: GrantedSources, keep: KeepLease, ttl_s: float) -> None:
        self._grants, self._keep, self._ttl_s = grants, keep, ttl_s
        self.current: Membership | None = None
        self.lease: LeaseKeeper | None = None
        self.joins = self.lost = 0

    def hold(self, membership: Membership) -> None:
        """This is the one from now on."""
        self.lease = self._keep(membership.renewal, self._ttl_s)
        self.lease.start()
        self._grants.set_lease(self.lease)
        self.current = membership
        self.joins += 1

    def beat(self) -> bool:
        """Tell the keeper that this member lives; False if its lease is lost."""
        if self.lease is None:
            return True
        if self.lease.state == "lost":
            return False
        self.lease.beat()
        return True

    def lose(self) -> None:
        """The lease has ended under this daemon."""
        self.lost += 1
        self._drop()

    def leave(self) -> None:
        """Give up the lease, and everything with it: others may take the sources at once."""
        if self.lease is not None:
            self.lease.stop()
        if self.current is not None:
            try:
                self.current.leave()
                log.info("left the fleet")
            except LookoutError as error:
                log.warning("the fleet was not told that this member leaves: its lease will end", reason=str(error))
        self._drop()

    def _drop(self) -> None:
        lease, self.lease = self.lease, None
        self._grants.set_lease(None)
        self.current = None
        if lease is not None:
            lease.stop()
