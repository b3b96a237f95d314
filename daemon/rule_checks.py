"""Checks of a source's rules and outlines beyond their types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from daemon.errors import ConfigError
from daemon.geometry import area_of, length_of, touching_edges
from daemon.rule_config import Corner, ObjectConfig, RuleConfig, ZoneConfig
from daemon.schedule import schedule_problem

MAX_RULES = 64
_SMALLEST = 1e-6  # share of the picture's area, or of its size


def problems_of_rules(rules: Sequence[RuleConfig], where: str) -> Iterator[str]:
    """Faults of the rules of a source beyond their types, each with the path of its key; of an outline the first.

    Args:
        where: path of the source, with a dot behind it, or nothing.
    """
    if len(rules) > MAX_RULES:
        yield f"{where}rules: {len(rules)} are too many: a source may have {MAX_RULES}"
    seen: set[str] = set()
    for index, rule in enumerate(rules):
        path = f"{where}rules[{index}]"
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", rule.name):
            yield f"{path}.name: {rule.name!r} may hold letters, digits, '_', '.' and '-' only"
        if rule.name.lower() in seen:
            yield f"{path}.name: {rule.name!r} is used twice; each rule of a source needs its own"
        seen.add(rule.name.lower())
        yield from (f"{path}.{problem}" for problem in islice(_problems(rule), 1))


def check_rules(rules: Sequence[RuleConfig], where: str) -> None:
    """
    Raises:
        ConfigError: the first of `problems_of_rules`.
    """
    for problem in problems_of_rules(rules, where):
        raise ConfigError(problem)


def _problems(rule: RuleConfig) -> Iterator[str]:
    """Key and fault of each mistake in a rule."""
    if rule.labels is not None and not rule.labels:
        yield "labels: is empty, so the rule never applies: name labels, or leave the key out for all"
    if rule.min_area > rule.max_area:
        yield "max_area: is below min_area, so the rule never applies"
    yield from _problems_of_schedule(rule)
    if not isinstance(rule, ObjectConfig):
        yield from problems_of_coordinates(rule.outlines, rule.frame_size)
    if isinstance(rule, ZoneConfig):
        yield from _problems_of_zone(rule)
    elif not isinstance(rule, ObjectConfig):
        for key, points in rule.outlines:
            yield from _problems_of_line(key, points, rule.frame_size)


def _problems_of_schedule(rule: RuleConfig) -> Iterator[str]:
    problem = schedule_problem(rule.active, rule.timezone)
    if problem is not None:
        yield problem


def problems_of_coordinates(
    outlines: Sequence[tuple[str, list[Corner]]],
    size: tuple[int, int] | None,
    remedy: str = "frame_size: [width, height]",
) -> Iterator[str]:
    """Faults of coordinates. They are shares of the picture, or pixels of a picture whose size is named.

    Args:
        outlines: key and points of each.
        remedy: how to name the size.
    """
    for key, points in outlines:
        values = [value for point in points for value in point]
        if any(value > 1 for value in values) and any(0 < value < 1 for value in values):
            yield f"{key}: mixes shares of the picture, 0 to 1, with pixels: write one or the other"
    pixels = [key for key, points in outlines if any(value > 1 for point in points for value in point)]
    if pixels and len(pixels) < len(outlines):
        other = next(key for key, _ in outlines if key not in pixels)
        yield f"{other}: is in shares of the picture, but {pixels[0]} is in pixels: write one or the other"
    if pixels and size is None:
        yield f"{pixels[0]}: is in pixels: name the picture's size with {remedy}, or write 0 to 1"
    if size is None:
        return
    if not pixels and outlines:
        yield "frame_size: is for pixels, but all coordinates are shares of the picture, 0 to 1"
    width, height = size
    for key, points in outlines:
        for index, (x, y) in enumerate(points):
            if x > width or y > height:
                yield f"{key}[{index}]: [{x:g}, {y:g}] is outside of frame_size, {width}x{height}"


def problems_of_polygon(key: str, points: list[Corner], size: tuple[int, int] | None) -> Iterator[str]:
    """Faults of a polygon."""
    corners = points[:-1] if len(points) > 1 and points[0] == points[-1] else points
    if len(set(corners)) < 3:
        yield f"{key}: a polygon needs three different points or more, not {len(set(corners))}"
        return
    for index, point in enumerate(corners):
        if point in corners[:index]:
            yield f"{key}[{index}]: [{point[0]:g}, {point[1]:g}] is a point of the polygon already"
    if edges := touching_edges(corners):
        yield f"{key}: the polygon crosses itself: its sides {edges[0] + 1} and {edges[1] + 1} meet"
    elif area_of(corners) < _SMALLEST * _whole(size):
        yield f"{key}: the polygon has no area"


def _problems_of_zone(rule: ZoneConfig) -> Iterator[str]:
    if (rule.points is None) == (rule.polygons is None):
        yield "points: set `points` for one polygon, or `polygons` for several"
    if rule.polygons is not None and not rule.polygons:
        yield "polygons: is empty"
    for key, points in rule.outlines:
        yield from problems_of_polygon(key, points, rule.frame_size)
    if rule.dwell_s != sorted(set(rule.dwell_s)) or 0 in rule.dwell_s:
        yield "dwell_s: must rise from one to the next, and begin above 0"
    if rule.crowd is not None and rule.crowd.end > rule.crowd.over:
        yield "crowd.under: is above crowd.over"


def _problems_of_line(key: str, points: list[Corner], size: tuple[int, int] | None) -> Iterator[str]:
    if len(points) < 2:
        yield f"{key}: a line needs two points or more, not {len(points)}"
    elif length_of(points) < _SMALLEST * min(size or (1, 1)):
        yield f"{key}: the line has no length: its points are one and the same"


def _whole(size: tuple[int, int] | None) -> int:
    """The area of the picture, in the rule's own unit."""
    return 1 if size is None else size[0] * size[1]
