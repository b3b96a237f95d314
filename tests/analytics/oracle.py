"""An oracle for rules: it knows each object's path at all times, not only in the frames that were analysed.

It looks at the path every few milliseconds, in numpy, and shares no code with the rules. A path near an edge may be
seen to cross or not, because frames lie apart and boxes tremble. So the oracle answers for the path moved by as much in
all directions, and for times that are a bit shorter and longer. Where an object appears or is gone between two frames,
it also answers for a path that is longer or shorter by as much. An object for which these answers differ is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Outline = Sequence[tuple[float, float]]
STEP_S = 0.005
_DIRECTIONS = ((0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0))


@dataclass
class Seen:
    """Names of events in order, and the time of each, s: from the entry for a dwell and for the end of a stay."""

    names: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def add(self, name: str, time: float) -> None:
        self.names.append(name)
        self.times.append(time)

    def later(self, seconds: float) -> Seen:
        """The same for an object that appears so late."""
        lengths = ("zone dwell", "zone left left", "zone left lost")
        times = [time + (0 if name in lengths else seconds) for name, time in zip(self.names, self.times)]
        return Seen(self.names, times)


@dataclass(frozen=True)
class Answer:
    """Attributes:
    names: of events, in order.
    first, last: the earliest and the latest time of each.
    """

    names: list[str]
    first: list[float]
    last: list[float]


def agreed(answers: Sequence[Seen]) -> Answer | None:
    """The answer, if all are the same."""
    names = answers[0].names
    if any(answer.names != names for answer in answers):
        return None
    times = np.array([answer.times for answer in answers]).reshape(len(answers), len(names))
    return Answer(names, times.min(axis=0).tolist(), times.max(axis=0).tolist())


def moved(x: Floats, y: Floats, distance: float) -> list[tuple[Floats, Floats]]:
    return [(x + distance * dx, y + distance * dy) for dx, dy in _DIRECTIONS]


def _edges(outline: Outline, *, closed: bool) -> list[tuple[Floats, Floats]]:
    points = np.array(outline, float)
    ends = np.roll(points, -1, axis=0)
    return list(zip(points, ends)) if closed else list(pairwise(points))


def inside(x: Floats, y: Floats, polygon: Outline) -> npt.NDArray[np.bool_]:
    """By the winding angle."""
    angle = np.zeros_like(x)
    for (ax, ay), (bx, by) in _edges(polygon, closed=True):
        ux, uy, vx, vy = ax - x, ay - y, bx - x, by - y
        angle += np.arctan2(ux * vy - uy * vx, ux * vx + uy * vy)
    return np.abs(angle) > np.pi


def visits(
    within: npt.NDArray[np.bool_], enter_s: float, exit_s: float, dwell_s: Sequence[float], end: float, margin: float
) -> Seen:
    """The events of a zone.

    Args:
        margin: added to all durations; may be negative.
        end: the time of the object's last frame.
    """
    turns = np.flatnonzero(np.diff(within.astype(np.int8))) + 1
    bounds = [0, *turns.tolist(), len(within)]
    seen, entered, dwells, last_inside = Seen(), None, 0, 0.0
    for begin, stop in pairwise(bounds):
        is_inside, start_s = bool(within[begin]), begin * STEP_S
        stop_s = min(end, stop * STEP_S)
        if is_inside:
            if entered is None and stop_s - start_s >= enter_s + margin:
                entered, dwells = start_s, 0
                seen.add("zone entered", start_s)
            last_inside = stop_s
            while entered is not None and dwells < len(dwell_s) and stop_s - entered >= dwell_s[dwells] + margin:
                seen.add("zone dwell", max(dwell_s[dwells], start_s - entered))
                dwells += 1
        elif entered is not None and stop_s - start_s >= exit_s + margin:
            seen.add("zone left left", last_inside - entered)
            entered = None
    if entered is not None:
        reason = "lost" if within[-1] else "left"
        seen.add(f"zone left {reason}", last_inside - entered)
    return seen


def crossings(x: Floats, y: Floats, line: Outline, band: float) -> list[tuple[float, int]]:
    """Time and direction of each crossing of a line, from one settled side to the other; 1 goes to the right."""
    net, distance = np.zeros(len(x), int), np.full(len(x), np.inf)
    for (ax, ay), (bx, by) in _edges(line, closed=False):
        dx, dy = bx - ax, by - ay
        across = dx * (y - ay) - dy * (x - ax)
        along = (dx * (x - ax) + dy * (y - ay)) / (dx * dx + dy * dy)
        turned = np.sign(across[1:]) - np.sign(across[:-1])
        share = across[:-1] / np.where(turned, across[:-1] - across[1:], 1.0)
        at = along[:-1] + share * np.diff(along)
        net[1:] += np.where((at >= 0) & (at <= 1), turned, 0).astype(int) // 2
        near = np.clip(along, 0, 1)
        distance = np.minimum(distance, np.hypot(x - ax - near * dx, y - ay - near * dy))
    found, total, began, settled = [], 0, 0, False
    for index in np.flatnonzero((net != 0) | _edges_of_bands(distance > band)).tolist():
        if net[index] and total == 0:
            began = index
        total += int(net[index])
        if distance[index] > band:
            if settled and total:
                found.append((began * STEP_S, total))
            settled, total = True, 0
    return found


def _edges_of_bands(outside: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The first sample, and those at which the anchor comes out of the band."""
    first: npt.NDArray[np.bool_] = outside.copy()
    first[1:] &= ~outside[:-1]
    return first


def line_events(x: Floats, y: Floats, line: Outline, band: float) -> Seen:
    seen = Seen()
    for at, net in crossings(x, y, line, band):
        seen.add(f"line crossed {'forward' if net > 0 else 'backward'}", at)
    return seen


def gate_events(x: Floats, y: Floats, lines: Sequence[Outline], band: float) -> Seen:
    """Passes of a gate whose lines are drawn in the same direction."""
    both = sorted((at, number, net) for number, line in enumerate(lines) for at, net in crossings(x, y, line, band))
    seen = Seen()
    stack: list[tuple[float, int, int]] = []
    for crossed in both:
        if stack and stack[-1][1] == crossed[1] and stack[-1][2] == -crossed[2]:
            stack.pop()
        elif stack and stack[-1][1] != crossed[1] and stack[-1][2] == crossed[2]:
            seen.add(f"gate passed {'forward' if crossed[1] else 'backward'}", stack[-1][0])
            stack.clear()
        else:
            stack = [crossed]
    return seen
