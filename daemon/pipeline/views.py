"""The view of each source: the part of its pictures that the model sees, whole or in tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor
from typing import TypeAlias

import numpy as np

from daemon.config.root import Config
from daemon.config.sources import SourceConfig
from daemon.errors import ConfigError
from daemon.geometry import Edge, edges_of, is_inside
from daemon.pipeline.frames import Frame
from daemon.rule_config import ANCHOR_WEIGHTS, Anchor
from detectors.detections import Detections
from detectors.port import Lane, ModelInfo, Region, Size, StageTimes
from detectors.views import Limits, Tiling, detect

_Corners: TypeAlias = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class SourceView:
    """The part of a source's pictures that the model sees.

    Attributes:
        polygon: corners of the region of interest, as shares of the picture; empty for the whole picture.
        anchor: the point of a box that must lie in the polygon.
        tiling: of the polygon's hull; None for the hull alone.
    """

    polygon: _Corners
    anchor: Anchor
    tiling: Tiling | None

    @property
    def pictures(self) -> int:
        """Pictures that the model sees for one frame."""
        return self.tiling.pictures if self.tiling else 1


@dataclass(frozen=True)
class PlacedView:
    """A `SourceView` in a picture of some size.

    Attributes:
        regions: that the model sees.
        edges: of the polygon, in pixels; empty for the whole picture.
    """

    regions: tuple[Region, ...]
    edges: tuple[Edge, ...]


def view_of(source: SourceConfig) -> SourceView | None:
    """The view of a source; None if the model sees the whole picture, once."""
    roi, tiles = source.region, source.tiling
    if roi is None and tiles is None:
        return None
    corners = tuple(roi.scaled(1, 1)) if roi else ()
    tiling = Tiling(tiles.columns, tiles.rows, tiles.overlap, tiles.whole) if tiles else None
    return SourceView(corners, roi.anchor if roi else "center", tiling)


@lru_cache(maxsize=1024)
def placed(view: SourceView, width: int, height: int) -> PlacedView:
    """A view in a picture of this size. The hull of the polygon grows to whole pixels."""
    corners = [(x * width, y * height) for x, y in view.polygon]
    hull = Region(0, 0, width, height)
    if corners:
        left, right = (limit(side(x for x, _ in corners)) for limit, side in ((floor, min), (ceil, max)))
        top, bottom = (limit(side(y for _, y in corners)) for limit, side in ((floor, min), (ceil, max)))
        left, top = min(left, width - 1), min(top, height - 1)
        hull = Region(left, top, max(1, min(right, width) - left), max(1, min(bottom, height) - top))
    regions = view.tiling.regions(hull) if view.tiling else (hull,)
    return PlacedView(regions, edges_of(corners, closed=True) if corners else ())


def check_views(config: Config, info: ModelInfo) -> None:
    """Check the views of all sources against the model.

    Raises:
        ConfigError: the results of the model's task cannot be merged.
    """
    task = info.head.rpartition("-")[2]
    if task not in ("segment", "classify"):
        return
    for source in config.active:
        if source.tiles is not None:
            what = "masks" if task == "segment" else "classes of the whole picture"
            raise ConfigError(
                f"sources, id {source.id}, tiles: the model {info.name} gives {what}, which tiles cannot be merged to: "
                "leave tiles out, or use a model that detects boxes"
            )


class SourceViews:
    """The views of all sources. Lanes use them while the thread of changes replaces them.

    Args:
        own_size: the model's own input size.

    Attributes:
        active: views by source; empty if the model sees all pictures whole. Replaced as a whole.
        sizes: input sizes by source, where they are not the model's own. Replaced as a whole.
    """

    def __init__(self, config: Config | None = None, own_size: Size | None = None) -> None:
        self.active: Mapping[str, SourceView] = {}
        self.sizes: Mapping[str, Size] = {}
        self._limits = Limits(0.45, 300)
        self._listeners: list[Callable[[Mapping[str, int]], None]] = []
        self._size_listeners: list[Callable[[Mapping[str, Size]], None]] = []
        if config:
            self.configure(config, own_size)

    @property
    def pictures(self) -> dict[str, int]:
        """Pictures that the model sees for a frame of each source, where they are several."""
        return {source: view.pictures for source, view in self.active.items() if view.pictures > 1}

    def add_listener(self, listener: Callable[[Mapping[str, int]], None]) -> None:
        """Call it with `pictures`, now and after each change. Before the threads start."""
        self._listeners.append(listener)
        listener(self.pictures)

    def add_size_listener(self, listener: Callable[[Mapping[str, Size]], None]) -> None:
        """Call it with `sizes`, likewise."""
        self._size_listeners.append(listener)
        listener(self.sizes)

    def configure(self, config: Config, own_size: Size | None = None) -> None:
        """Put a checked configuration into effect, while lanes work.

        Args:
            own_size: the model's own input size.
        """
        self._limits = Limits(config.model.iou, max(1024, config.model.max_detections))
        self.active = {source.id: view for source in config.active if (view := view_of(source))}
        sizes = ((source.id, source.model_size) for source in config.active)
        self.sizes = {id: size for id, size in sizes if size and size != own_size}
        for listener in self._listeners:
            listener(self.pictures)
        for size_listener in self._size_listeners:
            size_listener(self.sizes)

    def detect(self, lane: Lane, frames: Sequence[Frame], info: ModelInfo) -> tuple[list[Detections], StageTimes]:
        """Detections of frames in coordinates of their pictures, and the sum of the times of all batches.

        Raises:
            DetectorError: the backend failed.
        """
        active = self.active
        places = [
            placed(view, frame.image.width, frame.image.height) if (view := active.get(frame.info.source)) else None
            for frame in frames
        ]
        regions = [place.regions if place else () for place in places]
        found, times = detect(lane, [frame.image for frame in frames], regions, info.max_batch, self._limits)
        if info.head == "classify":  # its box is the hull, whose centre may lie outside
            return found, times
        for number, (frame, place) in enumerate(zip(frames, places)):
            if place and place.edges and (view := active.get(frame.info.source)):
                found[number] = _inside(found[number], place.edges, view.anchor)
        return found, times


def _inside(found: Detections, edges: Sequence[Edge], anchor: Anchor) -> Detections:
    """The boxes whose anchor lies in a polygon."""
    share = ANCHOR_WEIGHTS[anchor]
    rows = [
        number
        for number, (left, top, right, bottom) in enumerate(found.xyxy.tolist())
        if is_inside((left + right) / 2, top + share * (bottom - top), edges)
    ]
    return found if len(rows) == len(found) else found.select(np.array(rows, np.intp))
