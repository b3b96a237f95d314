"""The broad phase of a source's rules: the tracks that some rule must look at in a frame.

Most tracks are far from every edge in most frames. A compiled search compares all tracks of a frame with a table. A
rule need not look at a track only if the track's path surely crosses none of its edges, the track does not leave the
band of a line, and no time is over. So rules see the same crossings.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from daemon.analytics.rule_context import ABSENT, Evaluator, State
from daemon.analytics.timeline import Stamp
from daemon.analytics.track import SeenTracks, Track
from daemon.geometry import Edge, Trace

ID, NUMBER, REFRESH, VIEW, HIDDEN_SINCE, INTEGERS = range(6)  # columns; then `due` and the kind of state of each rule
STEADY, FLOATS = 4, 7  # columns behind the box; then x, y and clearance of each rule
WHOLE, CUT, HIDDEN = range(3)  # views of an object: all of it; cut by the picture's edge; its lower part behind another
PLACE, RULE, SINCE, HOW, CHECK = range(5)  # columns of a check; SINCE: the frame in which the track was last seen
WAITS, TRACED, UNTRACED = range(3)
"""How to look: a time is over; the numbers of the check tell the path's trace; they tell the path alone, because
rounding may decide, or because there are more crossings or outlines than columns."""
PATH, TRACE, TRACES = 4, 3, 2
"""Columns of numbers: the anchor's path; then distance, share and sign (0 without a crossing) along each of the first
outlines. And the number of those."""
NUMBERS = PATH + TRACE * TRACES
UNKNOWN = -1  # instead of a rule: all must look, because the table does not know enough about the track
_ROOM = 16  # tracks, at first
_MAX_STAMPS = 64  # more than there are tracks

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Search(Protocol):
    """Finds the tracks that a rule must look at, and notes the boxes of all that it knows in the table. Where an anchor
    has left its clearance, it notes the anchor and a new clearance, too. It is called for each frame of a source, and
    each array that it is given costs, so it is given few.

    Args:
        ids: (n,) of the frame's boxes; 0 for a box without a track.
        xyxy: (n, 4) float32.
        table: (2, m, 7 + 3 * r) rows of floats; rows of numbers whose bits are int64. Both are sorted by id.
        count: number of rows.
        edges: (e, 4) of all rules, pixels.
        firsts: (2, max(r, o) + 1) the first outline of each rule, and the end; the first edge of each outline, and the
            end.
        shares: (r, 2) weight and band of each rule; see `daemon.analytics.rule_context.Evaluator`.
        now: ns of source time.
        number: of the frame.
        room: (2, n * r, 10) or larger, at least (2, n, 10), filled with checks. First the numbers of each but for
            `WAITS`. Then, as bits of int64: place in `ids`, rule, number of the frame in which the track was last seen,
            and how to look. Checks of one track stand together.

    Returns:
        The number of checks.
    """

    def __call__(
        self,
        ids: Integers,
        xyxy: npt.NDArray[np.float32],
        table: Floats,
        count: int,
        edges: Floats,
        firsts: Integers,
        shares: Floats,
        now: int,
        number: int,
        width: int,
        height: int,
        room: Floats,
    ) -> int: ...


class BroadPhase:
    """A table with a row for each track that the search may leave alone.

    A track's own box and stamp are those of when a rule last looked; `load` brings them up to date.

    Args:
        evaluators: placed in pictures of the present size.
    """

    def __init__(self, evaluators: Sequence[Evaluator]) -> None:
        self._rules = len(evaluators)
        edges: list[Edge] = []
        outlines, rules = [0], [0]
        for evaluator in evaluators:
            for outline in evaluator.outlines:
                edges += outline
                outlines.append(len(edges))
            rules.append(len(outlines) - 1)
        self._edges = np.array(edges, np.float64).reshape(-1, 4)
        self._firsts = np.zeros((2, max(len(rules), len(outlines))), np.int64)
        self._firsts[0, : len(rules)], self._firsts[1, : len(outlines)] = rules, outlines
        self._shares = np.array([(rule.weight, rule.band) for rule in evaluators], np.float64).reshape(-1, 2)
        self._ids: list[int] = []
        self._set_table(np.zeros((2, _ROOM, FLOATS + 3 * self._rules)))
        self._room = np.zeros((2, 0, NUMBERS))
        self._number = 0
        self._stamps: dict[int, Stamp] = {}  # of frames in which some track was last seen

    def _set_table(self, table: Floats) -> None:
        self._table, self._floats, self._integers = table, table[0], table[1].view(np.int64)

    def search(
        self, search: Search, tracks: SeenTracks, stamp: Stamp, width: int, height: int
    ) -> Iterable[tuple[list[int], list[float]]]:
        """The checks of a frame, and their numbers: `Search` describes both."""
        boxes = len(tracks.id)
        if not boxes:
            return ()
        count = len(self._ids)
        if not count:
            self._stamps.clear()
        self._number += 1
        self._stamps[self._number] = stamp
        if len(self._stamps) > count + _MAX_STAMPS:
            self._prune_stamps()
        if (size := boxes * max(1, self._rules)) > self._room.shape[1]:
            self._room = np.zeros((2, 2 * size, NUMBERS))
        room = self._room
        checks = search(
            tracks.id, tracks.xyxy, self._table, count, self._edges, self._firsts, self._shares,
            stamp.at, self._number, width, height, room,
        )  # fmt: skip
        return zip(room[1, :checks, :CHECK].view(np.int64).tolist(), room[0, :checks].tolist()) if checks else ()

    def move(self, track: Track, since: int) -> int:
        """Give a track the box of the newest frame, and the stamp of the one in which it was last seen, whose number
        is `since`; returns its row."""
        row, _ = self._place_of(track.id)
        track.stamp, track.box = self._stamps[since], self._floats[row, :STEADY].tolist()
        return row

    def note(self, row: int, rule: int, state: State, *, has_stepped: bool) -> None:
        """Note what one rule has seen in the newest frame.

        Args:
            has_stepped: along a path, whose end the search has noted; otherwise its clearance is that of before.
        """
        integers, at = self._integers, INTEGERS + 2 * rule  # a number at a time: parts of rows cost more
        integers[row, at], integers[row, at + 1] = state.due, state.kind
        if has_stepped:
            self._floats[row, FLOATS + 3 * rule + 2] = state.clearance

    def load(self, track: Track) -> None:
        """Give a track the box and the stamp of the frame in which it was last seen, and its states their clearance."""
        row, is_there = self._place_of(track.id)
        if not is_there:
            return
        floats = self._floats[row].tolist()
        _, number, track.refresh_due, view, track.hidden_since = self._integers[row, :INTEGERS].tolist()
        track.steady, track.box = floats[STEADY:FLOATS], floats[:STEADY]
        track.is_cut, track.is_plain = view == CUT, view == WHOLE
        track.square_radius = track.completed_square_radius = -1.0
        track.stamp = self._stamps[number]
        at = FLOATS
        for state in track.states:
            if state is not None:
                state.x, state.y, state.clearance = floats[at], floats[at + 1], floats[at + 2]
            at += 3

    def load_all(self, tracks: dict[int, Track]) -> None:
        for id in self._ids:
            self.load(tracks[id])

    def store(self, track: Track) -> None:
        """Note a track that all rules have looked at in the newest frame."""
        row, is_there = self._place_of(track.id)
        if not is_there:
            self._insert(row, track.id)
        floats: list[float] = [*track.box, *track.steady]
        integers = [track.id, self._number, track.refresh_due, _view_of(track), track.hidden_since]
        for state in track.states:
            if state is None:
                floats += (0.0, 0.0, 0.0)
                integers += (0, ABSENT)
            else:
                floats += (state.x, state.y, state.clearance)
                integers += (state.due, state.kind)
        self._floats[row], self._integers[row, : len(integers)] = floats, integers

    def remove(self, track: Track) -> None:
        """Bring a track up to date, and remove its row, so that all rules look when it is seen again."""
        self.load(track)
        row, is_there = self._place_of(track.id)
        if is_there:
            end = len(self._ids)
            self._floats[row : end - 1] = self._floats[row + 1 : end]
            self._integers[row : end - 1] = self._integers[row + 1 : end]
            del self._ids[row]

    def _prune_stamps(self) -> None:
        """Forget the frames in which no track was last seen, but for the newest frame with boxes."""
        needed = {*self._integers[: len(self._ids), NUMBER].tolist(), self._number}
        self._stamps = {number: stamp for number, stamp in self._stamps.items() if number in needed}

    def _place_of(self, id: int) -> tuple[int, bool]:
        """The row of a track, or the one at which it belongs, and whether it is there."""
        row = bisect_left(self._ids, id)
        return row, row < len(self._ids) and self._ids[row] == id

    def _insert(self, row: int, id: int) -> None:
        count = len(self._ids)
        if count == len(self._floats):
            self._set_table(np.concatenate((self._table, np.zeros_like(self._table)), axis=1))
        self._floats[row + 1 : count + 1] = self._floats[row:count].copy()
        self._integers[row + 1 : count + 1] = self._integers[row:count].copy()
        self._ids.insert(row, id)


def traces_of(numbers: Sequence[float], outlines: int) -> list[Trace]:
    """A path that the search has traced.

    Args:
        numbers: of the check.
        outlines: of the rule.
    """
    traces = []
    for at in range(PATH, PATH + TRACE * outlines, TRACE):
        distance, share, sign = numbers[at : at + TRACE]
        traces.append(Trace(distance, ((share, int(sign)),) if sign else ()))
    return traces


def _view_of(track: Track) -> int:
    if track.is_plain:
        return WHOLE
    return CUT if track.is_cut else HIDDEN
