"""Members of a fleet without daemons: they claim what they are to have, and one of them places."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from daemon.fleet.placer import Placer
from daemon.fleet.port import Coordinator, Membership
from tests.fleet.views import member
from tests.support.clock import ManualClock


class Site:
    """`settle` lets all members work until nothing changes.

    Attributes:
        members: that are alive.
    """

    def __init__(self, coordinator: Coordinator, rooms: Mapping[str, float]) -> None:
        self.coordinator = coordinator
        self.members = {name: self._join(name, room) for name, room in rooms.items()}
        self.placer = Placer(ManualClock(), 0.0)

    def join(self, name: str, room: float) -> None:
        self.members[name] = self._join(name, room)

    def settle(self) -> None:
        first = next(iter(self.members.values()))
        for _ in range(20):
            before = self.coordinator.view()
            self.placer.run_once(before, first)
            for membership in self.members.values():
                self._follow(membership)
            if self.coordinator.view().revision == before.revision:
                return
        pytest.fail("the fleet does not come to rest")

    def owners(self) -> dict[str, str]:
        return {id: row.member for id, row in self.coordinator.view().owned.items()}

    def _join(self, name: str, room: float) -> Membership:
        return self.coordinator.join(name, member(room), 300.0)

    def _follow(self, membership: Membership) -> None:
        view = self.coordinator.view()
        mine = {id for id, want in view.wants.items() if want.member == membership.member and id in view.sources}
        owned = {id for id, row in view.owned.items() if row.member == membership.member}
        if owned - mine:
            membership.release(sorted(owned - mine))
        if free := sorted(id for id in mine - owned if id not in view.owned):
            membership.claim(free)
