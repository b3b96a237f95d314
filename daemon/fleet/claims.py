"""Claims of a member: which sources it is to claim, to run and to give up, by the records and by what runs here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from daemon.clock import Clock
from daemon.config.sources import SourceConfig
from daemon.fleet.connection_limit import Pace
from daemon.fleet.grants import GrantedSources
from daemon.fleet.missing_claims import MissingClaims
from daemon.fleet.own_sources import OwnSources
from daemon.fleet.records import FleetView
from daemon.fleet.wanted import WantedSources

log = structlog.get_logger(__name__)
_AT_ONCE = 64  # sources of a claim


class Claims:
    """One thread calls it. No method blocks, and none calls the coordinator.

    Args:
        member: name of this member.
        connects_per_s: limit of new sources.

    Attributes:
        claimed, released: number of sources since the start.
    """

    def __init__(
        self, member: str, own: OwnSources, grants: GrantedSources, connects_per_s: float, clock: Clock
    ) -> None:
        self._own, self._grants = own, grants
        self._wanted, self._missing = WantedSources(member), MissingClaims(member, clock)
        self._pace = Pace(connects_per_s, clock)
        self._view: FleetView | None = None
        self._to_release: set[str] = set()
        self.claimed = self.released = 0

    @property
    def refused(self) -> dict[str, str]:
        """Wanted sources that cannot be used here, with the reason."""
        return self._wanted.refused

    @property
    def to_release(self) -> list[str]:
        """Sources whose claims are to be given up."""
        return sorted(self._to_release)

    # --- what runs -------------------------------------------------------------------------------------------------

    def take_view(self, view: FleetView | None) -> None:
        """Go by these records from now on."""
        if view is None or view is self._view:
            return
        self._view = view
        self._wanted.update(view)
        self._to_release |= self._wanted.orphans({*self._own})

    def forget_view(self) -> None:
        """This daemon is no member any more."""
        self._view = None

    def collect(self) -> None:
        """Take out sources that cannot be used, and those that have ended."""
        own = self._own
        if own.refused:
            for source, reason in own.refused.items():
                log.warning("a source cannot be used here", source=source, reason=reason)
            self._wanted.refuse(own.refused)
            own.refused.clear()
        self._to_release |= own.stopped
        own.stopped.clear()

    def adjust(self) -> None:
        """End what runs and is not wanted, and change what is wanted otherwise."""
        running, usable = self._own.running(), self._wanted.usable
        if gone := [id for id in running if id not in usable]:
            self._own.end(gone)
        stale = [id for id, config in running.items() if id in usable and usable[id] is not config]
        if changed := {id: usable[id] for id in stale if usable[id] != running[id]}:
            self._own.change(changed)

    def suspend(self) -> None:
        """Stop what runs: the lease cannot be renewed."""
        if len(self._own) and self._own.running():
            log.warning("the lease cannot be renewed: sources are stopped", sources=len(self._own))
            self._own.end_all()

    def lose_all(self) -> None:
        """Others may have all sources by now."""
        self._own.end_all()
        self._to_release.clear()

    # --- calls and their results -----------------------------------------------------------------------------------

    def claimable(self) -> list[str]:
        """Sources to claim now."""
        if self._view is None or not self._grants.is_open:
            return []
        claimable = self._wanted.claimable({*self._own})[:_AT_ONCE]
        return claimable[: self._pace.room_for(len(claimable))]

    def accept(self, epochs: Mapping[str, int]) -> dict[str, tuple[SourceConfig, int]]:
        """The sources to start of those that were claimed. The others were wanted when they were claimed."""
        usable = self._wanted.usable
        self._to_release |= epochs.keys() - usable.keys()
        return {id: (usable[id], epoch) for id, epoch in epochs.items() if id in usable}

    def start(self, claimed: Mapping[str, tuple[SourceConfig, int]]) -> None:
        self._pace.spend(len(claimed))
        self.claimed += len(claimed)
        log.info("claimed", sources=sorted(claimed))
        self._own.start(claimed)

    def doubtful(self) -> dict[str, int]:
        """Running sources whose claims the records do not show, with their epochs."""
        if not self._grants.is_open:
            return {}
        return dict([*self._missing.due(self._own.epochs, self._view).items()][:_AT_ONCE])

    def settle(self, doubtful: Mapping[str, int], epochs: Mapping[str, int]) -> None:
        """They were claimed again. A claim that still holds has its epoch. Otherwise the source ends, and is claimed
        anew after that."""
        self._missing.settle([*doubtful])
        lost = self._own.lose({id: epoch for id, epoch in doubtful.items() if epochs.get(id) != epoch})
        if lost:
            log.warning("claims have ended without this member: their sources are stopped", sources=sorted(lost))

    def note_released(self, sources: Sequence[str]) -> None:
        self._to_release.difference_update(sources)
        self.released += len(sources)
        log.info("released", sources=sources)
