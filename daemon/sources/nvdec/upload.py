"""Decodes on the CPU and uploads on the thread that decodes.

If lanes did the upload, every picture of a batch would wait for it, and the bus would carry BGR, twice the bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import structlog
from av.video.frame import VideoFrame
from av.video.plane import VideoPlane

from daemon.sources.decode import SoftwareDecoder, bgr_of
from daemon.sources.nvdec.costs import picture_bytes
from daemon.sources.nvdec.port import UploadTarget
from detectors.port import DetectorError, Image

log = structlog.get_logger(__name__)
_FULL_RANGE = "yuvj420p"
_LAYOUTS = ("yuv420p", _FULL_RANGE)
_BT709 = 1  # AVCOL_SPC_BT709
_JPEG = 2  # AVCOL_RANGE_JPEG


class UploadingDecoder(SoftwareDecoder):
    """See `daemon.sources.decode.Decoder`. A picture that is not 8-bit 4:2:0, or is larger than the reserved memory,
    stays in host memory.

    Args:
        max_bytes: of a picture, reserved on the GPU.
        make: opens a target for a width and height; raises DetectorError.
        close_when_free: closes a target once its surfaces have been returned.
        on_close: releases the reserved memory.
    """

    def __init__(
        self,
        max_bytes: int,
        make: Callable[[int, int], UploadTarget],
        close_when_free: Callable[[UploadTarget], None],
        on_close: Callable[[], None],
    ) -> None:
        super().__init__()
        self._max_bytes, self._make, self._close_when_free, self._on_close = max_bytes, make, close_when_free, on_close
        self._target: UploadTarget | None = None
        self._size = (0, 0)
        self._closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._retire()
            self._on_close()

    def _load(self, frame: VideoFrame) -> Image:
        name, size = frame.format.name, (frame.width, frame.height)
        if name not in _LAYOUTS or picture_bytes(*size) > self._max_bytes:
            return bgr_of(frame)
        if self._target is None or self._size != size:
            self._retire()
            try:
                self._target, self._size = self._make(*size), size
            except DetectorError as error:
                log.warning("pictures that the CPU decodes stay in host memory", reason=str(error))
                self._max_bytes = 0
                return bgr_of(frame)
        full_range = name == _FULL_RANGE or frame.color_range == _JPEG
        return self._target.put(frame, frame.colorspace == _BT709, full_range)

    def _retire(self) -> None:
        target, self._target = self._target, None
        if target:
            self._close_when_free(target)


def interleave(frame: VideoFrame, rows: npt.NDArray[np.uint8]) -> None:
    """Convert a planar picture to NV12.

    Args:
        rows: output, (height + height / 2 rounded up, pitch) uint8.
    """
    width, height = frame.width, frame.height
    luma, *chroma = (_pixels(plane) for plane in frame.planes)
    rows[:height, :width] = luma
    for offset, plane in enumerate(chroma):
        rows[height:, offset : 2 * plane.shape[1] : 2] = plane


def _pixels(plane: VideoPlane) -> npt.NDArray[np.uint8]:
    """A view of a plane, (height, width) uint8."""
    raw = np.frombuffer(plane, np.uint8)  # type: ignore[call-overload]
    return np.asarray(raw[: plane.height * plane.line_size].reshape(plane.height, plane.line_size)[:, : plane.width])
