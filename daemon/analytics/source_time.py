"""The time of frames on their source's own timeline."""

from __future__ import annotations

from daemon.pipeline.frames import FrameInfo


def elapsed_ns(before: FrameInfo, after: FrameInfo) -> int:
    """Source time between two frames of one source, ns; negative where the source jumps back.

    A new connection to a camera may begin a new timeline, so the time of capture counts there. A recording's frames are
    captured at any speed, and only their own times count.
    """
    begin, end = before.pts, after.pts
    if begin is not None and end is not None and (before.session == after.session or after.clock.kind == "file"):
        return end - begin
    return after.captured_ns - before.captured_ns
