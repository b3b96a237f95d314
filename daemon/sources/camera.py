"""USB and other local cameras through OpenCV."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

import cv2
import numpy as np

from daemon.config.sources import CameraConfig
from daemon.errors import SourceError
from daemon.files import is_device
from daemon.sources.port import DecodeBudget, Picture
from daemon.sources.shape import rotated, rotated_format
from detectors.port import HostImage, Image
from lookout.messages import FrameClock, VideoFormat

_ERROR = 2
# OpenCV's warnings do not go through our log. OpenCV 4 and 5 have this function in different places.
getattr(getattr(cv2.utils, "logging", cv2), "setLogLevel")(_ERROR)  # noqa: B009 - typed in neither


class CameraSource:
    """A V4L2 device by number or path. OpenCV chooses the backend for any other text, such as a GStreamer pipeline."""

    plays_once = False
    live = True
    realtime = False
    has_next = False
    clock = FrameClock("arrival")

    def __init__(self, config: CameraConfig) -> None:
        self._config = config

    def open(self, budget: DecodeBudget | None = None) -> CameraReader:  # noqa: ARG002 - skips nothing
        return CameraReader(self._config)


class CameraReader:
    """See `daemon.sources.port.Reader`. OpenCV gives up on a silent V4L2 device after 10 s."""

    def __init__(self, config: CameraConfig) -> None:
        self._device, self._turns = config.device, config.rotate // 90
        is_v4l2 = isinstance(config.device, int) or is_device(config.device)
        if _is_pipe(config.device):
            raise SourceError(f"cannot open camera {config.device}: it is a pipe, which OpenCV would wait for")
        self._capture = cv2.VideoCapture(config.device, cv2.CAP_V4L2 if is_v4l2 else cv2.CAP_ANY)
        if not self._capture.isOpened():
            self._capture.release()
            raise SourceError(f"cannot open camera {config.device}: is it plugged in, free, and readable by this user?")
        if config.fourcc:
            self._capture.set(cv2.CAP_PROP_FOURCC, cv2.VideoWriter.fourcc(*config.fourcc))
        for prop, value in (
            (cv2.CAP_PROP_FRAME_WIDTH, config.width),
            (cv2.CAP_PROP_FRAME_HEIGHT, config.height),
            (cv2.CAP_PROP_FPS, config.fps),
            (cv2.CAP_PROP_BUFFERSIZE, 1),  # the freshest picture, not the oldest
        ):
            if value is not None:
                self._capture.set(prop, value)
        self.format = rotated_format(self._format(), self._turns)

    def read(self) -> Picture | None:
        if not self._capture.grab():
            raise SourceError(f"camera {self._device} gives no more pictures")
        return Picture(None, 0, self._load)

    def close(self) -> None:
        self._capture.release()

    def _load(self) -> Image:
        found, image = self._capture.retrieve()
        if not found:
            raise SourceError(f"camera {self._device} gave a picture that cannot be read")
        picture = HostImage(np.ascontiguousarray(image, dtype=np.uint8))
        return rotated(picture, self._turns) if self._turns else picture

    def _format(self) -> VideoFormat:
        def get(prop: int) -> float:
            return self._capture.get(prop)

        code = int(get(cv2.CAP_PROP_FOURCC))
        codec = "".join(chr(code >> shift & 0xFF) for shift in (0, 8, 16, 24)) if code > 0 else "unknown"
        return VideoFormat(
            codec,
            int(get(cv2.CAP_PROP_FRAME_WIDTH)),
            int(get(cv2.CAP_PROP_FRAME_HEIGHT)),
            get(cv2.CAP_PROP_FPS) or None,
            "opencv",
        )


def _is_pipe(device: int | str) -> bool:
    with suppress(OSError):
        return isinstance(device, str) and stat.S_ISFIFO(os.stat(device).st_mode)
    return False
