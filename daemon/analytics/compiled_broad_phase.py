"""The search of the broad phase as plain loops, which numba compiles."""

from __future__ import annotations

import math

import numpy as np

from daemon.analytics.broad_phase import (
    CHECK,
    CUT,
    FLOATS,
    HIDDEN,
    HIDDEN_SINCE,
    ID,
    INTEGERS,
    NUMBER,
    PLACE,
    REFRESH,
    RULE,
    SINCE,
    STEADY,
    STEPS,
    UNKNOWN,
    VIEW,
    WHOLE,
)
from daemon.analytics.jit import compiled
from daemon.analytics.scene import ABSENT, BANDED, BOUND, FREE, SETTLED, UNSETTLED, WAYS
from daemon.analytics.track import (
    AS_WIDE,
    BLEND,
    FAR_TOP,
    LEAST_HEIGHT,
    MARGIN,
    MAX_HIDDEN_NS,
    NOT_HIDDEN,
    REFRESH_NS,
)
from daemon.geometry import REACH, REACH_MIN, ROUNDING

_FAR = 1e18
_WAYS = len(WAYS)
_WIDE, _TALL, _TOP = STEADY, STEADY + 1, STEADY + 2  # columns


# Boxes and edges are numbers, not parts of arrays: numba counts the references of each part.


@compiled
def search(ids, xyxy, integers, floats, count, edges, ends, shares, now, number, width, height, found, before):
    """Implements `Search`."""
    checks = 0
    for place in range(len(ids)):
        if ids[place] <= 0:
            continue
        row = _row_of(ids[place], integers, count)
        if row < 0 or floats[row, _TALL] == 0.0:  # no height is known
            found[checks, PLACE], found[checks, RULE] = place, UNKNOWN
            checks += 1
            continue
        box, steady, view, hidden_since, refresh = _completed(
            (np.float64(xyxy[place, 0]), np.float64(xyxy[place, 1]),
             np.float64(xyxy[place, 2]), np.float64(xyxy[place, 3])),
            (floats[row, _WIDE], floats[row, _TALL], floats[row, _TOP]),
            integers[row, VIEW], integers[row, HIDDEN_SINCE], integers[row, REFRESH], now, width, height,
        )  # fmt: skip
        first = checks
        checks = _check(box, row, integers, floats, edges, ends, shares, now, found, checks)
        for check in range(first, checks):
            found[check, PLACE], found[check, SINCE] = place, integers[row, NUMBER]
            for side in range(STEADY):
                before[check, side] = floats[row, side]
        floats[row, 0], floats[row, 1], floats[row, 2], floats[row, 3] = box
        floats[row, _WIDE], floats[row, _TALL], floats[row, _TOP] = steady
        integers[row, NUMBER], integers[row, VIEW] = number, view
        integers[row, HIDDEN_SINCE], integers[row, REFRESH] = hidden_since, refresh
    return checks


@compiled
def _completed(box, steady, view, hidden_since, refresh, now, width, height):
    """As `Track.completed`: the completed box, the steady size, the view, `hidden_since` and `refresh_due`."""
    across, down = width * MARGIN, height * MARGIN
    x0, y0, x1, y1 = box
    whole_width, whole_height, top = steady
    left, right, bottom = x0 <= across, x1 >= width - across, y1 >= height - down
    if left or right or bottom or y0 <= down:
        if left and not right:
            x0 = min(x0, x1 - whole_width)
        elif right and not left:
            x1 = max(x1, x0 + whole_width)
        if bottom:
            y1 = max(y1, y0 + whole_height)
        return (x0, y0, x1, y1), steady, CUT, hidden_since, refresh
    wide, tall = x1 - x0, y1 - y0
    if view == WHOLE and now < refresh and tall >= LEAST_HEIGHT * whole_height:
        return box, steady, WHOLE, hidden_since, refresh
    hidden_since = _hidden_since(wide, y0, tall, steady, hidden_since, now)
    if hidden_since > 0:
        return (x0, y0, x1, max(y1, y0 + whole_height)), steady, HIDDEN, hidden_since, refresh
    if now >= refresh or view != WHOLE:
        share = BLEND if view == WHOLE else 1.0
        whole_width += share * (wide - whole_width)
        whole_height += share * (tall - whole_height)
        top, refresh = y0, now + REFRESH_NS
    return box, (whole_width, whole_height, top), WHOLE, 0, refresh


@compiled
def _hidden_since(width, top, height, steady, since, now):
    """As `Track._is_hidden`: the time since when the lower part is hidden; 0 while it is seen."""
    share, is_as_wide = height / steady[1], width > AS_WIDE * steady[0]
    if since > 0:
        return since if share < NOT_HIDDEN and is_as_wide and now - since < MAX_HIDDEN_NS else 0
    is_flat = share < LEAST_HEIGHT and is_as_wide
    return max(1, now) if is_flat and abs(top - steady[2]) < FAR_TOP * (steady[1] - height) else 0


