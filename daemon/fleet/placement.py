"""Decides which member is to own each source. A pure function of the records: no clock, no chance, no connection.

A source stays where it is while its member lives, is not drained, has its labels, has not refused it, and can carry it.
Other sources go by weighted rendezvous to the first member that has room, those with a higher priority first. A source
without room takes the place of sources with a lower priority, as few as possible, or waits with a reason.
"""

from __future__ import annotations

import heapq

import numpy as np

from daemon.fleet.arrangement import NOWHERE, Arrangement, fits
from daemon.fleet.demand import FULL, RESOURCES, USABLE, Floats
from daemon.fleet.reasons import DISABLED, WaitingReasons, why_not_there
from daemon.fleet.records import FleetView, Want

_PREEMPTED = "sources with a higher priority took its place"


def place(view: FleetView) -> dict[str, Want]:
    """The wants that are to change. Placing again, after they were written, changes nothing."""
    return changes_of(arrange(view))


def arrange(view: FleetView) -> Arrangement:
    """All sources where they are to be."""
    arrangement = Arrangement(view)
    _stay(arrangement)
    _shrink(arrangement)
    fill(arrangement)
    return arrangement


def fill(arrangement: Arrangement) -> None:
    """Place the sources that have no member yet."""
    _Filling(arrangement).run()


def loads(view: FleetView) -> dict[str, Floats]:
    """Shares of each of `RESOURCES` that the sources wanted on a member take of it."""
    arrangement = Arrangement(view)
    _stay(arrangement)
    return dict(zip(arrangement.members, arrangement.load))


def changes_of(arrangement: Arrangement) -> dict[str, Want]:
    """The wants that differ from those of the view."""
    view, found, reasons = arrangement.view, {}, WaitingReasons(arrangement)
    for row, name in enumerate(arrangement.sources):
        old, column = view.wants.get(name), int(arrangement.column[row])
        if column == NOWHERE:
            want = Want(member=None, reason=reasons.of(row))
        else:
            member = arrangement.members[column]
            if old is not None and old.member == member:
                continue
            want = Want(member=member, reason=arrangement.notes.get(row) or _reason_of(old, view))
        if want != old:
            found[name] = want
    waiting = Want(member=None, reason=DISABLED)
    disabled = view.sources.keys() - set(arrangement.sources)
    found.update({name: waiting for name in sorted(disabled) if view.wants.get(name) != waiting})
    return found


def _reason_of(old: Want | None, view: FleetView) -> str:
    if old is None or old.member is None:
        return "there is room"
    return f"{old.member} is gone" if old.member not in view.members else ""


def _stay(arrangement: Arrangement) -> None:
    """Leave sources on the members where they are wanted, if these may have them."""
    columns = np.array(
        [NOWHERE if want.member is None else arrangement.columns.get(want.member, NOWHERE)
         for want in arrangement.wants],
        np.intp,
    )  # fmt: skip
    rows = np.flatnonzero(columns != NOWHERE)
    stays = arrangement.allowed[rows, columns[rows]] & arrangement.may_stay[columns[rows]]
    for row in rows[~stays].tolist():
        arrangement.notes[row] = why_not_there(arrangement, row, int(columns[row]))
    arrangement.put_all(rows[stays], columns[rows[stays]])


def _shrink(arrangement: Arrangement) -> None:
    """Take sources from members that carry more than they can: the lowest priorities first."""
    for column in np.flatnonzero(~fits(arrangement.load, FULL)).tolist():
        rows = arrangement.residents(column)
        size = dict(zip(rows.tolist(), arrangement.share_of(rows).max(axis=1).tolist()))
        total: Floats = np.zeros(len(RESOURCES))
        for row in sorted(size, key=lambda row: _rank_to_stay(arrangement, row, column, size[row])):
            share = arrangement.share_of(row)
            if fits(total + share):
                total = total + share
            else:
                arrangement.remove(row, f"{arrangement.members[column]} has no room for it")


def _rank_to_stay(arrangement: Arrangement, row: int, column: int, size: float) -> tuple[int, bool, bool, float, int]:
    """Sorts sources of a full member, those that stay first. An operator's move does not drive out residents."""
    owner = int(arrangement.owners[row])
    arrives = owner not in (NOWHERE, column)
    return -int(arrangement.priority[row]), arrives, not arrangement.wants[row].pinned, size, row


