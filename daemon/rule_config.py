"""The configuration of a source's rules: zones, lines, gates and objects. docs/analytics.md explains each key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec

from daemon.errors import ConfigError
from daemon.geometry import Point, area_of, length_of, touching_edges
from daemon.schedule import Schedule

Coordinate = Annotated[float, msgspec.Meta(ge=0, le=16_384)]
Corner = tuple[Coordinate, Coordinate]
Points = Annotated[list[Corner], msgspec.Meta(max_length=256)]
Duration = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Pixels = Annotated[int, msgspec.Meta(ge=1, le=16_384)]
Population = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
Anchor = Literal["bottom", "center", "top"]
ANCHOR_WEIGHTS: dict[Anchor, float] = {"top": 0.0, "center": 0.5, "bottom": 1.0}  # of the lower edge in its height

MAX_RULES = 64
_SMALLEST = 1e-6  # share of the picture's area, or of its size


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class RuleBase(_Section, frozen=True, kw_only=True):
    """The keys of every rule."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    """letters, digits, '_', '.', '-'"""
    labels: list[str] | None = None
    """the rule is for these alone; null: all"""
    min_area: Share = 0.0
    """size of the box when the event is confirmed, as a share of the picture's area; smaller ones are left out"""
    max_area: Share = 1.0
    """likewise; larger ones are left out"""
    active: str | None = None
    """times of the week, such as "mon-fri 22:00-06:00; sat,sun"; null: always"""
    timezone: str | None = None
    """of these times, by its IANA name"""

    @property
    def schedule(self) -> Schedule | None:
        """The times when the rule is active; None for always."""
        return None if self.active is None or self.timezone is None else Schedule(self.active, self.timezone)

    @property
    def outlines(self) -> list[tuple[str, list[Corner]]]:
        """Key and points of each polygon or line."""
        return []

    def wants(self, label: str, area: float) -> bool:
        """Whether the rule is for an object with this label and this share of the picture's area."""
        return (self.labels is None or label in self.labels) and self.min_area <= area <= self.max_area


class PlacedRule(RuleBase, frozen=True, kw_only=True):
    """A rule about a place in the picture."""

    anchor: Anchor = "bottom"
    """the point of a box whose place counts: bottom, center or top"""
    frame_size: tuple[Pixels, Pixels] | None = None
    """[width, height] of the picture in which points are pixels; null: points are shares of the picture, 0 to 1"""

    def scaled(self, width: float, height: float) -> list[list[Point]]:
        """The points of each outline in pixels of a picture of this size."""
        return [scaled(points, self.frame_size, width, height) for _, points in self.outlines]


class CrowdConfig(_Section, frozen=True, kw_only=True):
    over: Population
    """more objects than so many are a crowd"""
    under: Population | None = None
    """it is over while there are no more than so many; null: as `over`"""
    for_s: Duration = 1.0
    """how long it must be so"""

    @property
    def end(self) -> int:
        """The crowd is over while there are no more than so many."""
        return self.over if self.under is None else self.under


class ZoneConfig(PlacedRule, frozen=True, kw_only=True, tag="zone"):
    """A place that tracks enter and leave."""

    points: Points | None = None
    """corners of its polygon"""
    polygons: Annotated[list[Points], msgspec.Meta(max_length=64)] | None = None
    """or several polygons, which are one place"""
    enter_s: Duration = 0.3
    """how long the anchor must be inside"""
    exit_s: Duration = 1.0
    """how long the anchor must be outside"""
    dwell_s: Annotated[list[Duration], msgspec.Meta(max_length=16)] = []
    """times of a stay that are reported, in order"""
    crowd: CrowdConfig | None = None
    """events when it is full and when it is not any more, such as {over: 5, under: 3, for_s: 2}"""

    @property
    def outlines(self) -> list[tuple[str, list[Corner]]]:
        if self.points is not None:
            return [("points", self.points)]
        return [(f"polygons[{index}]", points) for index, points in enumerate(self.polygons or ())]


class LineConfig(PlacedRule, frozen=True, kw_only=True, tag="line"):
    """A line that tracks cross. Forward is from left to right, seen from its first point towards its second."""

    points: Points
    """of the line, two or more"""
    band: Share = 0.1
    """on both sides, a share of the box's height: within it the anchor is on no side"""
    confirm_s: Duration = 0.0
    """how long the anchor must be on the other side"""
    cooldown_s: Duration = 0.0
    """least time between two events of one track"""

    @property
    def outlines(self) -> list[tuple[str, list[Corner]]]:
        return [("points", self.points)]


class GateConfig(PlacedRule, frozen=True, kw_only=True, tag="gate"):
    """Two lines that tracks pass in order."""

    lines: tuple[Points, Points]
    """two lists of points"""
    band: Share = 0.1
    """as for a line"""
    confirm_s: Duration = 0.0
    """as for a line"""
    cooldown_s: Duration = 0.0
    """as for a line"""

    @property
    def outlines(self) -> list[tuple[str, list[Corner]]]:
        return [(f"lines[{index}]", points) for index, points in enumerate(self.lines)]


class ObjectConfig(RuleBase, frozen=True, kw_only=True, tag="object"):
    """Objects anywhere in the picture."""


RuleConfig = ZoneConfig | LineConfig | GateConfig | ObjectConfig


def scaled(points: Sequence[Point], size: tuple[int, int] | None, width: float, height: float) -> list[Point]:
    """Points in pixels of a picture of `width` and `height`.

    Args:
        size: of the picture that the points are of; None if they are shares.
    """
    own = size or (1, 1)
    across, down = width / own[0], height / own[1]
    return [(x * across, y * down) for x, y in points]


def check_rules(rules: Sequence[RuleConfig], where: str) -> None:
    """Check the rules of a source beyond their types.

    Args:
        where: path of the source, with a dot behind it, or nothing.

    Raises:
        ConfigError: with the path of the key.
    """
    if len(rules) > MAX_RULES:
        raise ConfigError(f"{where}rules: {len(rules)} are too many: a source may have {MAX_RULES}")
    seen: dict[str, str] = {}
    for index, rule in enumerate(rules):
        path = f"{where}rules[{index}]"
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", rule.name):
            raise ConfigError(f"{path}.name: {rule.name!r} may hold letters, digits, '_', '.' and '-' only")
        if rule.name.lower() in seen:
            raise ConfigError(f"{path}.name: {rule.name!r} is used twice; each rule of a source needs its own")
        seen[rule.name.lower()] = rule.name
        for problem in _problems(rule):
            raise ConfigError(f"{path}.{problem}")


def check_labels(rules: Sequence[RuleConfig], labels: Sequence[str], source: str) -> None:
    """Check the rules' labels against those of the model.

    Raises:
        ConfigError: the model does not have one of them.
    """
    for rule in rules:
        if unknown := sorted(set(rule.labels or ()) - set(labels)):
            raise ConfigError(
                f"sources, id {source}, rule {rule.name}: the model has no label {unknown[0]!r}; "
                f"it has {', '.join(labels)}"
            )


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
    if rule.active is None:
        if rule.timezone is not None:
            yield "timezone: is for `active`, which is not set"
        return
    if rule.timezone is None:
        yield "active: needs a `timezone` beside it, such as Europe/Berlin"
        return
    try:
        Schedule(rule.active, rule.timezone)
    except ValueError as error:
        key = "timezone" if "time zone" in str(error) else "active"
        yield f"{key}: {error}"


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
