"""The shape of a connection's pictures, which a camera may change at any time: their size, and the quarter turns for
those of cameras and telephones that were not held upright.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import av.error
import cv2
import msgspec
import numpy as np
from av.video.frame import VideoFrame

from daemon.config.sources import AvConfig
from daemon.errors import SourceError
from daemon.sources.connection import connect
from daemon.sources.decode import turns_of_picture
from detectors.port import HostImage, Image
from lookout.messages import VideoFormat

_CV2: Final = {1: cv2.ROTATE_90_CLOCKWISE, 2: cv2.ROTATE_180, 3: cv2.ROTATE_90_COUNTERCLOCKWISE}
_MAX_PACKETS = 32  # packets without a picture


def rotated(image: Image, turns: int) -> Image:
    """Rotate a picture clockwise. A picture on a GPU is only marked: the kernel that reads it rotates.

    Args:
        turns: quarter turns, 1 to 3.
    """
    if isinstance(image, HostImage):
        return HostImage(np.asarray(cv2.rotate(image.bgr, _CV2[turns]), np.uint8), corrupt=image.corrupt)
    width, height = (image.height, image.width) if turns % 2 else (image.width, image.height)
    return msgspec.structs.replace(image, width=width, height=height, turns=(image.turns + turns) % 4)


def rotated_format(format: VideoFormat, turns: int) -> VideoFormat:
    """The format after a number of quarter turns."""
    if turns % 2 == 0:
        return format
    return msgspec.structs.replace(
        format, width=format.height, height=format.width, pixel_aspect=round(1 / format.pixel_aspect, 6)
    )


def turns_of(config: AvConfig, *, live: bool) -> int:
    """Quarter turns clockwise for a source; with `rotate: auto`, the rotation that a recording's metadata states.

    FFmpeg gives the rotation with a picture, so the first picture is decoded here, over a connection of its own with
    the same limits. A live stream has no such metadata.
    """
    if config.rotate != "auto":
        return config.rotate // 90
    if live:
        return 0
    with suppress(SourceError, av.error.FFmpegError, OSError, ValueError):
        found = connect(config, explains=False)
        with found.container as container:
            for packet, _ in zip(container.demux(found.stream), range(_MAX_PACKETS)):
                for frame in packet.decode():
                    if isinstance(frame, VideoFrame):
                        return turns_of_picture(frame)
    return 0


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
