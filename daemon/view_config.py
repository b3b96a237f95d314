"""The configuration of what the model sees of a source: a region of interest, and tiles. docs/models.md explains it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from daemon.rule_config import Anchor, Corner, Pixels, Points, scaled

if TYPE_CHECKING:
    from daemon.geometry import Point

Side = Annotated[int, msgspec.Meta(ge=1, le=8)]
MIN_OVERLAP = 0.02  # with less, two tiles see too little in common to recognise one object
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

    @property
    def pictures(self) -> int:
        """Pictures that the model sees for one frame."""
        return self.columns * self.rows + self.whole


Roi = Points | RoiConfig
Tiles = str | TilesConfig


def roi_of(given: Sequence[Corner] | RoiConfig | None) -> RoiConfig | None:
    """The region of interest from its long or short form."""
    if given is None or isinstance(given, RoiConfig):
        return given
    return RoiConfig(points=list(given))


def tiles_of(given: str | TilesConfig | None) -> TilesConfig | None:
    """The tiles from their long or short form; None of a text that is neither."""
    if given is None or isinstance(given, TilesConfig):
        return given
    found = _SHORT.fullmatch(given)
    return TilesConfig(columns=int(found[1]), rows=int(found[2])) if found else None
