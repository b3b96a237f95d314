"""A confirmed track as rules see it: its box, completed where something hides a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from daemon.analytics.timeline import Stamp
from detectors.detections import TrackNews

Box = Sequence[float]  # x0, y0, x1, y1

REFRESH_NS = 1_000_000_000
MAX_HIDDEN_NS = 5_000_000_000  # then the object has another size
LEAST_HEIGHT, NOT_HIDDEN = 0.9, 0.95  # height over the steady height
AS_WIDE = 0.88  # width over the steady width, of an object whose lower part is hidden
FAR_TOP = 0.5  # of the loss in height, for the upper edge
BLEND = 0.5
_AT_EDGE = 0.5  # of the box's smaller side
MARGIN = 0.004  # share of the picture, within which a box is cut by the edge


class SeenTracks(Protocol):
    """The part of `detectors.detections.Tracks` that rules look at."""

    @property
    def id(self) -> npt.NDArray[np.int64]: ...
    @property
    def class_id(self) -> npt.NDArray[np.int32]: ...
    @property
    def xyxy(self) -> npt.NDArray[np.float32]: ...
    @property
    def news(self) -> TrackNews | None: ...


class Track:
    """Attributes:
    box: in the newest frame that shows the track, completed.
    stamp: that frame.
    x2, y: twice the horizontal centre, and the height of the anchor, where all rules looked at the track.
    square_radius: while the square of the anchor's distance to that place is less, no rule needs to look. Negative
        while the box must be completed to know the anchor.
    completed_square_radius: likewise, for the anchor of the completed box.
    rules_due: time at which a rule looks in any case, ns.
    due: that time, or an earlier one at which the size must be looked at.
    refresh_due: time at which the size must be looked at.
    states: one for each rule of the source; None where the rule does not know the track yet.
    is_cut: the picture's edge cuts the box.
    hidden_since: time at which the lower part of the object went behind another one, ns; 0 while it is seen.
    is_plain: neither does the edge cut it, nor does something hide a part of the object.
    is_back: it was not in view when rules looked at it before: it is new, or was lost.
    """

    __slots__ = (
        "_steady_height", "_steady_top", "_steady_width", "box", "class_id", "completed_square_radius", "due",
        "hidden_since", "id", "is_back", "is_cut", "is_plain", "refresh_due", "rules_due", "square_radius", "stamp",
        "states", "x2", "y",
    )  # fmt: skip

    def __init__(self, id: int, rules: int) -> None:
        self.id, self.class_id = id, 0
        self.box: Box = (0.0, 0.0, 0.0, 0.0)
        self.stamp: Stamp
        self.x2 = self.y = 0.0
        self.square_radius = self.completed_square_radius = -1.0
        self.due = self.rules_due = self.refresh_due = 0
        self.states: list[Any] = [None] * rules
        self.is_cut, self.is_plain, self.is_back = False, True, True
        self._steady_width = self._steady_height = self._steady_top = 0.0
        self.hidden_since = 0

    @property
    def height(self) -> float:
        return self.box[3] - self.box[1]

    @property
    def least_height(self) -> float:
        """A plain box of this height, or a higher one, shows the whole object."""
        return LEAST_HEIGHT * self._steady_height

    @property
    def steady(self) -> list[float]:
        """Width, height and upper edge of the whole object's box."""
        return [self._steady_width, self._steady_height, self._steady_top]

    @steady.setter
    def steady(self, size: Sequence[float]) -> None:
        self._steady_width, self._steady_height, self._steady_top = size

    def is_at_edge(self, width: int, height: int) -> bool:
        """Whether the picture's edge is within half of the box's smaller side: such a track leaves the picture."""
        x0, y0, x1, y1 = self.box
        near = _AT_EDGE * min(x1 - x0, y1 - y0)
        return x0 < near or y0 < near or x1 > width - near or y1 > height - near

    def scale(self, across: float, down: float) -> None:
        """The pictures have another size from now on."""
        x0, y0, x1, y1 = self.box
        self.box = (x0 * across, y0 * down, x1 * across, y1 * down)
        self._steady_width *= across
        self._steady_height *= down
        self._steady_top *= down
        self.square_radius = self.completed_square_radius = -1.0

    def completed(self, box: Box, width: int, height: int, now: int) -> Box:
        """The box with its size before a part of it was hidden.

        Where the lower part of an object disappears behind another one, its lower edge jumps up and its upper edge
        does not. The picture's edges cut boxes in the same way.
        """
        x0, y0, x1, y1 = box
        across, down = width * MARGIN, height * MARGIN
        is_inside = x0 > across and y0 > down and x1 < width - across and y1 < height - down
        if is_inside and self.is_plain and now < self.refresh_due and y1 - y0 >= self.least_height:
            return box
        left, right, bottom = x0 <= across, x1 >= width - across, y1 >= height - down
        self.is_cut = not is_inside
        if not self._steady_height:
            self._refresh(box, now, 1.0)
            self.is_plain = not self.is_cut
            return box
        if self.is_cut:
            self.is_plain = False
            if left != right:
                x0, x1 = (min(x0, x1 - self._steady_width), x1) if left else (x0, max(x1, x0 + self._steady_width))
            return x0, y0, x1, max(y1, y0 + self._steady_height) if bottom else y1
        if self._is_hidden(x1 - x0, y0, y1 - y0, now):
            return x0, y0, x1, max(y1, y0 + self._steady_height)
        if now >= self.refresh_due or not self.is_plain:
            self._refresh(box, now, BLEND if self.is_plain else 1.0)
        return box

    def _is_hidden(self, width: float, top: float, height: float, now: int) -> bool:
        share = height / self._steady_height
        if self.hidden_since:
            if share < NOT_HIDDEN and width > AS_WIDE * self._steady_width:
                return now - self.hidden_since < MAX_HIDDEN_NS
            return False
        lost = self._steady_height - height
        is_flat = share < LEAST_HEIGHT and width > AS_WIDE * self._steady_width
        if is_flat and abs(top - self._steady_top) < FAR_TOP * lost:
            self.is_plain, self.hidden_since = False, max(1, now)
            return True
        return False

    def _refresh(self, box: Box, now: int, share: float) -> None:
        x0, y0, x1, y1 = box
        self._steady_width += share * (x1 - x0 - self._steady_width)
        self._steady_height += share * (y1 - y0 - self._steady_height)
        self._steady_top = y0
        self.refresh_due, self.hidden_since, self.is_plain = now + REFRESH_NS, 0, True
