"""Frames that a lane takes at once."""

from __future__ import annotations

from daemon.pipeline.frames import Frame
from detectors.port import Size


class Batch:
    """Frames that a lane has taken.

    Attributes:
        frames: empty if none came in time.
        size: input size at which the model looks at them; None for its own.
        claimed: the lane accounts for the frames. `abandon` accounts for frames that no lane has claimed.
    """

    __slots__ = ("claimed", "frames", "size")

    def __init__(self, frames: list[Frame], size: Size | None = None) -> None:
        self.frames, self.size = frames, size
        self.claimed = not frames

    def note_claimed(self) -> None:
        """The lane accounts for the frames from now on."""
        self.claimed = True
