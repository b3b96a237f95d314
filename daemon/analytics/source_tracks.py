"""The tracks of one source between two frames: what the tracker's step gets, and what it does not look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from daemon.analytics import motion
from daemon.analytics.grouping import Grouping
from daemon.analytics.source_time import WINDOW, SourceClock
from daemon.analytics.track_step import GROUP, ID, VOTES, Floats, Integers
from daemon.pipeline.frames import FrameInfo

Corners = npt.NDArray[np.float32]


_Young = tuple[tuple[Integers, Corners], int, int]
"""Unconfirmed tracks of a frame: `StepOutput.young`, and the first row of one source and the end."""


def _corners_of(young: _Young, number: int) -> Corners:
    """(1, 4), or (0, 4) if the track is not there."""
    (numbers, corners), begin, end = young
    found: Corners = corners[begin:end][numbers[begin:end] == number]
    return found


class Limits(Protocol):
    """The part of `daemon.analytics.tracker.TrackSettings` that time is compared with."""

    @property
    def timeout_ns(self) -> int: ...
    @property
    def memory_ns(self) -> int: ...
    @property
    def slow_ns(self) -> int: ...
    @property
    def near_slow_ns(self) -> int: ...


class SourceTracks:
    """The tracks of one source, a row each. One thread at a time uses it.

    Args:
        on_pace: called where frames become too few to track well, with their distance in ns, and with 0 where they are
            enough again.

    Attributes:
        rows: see `StepInput.tracks`.
        count: n.
        last_id: the highest id so far.
        births: number of tracks begun so far.
        dropped: ids of tracks that have ended before the newest frame's step.
        is_changing: there are unconfirmed or dropped tracks.
    """

    __slots__ = (
        "_clock", "_height", "_is_slow", "_on_pace", "_slow", "_width", "_young", "births", "count", "dropped",
        "grouping", "is_changing", "last_id", "rows",
    )  # fmt: skip

    def __init__(self, last_id: int = 0, on_pace: Callable[[int], None] | None = None) -> None:
        self.last_id = last_id
        self.births = self.count = 0
        self.grouping: Grouping | None = None
        self.dropped: list[int] = []
        self.is_changing = False
        self._clock = SourceClock()
        self._on_pace, self._is_slow = on_pace, False
        self._slow = 0  # frames for which to look at the pace
        self._width = self._height = 0
        self._young: list[_Young] = []  # of the last frames, the newest last

    def advance(self, frame: FrameInfo, own: Limits, grouping: Grouping, boxes: int) -> tuple[int, ...]:
        """Go to the next frame, which has so many boxes: the row of `StepInput.sources`.

        All tracks end where time jumps. They go on in a picture of another size.
        """
        clock, timeout_ns, memory_ns = self._clock, own.timeout_ns, own.memory_ns
        step = clock.advance(frame)
        if step is None or step > own.near_slow_ns or self._slow:
            timeout_ns = self._timeout_ns(step or 0, own)
            memory_ns = max(memory_ns, timeout_ns)
        has_jumped = step is None or step > memory_ns
        if has_jumped or self.grouping is not grouping or frame.width != self._width or frame.height != self._height:
            self._change(frame, grouping, has_jumped=has_jumped)
        return self.count, self.last_id, self.births, clock.now, step or 0, timeout_ns, memory_ns, boxes

    def _timeout_ns(self, step: int, own: Limits) -> int:
        """For how long a track may be unseen where frames may be far apart; tells whether they are."""
        self._slow = WINDOW if step > own.near_slow_ns else max(0, self._slow - 1)
        interval = self._clock.interval_ns if self._clock.is_settled else 0
        is_slow = interval > own.slow_ns or (self._is_slow and self._slow > 0)
        if is_slow != self._is_slow:
            self._is_slow = is_slow
            if self._on_pace is not None:
                self._on_pace(interval if is_slow else 0)
        return self._clock.timeout_ns(own.timeout_ns)

    def put_back(self, rows: Floats, count: int, last_id: int, births: int) -> None:
        """The tracks after the newest frame's step."""
        self.rows, self.count, self.last_id, self.births = rows, count, last_id, births

    def take_dropped(self) -> list[int]:
        dropped, self.dropped = self.dropped, []
        return dropped

    def remember(self, tracks: tuple[Integers, Corners], begin: int, end: int, confirm_hits: int) -> None:
        """Note the unconfirmed tracks of the newest frame, for as long as they can be confirmed.

        Args:
            tracks: `StepOutput.young`.
            begin, end: the rows of this source.
        """
        young = self._young
        if begin < end and confirm_hits > 1:
            young.append((tracks, begin, end))
            if len(young) >= confirm_hits:
                del young[: 1 - confirm_hits]
            self.is_changing = True
        elif young or self.is_changing:
            young.clear()
            self.is_changing = False

    def earlier(self, number: int) -> Corners:
        """The boxes (k, 4) of a track before it was confirmed; it had one in each frame."""
        return np.concatenate([np.empty((0, 4), np.float32), *(_corners_of(young, number) for young in self._young)])

    def _change(self, frame: FrameInfo, grouping: Grouping, *, has_jumped: bool) -> None:
        """Tracks end, or go on with other labels, or in a picture of another size."""
        if self.grouping is None:
            self.rows = np.empty((0, VOTES + grouping.width))
        elif has_jumped:
            self._keep(np.empty((0, VOTES + grouping.width)))
        elif self.grouping is not grouping:
            self._regroup(self.grouping, grouping)
        if self.count and (frame.width, frame.height) != (self._width, self._height):
            self._scale(frame.width / self._width, frame.height / self._height)
        self.grouping, self._width, self._height = grouping, frame.width, frame.height

    def _regroup(self, old: Grouping, new: Grouping) -> None:
        groups, votes = old.moved(self.rows.view(np.int64)[:, GROUP], self.rows[:, VOTES:].T, new)
        rows = np.concatenate((self.rows[:, :VOTES], votes.T), axis=1)
        rows.view(np.int64)[:, GROUP] = groups
        self._keep(rows[groups >= 0])

    def _keep(self, rows: Floats) -> None:
        """Go on with these tracks alone."""
        before, after = self.rows.view(np.int64)[:, ID], rows.view(np.int64)[:, ID]
        self.dropped += before[(before > 0) & ~np.isin(before, after)].tolist()
        self.rows, self.count, self.is_changing = rows, len(rows), True

    def _scale(self, across: float, down: float) -> None:
        rows = self.rows = self.rows.copy()
        motion.scale(rows.T, across, down)
        factors = np.array((across, down, across, down), np.float32)
        self._young = [((numbers, corners * factors), begin, end) for (numbers, corners), begin, end in self._young]
