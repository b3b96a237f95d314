"""An MP4 file of pictures, each at its own time."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from av.video.stream import VideoStream

from daemon.errors import LookoutError
from daemon.pipeline.drawing import Picture

TICKS_S = 90_000
_CODERS = ("libx264", "libopenh264", "mpeg4")  # the first that FFmpeg has
_SETTINGS = {"libx264": {"preset": "veryfast", "crf": "23", "g": "60", "bf": "0"}}
# Readable up to the last key picture at any moment, after a power cut as well; a closed file has one table, as all
# players want it.
_OPTIONS = {"movflags": "hybrid_fragmented+frag_keyframe", "flush_packets": "1"}


def reserve(path: Path) -> None:
    """Make an empty file, which nobody else makes meanwhile.

    Raises:
        LookoutError: it exists, or cannot be written.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except FileExistsError as error:
        raise LookoutError(f"{path} already exists: choose another name for --save-video") from error
    except OSError as error:
        raise LookoutError(f"{path} cannot be written: {error.strerror}") from error


class VideoFile:
    """Encodes pictures of one size; others are stretched to that of the first. One thread calls it.

    Attributes:
        path: of the file.
        frames: pictures in it.
        last: time of the last one, ticks from the first.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.frames, self.last = path, 0, -1
        self._output: Any = None
        self._stream: VideoStream | None = None

    def add(self, picture: Picture, ticks: int) -> None:
        """Add a picture (height, width, 3), BGR. A time that is not behind that of the one before becomes so.

        Raises:
            OSError: the file cannot be written.
        """
        stream = self._stream or self._open(picture)
        size = (stream.width, stream.height)
        if (picture.shape[1], picture.shape[0]) != size:
            picture = np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)
        frame = av.VideoFrame.from_ndarray(picture, format="bgr24")
        self.last = max(ticks, self.last + 1)
        frame.pts, frame.time_base = self.last, Fraction(1, TICKS_S)
        self._output.mux(stream.encode(frame))
        self.frames += 1

    def close(self) -> None:
        """Write what the encoder holds, and end the file. One without pictures is removed. A second call does nothing.

        Raises:
            OSError: the file cannot be written.
        """
        output, self._output = self._output, None
        if output is None:
            if not self.frames:
                self.path.unlink(missing_ok=True)
            return
        try:
            if self._stream is not None:
                output.mux(self._stream.encode(None))
        finally:
            output.close()

    def _open(self, picture: Picture) -> VideoStream:
        high, wide = picture.shape[:2]
        self._output = av.open(str(self.path), "w", format="mp4", options=_OPTIONS)
        coder = next(name for name in _CODERS if name in av.codecs_available)
        stream: VideoStream = self._output.add_stream(coder, options=_SETTINGS.get(coder, {}))
        stream.width, stream.height = wide - wide % 2 or 2, high - high % 2 or 2  # of halved colours
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = Fraction(1, TICKS_S)
        self._stream = stream
        return stream
