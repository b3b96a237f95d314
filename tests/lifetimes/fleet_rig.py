"""A daemon that gets its sources from a fleet, whose coordinator a test can hold; and the fleet's verbs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from daemon.clock import SystemClock
from daemon.config.sources import SourceConfig
from daemon.fleet.member import CoordinatorAccess, Member
from daemon.fleet.records import SourceRecord, Want
from daemon.fleet_config import FleetConfig
from daemon.redact import written_of
from tests.fleet.held_coordinator import HeldCoordinator, held
from tests.fleet.lease_thread import LeaseThread
from tests.fleet.memory_coordinator import Lease, MemoryEngine
from tests.lifetimes.analysis_verbs import End
from tests.lifetimes.gate import Gate
from tests.lifetimes.rig import Rig, wait_until

_MEMBER, _OTHER = "one", "other"
_CALLS = ("join", "claim", "release", "renew")


class FleetRig(Rig):
    """Attributes:
    engine: of the coordinator.
    calls: gates of the calls to it.
    """

    parts = Rig.parts | {"fleet", "fleet-calls", "fleet-records", "lease", "placer"}

    def __init__(self, folder: Path) -> None:
        self.engine = MemoryEngine()
        self.engine.content.placer = Lease("elsewhere", 0.0, 1 << 62, 0)  # the test says what is wanted
        self.calls = {call: Gate() for call in _CALLS}
        doors = CoordinatorAccess(
            open=lambda: HeldCoordinator(self.engine, self.calls),
            keep=lambda renewal, ttl_s: LeaseThread(held(renewal, self.calls), ttl_s, SystemClock()),
        )
        fleet = FleetConfig(coordinator="etcd://127.0.0.1:2379", member=_MEMBER, ttl_s=2.0, connects_per_s=1000.0)
        super().__init__(folder, doors=doors, fleet=fleet)
        self.put_back()

    def want(self, member: str | None, *sources: SourceConfig) -> None:
        """Put sources, and want them somewhere."""
        with self.engine.changes:
            for source in sources:
                row = msgspec.to_builtins(source, enc_hook=written_of)
                self.engine.content.sources[source.id] = SourceRecord(config=row)
                self.engine.content.wants[source.id] = Want(member=member)
            self.engine.touch()

    def put_back(self) -> None:
        """The records as at first: no other member has a source."""
        with self.engine.changes:
            for source in [*self.engine.content.sources]:
                del self.engine.content.sources[source], self.engine.content.wants[source]
            self.want(_MEMBER, *(row for row in self.rows if row.enabled))

    def row(self, id: str) -> SourceConfig:
        return next(row for row in self.rows if row.id == id)

    def open_all(self) -> None:
        for gate in self.calls.values():
            gate.open()
        self.engine.away = False
        super().open_all()

    def check_running(self, ended: Any = ()) -> None:
        """The sources that are wanted here are owned and run, and no others."""
        wait_until(self._is_as_wanted, "what is wanted runs", self._differences)
        super().check_running(ended)

    def _is_as_wanted(self) -> bool:
        wanted, owned, running = self._differences()
        return wanted == owned == running and self._is_settled()

    @property
    def member(self) -> Member:
        fleet = self.app.fleet
        assert fleet is not None
        return fleet.member

    def _is_settled(self) -> bool:
        """The member has seen the newest records, and nothing that came from older ones is under way."""
        member = self.member
        view, claims = member.view, member._claims
        is_newest = view is not None and view is claims._view and view.revision == self.engine.revision
        stages = {row.stage for row in [*claims._own._rows.values()]}
        return is_newest and stages <= {"running"} and not (member._calls.is_busy or claims.to_release)

    def _differences(self) -> tuple[set[str], set[str], set[str]]:
        with self.engine.changes:
            view = self.engine.view()
        wanted = {id for id, want in view.wants.items() if want.member == _MEMBER}
        owned = {id for id, owner in view.owned.items() if owner.member == _MEMBER}
        return wanted, owned, {source.id for source in self.app.changes.config.active}


FleetVerb = Callable[[FleetRig, bool], End]
"""As `verbs.Verb`."""


def claim(rig: FleetRig, hold: bool) -> End:
    """Of a source that is new in the fleet."""
    return _called(rig, "claim", hold, lambda: rig.want(_MEMBER, msgspec.structs.replace(rig.row("drawn"), id="guest")))


def release(rig: FleetRig, hold: bool) -> End:
    """Of a source that goes elsewhere."""
    return _called(rig, "release", hold, lambda: rig.want(_OTHER, rig.row("lib")))


def join(rig: FleetRig, hold: bool) -> End:
    """Anew, after the lease was lost."""
    return _called(rig, "join", hold, lambda: rig.engine.advance(60.0))


def lease_lost(rig: FleetRig, hold: bool) -> End:
    """Held in the library of a source that must end."""
    if hold:
        rig.library.close()
        if any(row.id == "lib" and row.state == "up" for row in rig.app.sources.captures):
            rig.library.wait_for_one()
    member = rig.member
    lost, membership = member.counts.lost, member.membership
    rig.engine.advance(60.0)

    def is_noticed() -> bool:
        is_paused = any(rig.calls[call].holds for call in _CALLS)  # it notices when it goes on
        return is_paused or membership is None or member.counts.lost > lost or rig.engine.away or rig.app.is_stopping

    def end() -> None:
        wait_until(is_noticed, "the loss is noticed")
        rig.library.open()

    return end


def coordinator_away(rig: FleetRig, hold: bool) -> End:
    """Held until it was noticed."""
    rig.engine.away = True
    if hold and (lease := rig.member.lease):
        wait_until(lambda: lease.state != "renewed", "it is noticed")

    def end() -> None:
        rig.engine.away = False

    return end


def want_flips(rig: FleetRig, hold: bool) -> End:  # noqa: ARG001
    """Twice, faster than a source ends."""
    for member in (_OTHER, _MEMBER, _OTHER):
        rig.want(member, rig.row("drawn"))

    def end() -> None:
        rig.want(_MEMBER, rig.row("drawn"))

    return end


def member_paused(rig: FleetRig, hold: bool) -> End:
    """Nothing of it reaches the coordinator until its lease has ended, and another member has a source of it."""
    for call in _CALLS:
        rig.calls[call].close()
    is_joined = rig.member.membership is not None
    if hold and is_joined and not rig.engine.away:
        rig.calls["renew"].wait_for_one()
    rig.engine.advance(60.0)
    rig.want(_OTHER, rig.row("lib"))

    def end() -> None:
        for call in _CALLS:
            rig.calls[call].open()
        rig.want(_MEMBER, rig.row("lib"))

    return end


FLEET_VERBS: dict[str, FleetVerb] = {
    "join": join,
    "claim": claim,
    "release": release,
    "lease lost": lease_lost,
    "coordinator away": coordinator_away,
    "want flips": want_flips,
    "member paused": member_paused,
}


def _called(rig: FleetRig, call: str, hold: bool, begin: Callable[[], None]) -> End:
    """A call of the member, held if it comes: while the coordinator is away, or the daemon ends, it does not."""
    gate = rig.calls[call]
    if hold:
        gate.close()
    begin()
    if hold:
        wait_until(lambda: gate.holds or rig.engine.away or rig.app.is_stopping, f"the {call} is called")
    return gate.open
