"""The analysed frames of one source: their time, and the frames that were lost between them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec

from daemon.analytics.event import Unseen
from daemon.analytics.source_time import elapsed_ns
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

    Attributes:
        stamp: the newest frame.
    """

    def __init__(self, frame: FrameInfo) -> None:
        self.stamp = self._before = Stamp(0, 0, frame)
        # Ends and lengths of gaps, the oldest first; each is longer than all that come later.
        self._gaps: deque[tuple[int, int]] = deque(maxlen=_MAX_GAPS)

    def advance(self, frame: FrameInfo) -> None:
        """Go on to the source's next analysed frame."""
        before = self._before = self.stamp
        last = before.frame
        gap = elapsed_ns(last, frame)
        gap = gap if gap > 0 else 0
        lost = frame.seq - last.seq - 1
        now = before.at + gap
        self.stamp = Stamp(now, before.lost + lost if lost > 0 else before.lost, frame)
        gaps = self._gaps
        while gaps and gaps[-1][1] <= gap:
            gaps.pop()
        gaps.append((now, gap))

    def moment(self) -> Moment:
        """Mark the newest frame as the one in which something began."""
        return Moment(self.stamp.frame, self._before)

    def unseen(self, since: Stamp) -> Unseen:
        """Frames lost between an earlier frame and the newest one."""
        at, longest_ns = since.at, 0
        for end, gap in self._gaps:
            if end > at:
                longest_ns = gap
                break
        return Unseen(self.stamp.lost - since.lost, longest_ns)