class _Filling:
    """Places the sources that are nowhere, in the order of their priorities.

    `_firm` is the load by sources of the present priority and higher ones: what a source cannot displace.
    """

    def __init__(self, arrangement: Arrangement) -> None:
        self._all = arrangement
        self._queue = [
            (-int(arrangement.priority[row]), row) for row in np.flatnonzero(arrangement.column == NOWHERE).tolist()
        ]
        heapq.heapify(self._queue)
        self._lowest = int(arrangement.priority.min(initial=0)) if len(arrangement.priority) else 0
        self._firm: Floats = np.zeros_like(arrangement.load)
        self._falling = np.argsort(-arrangement.priority, kind="stable").tolist()
        self._passed = 0  # of `_falling`, are in `_firm` if they were placed before

    def run(self) -> None:
        if not self._all.members:
            return
        self._all.prepare(np.array([row for _, row in self._queue], np.intp))
        while self._queue:
            negative, row = heapq.heappop(self._queue)
            self._pass(-negative)
            column = self._best(row)
            if column is None:
                column = self._displace(row)
            if column is not None:
                self._all.put(row, column)
                self._firm[column] += self._all.share_of(row)

    def _pass(self, priority: int) -> None:
        """Sources down to this priority cannot be displaced any more."""
        if priority == self._lowest:
            return
        while self._passed < len(self._falling) and self._all.priority[self._falling[self._passed]] >= priority:
            row = self._falling[self._passed]
            self._passed += 1
            if self._all.column[row] != NOWHERE:
                self._firm[self._all.column[row]] += self._all.share_of(row)

    def _best(self, row: int) -> int | None:
        """Its owner, else the best member with room; members that are held down come last."""
        room = self._all.room(row)
        if not room.any():
            return None
        owner = int(self._all.owners[row])
        if owner != NOWHERE and room[owner]:
            return owner
        free = room & ~self._all.held
        _, ranks = self._all.options(row)
        return int(np.argmax(np.where(free if free.any() else room, ranks, -np.inf)))

    def _displace(self, row: int) -> int | None:
        """Make room by taking away sources with lower priorities, as few as possible; None if that is not enough."""
        priority = int(self._all.priority[row])
        if priority <= self._lowest:
            return None
        columns = np.flatnonzero(self._all.room(row, self._firm))
        if not len(columns):
            return None
        _, ranks = self._all.options(row)
        best: tuple[int, int] | None = None
        chosen, displaced = NOWHERE, list[int]()
        for column in columns[np.lexsort((-ranks[columns], self._all.held[columns]))].tolist():
            rows = self._displaced(row, column)
            cost = len(rows), max(int(self._all.priority[other]) for other in rows)
            if best is None or cost < best:
                best, chosen, displaced = cost, column, rows
            if best == (1, self._lowest):
                break
        for other in displaced:
            self._all.remove(other, _PREEMPTED)
            heapq.heappush(self._queue, (-int(self._all.priority[other]), other))
        return chosen

    def _displaced(self, row: int, column: int) -> list[int]:
        """The sources of a member whose place another one is to take."""
        arrangement = self._all
        load = arrangement.load[column] + arrangement.options(row)[0][column]
        rows = arrangement.residents(column)
        rows = rows[arrangement.priority[rows] < arrangement.priority[row]]
        share = arrangement.share_of(rows)
        # Only resources that are short count for a source's size.
        size = np.where(load > USABLE, share, 0.0).max(axis=1, initial=0.0)
        pinned = np.array([arrangement.wants[other].pinned for other in rows.tolist()], bool)
        found: list[int] = []
        for place in np.lexsort((rows, -size, pinned, arrangement.priority[rows])).tolist():
            if fits(load):
                break
            load = load - share[place]
            found.append(place)
        return [int(rows[place]) for place in _needed(found, share, load)]


def _needed(found: list[int], share: Floats, load: Floats) -> list[int]:
    """Without those that have room after all, because a later one is larger."""
    kept = []
    for place in reversed(found):
        if fits(load + share[place]):
            load = load + share[place]
        else:
            kept.append(place)
    return kept
