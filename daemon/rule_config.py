"""The configuration of a source's rules: zones, lines, gates and objects. docs/analytics.md explains each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from daemon.errors import ConfigError

if TYPE_CHECKING:
    from daemon.geometry import Point

Coordinate = Annotated[float, msgspec.Meta(ge=0, le=16_384)]
Corner = tuple[Coordinate, Coordinate]
Points = Annotated[list[Corner], msgspec.Meta(max_length=256)]
Duration = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Pixels = Annotated[int, msgspec.Meta(ge=1, le=16_384)]
Population = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
Anchor = Literal["bottom", "center", "top"]
ANCHOR_WEIGHTS: dict[Anchor, float] = {"top": 0.0, "center": 0.5, "bottom": 1.0}  # of the lower edge in its height


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
