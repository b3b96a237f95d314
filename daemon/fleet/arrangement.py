"""Sources on members as arrays, while the placer computes where each one is to be."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from daemon.fleet.demand import RESOURCES, USABLE, Floats, Indices, capacities_of, demands_of, scores, shares
from daemon.fleet.records import FleetView, Want

Mask = npt.NDArray[np.bool_]
NOWHERE = -1
_EPSILON = 1e-9
_NO_WANT = Want(member=None)


class Arrangement:
    """Where the enabled sources of a view are, by what is wanted, and the load that follows.

    A source is a row and a member is a column, both in the order of their names, so that nothing depends on the order
    of records.

    Attributes:
        sources, members: names of rows and columns. Members that leave, or are drained, are among them.
        priority: (sources,).
        column: (sources,) where each source is, `NOWHERE` if it waits.
        load: (members, resources) shares that are taken.
        allowed: (sources, members) by labels, models and refusals.
        has_models: (sources, members) that have the models of each source.
        may_stay, is_open: (members,) members that keep sources, and members that get new ones.
        held: (members,) members that get only what no other member can take.
        notes: why a source was taken from its member, by row.
    """

    def __init__(self, view: FleetView) -> None:
        self.view = view
        self.sources = sorted(name for name, row in view.sources.items() if is_enabled(row.config))
        self.members = sorted(view.members)
        self.columns = {name: column for column, name in enumerate(self.members)}
        self.demands = demands_of(view, self.sources)
        capacities = [view.members[name].capacity for name in self.members]
        self.capacities = capacities_of(capacities, self.demands.codecs, self.demands.looks)
        self.priority = np.array([view.sources[name].priority for name in self.sources], np.int64)
        states = [view.members[name].state for name in self.members]
        drained = np.array([name in view.drained for name in self.members], bool)
        self.may_stay = np.array([state != "leaving" for state in states], bool) & ~drained
        self.is_open = np.array([state == "ready" for state in states], bool) & ~drained
        self.held = np.array([name in view.held for name in self.members], bool)
        self.has_models: Mask = np.isfinite(self.capacities.costs)[self.demands.look]
        self.allowed = self._allowed()
        self.column = np.full(len(self.sources), NOWHERE, np.intp)
        self.load: Floats = np.zeros((len(self.members), len(RESOURCES)))
        self.notes: dict[int, str] = {}
        self._share_there: Floats = np.zeros((len(self.sources), len(RESOURCES)))
        self._options: dict[int, tuple[Floats, Floats]] = {}

    @cached_property
    def wants(self) -> list[Want]:
        """The present want of each row."""
        return [self.view.wants.get(name, _NO_WANT) for name in self.sources]

    @cached_property
    def owners(self) -> Indices:
        """(sources,) columns of the owners."""
        owned = self.view.owned
        names = [owned[name].member if name in owned else None for name in self.sources]
        return np.array([NOWHERE if name is None else self.columns.get(name, NOWHERE) for name in names], np.intp)

    def put_all(self, rows: Indices, columns: Indices) -> None:
        """Put many sources on their members, without looking at the load."""
        found = shares(self.demands, self.capacities, rows, columns)
        self.column[rows] = columns
        self._share_there[rows] = found
        np.add.at(self.load, columns, found)

    def put(self, row: int, column: int) -> None:
        share = self.options(row)[0][column]
        self.column[row] = column
        self._share_there[row] = share
        self.load[column] += share

    def remove(self, row: int, note: str) -> None:
        """Take a source from its member."""
        column = self.column[row]
        self.column[row] = NOWHERE
        self.notes.setdefault(row, note)
        if np.isfinite(self._share_there[row]).all():
            self.load[column] -= self._share_there[row]
        else:
            self.load[column] = self._share_there[self.column == column].sum(axis=0)

    def residents(self, column: int) -> Indices:
        """Rows of the sources of a member."""
        return np.flatnonzero(self.column == column)

    def share_of(self, rows: Indices | int) -> Floats:
        """Shares that placed sources take of their members."""
        return self._share_there[rows]

    def prepare(self, rows: Indices) -> None:
        """Compute `options` of many rows at once."""
        columns = np.arange(len(self.members))
        found = shares(self.demands, self.capacities, rows[:, None], columns[None, :])
        # A member's weight is the number of such sources that it can carry.
        weights = 1.0 / np.maximum((found / USABLE).max(axis=-1, initial=0.0), 1e-12)
        ranks = scores([self.sources[row] for row in rows], self.members, weights)
        self._options.update(zip(rows.tolist(), zip(found, ranks)))

    def options(self, row: int) -> tuple[Floats, Floats]:
        """Of a source: its shares of each member, (members, resources), and its scores, (members,)."""
        if row not in self._options:
            self.prepare(np.array([row]))
        return self._options[row]

    def room(self, row: int, load: Floats | None = None) -> Mask:
        """(members,) that can take a source beside a load, which is the present one unless given."""
        share, _ = self.options(row)
        found: Mask = fits((self.load if load is None else load) + share) & self.allowed[row] & self.is_open
        return found

    def _allowed(self) -> Mask:
        view = self.view
        with_labels: dict[tuple[tuple[str, str], ...], Mask] = {}
        found: Mask = self.has_models.copy()
        for row, name in enumerate(self.sources):
            affinity = tuple(sorted(view.sources[name].affinity.items()))
            if affinity:
                if affinity not in with_labels:
                    with_labels[affinity] = np.array([self.has_labels(member, affinity) for member in self.members])
                found[row] = with_labels[affinity]
            for member in view.refused.get(name, ()):
                if member in self.columns:
                    found[row, self.columns[member]] = False
        return found

    def has_labels(self, member: str, affinity: tuple[tuple[str, str], ...]) -> bool:
        labels = self.view.members[member].labels
        return all(labels.get(key) == value for key, value in affinity)


def fits(load: Floats, limits: Floats = USABLE) -> Mask:
    """Whether loads are within limits, over the last axis."""
    return np.asarray((load <= limits + _EPSILON).all(axis=-1))


def is_enabled(config: dict[str, object]) -> bool:
    """Whether a source is to be owned at all."""
    return config.get("enabled", True) is not False
