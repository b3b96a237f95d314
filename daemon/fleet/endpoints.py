"""Where the members of a fleet publish, for a subscriber that follows them: implements `lookout.members`."""

from __future__ import annotations

import os
from contextlib import suppress

from daemon.clock import SystemClock
from daemon.fleet.open_coordinator import open_coordinator
from daemon.fleet.port import Coordinator
from daemon.fleet.record_follower import RecordFollower
from daemon.fleet.records import Endpoints
from daemon.fleet_config import FleetConfig, fleet_of


class MemberEndpoints:
    """Follows the members in a thread, until it is closed.

    Attributes:
        fd: readable when the members may have changed.

    Raises:
        LookoutError: the coordinator's address or files cannot be used.
    """

    def __init__(self, fleet: FleetConfig, coordinator: Coordinator | None = None) -> None:
        followed = coordinator or open_coordinator(fleet)
        self.fd, self._waker = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._waker, False)
        self._closed = False
        self._following = RecordFollower(followed, self._ring, SystemClock(), lambda _: self._ring(), is_logged=False)
        self._following.start()

    @property
    def failure(self) -> str | None:
        """Why the members are not known now; None if they are."""
        return self._following.failure

    def read(self) -> dict[str, Endpoints]:
        """By member, as known now; `fd` is not readable until they change."""
        with suppress(BlockingIOError):
            os.read(self.fd, 4096)
        view = self._following.view
        return {name: record.endpoints for name, record in view.members.items()} if view else {}

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._following.stop()
        self._following.join(2.0)
        if not self._following.is_alive():  # otherwise it still rings
            os.close(self.fd)
            os.close(self._waker)

    def _ring(self) -> None:
        with suppress(OSError):  # full: it is readable
            os.write(self._waker, b".")


def follow(address: str) -> MemberEndpoints:
    """The members of the fleet of an address. `lookout.members` finds this by its entry point.

    Raises:
        LookoutError: it is none, or the coordinator's files cannot be used.
    """
    return MemberEndpoints(fleet_of(address))
