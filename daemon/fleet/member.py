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
from daemon.fleet.call_pause import CallPause
from daemon.fleet.claims import Claims
from daemon.fleet.coordinator_caller import Call, CoordinatorCaller
from daemon.fleet.first_join import FirstJoin
from daemon.fleet.grants import GrantedSources
from daemon.fleet.lease import KeepLease, LeaseKeeper
from daemon.fleet.leased_membership import LeasedMembership
from daemon.fleet.own_sources import OwnSources
from daemon.fleet.port import Coordinator, CoordinatorAwayError, LeaseLostError, Membership
from daemon.fleet.record_follower import RecordFollower
from daemon.fleet.records import FleetView, MemberRecord, MemberState, StreamFormat
from daemon.fleet.reports import Reports
from daemon.fleet_config import FleetConfig
from daemon.lifecycle import ThreadPart
from daemon.system.runtime import Runtime
from daemon.system.stop_token import StopToken
from daemon.system.watchdog import Pulse

log = structlog.get_logger(__name__)
T = TypeVar("T")
OnView = Callable[[FleetView, Membership | None], None]
_TURN_S = 0.2  # the longest time between two turns: the keeper of the lease waits for a beat
_LAST_CALL_NS = 1_000_000_000


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


@dataclass(frozen=True)
class MemberCounts:
    """Since the start.

    Attributes:
        claimed, released: sources.
        joins: memberships that were taken.
        lost: leases that ended under this daemon.
    """

    claimed: int
    released: int
    joins: int
    lost: int


