"""The configuration of what the model sees of a source: a region of interest, and tiles. docs/models.md explains it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

from daemon.errors import ConfigError
from daemon.geometry import Point
from daemon.rule_config import Anchor, Corner, Pixels, Points, problems_of_coordinates, problems_of_polygon, scaled
from detectors.views import MIN_OVERLAP, Tiling

Side = Annotated[int, msgspec.Meta(ge=1, le=8)]
_SHORT = re.compile(r"([1-8])x([1-8])")


class RoiConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The polygon of a region of interest."""

    points: Points
    """of the polygon: shares of the picture, or pixels of a picture of frame_size"""
    frame_size: tuple[Pixels, Pixels] | None = None
    """[width, height] of the picture that pixels are of"""
    anchor: Anchor = "center"
    """the point of a box that must lie in the polygon"""

    def scaled(self, width: float, height: float) -> list[Point]:
        """The polygon in pixels of a picture of this size."""
        return scaled(self.points, self.frame_size, width, height)


class TilesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """See `detectors.views.Tiling`."""

    columns: Side
    """side by side"""
    rows: Side
    """one above the other"""
    overlap: Annotated[float, msgspec.Meta(ge=MIN_OVERLAP, le=0.5)] = 0.1
    """of a tile, with its neighbours"""
    whole: bool = True
    """the model sees the whole picture, too"""


Roi = Points | RoiConfig
Tiles = str | TilesConfig


def roi_of(given: Sequence[Corner] | RoiConfig | None) -> RoiConfig | None:
    """The region of interest from its long or short form."""
    if given is None or isinstance(given, RoiConfig):
        return given
    return RoiConfig(points=list(given))


def tiling_of(given: str | TilesConfig | None) -> Tiling | None:
    """The tiles from their long or short form, which is checked."""
    if isinstance(given, TilesConfig):
        return Tiling(given.columns, given.rows, given.overlap, given.whole)
    found = _SHORT.fullmatch(given) if given is not None else None
    return Tiling(int(found[1]), int(found[2])) if found else None


def check_views(roi: Sequence[Corner] | RoiConfig | None, tiles: str | TilesConfig | None, where: str) -> None:
    """Check the views of a source beyond their types.

    Args:
        where: path of the source, with a dot behind it, or nothing.

    Raises:
        ConfigError: with the path of the key.
    """
    if isinstance(roi, RoiConfig):
        for problem in (
            *problems_of_coordinates([("points", roi.points)], roi.frame_size),
            *problems_of_polygon("points", roi.points, roi.frame_size),
        ):
            raise ConfigError(f"{where}roi.{problem}")
    elif roi is not None:
        remedy = "roi: {points: [...], frame_size: [width, height]}"
        for problem in (
            *problems_of_coordinates([("roi", list(roi))], None, remedy),
            *problems_of_polygon("roi", list(roi), None),
        ):
            raise ConfigError(f"{where}{problem}")
    if tiles is None:
        return
    tiling = tiling_of(tiles)
    if tiling is None:
        raise ConfigError(f"{where}tiles: {tiles!r} is not columns x rows, such as 2x2, with 1 to 8 of each")
    if tiling.columns == tiling.rows == 1:
        raise ConfigError(f"{where}tiles: one tile is the whole picture: leave the key out")
