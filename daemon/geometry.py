"""Plane geometry of rules: sides, crossings, distances, points in polygons. The signs are exact for any floats.

Coordinates are those of a picture: x to the right, y downwards. As seen from a line's first point towards its second,
a point with a positive orientation lies on the right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec

Point = tuple[float, float]
Edge = tuple[float, float, float, float]  # from (x, y) to (x, y)
Path = tuple[float, float, float, float]  # likewise
Crossing = tuple[float, int]
"""The share of the path, 0 to 1, after which it crosses an edge; and the sign: 1 if it does so from the edge's left to
its right, otherwise -1."""

# The relative error of the determinant in double precision, as Shewchuk's orient2d bounds it.
ROUNDING = 3.3306690738754716e-16
# A path crosses no edge whose square distance to its end is more than REACH times its square length plus REACH_MIN.
REACH, REACH_MIN = 1.0001, 1e-6  # the second in square pixels
TOLERANCE = 1e-6  # pixels, and share: more than rounding does to a distance


class Trace(msgspec.Struct, frozen=True, gc=False):
    """A path along an outline.

    Attributes:
        distance: from the path's end to the nearest edge, pixels.
        crossings: in order.
    """

    distance: float
    crossings: tuple[Crossing, ...]

    @property
    def clearance(self) -> float:
        """A path that goes on from here crosses no edge while it stays closer to here than this."""
        return max(0.0, (1.0 - TOLERANCE) * self.distance - TOLERANCE)


def orientation(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> int:
    """1 if c lies on the right of the line from a to b, -1 on the left, 0 on the line."""
    one, other = (bx - ax) * (cy - ay), (by - ay) * (cx - ax)
    value, bound = one - other, ROUNDING * (abs(one) + abs(other))
    if value > bound:
        return 1
    if value < -bound:
        return -1
    return _exact_orientation(ax, ay, bx, by, cx, cy)


def _exact_orientation(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> int:
    """Products of tiny differences may underflow to 0, so even a 0 is computed again: in whole numbers of the smallest
    part that one of the coordinates has."""
    if (ax == bx and ay == by) or (ax == cx and ay == cy) or (bx == cx and by == cy):
        return 0
    ratios = [value.as_integer_ratio() for value in (ax, ay, bx, by, cx, cy)]
    parts = max(below for _, below in ratios)  # all are powers of two
    x0, y0, x1, y1, x2, y2 = (above * (parts // below) for above, below in ratios)
    value = (x1 - x0) * (y2 - y0) - (y1 - y0) * (x2 - x0)
    return (value > 0) - (value < 0)


def crossing(px: float, py: float, qx: float, qy: float, edge: Edge) -> int:
    """1 if the path from p to q crosses the edge from its left to its right, -1 from right to left, otherwise 0.

    Where a point lies on a line, the path counts as moved a tiny bit to the right, and a tinier bit down. So a path
    that turns on an edge, or passes through a corner, crosses as often as it changes sides, and `is_inside` agrees.
    """
    ax, ay, bx, by = edge
    # Most paths are far from most edges.
    if (px < ax and px < bx and qx < ax and qx < bx) or (px > ax and px > bx and qx > ax and qx > bx):
        return 0
    if (py < ay and py < by and qy < ay and qy < by) or (py > ay and py > by and qy > ay and qy > by):
        return 0
    from_right = (orientation(ax, ay, bx, by, px, py) or _side_on_edge(edge)) > 0
    to_right = (orientation(ax, ay, bx, by, qx, qy) or _side_on_edge(edge)) > 0
    if from_right == to_right:
        return 0
    on_path = -_side_on_edge((px, py, qx, qy))
    if ((orientation(px, py, qx, qy, ax, ay) or on_path) > 0) == ((orientation(px, py, qx, qy, bx, by) or on_path) > 0):
        return 0
    return 1 if to_right else -1


def _side_on_edge(edge: Edge) -> int:
    """The side on which a point of the edge's line counts."""
    ax, ay, bx, by = edge
    if ay != by:
        return 1 if by < ay else -1
    return 1 if bx > ax else -1


def crossing_share(px: float, py: float, qx: float, qy: float, edge: Edge) -> float:
    """The share of the path from p to q, 0 to 1, after which it meets the line of the edge."""
    ax, ay, bx, by = edge
    before = (bx - ax) * (py - ay) - (by - ay) * (px - ax)
    after = (bx - ax) * (qy - ay) - (by - ay) * (qx - ax)
    if before == after:
        return 1.0
    return min(1.0, max(0.0, before / (before - after)))


