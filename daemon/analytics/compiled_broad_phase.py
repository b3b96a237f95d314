"""The search of the broad phase as plain loops, which numba compiles."""

from __future__ import annotations

import math

import numpy as np

from daemon.analytics.broad_phase import (
    CUT,
    FLOATS,
    HIDDEN,
    HIDDEN_SINCE,
    ID,
    INTEGERS,
    LOOK,
    NUMBER,
    PLACE,
    REFRESH,
    RULE,
    SINCE,
    STEADY,
    UNKNOWN,
    UNSURE,
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


@compiled
def search(ids, xyxy, integers, floats, count, edges, ends, shares, now, number, width, height, found, before):
    """Implements `Search`."""
    looks, box, steady = 0, np.empty(4), np.empty(3)
    for place in range(len(ids)):
        if ids[place] <= 0:
            continue
        row = _row_of(ids[place], integers, count)
        box[:] = xyxy[place]
        view = UNSURE
        if row >= 0:
            steady[:] = floats[row, STEADY:FLOATS]
            view, hidden_since, refresh = _completed(box, steady, integers[row], now, width, height)
        if view == UNSURE:
            found[looks, PLACE], found[looks, RULE] = place, UNKNOWN
            looks += 1
            continue
        first = looks
        looks = _look(box, integers[row], floats[row], edges, ends, shares, now, found, looks)
        for look in range(first, looks):
            found[look, PLACE], found[look, SINCE] = place, integers[row, NUMBER]
            before[look] = floats[row, :STEADY]
        floats[row, :STEADY], floats[row, STEADY:FLOATS] = box, steady
        integers[row, NUMBER], integers[row, VIEW] = number, view
        integers[row, HIDDEN_SINCE], integers[row, REFRESH] = hidden_since, refresh
    return looks


@compiled
def _completed(box, steady, integers, now, width, height):
    """As `Track.completed`: completes the box and the steady size. Returns the view, `hidden_since` and
    `refresh_due`."""
    view, hidden_since, refresh = integers[VIEW], integers[HIDDEN_SINCE], integers[REFRESH]
    if steady[1] == 0.0:  # no height is known
        return UNSURE, hidden_since, refresh
    across, down = width * MARGIN, height * MARGIN
    x0, y0, x1, y1 = box
    left, right, bottom = x0 <= across, x1 >= width - across, y1 >= height - down
    if left or right or bottom or y0 <= down:
        if left and not right:
            box[0] = min(x0, x1 - steady[0])
        if right and not left:
            box[2] = max(x1, x0 + steady[0])
        if bottom:
            box[3] = max(y1, y0 + steady[1])
        return CUT, hidden_since, refresh
    wide, tall = x1 - x0, y1 - y0
    if view == WHOLE and now < refresh and tall >= LEAST_HEIGHT * steady[1]:
        return WHOLE, hidden_since, refresh
    hidden_since = _hidden_since(wide, y0, tall, steady, hidden_since, now)
    if hidden_since > 0:
        box[3] = max(y1, y0 + steady[1])
        return HIDDEN, hidden_since, refresh
    if now >= refresh or view != WHOLE:
        share = BLEND if view == WHOLE else 1.0
        steady[0] += share * (wide - steady[0])
        steady[1] += share * (tall - steady[1])
        steady[2] = y0
        refresh = now + REFRESH_NS
    return WHOLE, 0, refresh


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
def _look(box, integers, floats, edges, ends, shares, now, found, looks):
    """Note the rules that must look at a track. The clearance of all others that it comes nearer to is measured anew.
    Returns the number of looks."""
    x0, y0, x1, y1 = box
    x, begin = 0.5 * (x0 + x1), 0
    for rule in range(len(ends)):
        first, begin = begin, ends[rule, 0]
        kind = integers[INTEGERS + 2 * rule + 1]
        if kind == ABSENT:
            continue
        if now >= integers[INTEGERS + 2 * rule]:
            found[looks, RULE] = rule
            looks += 1
            continue
        at = FLOATS + 3 * rule
        y = y0 + (y1 - y0) * shares[rule, 0]
        dx, dy, room = x - floats[at], y - floats[at + 1], floats[at + 2]
        if room > 0 and dx * dx + dy * dy < room * room:
            continue
        px, py = 0.5 * (floats[0] + floats[2]), floats[1] + (floats[3] - floats[1]) * shares[rule, 0]
        room = -1.0
        if kind == FREE:
            room = _room(SETTLED, px, py, x, y, edges[first:begin], 0.0)
        elif kind != BOUND:
            ways, second, band = kind - BANDED, ends[rule, 1], shares[rule, 1] * (y1 - y0)
            room = _room(ways % _WAYS, px, py, x, y, edges[first:second], band)
            if room >= 0:
                room = min(room, _room(ways // _WAYS, px, py, x, y, edges[second:begin], band))
        if room < 0:
            found[looks, RULE] = rule
            looks += 1
        else:
            floats[at], floats[at + 1], floats[at + 2] = x, y, room
    return looks


@compiled
def _room(way, px, py, x, y, edges, band):
    """As `daemon.analytics.lines.Side.clearance`, after the path from (px, py) to (x, y); -1 if the path may cross an
    edge, or leads out of the band."""
    nearest = _nearest(px, py, x, y, edges)
    if nearest < 0:
        return -1.0
    distance = math.sqrt(nearest)
    if way == SETTLED:
        return distance
    if distance > band:
        return -1.0
    return band - distance if way == UNSETTLED else min(distance, band - distance)


@compiled
def _nearest(px, py, x, y, edges):
    """The square of the distance of (x, y) to the nearest edge; -1 if the path from (px, py) may cross an edge."""
    nearest, reach = _FAR, REACH * ((x - px) * (x - px) + (y - py) * (y - py)) + REACH_MIN
    for number in range(len(edges)):
        ax, ay = edges[number, 0], edges[number, 1]
        dx, dy, rx, ry = edges[number, 2] - ax, edges[number, 3] - ay, x - ax, y - ay
        along, length = rx * dx + ry * dy, dx * dx + dy * dy
        if along <= 0:
            square = rx * rx + ry * ry
        elif along >= length:
            rx, ry = rx - dx, ry - dy
            square = rx * rx + ry * ry
        else:
            cross = rx * dy - ry * dx
            square = cross * cross / length
        if square <= reach and not (
            _is_beside(px, py, x, y, edges[number])
            or _is_beside(ax, ay, edges[number, 2], edges[number, 3], (px, py, x, y))
        ):
            return -1.0
        nearest = min(nearest, square)
    return nearest


@compiled
def _is_beside(ax, ay, bx, by, line):
    """Whether both points surely lie on one side of a line, in spite of rounding."""
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
        np.zeros((1, LOOK), np.int64), np.zeros((1, STEADY)),
    )  # fmt: skip


def signatures() -> int:
    """For how many combinations of types the search is compiled."""
    return len(search.signatures)
