"""The time of frames on their source's own timeline."""

from __future__ import annotations

from daemon.pipeline.frames import FrameInfo


def source_time(info: FrameInfo) -> int:
    """The time of a frame, ns: its pts, or the time of its capture where the source has no pts."""
    return info.captured_ns if info.pts is None else info.pts


def gap_ns(before: FrameInfo, after: FrameInfo) -> int:
    """Source time between two frames of one source, ns, never negative.

    The times of capture decide where the timeline of one of the frames is not that of the other: after a reconnect,
    at a jump backwards, or where only one of them has a pts.
    """
    if before.session == after.session and (before.pts is None) == (after.pts is None):
        gap = source_time(after) - source_time(before)
        if gap > 0:
            return gap
    return max(0, after.captured_ns - before.captured_ns)
