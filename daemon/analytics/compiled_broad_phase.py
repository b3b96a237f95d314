"""The search of the broad phase as plain loops, which numba compiles."""

from __future__ import annotations

import math

import numpy as np

from daemon.analytics.broad_phase import (
    CUT,
    FLOATS,
    HIDDEN,
    HIDDEN_SINCE,
    HOW,
    ID,
    INTEGERS,
    NUMBER,
    NUMBERS,
    PATH,
    PLACE,
    REFRESH,
    RULE,
    SINCE,
    STEADY,
    TRACE,
    TRACED,
    TRACES,
    UNKNOWN,
    UNTRACED,
    VIEW,
    WAITS,
    WHOLE,
)
from daemon.analytics.jit import compiled
from daemon.analytics.rule_context import ABSENT, FREE
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
from daemon.geometry import REACH, REACH_MIN, ROUNDING, TOLERANCE

UNSURE, _NONE = 2, 0  # signs of a crossing, beside 1 and -1
_WIDE, _TALL, _TOP = STEADY, STEADY + 1, STEADY + 2  # columns


# Boxes and edges are numbers, not parts of arrays: numba counts the references of each part.


@compiled
def search(
    ids, xyxy, table, count, edges, firsts, shares, now, number, width, height, room
):  # fmt: skip
    """Implements `Search`."""
    floats, integers, rules, outlines = table[0], table[1].view(np.int64), firsts[0], firsts[1]
    numbers, found = room[0], room[1].view(np.int64)
    checks = np.int64(0)  # as of a plain 0, which is a type of its own, numba would compile `_follow` twice
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
        for rule in range(len(shares)):
            if integers[row, INTEGERS + 2 * rule + 1] == ABSENT:
                continue
            is_due, is_near = now >= integers[row, INTEGERS + 2 * rule], _is_near(box, row, rule, floats, shares)
            if is_near and not is_due:
                continue
            how = WAITS
            if not is_near:
                how = _follow(box, row, rule, integers, floats, edges, outlines, rules, shares, numbers, checks)
            if how != WAITS or is_due:
                found[checks, PLACE], found[checks, RULE] = place, rule
                found[checks, SINCE], found[checks, HOW] = integers[row, NUMBER], how
                checks += 1
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
def _is_near(box, row, rule, floats, shares):
    """Whether the anchor is within its clearance."""
    x0, y0, x1, y1 = box
    at = FLOATS + 3 * rule
    dx, dy = 0.5 * (x0 + x1) - floats[row, at], y0 + (y1 - y0) * shares[rule, 0] - floats[row, at + 1]
    room = floats[row, at + 2]
    return room > 0 and dx * dx + dy * dy < room * room


@compiled
def _follow(box, row, rule, integers, floats, edges, outlines, rules, shares, numbers, check):
    """Trace the anchor's path along the outlines of a rule, and write the numbers of a check. Note the anchor and its
    clearance. Returns how the rule must look, or `WAITS` if it need not."""
    x0, y0, x1, y1 = box
    weight, band = shares[rule, 0], shares[rule, 1] * (y1 - y0)
    x, y = 0.5 * (x0 + x1), y0 + (y1 - y0) * weight
    px, py = 0.5 * (floats[row, 0] + floats[row, 2]), floats[row, 1] + (floats[row, 3] - floats[row, 1]) * weight
    numbers[check, 0], numbers[check, 1], numbers[check, 2], numbers[check, 3] = px, py, x, y
    in_bands = integers[row, INTEGERS + 2 * rule + 1] - FREE
    how, nearest, first, last = WAITS, np.inf, rules[rule], rules[rule + 1]
    for outline in range(first, last):
        square, share, sign = trace((px, py, x, y), edges, outlines[outline], outlines[outline + 1])
        distance, place = math.sqrt(square), outline - first
        nearest = min(nearest, distance)
        if sign == UNSURE or (sign != _NONE and last - first > TRACES):
            how = UNTRACED
        elif how == WAITS and (sign != _NONE or ((in_bands >> place) & 1 and distance > band)):
            how = TRACED
        if place < TRACES:
            at = PATH + TRACE * place
            numbers[check, at], numbers[check, at + 1], numbers[check, at + 2] = distance, share, sign
    at, room = FLOATS + 3 * rule, max(0.0, (1.0 - TOLERANCE) * nearest - TOLERANCE)
    floats[row, at], floats[row, at + 1], floats[row, at + 2] = x, y, -1.0 if in_bands > 0 else room
    return how


@compiled
def trace(path, edges, first, last):
    """As `daemon.geometry.trace`, but for the square of the distance, and at most one crossing: its share and sign. The
    sign is `UNSURE` where rounding may decide, or where there are more crossings."""
    px, py, x, y = path
    nearest, reach = np.inf, REACH * ((x - px) * (x - px) + (y - py) * (y - py)) + REACH_MIN
    share, sign = 0.0, _NONE
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
            of_path, before, after = _sides(path, edge)
            of_edge, _, _ = _sides(edge, path)
            if _NONE in (of_path, of_edge):
                continue
            if UNSURE in (of_path, of_edge) or sign != _NONE:
                sign = UNSURE
            else:
                share, sign = before / (before - after), of_path
    return nearest, share, sign


@compiled
def _sides(points, line):
    """Whether a line surely parts two points, in spite of rounding: 1 if the second lies on its right and the first on
    its left, -1 the other way round, `_NONE` for points on one side, otherwise `UNSURE`. And each point's
    orientation."""
    ax, ay, bx, by = points
    cx, cy, dx, dy = line[0], line[1], line[2] - line[0], line[3] - line[1]
    a, a_error = dx * (ay - cy) - dy * (ax - cx), abs(dx * (ay - cy)) + abs(dy * (ax - cx))
    b, b_error = dx * (by - cy) - dy * (bx - cx), abs(dx * (by - cy)) + abs(dy * (bx - cx))
    a_error, b_error = ROUNDING * a_error, ROUNDING * b_error
    if (a > a_error and b > b_error) or (a < -a_error and b < -b_error):
        return _NONE, a, b
    if a < -a_error and b > b_error:
        return 1, a, b
    return (-1, a, b) if a > a_error and b < -b_error else (UNSURE, a, b)


def compile_now() -> None:
    """Compile, or load what another process has compiled."""
    search(
        np.zeros(0, np.int64), np.zeros((0, 4), np.float32), np.zeros((2, 1, FLOATS)), 0, np.zeros((0, 4)),
        np.zeros((2, 1), np.int64), np.zeros((0, 2)), 0, 0, 1, 1, np.zeros((2, 1, NUMBERS)),
    )  # fmt: skip


def signatures() -> int:
    """For how many combinations of types the search is compiled."""
    return len(search.signatures)
