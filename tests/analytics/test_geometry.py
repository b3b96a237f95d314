"""Geometry with exact signs."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from daemon.geometry import (
    Trace,
    area_of,
    crossing,
    crossing_share,
    edges_of,
    is_inside,
    orientation,
    touching_edges,
    trace,
)

SQUARE = [(0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (0.0, 4.0)]


def _exact(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> int:
    a, b, c, d, e, f = map(Fraction, (ax, ay, bx, by, cx, cy))
    value = (c - a) * (f - b) - (d - b) * (e - a)
    return (value > 0) - (value < 0)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e9, 1e-200])
def test_orientation_is_exact_near_the_line(scale: float) -> None:
    random = np.random.default_rng(1)
    for _ in range(300):
        ax, ay, bx, by = (random.integers(0, 50, 4) * 0.1 * scale).tolist()
        share = random.uniform(-1, 2)
        cx, cy = ax + share * (bx - ax), ay + share * (by - ay)
        cx = math.nextafter(cx, math.inf) if random.integers(2) else cx
        assert orientation(ax, ay, bx, by, cx, cy) == _exact(ax, ay, bx, by, cx, cy)


def test_a_path_crosses_from_left_to_right() -> None:
    edge = (0.0, 0.0, 10.0, 0.0)  # to the right of the picture: its left is up
    assert crossing(5, -1, 5, 1, edge) == 1
    assert crossing(5, 1, 5, -1, edge) == -1
    assert crossing(5, 1, 6, 2, edge) == crossing(11, -1, 11, 1, edge) == crossing(-1, -1, -1, 1, edge) == 0
    assert crossing_share(5, -1, 5, 3, edge) == 0.25


def test_a_path_that_turns_on_a_line_crosses_it_once_or_not_at_all() -> None:
    """Grid points, so that paths turn on lines, run along them and go through their corners."""
    random = np.random.default_rng(2)
    line = edges_of([(0.0, 3.0), (3.0, 3.0), (3.0, 6.0), (9.0, 6.0)], closed=False)
    corners = [(-9.0, 3.0), (0.0, 3.0), (3.0, 3.0), (3.0, 6.0), (9.0, 6.0), (99.0, 6.0), (99.0, -9.0), (-9.0, -9.0)]
    left = edges_of(corners, closed=True)
    for _ in range(500):
        path = random.integers(0, 10, (8, 2)).astype(float)
        path[[0, -1]] += 0.25  # on a side
        path[:, 0] = np.clip(path[:, 0], 0.25, 8.75)  # never around an end
        points: list[tuple[float, float]] = [(x, y) for x, y in path.tolist()]
        net = sum(crossing(px, py, qx, qy, edge) for (px, py), (qx, qy) in pairwise(points) for edge in line)
        sides = [is_inside(x, y, left) for x, y in (points[0], points[-1])]
        assert net == sides[0] - sides[1]


def test_points_of_a_shared_edge_are_in_one_polygon() -> None:
    right = edges_of([(4.0, 0.0), (8.0, 0.0), (8.0, 4.0), (4.0, 4.0)], closed=True)
    square = edges_of(SQUARE, closed=True)
    for y in (0.0, 1.0, 2.5, 3.999):
        assert is_inside(4.0, y, square) + is_inside(4.0, y, right) == 1
    assert is_inside(2, 2, square)
    assert not is_inside(5, 2, square)


def test_a_path_along_an_outline() -> None:
    square = edges_of(SQUARE, closed=True)
    assert trace((5, 5, 7, 2), square) == Trace(3, ())
    assert trace((5, 5, 7, 8), square) == Trace(5, ())
    assert trace((6, 2, 2, 1), square) == Trace(1, ((0.5, 1),))
    assert trace((-1, 3, 7, 3), square) == Trace(3, ((1 / 8, 1), (5 / 8, -1)))


def test_polygons_that_touch_themselves() -> None:
    assert touching_edges(SQUARE) is None
    assert touching_edges([(0, 0), (4, 4), (4, 0), (0, 4)]) == (0, 2)
    assert touching_edges([(0, 0), (4, 0), (4, 4), (2, 0), (0, 4)]) is not None  # a corner on a side
    assert touching_edges([(0, 0), (4, 0), (2, 0), (2, 4)]) is not None  # back over a side
    star = [(math.cos(turn * 0.8 * math.pi), math.sin(turn * 0.8 * math.pi)) for turn in range(5)]
    assert touching_edges(star) is not None
    assert area_of(SQUARE) == 16