class Member(ThreadPart):
    """Runs from `start` to `request_stop`, and then gives up everything; its sources have ended by then.

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
        self._leaving = False
        self.ending.on_set(context.bell.ring)
        self._held = LeasedMembership(context.grants, coordinator.keep, config.ttl_s)
        self._first, self._pause = FirstJoin(config.ttl_s, runtime.clock), CallPause(runtime.clock)
        self._claims = Claims(context.name, context.own, context.grants, config.connects_per_s, runtime.clock)
        self._reports = Reports(runtime.clock)
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
    def membership(self) -> Membership | None:
        """None while this daemon is no member."""
        return self._held.current

    @property
    def lease(self) -> LeaseKeeper | None:
        """The lease of this membership, for figures."""
        return self._held.lease

    @property
    def failure(self) -> str | None:
        """Why the last call to the coordinator failed; None after a success."""
        return self._pause.failure

    @property
    def condition(self) -> str | None:
        """Why this daemon has no sources from the fleet; None if nothing is wrong."""
        if self.membership is not None or not self.failure:
            return None
        return f"it is no member of the fleet: {self.failure}"

    @property
    def settled(self) -> StopToken:
        """See `FirstJoin`."""
        return self._first.settled

    @property
    def refusal(self) -> LookoutError | None:
        """See `FirstJoin`."""
        return self._first.refusal

    @property
    def counts(self) -> MemberCounts:
        return MemberCounts(self._claims.claimed, self._claims.released, self._held.joins, self._held.lost)

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
        self._context.grants.set_lease(None)
        self._following.stop()
        self._calls.stop()

    # --- one turn --------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._check_lease()
        self._calls.deliver()
        self._context.own.poll()
        if self.membership is not None:
            self._claims.take_view(self._following.view)
        self._claims.collect()
        if not self._leaving:
            self._claims.adjust()
        if not self._calls.is_busy and self._pause.is_over:
            self._next_call()

    def _check_lease(self) -> None:
        if not self._held.beat():
            self._lose("the coordinator has ended its lease")
        elif self.lease and self._config.on_coordinator_loss == "stop" and not self._context.grants.is_open:
            self._claims.suspend()

    # --- calls -----------------------------------------------------------------------------------------------------

    def _next_call(self) -> None:
        """Begin the most urgent call."""
        membership = self.membership
        if membership is None:
            if not self._leaving:
                self._join()
        elif to_release := self._claims.to_release:
            self._begin(partial(membership.release, to_release), lambda _: self._claims.note_released(to_release))
        elif self._leaving or not self._claim(membership):
            self._report(membership)

    def _claim(self, membership: Membership) -> bool:
        """Begin a call about claims, if there is one to make."""
        if refused := self._reports.new_refusals(self._claims.refused):
            self._begin(partial(membership.refuse, refused), lambda _: self._reports.note_refusals(refused))
        elif claimable := self._claims.claimable():
            self._begin(partial(membership.claim, claimable), self._claimed)
        elif doubtful := self._claims.doubtful():
            self._begin(partial(membership.claim, [*doubtful]), partial(self._claims.settle, doubtful))
        else:
            return False
        return True

    def _report(self, membership: Membership) -> None:
        """Begin a call about this daemon, if there is one to make."""
        if self._reports.is_new(record := self._record()):
            self._begin(partial(membership.update, record), lambda _: self._reports.note_record(record))
        elif pictures := self._reports.new_pictures(self._pictures()):
            self._begin(partial(membership.saw, pictures), lambda _: self._reports.note_pictures(pictures))

    def _begin(self, work: Callable[[], T], on_result: Callable[[T], None]) -> None:
        membership = self.membership

        def succeeded(result: T) -> None:
            self._pause.succeed()
            if self.membership is membership:  # not lost meanwhile
                on_result(result)

        self._calls.begin(Call(work, succeeded, partial(self._failed, membership)))

    def _failed(self, membership: Membership | None, error: LookoutError) -> None:
        if isinstance(error, LeaseLostError):
            if membership is self.membership:
                self._lose(str(error))
            return
        is_new = self._pause.fail(error)
        if is_new and not isinstance(error, CoordinatorAwayError):
            log.warning("the coordinator refuses", reason=str(error))

    def _claimed(self, epochs: dict[str, int]) -> None:
        claimed = self._claims.accept(epochs)
        if claimed and not self._leaving:
            self._claims.start(claimed)
        else:  # the records have changed, and are about to come
            self._pause.extend(round(_TURN_S * 1e9))

    def _record(self) -> MemberRecord:
        state: MemberState = "leaving" if self._leaving else "ready"
        return msgspec.structs.replace(self._context.record(), state=state)

    def _pictures(self) -> dict[str, StreamFormat]:
        own = self._context.own
        return {id: picture for id, picture in self._context.pictures().items() if id in own}

    # --- membership ------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        work = partial(self._coordinator.join, self._context.name, self._record(), self._config.ttl_s)
        self._calls.begin(Call(work, self._joined, self._not_joined))

    def _joined(self, membership: Membership) -> None:
        if self._leaving:
            self._calls.begin(Call(membership.leave, lambda _: None, lambda _: None))
            return
        self._reports = Reports(self._clock)
        self._held.hold(membership)
        self._pause.succeed()
        log.info("joined the fleet", fleet=self._config.name, member=self._context.name)
        self._first.succeed()

    def _not_joined(self, error: LookoutError) -> None:
        if self._pause.fail(error):
            log.warning("the fleet cannot be joined yet", member=self._context.name, reason=str(error))
        self._first.fail(error)

    def _lose(self, reason: str) -> None:
        """The lease is lost: others may have all sources by now."""
        sources = len(self._context.own)
        log.warning("the lease is lost: all sources are stopped", reason=reason, sources=sources)
        self._held.lose()
        self._claims.forget_view()
        self._claims.lose_all()

    # --- the records' thread ---------------------------------------------------------------------------------------

    def _on_view(self) -> None:
        self._context.bell.ring()
        view = self._following.view
        if view is not None:
            self._tell_view(view, self.membership)

    # --- the end ---------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Wait for the call that is under way: it may join, and its lease is to be given up as well."""
        until = self._clock.monotonic_ns() + _LAST_CALL_NS
        while self._calls.is_busy and self._clock.monotonic_ns() < until:
            self._context.bell.wait(_TURN_S)
            self._calls.deliver()
        self._held.leave()
        self._claims.forget_view()
