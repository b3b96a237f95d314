"""The shape of a connection's pictures: a camera may change their size and their rotation at any time."""

from __future__ import annotations

import msgspec

from daemon.sources.rotation import rotated_format
from lookoutd.messages import VideoFormat


class StreamShape:
    """
    Args:
        turns: quarter turns clockwise that make a picture upright, if the video states none.
        follows: the turns that the video states count.

    Attributes:
        format: of upright pictures.
        turns: of the last picture.
    """

    format: VideoFormat

    def __init__(self, turns: int, *, follows: bool) -> None:
        self._default, self._follows = turns, follows
        self._stated: int | None = None  # in the video itself
        self.turns = turns
        self._seen: VideoFormat  # as in the stream

    def begin(self, seen: VideoFormat) -> None:
        """Another stream: its format, before it is rotated."""
        self._seen = seen
        self._update()

    def set_rate(self, fps: float | None) -> None:
        self._seen = msgspec.structs.replace(self._seen, fps=fps)
        self._update()

    def turns_of(self, stated: int | None) -> int:
        """Quarter turns of a picture. Those that the video states hold until it states others.

        Args:
            stated: with this picture.
        """
        if self._follows and stated is not None:
            self._stated = stated
        return self._default if self._stated is None else self._stated

    def forget_stated(self) -> None:
        """The video begins anew, with other parameter sets."""
        self._stated = None

    def note(self, size: tuple[int, int], turns: int, pixel_aspect: float) -> bool:
        """Note the shape of a picture; whether it differs from the last one.

        Args:
            size: as in the stream.
        """
        seen = self._seen
        if (seen.width, seen.height, seen.pixel_aspect, self.turns) == (*size, pixel_aspect, turns):
            return False
        self.turns = turns
        self._seen = msgspec.structs.replace(seen, width=size[0], height=size[1], pixel_aspect=pixel_aspect)
        self._update()
        return True

    def _update(self) -> None:
        self.format = rotated_format(self._seen, self.turns)