def trace(path: Path, edges: Sequence[Edge]) -> Trace:
    """Follow a path along an outline."""
    px, py, x, y = path
    nearest, reach = math.inf, REACH * ((x - px) * (x - px) + (y - py) * (y - py)) + REACH_MIN
    crossings: list[Crossing] = []
    for edge in edges:
        ax, ay, bx, by = edge
        dx, dy, rx, ry = bx - ax, by - ay, x - ax, y - ay
        along, length = rx * dx + ry * dy, dx * dx + dy * dy
        if along <= 0:
            square = rx * rx + ry * ry
        elif along >= length:
            square = (rx - dx) * (rx - dx) + (ry - dy) * (ry - dy)
        else:
            across = rx * dy - ry * dx
            square = across * across / length
        nearest = square if square < nearest else nearest
        if square <= reach and (sign := crossing(px, py, x, y, edge)):
            crossings.append((crossing_share(px, py, x, y, edge), sign))
    if len(crossings) > 1:
        crossings.sort()
    return Trace(math.sqrt(nearest), tuple(crossings))


def is_inside(x: float, y: float, edges: Sequence[Edge]) -> bool:
    """Whether a point lies in the polygon of these edges. Of two polygons that share an edge, one has its points."""
    inside = False
    for ax, ay, bx, by in edges:
        if (ay > y) != (by > y):
            side = orientation(ax, ay, bx, by, x, y)
            inside ^= side > 0 if by > ay else side < 0
    return inside


def edges_of(points: Sequence[Point], *, closed: bool) -> tuple[Edge, ...]:
    """The edges of a polyline or, closed, of a polygon; edges without a length are left out."""
    pairs = list(pairwise(points)) + ([(points[-1], points[0])] if closed else [])
    return tuple((*a, *b) for a, b in pairs if a != b)


def length_of(points: Sequence[Point]) -> float:
    return sum(math.dist(a, b) for a, b in pairwise(points))


def area_of(points: Sequence[Point]) -> float:
    """The area of a polygon that does not cross itself."""
    return abs(sum(ax * by - bx * ay for ax, ay, bx, by in edges_of(points, closed=True))) / 2


def touching_edges(points: Sequence[Point]) -> tuple[int, int] | None:
    """The numbers of two edges of a polygon that cross or touch, apart from neighbours at their corner; or None."""
    edges = edges_of(points, closed=True)
    count = len(edges)
    boxes = [(min(ax, bx), min(ay, by), max(ax, bx), max(ay, by)) for ax, ay, bx, by in edges]
    for first in range(count):
        left, upper, right, lower = boxes[first]
        for second in range(first + 1, count):
            other = boxes[second]
            if right < other[0] or other[2] < left or lower < other[1] or other[3] < upper:
                continue  # as most are
            if second == first + 1 or (first == 0 and second == count - 1):
                if _folds_back(edges[first], edges[second]) or _folds_back(edges[second], edges[first]):
                    return first, second
            elif _touch(edges[first], edges[second]):
                return first, second
    return None


def _touch(one: Edge, other: Edge) -> bool:
    """Whether two edges have a point in common."""
    ax, ay, bx, by = one
    cx, cy, dx, dy = other
    c, d = orientation(ax, ay, bx, by, cx, cy), orientation(ax, ay, bx, by, dx, dy)
    a, b = orientation(cx, cy, dx, dy, ax, ay), orientation(cx, cy, dx, dy, bx, by)
    if c != d and a != b:
        return True
    on_one = (c == 0 and _is_between(one, cx, cy)) or (d == 0 and _is_between(one, dx, dy))
    return on_one or (a == 0 and _is_between(other, ax, ay)) or (b == 0 and _is_between(other, bx, by))


def _is_between(edge: Edge, x: float, y: float) -> bool:
    """Whether a point of the edge's line lies within its ends."""
    ax, ay, bx, by = edge
    return min(ax, bx) <= x <= max(ax, bx) and min(ay, by) <= y <= max(ay, by)


def _folds_back(one: Edge, following: Edge) -> bool:
    """Whether the second edge begins where the first ends, and goes back over it."""
    ax, ay, bx, by = one
    cx, cy, dx, dy = following
    if (bx, by) != (cx, cy) or orientation(ax, ay, bx, by, dx, dy) != 0:
        return False
    return (bx - ax) * (dx - cx) + (by - ay) * (dy - cy) < 0