@compiled
def _row_of(id, integers, count):
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if integers[middle, ID] < id:
            low = middle + 1
        else:
            high = middle
    return low if low < count and integers[low, ID] == id else -1


@compiled
def _check(box, row, integers, floats, edges, ends, shares, now, found, checks):
    """Note the rules that must look at a track. The clearance of all others that it comes nearer to is measured anew.
    Returns the number of checks."""
    x0, y0, x1, y1 = box
    x, begin = 0.5 * (x0 + x1), 0
    for rule in range(len(ends)):
        first, begin = begin, ends[rule, 0]
        kind = integers[row, INTEGERS + 2 * rule + 1]
        if kind == ABSENT:
            continue
        is_due = now >= integers[row, INTEGERS + 2 * rule]
        at = FLOATS + 3 * rule
        y = y0 + (y1 - y0) * shares[rule, 0]
        dx, dy, room = x - floats[row, at], y - floats[row, at + 1], floats[row, at + 2]
        if room > 0 and dx * dx + dy * dy < room * room:
            if is_due:
                found[checks, RULE], found[checks, STEPS] = rule, 0
                checks += 1
            continue
        px = 0.5 * (floats[row, 0] + floats[row, 2])
        py = floats[row, 1] + (floats[row, 3] - floats[row, 1]) * shares[rule, 0]
        path = px, py, x, y
        room = -1.0
        if kind == FREE:
            room = _room(SETTLED, path, edges, first, begin, 0.0)
        elif kind != BOUND:
            ways, second, band = kind - BANDED, ends[rule, 1], shares[rule, 1] * (y1 - y0)
            room = _room(ways % _WAYS, path, edges, first, second, band)
            if room >= 0:
                room = min(room, _room(ways // _WAYS, path, edges, second, begin, band))
        if room >= 0:
            floats[row, at], floats[row, at + 1], floats[row, at + 2] = x, y, room
        if room < 0 or is_due:
            found[checks, RULE], found[checks, STEPS] = rule, room < 0
            checks += 1
    return checks


@compiled
def _room(way, path, edges, first, last, band):
    """As `daemon.analytics.lines.Side.clearance`, at the end of the path; -1 if the path may cross one of these edges,
    or leads out of the band."""
    nearest = _nearest(path, edges, first, last)
    if nearest < 0:
        return -1.0
    distance = math.sqrt(nearest)
    if way == SETTLED:
        return distance
    if distance > band:
        return -1.0
    return band - distance if way == UNSETTLED else min(distance, band - distance)


@compiled
def _nearest(path, edges, first, last):
    """The square of the distance from the end of the path to the nearest edge; -1 if the path may cross one."""
    px, py, x, y = path
    nearest, reach = _FAR, REACH * ((x - px) * (x - px) + (y - py) * (y - py)) + REACH_MIN
    for number in range(first, last):
        ax, ay, bx, by = edges[number, 0], edges[number, 1], edges[number, 2], edges[number, 3]
        dx, dy, rx, ry = bx - ax, by - ay, x - ax, y - ay
        along, length = rx * dx + ry * dy, dx * dx + dy * dy
        if along <= 0:
            square = rx * rx + ry * ry
        elif along >= length:
            rx, ry = rx - dx, ry - dy
            square = rx * rx + ry * ry
        else:
            cross = rx * dy - ry * dx
            square = cross * cross / length
        if square <= reach:
            edge = ax, ay, bx, by
            if not (_is_beside(path, edge) or _is_beside(edge, path)):
                return -1.0
        nearest = min(nearest, square)
    return nearest


@compiled
def _is_beside(points, line):
    """Whether both points surely lie on one side of a line, in spite of rounding."""
    ax, ay, bx, by = points
    cx, cy, dx, dy = line[0], line[1], line[2] - line[0], line[3] - line[1]
    a, a_error = dx * (ay - cy) - dy * (ax - cx), abs(dx * (ay - cy)) + abs(dy * (ax - cx))
    b, b_error = dx * (by - cy) - dy * (bx - cx), abs(dx * (by - cy)) + abs(dy * (bx - cx))
    a_error, b_error = ROUNDING * a_error, ROUNDING * b_error
    return (a > a_error and b > b_error) or (a < -a_error and b < -b_error)


def compile_now() -> None:
    """Compile, or load what another process has compiled."""
    search(
        np.zeros(0, np.int64), np.zeros((0, 4), np.float32), np.zeros((1, INTEGERS), np.int64), np.zeros((1, FLOATS)),
        0, np.zeros((0, 4)), np.zeros((0, 2), np.int64), np.zeros((0, 2)), 0, 0, 1, 1,
        np.zeros((1, CHECK), np.int64), np.zeros((1, STEADY)),
    )  # fmt: skip


def signatures() -> int:
    """For how many combinations of types the search is compiled."""
    return len(search.signatures)
