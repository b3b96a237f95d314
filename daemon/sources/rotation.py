"""Pictures upright: quarter turns of what a camera on its side, or a telephone, has recorded."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import av.error
import cv2
import msgspec
import numpy as np
from av.video.frame import VideoFrame

from daemon.config import AvConfig
from daemon.errors import SourceError
from daemon.messages import VideoFormat
from daemon.sources.connection import connect
from detectors.port import HostImage, Image

_CV2: Final = {1: cv2.ROTATE_90_CLOCKWISE, 2: cv2.ROTATE_180, 3: cv2.ROTATE_90_COUNTERCLOCKWISE}
_LOOKED_AT = 32  # packets without a picture before it is given up


def turned(image: Image, turns: int) -> Image:
    """A picture after so many quarter turns clockwise. One on a GPU is turned where it is read.

    Args:
        turns: 1, 2 or 3.
    """
    if isinstance(image, HostImage):
        return HostImage(np.asarray(cv2.rotate(image.bgr, _CV2[turns]), np.uint8))
    width, height = (image.height, image.width) if turns % 2 else (image.width, image.height)
    return msgspec.structs.replace(image, width=width, height=height, turns=(image.turns + turns) % 4)


def upright(format: VideoFormat, turns: int) -> VideoFormat:
    """Of a source, after so many quarter turns."""
    if turns % 2 == 0:
        return format
    return msgspec.structs.replace(
        format, width=format.height, height=format.width, pixel_aspect=round(1 / format.pixel_aspect, 6)
    )


def turns_of(config: AvConfig, *, live: bool) -> int:
    """Quarter turns clockwise that a source wants; where it is to be found out, what a recording says of itself.

    FFmpeg tells with a picture and not before, so that the first one is decoded here, over a connection of its own and
    with the same limits. A camera's stream says nothing.
    """
    if config.rotate != "auto":
        return config.rotate // 90
    if live:
        return 0
    with suppress(SourceError, av.error.FFmpegError, OSError, ValueError), connect(config).container as container:
        for packet, _ in zip(container.demux(video=0), range(_LOOKED_AT)):
            for frame in packet.decode():
                if isinstance(frame, VideoFrame):
                    return round(-frame.rotation / 90) % 4  # FFmpeg counts the other way
    return 0
