"""The analysed frames of one source: their time, and the frames that were lost between them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec

from daemon.analytics.event import Unseen
from daemon.analytics.source_time import SourceClock
from daemon.pipeline.frames import FrameInfo

_MAX_GAPS = 256


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """An analysed frame.

    Attributes:
        at: its time, ns.
        lost: number of frames lost before it, since the start.
    """

    at: int
    lost: int
    frame: FrameInfo


class Moment(NamedTuple):
    """The frame in which something began, and the analysed frame before that one."""

    frame: FrameInfo
    before: Stamp


class Timeline:
    """Source time from 0 at the first frame. It never goes back, whatever the source's pts do.

    Args:
        kept: frames before the newest that are remembered.

    Attributes:
        stamp: the newest frame.
        clock: the source's time.
    """

    def __init__(self, frame: FrameInfo, kept: int) -> None:
        self.clock = SourceClock()
        self.clock.advance(frame)
        self.stamp = Stamp(0, 0, frame)
        self._stamps = deque([self.stamp, self.stamp], kept + 2)  # the first frame stands for the one before it
        # Ends and lengths of gaps, the oldest first; each is longer than all that come later.
        self._gaps: deque[tuple[int, int]] = deque(maxlen=_MAX_GAPS)

    def advance(self, frame: FrameInfo) -> int:
        """Go on to the source's next analysed frame, and give its time, ns."""
        before, clock = self.stamp, self.clock
        gap = clock.advance(frame) or 0
        lost = frame.seq - before.frame.seq - 1
        now = clock.now
        stamp = self.stamp = Stamp(now, before.lost + lost if lost > 0 else before.lost, frame)
        self._stamps.append(stamp)
        gaps = self._gaps
        while gaps and gaps[-1][1] <= gap:
            gaps.pop()
        gaps.append((now, gap))
        return now

    def keep(self, count: int) -> None:
        """Remember so many frames before the newest from now on."""
        self._stamps = deque(self._stamps, count + 2)

    def moment(self, back: int = 0) -> Moment:
        """Mark the newest frame, or one before it, as the one in which something began."""
        return Moment(self._stamps[-1 - back].frame, self._stamps[-2 - back])

    def latest(self, count: int) -> list[Stamp]:
        """The frames before the newest, the oldest first: so many, or as many as there were."""
        count = min(count, len(self._stamps) - 2)
        return [self._stamps[place] for place in range(-1 - count, -1)]

    def unseen(self, since: Stamp) -> Unseen:
        """Frames lost between an earlier frame and the newest one."""
        at, longest_ns = since.at, 0
        for end, gap in self._gaps:
            if end > at:
                longest_ns = gap
                break
        return Unseen(self.stamp.lost - since.lost, longest_ns)
