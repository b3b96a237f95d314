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
    HOW,
    ID,
    INTEGERS,
    NUMBER,
    OUTLINE,
    PATH,
    PLACE,
    REFRESH,
    RULE,
    SINCE,
    STEADY,
    TRACED,
    UNKNOWN,
    UNSURE,
    VIEW,
    WAITS,
    WHOLE,
)
from daemon.analytics.jit import compiled
from daemon.analytics.scene import ABSENT, BANDED, BOUND, SETTLED, UNSETTLED, WAYS
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
from daemon.geometry import FAR, REACH, REACH_MIN, ROUNDING

_WAYS = len(WAYS)
_NO_TURN, UNSURE_TURN = 0, 2  # others are 1 and -1
_WIDE, _TALL, _TOP = STEADY, STEADY + 1, STEADY + 2  # columns


# Boxes and edges are numbers, not parts of arrays: numba counts the references of each part.


@compiled
def search(ids, xyxy, integers, floats, count, edges, ends, shares, now, number, width, height, found, numbers):
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
        for rule in range(len(ends)):
            if not _is_quiet(box, row, rule, integers, floats, shares, now):
                checks = _check(box, row, rule, integers, floats, edges, ends, shares, now, found, numbers, checks)
        for check in range(first, checks):
            found[check, PLACE], found[check, SINCE] = place, integers[row, NUMBER]
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
def _is_quiet(box, row, rule, integers, floats, shares, now):
    """Whether the anchor is within its clearance, and no time is over. So `_check`, whose many arguments cost time, is
    not called for most."""
    x0, y0, x1, y1 = box
    at, due = FLOATS + 3 * rule, INTEGERS + 2 * rule
    dx, dy = 0.5 * (x0 + x1) - floats[row, at], y0 + (y1 - y0) * shares[rule, 0] - floats[row, at + 1]
    room = floats[row, at + 2]
    return integers[row, due + 1] == ABSENT or (
        now < integers[row, due] and room > 0 and dx * dx + dy * dy < room * room
    )


@compiled
def _check(box, row, rule, integers, floats, edges, ends, shares, now, found, numbers, checks):
    """Note the check of a rule that must look at a track. If it need not, though the anchor is not within its
    clearance, measure that anew. Returns the number of checks."""
    x0, y0, x1, y1 = box
    x, y = 0.5 * (x0 + x1), y0 + (y1 - y0) * shares[rule, 0]
    at, how = FLOATS + 3 * rule, WAITS
    dx, dy, room = x - floats[row, at], y - floats[row, at + 1], floats[row, at + 2]
    if not (room > 0 and dx * dx + dy * dy < room * room):
        px = 0.5 * (floats[row, 0] + floats[row, 2])
        py = floats[row, 1] + (floats[row, 3] - floats[row, 1]) * shares[rule, 0]
        path, band = (px, py, x, y), shares[rule, 1] * (y1 - y0)
        how, room = _follow(path, row, rule, integers, edges, ends, band, numbers, checks)
        floats[row, at], floats[row, at + 1], floats[row, at + 2] = x, y, room
    if how != WAITS or now >= integers[row, INTEGERS + 2 * rule]:
        found[checks, RULE], found[checks, HOW] = rule, how
        checks += 1
    return checks


@compiled
def _follow(path, row, rule, integers, edges, ends, band, numbers, check):
    """Trace a path along the outlines of a rule. Returns how the rule must look, or `WAITS` if it need not; and the
    clearance."""
    kind = integers[row, INTEGERS + 2 * rule + 1]
    how, room = TRACED if kind == BOUND else WAITS, FAR
    ways = kind - BANDED if kind >= BANDED else 0
    numbers[check, 0], numbers[check, 1], numbers[check, 2], numbers[check, 3] = path
    outlines = ends.shape[1]
    first = ends[rule - 1, outlines - 1] if rule > 0 and outlines > 0 else 0
    for outline in range(outlines):
        square, turn, share = trace(path, edges, first, ends[rule, outline])
        distance, at = math.sqrt(square), PATH + OUTLINE * outline
        numbers[check, at], numbers[check, at + 1], numbers[check, at + 2] = distance, turn, share
        if turn == UNSURE_TURN:
            how = UNSURE
        clearance = _clearance(ways % _WAYS, distance, band)
        if how == WAITS and (turn != _NO_TURN or clearance < 0):
            how = TRACED
        room = min(room, clearance)
        ways, first = ways // _WAYS, ends[rule, outline]
    return how, room


