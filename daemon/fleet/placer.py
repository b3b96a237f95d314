"""The placer: the elected member that writes where sources are wanted. Every member has one; the coordinator elects.

Two placers at once are harmless: a want is written only if nothing has changed since the records that it is based on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from daemon.clock import Bell, Clock
from daemon.fleet.placement import place
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError, LeaseLostError, Membership
from daemon.fleet.records import FleetView, Want
from daemon.lifecycle import ThreadPart
from daemon.system.runtime import Runtime
from daemon.system.watchdog import Pulse

log = structlog.get_logger(__name__)

_HOLD_DOWN_S, _MAX_HOLD_DOWN_S = 60.0, 960.0
_FORGET_NS = 60_000_000_000  # a loss that no placer has counted by then
_MAX_WANTS = 1000  # written at once; the next ones follow when these have come back as records
_RETRY_S = 1.0
_PACE_S = 0.05  # between two placements, in which changes gather
_REST_S = 60.0  # the watchdog sees a heartbeat of a placer that has nothing to do


def hold_down_s(losses: int) -> float:
    """Seconds that a member is held down for another loss: none for the first one, then 60 s, doubling up to 960 s.

    Args:
        losses: those within the last hour, without this one.
    """
    return 0.0 if losses == 0 else min(_HOLD_DOWN_S * float(1 << min(losses - 1, 10)), _MAX_HOLD_DOWN_S)


@dataclass
class PlacerCounts:
    """Since the start of this process.

    Attributes:
        placements: how often sources were placed.
        placed: sources that got a member.
        failed_over: those whose member was gone.
        losses: of members, that this placer counted.
        seconds: of the last placement, computing alone.
        slowest_s: of the slowest placement.
        failure: why the last attempt failed, None after a success.
    """

    placements: int = 0
    placed: int = 0
    failed_over: int = 0
    losses: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    failure: str | None = None


class Placer:
    """Places sources whenever records have changed, while it is elected. One thread uses it.

    Args:
        settle_s: how long a member follows the records before it may be elected. When all members start at once, the
            first one would otherwise get all sources.

    Attributes:
        leads: it is elected.
        counts: of this process.
    """

    def __init__(self, clock: Clock, settle_s: float, place: Callable[[FleetView], dict[str, Want]] = place) -> None:
        self.leads = False
        self.counts = PlacerCounts()
        self._clock, self._settle_ns, self._place = clock, round(settle_s * 1e9), place
        self._joined: int | None = None  # of this member
        self._since_ns = 0
        self._before: FleetView | None = None
        self._lost: dict[str, tuple[int, int]] = {}  # lost members: losses counted before, and when it was seen
        self._placed: tuple[object, ...] | None = None

    def run_once(self, view: FleetView, membership: Membership) -> float | None:
        """Place sources if this member is the placer, or can become it.

        Returns:
            Seconds after which the same records are to be given again; None if only a change needs another call.

        Raises:
            LeaseLostError, CoordinatorAwayError, CoordinatorError: nothing is forgotten; call it again.
        """
        self._observe(view, membership.member)
        if self._joined is None:
            return _RETRY_S  # these records are older than the membership
        if view.placer not in (None, membership.member):
            self.resign()
            return None
        left_ns = self._since_ns + self._settle_ns - self._clock.monotonic_ns()
        if left_ns > 0:
            return left_ns / 1e9
        if not (self.leads and view.placer) and not self._elected(membership):
            return _RETRY_S
        wait_s = self._write(view, membership)
        self._count_losses(view, membership)  # not before its sources have another member
        return wait_s

    def _elected(self, membership: Membership) -> bool:
        if not membership.lead():
            self.resign()
        elif not self.leads:
            self.leads = True
            log.info("this member is the placer of the fleet", member=membership.member)
        return self.leads

    def resign(self) -> None:
        """Do as if this member were not the placer, until it is elected again."""
        self.leads, self._placed = False, None

    def _observe(self, view: FleetView, member: str) -> None:
        """Note members that were lost since the last view. Each placer notes them, because the one that leads may have
        been on a lost member."""
        joined = view.joined.get(member)
        if joined != self._joined:  # also after a new membership: what happened before is unknown
            self._joined, self._since_ns, self._before = joined, self._clock.monotonic_ns(), None
            self._lost.clear()
            self.resign()
        before, self._before = self._before, view
        if before is None:
            return
        # A member without sources that ends is no loss.
        with_sources = {want.member for want in before.wants.values()}
        for name, record in before.members.items():
            joined = before.joined.get(name)
            is_gone = view.joined.get(name) != joined and view.left.get(name) != joined
            if is_gone and record.state != "leaving" and name in with_sources:
                self._lost[name] = before.losses.get(name, 0), self._clock.monotonic_ns()
        for name, (counted, seen_ns) in [*self._lost.items()]:
            is_old = self._clock.monotonic_ns() - seen_ns > _FORGET_NS
            if is_old or view.losses.get(name, 0) > counted:  # another placer has counted it
                del self._lost[name]

    def _count_losses(self, view: FleetView, membership: Membership) -> None:
        for name in sorted(self._lost):
            seconds = hold_down_s(view.losses.get(name, 0))
            membership.hold_down(name, seconds)
            del self._lost[name]
            self.counts.losses += 1
            log.warning("a member of the fleet was lost", member=name, held_down_s=seconds)

    def _write(self, view: FleetView, membership: Membership) -> float | None:
        basis = _basis_of(view)
        if basis == self._placed:
            return None
        begun_ns = self._clock.monotonic_ns()
        every = self._place(view)
        self.counts.seconds = (self._clock.monotonic_ns() - begun_ns) / 1e9
        self.counts.slowest_s = max(self.counts.slowest_s, self.counts.seconds)
        self.counts.placements += 1
        wants = first_wants(every, view, _MAX_WANTS)
        written = membership.place(wants, view) if wants else 0
        if written == len(wants):
            self._count(wants, view)
        if written < len(every):
            return _RETRY_S  # there are more; or something has changed meanwhile, and is about to be seen
        self._placed = basis
        return None

    def _count(self, wants: Mapping[str, Want], view: FleetView) -> None:
        placed = sum(want.member is not None for want in wants.values())
        self.counts.placed += placed
        self.counts.failed_over += sum(_fails_over(name, want, view) for name, want in wants.items())
        if wants:
            waiting = len(wants) - placed
            log.info("sources placed", placed=placed, waiting=waiting, seconds=round(self.counts.seconds, 3))


def first_wants(wants: Mapping[str, Want], view: FleetView, limit: int) -> Mapping[str, Want]:
    """The most urgent wants: sources whose member is gone, then those with a high priority.

    A coordinator sends each want to every member. So a fleet's first placement, of thousands of sources, would keep it
    from renewing leases in time.
    """
    if len(wants) <= limit:
        return wants
    order = sorted(
        wants, key=lambda name: (not _fails_over(name, wants[name], view), -view.sources[name].priority, name)
    )
    return {name: wants[name] for name in order[:limit]}


def _fails_over(name: str, want: Want, view: FleetView) -> bool:
    old = view.wants.get(name)
    return want.member is not None and old is not None and old.member is not None and old.member not in view.members


def _basis_of(view: FleetView) -> tuple[object, ...]:
    """Records that decide where sources are to be. Claims, which follow, are not among them."""
    return view.members, view.drained, view.sources, view.wants, view.refused, view.seen, view.held


class PlacerThread(ThreadPart):
    """Runs a placer on the newest records. The member's thread, which follows them, hands them over with `notify`.

    An error of the placer never ends the daemon: its cameras go on, and another member may become the placer.
    """

    def __init__(self, placer: Placer, runtime: Runtime) -> None:
        super().__init__("placer", runtime, is_vital=False)
        self.placer = placer
        self._newest: tuple[FleetView, Membership] | None = None
        self._bell = Bell()
        self.ending.on_set(self._bell.ring)

    def notify(self, view: FleetView, membership: Membership | None) -> None:
        """Hand over the newest records, and this member's lease; None while it has none. Returns at once."""
        self._newest = None if membership is None else (view, membership)
        self._bell.ring()

    def work(self, pulse: Pulse) -> None:
        wait_s: float | None = None
        while not self.ending.is_set:
            pulse.rest()
            self._bell.wait(_REST_S if wait_s is None else wait_s)
            pulse.beat()
            if not self.ending.is_set:
                wait_s = self._turn()
                self._clock.wait(self.ending, _PACE_S)

    def _turn(self) -> float | None:
        newest = self._newest
        if newest is None:
            self.placer.resign()
            return None
        try:
            wait_s = self.placer.run_once(*newest)
        except LeaseLostError:
            return None  # the member's thread joins anew
        except CoordinatorAwayError as error:
            self._failed(str(error), "the placer cannot reach the coordinator")
        except CoordinatorError as error:
            self._failed(str(error), "the coordinator refuses the placer")
        except Exception as error:
            log.exception("the placer failed unexpectedly: sources stay where they are")
            self.placer.counts.failure = f"{type(error).__name__}: {error}"
        else:
            self.placer.counts.failure = None
            return wait_s
        return _RETRY_S

    def _failed(self, reason: str, message: str) -> None:
        if self.placer.counts.failure != reason:
            log.warning(message, reason=reason)
        self.placer.counts.failure = reason
