"""A daemon as a member of a fleet: it joins, runs the sources that are wanted here, and gives them up in time.

One thread decides, and never blocks: it beats for the keeper of the lease, and reacts to a lost lease at once. Calls to
the coordinator, and the records that come from it, have threads of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec
import structlog

from daemon.clock import Bell
from daemon.errors import LookoutError
from daemon.fleet.coordinator_caller import Call, CoordinatorCaller
from daemon.fleet.grants import GrantedSources
from daemon.fleet.lease import KeepLease, LeaseKeeper
from daemon.fleet.missing_claims import MissingClaims
from daemon.fleet.own_sources import OwnSources
from daemon.fleet.pace import Pace
from daemon.fleet.port import Coordinator, CoordinatorAwayError, LeaseLostError, Membership, NameTakenError
from daemon.fleet.record_follower import RecordFollower
from daemon.fleet.records import FleetView, MemberRecord, MemberState, StreamFormat
from daemon.fleet.reports import Reports
from daemon.fleet.wanted import WantedSources
from daemon.fleet_config import FleetConfig
from daemon.lifecycle import ThreadPart
from daemon.system.runtime import Runtime
from daemon.system.stop import StopToken
from daemon.system.watchdog import Pulse

log = structlog.get_logger(__name__)
T = TypeVar("T")
OnView = Callable[[FleetView, Membership | None], None]
_TURN_S = 0.2  # the longest time between two turns: the keeper of the lease waits for a beat
_AWAY_NS, _REFUSED_NS = 500_000_000, 2_000_000_000  # before the next call, after one without an answer or a refusal
_LAST_CALL_NS = 1_000_000_000
_AT_ONCE = 64  # sources of a claim
_NAME_TAKEN_NS = 3_000_000_000  # a name is waited for as long as a lease lasts, and so long


@dataclass(frozen=True)
class MemberContext:
    """The daemon, as its member sees it.

    Attributes:
        name: of the member.
        bell: wakes the member's thread.
        record: describes the daemon as it is now; the member sets the state.
        pictures: videos of the sources that are connected.
    """

    name: str
    bell: Bell
    grants: GrantedSources
    own: OwnSources
    record: Callable[[], MemberRecord]
    pictures: Callable[[], Mapping[str, StreamFormat]]


@dataclass(frozen=True)
class CoordinatorAccess:
    """Ways to the coordinator.

    Attributes:
        open: opens a connection to the coordinator.
        keep: makes the keeper of a lease.
    """

    open: Callable[[], Coordinator]
    keep: KeepLease


@dataclass
class MemberCounts:
    """Since the start.

    Attributes:
        claimed, released: sources.
        joins: memberships that were taken.
        lost: leases that ended under this daemon.
    """

    claimed: int = 0
    released: int = 0
    joins: int = 0
    lost: int = 0


class Member(ThreadPart):
    """Runs from `start` to `request_stop`, and then gives up everything; its sources have ended by then.

    Attributes:
        membership: None while this daemon is no member.
        failure: why the last call to the coordinator failed; None after a success.
        settled: set when the first attempt to join has come to an end: joined, or the coordinator is away.
        refusal: why this daemon cannot be a member; it stays None after the first success.
        counts: since the start.

    Args:
        on_view: called in the thread of the records with each view.

    Raises:
        LookoutError: the coordinator's address or files cannot be used.
    """

    def __init__(
        self,
        config: FleetConfig,
        context: MemberContext,
        coordinator: CoordinatorAccess,
        on_view: OnView,
        runtime: Runtime,
    ) -> None:
        super().__init__("fleet", runtime)
        self._config, self._context, self._access, self._tell_view = config, context, coordinator, on_view
        self._own, self._grants = context.own, context.grants
        self._leaving = False
        self.ending.on_set(context.bell.ring)
        self.membership: Membership | None = None
        self.failure: str | None = None
        self._failed_as: type[LookoutError] = LookoutError
        self.settled = StopToken()
        self.refusal: LookoutError | None = None
        self.counts = MemberCounts()
        self._lease: LeaseKeeper | None = None
        self._wanted, self._reports = WantedSources(context.name), Reports(runtime.clock)
        self._doubts = MissingClaims(context.name, runtime.clock)
        self._to_release: set[str] = set()
        self._view: FleetView | None = None
        self._pace = Pace(config.connects_per_s, runtime.clock)
        self._begun_ns = self._not_before_ns = runtime.clock.monotonic_ns()
        self._coordinator = coordinator.open()
        self._calls = CoordinatorCaller(context.bell.ring, self._coordinator.close, runtime)
        try:
            self._following = RecordFollower(coordinator.open(), self._on_view, runtime.clock, runtime.on_failure)
        except BaseException:
            self._coordinator.close()
            raise

    def connect(self) -> Coordinator:
        """Another connection to the coordinator."""
        return self._access.open()

    @property
    def view(self) -> FleetView | None:
        """The newest records."""
        return self._following.view

    @property
    def condition(self) -> str | None:
        """Why this daemon has no sources from the fleet; None if nothing is wrong."""
        if self.membership is not None or not self.failure:
            return None
        return f"it is no member of the fleet: {self.failure}"

    @property
    def lease(self) -> LeaseKeeper | None:
        """The lease of this membership, for figures."""
        return self._lease

    def leave(self) -> None:
        """Claim nothing more, and tell the fleet that this member is about to leave. Returns at once."""
        self._leaving = True
        self._context.bell.ring()

    def request_stop(self) -> None:
        self._leaving = True
        super().request_stop()

    def work(self, pulse: Pulse) -> None:
        self._calls.start()
        self._following.start()
        while not self.ending.is_set:
            self._context.bell.wait(_TURN_S)
            pulse.beat()
            self._turn()
        pulse.rest()
        self._leave()

    def on_error(self, error: Exception) -> None:
        log.exception("the fleet's member has failed")
        self._runtime.on_failure(f"the fleet's member has failed: {error}")

    def close(self) -> None:
        self._grants.set_lease(None)
        self._following.stop()
        self._calls.stop()

    # --- one turn --------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._check_lease()
        self._calls.deliver()
        self._own.poll()
        self._take_view()
        self._settle_own()
        if not self._calls.is_busy and self._clock.monotonic_ns() >= self._not_before_ns:
            self._next_call()

    def _check_lease(self) -> None:
        lease = self._lease
        if lease is None:
            return
        if lease.state == "lost":
            self._lose("the coordinator has ended its lease")
            return
        lease.beat()
        must_stop = self._config.on_coordinator_loss == "stop" and not self._grants.is_open
        if must_stop and len(self._own) and self._own.running():
            log.warning("the lease cannot be renewed: sources are stopped", sources=len(self._own))
            self._own.end_all()

    def _take_view(self) -> None:
        view = self._following.view
        if view is None or view is self._view or self.membership is None:
            return
        self._view = view
        self._wanted.update(view)
        self._to_release |= self._wanted.orphans({*self._own})

    def _settle_own(self) -> None:
        """Compare what runs with what is wanted."""
        own, usable = self._own, self._wanted.usable
        if own.refused:
            for source, reason in own.refused.items():
                log.warning("a source cannot be used here", source=source, reason=reason)
            self._wanted.refuse(own.refused)
            own.refused.clear()
        self._to_release |= own.stopped
        own.stopped.clear()
        if self._leaving:
            return
        running = own.running()
        if gone := [id for id in running if id not in usable]:
            own.end(gone)
        stale = [id for id, config in running.items() if id in usable and usable[id] is not config]
        if changed := {id: usable[id] for id in stale if usable[id] != running[id]}:
            own.change(changed)

    # --- calls -----------------------------------------------------------------------------------------------------

    def _next_call(self) -> None:
        """Begin the most urgent call."""
        membership = self.membership
        if membership is None:
            if not self._leaving:
                self._join()
        elif self._to_release:
            self._release(membership, sorted(self._to_release))
        elif (refused := self._reports.new_refusals(self._wanted.refused)) and not self._leaving:
            self._begin(partial(membership.refuse, refused), lambda _: self._reports.note_refusals(refused))
        elif claimable := self._claimable():
            self._begin(partial(membership.claim, claimable), self._claimed)
        elif doubtful := self._doubtful():
            self._begin(partial(membership.claim, [*doubtful]), partial(self._asked_again, doubtful))
        elif self._reports.is_new(record := self._record()):
            self._begin(partial(membership.update, record), lambda _: self._reports.note_record(record))
        elif pictures := self._reports.new_pictures(self._pictures()):
            self._begin(partial(membership.saw, pictures), lambda _: self._reports.note_pictures(pictures))

    def _begin(self, work: Callable[[], T], on_result: Callable[[T], None]) -> None:
        membership = self.membership

        def succeeded(result: T) -> None:
            self.failure = None
            if self.membership is membership:  # not lost meanwhile
                on_result(result)

        self._calls.begin(Call(work, succeeded, partial(self._failed, membership)))

    def _failed(self, membership: Membership | None, error: LookoutError) -> None:
        if isinstance(error, LeaseLostError):
            if membership is self.membership:
                self._lose(str(error))
            return
        is_away = isinstance(error, CoordinatorAwayError)
        if not is_away and (self.failure is None or type(error) is not self._failed_as):
            log.warning("the coordinator refuses", reason=str(error))
        self.failure, self._failed_as = str(error), type(error)
        self._not_before_ns = self._clock.monotonic_ns() + (_AWAY_NS if is_away else _REFUSED_NS)

    # --- membership ------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        work = partial(self._coordinator.join, self._context.name, self._record(), self._config.ttl_s)
        self._calls.begin(Call(work, self._joined, self._not_joined))

    def _joined(self, membership: Membership) -> None:
        if self._leaving:
            self._calls.begin(Call(membership.leave, lambda _: None, lambda _: None))
            return
        self._lease = self._access.keep(membership.renewal, self._config.ttl_s)
        self._lease.start()
        self._grants.set_lease(self._lease)
        self.membership, self.failure, self._view, self._reports = membership, None, None, Reports(self._clock)
        self.counts.joins += 1
        log.info("joined the fleet", fleet=self._config.name, member=self._context.name)
        self.settled.set()

    def _not_joined(self, error: LookoutError) -> None:
        is_new = self.failure is None or type(error) is not self._failed_as
        self.failure, self._failed_as = str(error), type(error)
        is_away, now = isinstance(error, CoordinatorAwayError), self._clock.monotonic_ns()
        self._not_before_ns = now + (_AWAY_NS if is_away else _REFUSED_NS)
        if is_new:
            log.warning("the fleet cannot be joined yet", member=self._context.name, reason=str(error))
        limit_ns = round(self._config.ttl_s * 1e9) + _NAME_TAKEN_NS
        is_patient = isinstance(error, NameTakenError) and now - self._begun_ns < limit_ns
        if not (is_away or is_patient or self.settled.is_set):
            self.refusal = error
        if is_away or self.refusal:
            self.settled.set()

    def _lose(self, reason: str) -> None:
        """The lease is lost: others may have all sources by now."""
        log.warning("the lease is lost: all sources are stopped", reason=reason, sources=len(self._own))
        self.counts.lost += 1
        self._drop_membership()
        self._own.end_all()
        self._to_release.clear()

    def _drop_membership(self) -> None:
        lease, self._lease = self._lease, None
        self._grants.set_lease(None)
        self.membership, self._view = None, None
        if lease is not None:
            lease.stop()

    # --- sources ---------------------------------------------------------------------------------------------------

    def _claimable(self) -> list[str]:
        if self._leaving or self._view is None or not self._grants.is_open:
            return []
        claimable = self._wanted.claimable({*self._own})[:_AT_ONCE]
        return claimable[: self._pace.room_for(len(claimable))]

    def _claimed(self, epochs: dict[str, int]) -> None:
        usable = self._wanted.usable
        self._to_release |= epochs.keys() - usable.keys()  # it was wanted when it was claimed
        claimed = {id: (usable[id], epoch) for id, epoch in epochs.items() if id in usable}
        if claimed and not self._leaving:
            self._pace.spend(len(claimed))
            self.counts.claimed += len(claimed)
            log.info("claimed", sources=sorted(claimed))
            self._own.start(claimed)
        else:
            self._view_again()

    def _doubtful(self) -> dict[str, int]:
        """Running sources whose claims the records do not show."""
        if self._leaving or not self._grants.is_open:
            return {}
        return dict([*self._doubts.due(self._own.epochs, self._view).items()][:_AT_ONCE])

    def _asked_again(self, doubtful: dict[str, int], epochs: dict[str, int]) -> None:
        """A claim that still holds has its epoch. Otherwise the source ends, and is claimed anew after that."""
        self._doubts.settle(doubtful)
        lost = self._own.lose({id: epoch for id, epoch in doubtful.items() if epochs.get(id) != epoch})
        if lost:
            log.warning("claims have ended without this member: their sources are stopped", sources=sorted(lost))

    def _view_again(self) -> None:
        """Nothing was claimed: the records have changed, and are about to come."""
        self._not_before_ns = self._clock.monotonic_ns() + round(_TURN_S * 1e9)

    def _release(self, membership: Membership, sources: list[str]) -> None:
        def released(_: None) -> None:
            self._to_release.difference_update(sources)
            self.counts.released += len(sources)
            log.info("released", sources=sources)

        self._begin(partial(membership.release, sources), released)

    def _record(self) -> MemberRecord:
        state: MemberState = "leaving" if self._leaving else "ready"
        return msgspec.structs.replace(self._context.record(), state=state)

    def _pictures(self) -> dict[str, StreamFormat]:
        return {id: picture for id, picture in self._context.pictures().items() if id in self._own}

    # --- the records' thread ---------------------------------------------------------------------------------------

    def _on_view(self) -> None:
        self._context.bell.ring()
        view = self._following.view
        if view is not None:
            self._tell_view(view, self.membership)

    # --- the end ---------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Give up the lease, and everything with it: others may take the sources at once."""
        self._finish_calls()
        membership, lease = self.membership, self._lease
        if lease is not None:
            lease.stop()
        if membership is not None:
            try:
                membership.leave()
                log.info("left the fleet")
            except LookoutError as error:
                log.warning("the fleet was not told that this member leaves: its lease will end", reason=str(error))
        self._drop_membership()

    def _finish_calls(self) -> None:
        """Wait for the call that is under way: it may join, and its lease is to be given up as well."""
        until = self._clock.monotonic_ns() + _LAST_CALL_NS
        while self._calls.is_busy and self._clock.monotonic_ns() < until:
            self._context.bell.wait(_TURN_S)
            self._calls.deliver()