@compiled
def _clearance(way, distance, band):
    """As `daemon.analytics.lines.Side.clearance`; negative outside of the band, which the rule must know."""
    if way == SETTLED:
        return distance
    return band - distance if way == UNSETTLED else min(distance, band - distance)


@compiled
def trace(path, edges, first, last):
    """As `daemon.geometry.trace`, of at most one crossing: the square of the distance, the turn, and the share. The
    turn is `UNSURE_TURN` where rounding may decide, or where there are more crossings."""
    px, py, x, y = path
    nearest, reach = FAR, REACH * ((x - px) * (x - px) + (y - py) * (y - py)) + REACH_MIN
    turn, share = _NO_TURN, 0.0
    for number in range(first, last):
        ax, ay, bx, by = edges[number, 0], edges[number, 1], edges[number, 2], edges[number, 3]
        dx, dy, rx, ry = bx - ax, by - ay, x - ax, y - ay
        along, length = rx * dx + ry * dy, dx * dx + dy * dy
        if along <= 0:
            square = rx * rx + ry * ry
        elif along >= length:
            square = (rx - dx) * (rx - dx) + (ry - dy) * (ry - dy)
        else:
            across = rx * dy - ry * dx
            square = across * across / length
        nearest = min(nearest, square)
        if square <= reach:
            edge = ax, ay, bx, by
            one, before, after = _sides(path, edge)
            other, _, _ = _sides(edge, path)
            if _NO_TURN in (one, other):
                continue
            if UNSURE_TURN in (one, other) or turn != _NO_TURN:
                turn = UNSURE_TURN
            else:
                turn, share = one, before / (before - after)
    return nearest, turn, share


@compiled
def _sides(points, line):
    """Where two points surely lie beside a line, in spite of rounding: `_NO_TURN` for one side; 1 if the second lies on
    the right and the first on the left, -1 the other way round; otherwise `UNSURE_TURN`. And each point's
    orientation."""
    ax, ay, bx, by = points
    cx, cy, dx, dy = line[0], line[1], line[2] - line[0], line[3] - line[1]
    a, a_error = dx * (ay - cy) - dy * (ax - cx), abs(dx * (ay - cy)) + abs(dy * (ax - cx))
    b, b_error = dx * (by - cy) - dy * (bx - cx), abs(dx * (by - cy)) + abs(dy * (bx - cx))
    a_error, b_error = ROUNDING * a_error, ROUNDING * b_error
    if (a > a_error and b > b_error) or (a < -a_error and b < -b_error):
        return _NO_TURN, a, b
    if a < -a_error and b > b_error:
        return 1, a, b
    return (-1, a, b) if a > a_error and b < -b_error else (UNSURE_TURN, a, b)


def compile_now() -> None:
    """Compile, or load what another process has compiled."""
    search(
        np.zeros(0, np.int64), np.zeros((0, 4), np.float32), np.zeros((1, INTEGERS), np.int64), np.zeros((1, FLOATS)),
        0, np.zeros((0, 4)), np.zeros((0, 1), np.int64), np.zeros((0, 2)), 0, 0, 1, 1,
        np.zeros((1, CHECK), np.int64), np.zeros((1, PATH)),
    )  # fmt: skip


def signatures() -> int:
    """For how many combinations of types the search is compiled."""
    return len(search.signatures)
