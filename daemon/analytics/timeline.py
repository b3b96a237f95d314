"""The analysed frames of one source: their time, and the frames that were lost between them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from daemon.analytics.event import Unseen
from daemon.analytics.source_time import gap_ns
from daemon.pipeline.frames import FrameInfo

_MAX_GAPS = 256


class Moment(NamedTuple):
    """A frame in which something began.

    Attributes:
        frame: the first frame that shows it.
        before: time of the frame before that one, ns.
        lost: number of frames lost before that one.
    """

    frame: FrameInfo
    before: int
    lost: int


class Timeline:
    """Source time from 0 at the first frame. It never goes back, whatever the source's pts do.

    Attributes:
        now: the time of the newest frame, ns.
        frame: the newest frame.
    """

    def __init__(self, frame: FrameInfo) -> None:
        self.now = 0
        self.frame = frame
        self._before = self._lost = self._lost_before = 0
        # Ends and lengths of gaps, the oldest first; each is longer than all that come later.
        self._gaps: deque[tuple[int, int]] = deque(maxlen=_MAX_GAPS)

    def advance(self, frame: FrameInfo) -> None:
        """Go on to the source's next analysed frame."""
        gap = gap_ns(self.frame, frame)
        self._before, self._lost_before = self.now, self._lost
        self._lost += max(0, frame.seq - self.frame.seq - 1)
        self.now += gap
        gaps = self._gaps
        while gaps and gaps[-1][1] <= gap:
            gaps.pop()
        gaps.append((self.now, gap))
        self.frame = frame

    def moment(self) -> Moment:
        """Mark the newest frame as the one in which something began."""
        return Moment(self.frame, self._before, self._lost_before)

    def unseen(self, since: Moment) -> Unseen:
        """Frames lost from the frame before a moment up to the newest frame."""
        longest = next((gap for end, gap in self._gaps if end > since.before), 0)
        return Unseen(self._lost - since.lost, longest)
