"""The best new placement of a fleet, for an operator: evenly loaded members, few moves. Never happens by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from daemon.fleet.arrangement import Arrangement
from daemon.fleet.demand import USABLE, Floats, Indices, shares
from daemon.fleet.placement import arrange, changes_of, fill
from daemon.fleet.records import FleetView, Want

_EVEN = 0.1  # of the fuller member's load: members that differ by less are not worth a move
_REASON = "rebalanced"


@dataclass(frozen=True)
class Move:
    """Attributes:
    before, after: the members.
    """

    source: str
    before: str
    after: str


@dataclass(frozen=True)
class Rebalance:
    """Attributes:
    wants: the wants that are to change.
    moves: of sources that have a member now.
    before, after: the fullest resource of each member, as a share of what is usable.
    """

    wants: Mapping[str, Want]
    moves: tuple[Move, ...]
    before: Mapping[str, float]
    after: Mapping[str, float]


def rebalance(view: FleetView) -> Rebalance:
    """Move sources from full members to empty ones, until members are about evenly loaded. Pinned sources stay."""
    arrangement = arrange(view)
    before = _levels(arrangement.load)
    for _ in arrangement.sources:
        if not _move_one(arrangement):
            break
    fill(arrangement)  # moves may have made room
    wants = {name: _with_reason(want) for name, want in changes_of(arrangement).items()}
    old = {name: view.wants[name].member for name in wants if name in view.wants}
    moves = [
        Move(name, str(old[name]), want.member)
        for name, want in wants.items()
        if want.member is not None and old.get(name) in view.members
    ]
    names = arrangement.members
    after = _levels(arrangement.load)
    return Rebalance(wants, tuple(moves), dict(zip(names, before.tolist())), dict(zip(names, after.tolist())))


def _with_reason(want: Want) -> Want:
    return want if want.member is None or want.reason else Want(member=want.member, reason=_REASON)


def _levels(load: Floats) -> Floats:
    found: Floats = (load / USABLE).max(axis=-1, initial=0.0)
    return found


def _move_one(arrangement: Arrangement) -> bool:
    """Make the best move from the fullest member that has one; returns whether there is one."""
    levels = _levels(arrangement.load)
    full = [column for column in np.argsort(-levels, kind="stable").tolist() if arrangement.may_stay[column]]
    empty = [column for column in np.argsort(levels, kind="stable").tolist()
             if arrangement.is_open[column] and not arrangement.held[column]]  # fmt: skip
    for source_column in full:
        rows = _movable(arrangement, source_column)
        if not len(rows):
            continue
        for column in empty:
            if levels[source_column] - levels[column] <= _EVEN * levels[source_column]:
                break
            row = _best(arrangement, rows, source_column, column)
            if row is not None:
                arrangement.remove(row, _REASON)
                arrangement.put(row, column)
                return True
    return False


def _movable(arrangement: Arrangement, column: int) -> Indices:
    rows = arrangement.residents(column)
    pinned = np.array([arrangement.wants[row].pinned for row in rows.tolist()], bool)
    found: Indices = rows[~pinned]
    return found


def _best(arrangement: Arrangement, rows: Indices, before: int, after: int) -> int | None:
    """The source whose move leaves the fuller of two members at the lowest level; None if no move lowers it."""
    gained = shares(arrangement.demands, arrangement.capacities, rows, np.full(len(rows), after))
    levels = np.maximum(
        _levels(arrangement.load[before] - arrangement.share_of(rows)), _levels(arrangement.load[after] + gained)
    )
    levels = np.where(arrangement.allowed[rows, after], levels, np.inf)
    best = int(np.argmin(levels))
    is_better = levels[best] <= 1.0 and levels[best] < float(_levels(arrangement.load[before])) - 1e-6
    return int(rows[best]) if is_better else None
