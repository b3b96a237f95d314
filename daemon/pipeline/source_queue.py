"""The frames of one source on a board."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from daemon.pipeline.frames import Frame


class SourceQueue:
    """
    Attributes:
        in_flight: a lane has a frame of the source.
        held: calls of `FrameBoard.hold` that are not over.
        gone: the source was removed while it was in flight.
        after_last: called when the last frames of a source that is gone are through.
        waits_for_room: the capture thread waits for room, or until its last frame is in the outbox.
        wake: wakes the capture thread; None before it listens, and once the source is gone.
        replaces: a newer frame replaces an older one.
        depth: maximum number of frames.
    """

    __slots__ = ("after_last", "depth", "frames", "gone", "held", "in_flight", "replaces", "waits_for_room", "wake")

    def __init__(self) -> None:
        self.frames: deque[Frame] = deque()
        self.replaces, self.depth, self.held = False, 1, 0
        self.in_flight = self.gone = self.waits_for_room = False
        self.after_last: list[Callable[[], None]] = []
        self.wake: Callable[[], None] | None = None

    def tell(self) -> None:
        """Wake the capture thread, if it waits."""
        if self.waits_for_room:
            self.waits_for_room = False
            if self.wake is not None:
                self.wake()
