"""The time of a source's analysed frames, on the source's own timeline."""

from __future__ import annotations

from collections import deque

from daemon.pipeline.frames import FrameInfo

WINDOW = 8  # steps between frames that are remembered
INTERVALS = 3  # of the source, for which a track is kept at least
_STEP_BACK_NS = 500_000_000  # or as many intervals; a longer step back is a jump


def elapsed_ns(before: FrameInfo, after: FrameInfo) -> int:
    """Source time between two frames of one source, ns; negative where the source jumps back.

    A new connection to a camera may begin a new timeline, so the time of capture counts there. A recording's frames are
    captured at any speed, and only their own times count.
    """
    begin, end = before.pts, after.pts
    if begin is not None and end is not None and (before.session == after.session or _is_recorded(after)):
        return end - begin
    return after.captured_ns - before.captured_ns


class SourceClock:
    """The time of one source, ns from 0 at its first analysed frame. It never goes back, whatever the frames say.

    Frames' times tremble, and a camera corrects its own. A step back by a few frames counts as a step of usual length.
    Steps after it that are longer than usual make up for that. So neither one wrong time nor a corrected timeline makes
    durations wrong by more than the step. A longer step back is a jump: no time passes.

    Attributes:
        now: time of the newest frame.
    """

    __slots__ = ("_ahead", "_last", "_steps", "now")

    def __init__(self) -> None:
        self.now = 0
        self._last: FrameInfo | None = None
        self._steps = deque[int](maxlen=WINDOW)
        self._ahead = 0  # of the frames' own times, ns

    def advance(self, frame: FrameInfo) -> int | None:
        """Go on to the next frame: ns since the one before, at least 0; None where time jumps back."""
        last, self._last = self._last, frame
        if last is None:
            return 0
        if last.session == frame.session and (begin := last.pts) is not None and (end := frame.pts) is not None:
            step = end - begin  # as `elapsed_ns`, without a call: it is asked for each frame
        else:
            step = elapsed_ns(last, frame)
        if step < 0 or self._ahead:
            return self._corrected(step, is_new=last.session != frame.session)
        self._steps.append(step)
        self.now += step
        return step

    def _corrected(self, step: int, *, is_new: bool) -> int | None:
        usual, frame = self.interval_ns, self._last
        if is_new:
            self._ahead = 0
        if step >= 0:
            passed = max(step - self._ahead, min(step, usual))
        elif -step > max(_STEP_BACK_NS, INTERVALS * usual) or (is_new and frame and _is_recorded(frame)):
            self._ahead = 0
            return None
        else:
            passed = usual
        self._ahead += passed - step
        self._steps.append(passed)
        self.now += passed
        return passed

    @property
    def is_settled(self) -> bool:
        """Whether there were steps enough to speak of a rate."""
        return len(self._steps) > WINDOW // 2

    @property
    def interval_ns(self) -> int:
        """The usual time between two analysed frames, the median of the last few; 0 before the second frame."""
        steps = self._steps
        return sorted(steps)[(len(steps) - 1) // 2] if steps else 0

    def timeout_ns(self, configured_ns: int) -> int:
        """For how long a track may be unseen: as long as configured, but at least three of the source's own intervals.

        Of the last few steps the longest but one counts. So one gap changes nothing, and a source that has become slow
        is known to be slow by its second frame.
        """
        steps = self._steps
        if not steps or INTERVALS * max(steps) <= configured_ns:
            return configured_ns
        second_max = sorted(steps)[-2:][0]
        return max(configured_ns, INTERVALS * second_max)


def _is_recorded(frame: FrameInfo) -> bool:
    return frame.clock.kind == "file"
