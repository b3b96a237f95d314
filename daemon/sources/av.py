"""RTSP cameras and recordings through PyAV (FFmpeg), decoded on the CPU."""

from __future__ import annotations

from collections import deque
from time import perf_counter_ns
from typing import Any, cast

import av.error
import numpy as np
import numpy.typing as npt
from av.packet import Packet
from av.video.frame import VideoFrame

from daemon.config import AvConfig
from daemon.errors import DecodeError
from daemon.messages import FrameClock, VideoFormat
from daemon.sources.demux import Demuxer, words_of
from daemon.sources.port import Picture
from detectors.port import HostImage

_MOST_DELAYED = 32  # pictures in a decoder: 16 that H.264 may reorder, and one for each thread


class AvSource:
    """A URL or file. Anything with a scheme other than file:// is live; a file is a recording."""

    def __init__(self, config: AvConfig) -> None:
        self._config = config
        self._live = config.url.scheme not in ("", "file")
        self.once = not self._live and not config.loop
        self.paced = not self._live and config.pace == "realtime"
        self.clock = FrameClock("arrival") if self._live else FrameClock("file", 0)

    def open(self) -> AvReader:
        return AvReader(self._config, live=self._live)


class AvReader:
    """One connection; see `daemon.sources.port.Reader`."""

    def __init__(self, config: AvConfig, *, live: bool) -> None:
        self._config = config
        self._frames: deque[VideoFrame] = deque()
        self._decode = 0
        self._owed = 0  # pictures that the decoder has packets for and has not given yet
        self._demuxer = Demuxer(config, live=live)
        context = self._demuxer.stream.codec_context
        self.format = VideoFormat(context.name, context.width, context.height, self._demuxer.rate, "cpu")

    def read(self) -> Picture | None:
        while not self._frames:
            if self._owed > _MOST_DELAYED:
                self._give_up_one()
            packet = self._next_packet()
            if packet is None:
                return None
            self._decode_packet(packet)
        frame = self._frames.popleft()
        decode, self._decode = self._decode, 0
        time = self._demuxer.time_of(frame.pts, frame.time_base)
        sent_at = self._demuxer.sent_at(frame.pts, frame.time_base)
        return Picture(time, decode, lambda: _to_image(frame), sent_at)

    def close(self) -> None:
        self._frames.clear()
        self._demuxer.close()

    def _next_packet(self) -> Packet[Any] | None:
        """The next packet; None at the end of a recording that does not loop."""
        packet = self._demuxer.next()
        if packet is not None:
            return packet
        if self._owed > 0:
            self._give_up_one()
        if self._config.loop:
            self._demuxer.begin_again()
            return self._next_packet()
        self._demuxer.check_length()
        return None

    def _decode_packet(self, packet: Packet[Any]) -> None:
        started = perf_counter_ns()
        self._owed += packet.size > 0
        try:
            for frame in packet.decode():
                if isinstance(frame, VideoFrame):
                    self._frames.append(frame)
                    # Where pictures are interlaced a packet may hold one field, and the sum would not come out.
                    self._owed = 0 if frame.interlaced_frame else max(0, self._owed - 1)
        except (av.error.FFmpegError, OSError) as error:
            self._owed = max(0, self._owed - 1)
            raise DecodeError(f"a picture of {self._config.url} cannot be decoded: {words_of(error)}") from error
        finally:
            self._decode += perf_counter_ns() - started

    def _give_up_one(self) -> None:
        """FFmpeg drops what it cannot decode without a word; the sum of packets and pictures tells."""
        self._owed -= 1
        raise DecodeError(f"no picture came of a packet of {self._config.url}")


def _to_image(frame: VideoFrame) -> HostImage:
    try:
        return HostImage(cast("npt.NDArray[np.uint8]", frame.to_ndarray(format="bgr24", threads=1)))
    except (av.error.FFmpegError, ValueError, MemoryError) as error:
        raise DecodeError(
            f"a picture of {frame.width}x{frame.height} {frame.format.name} has no BGR form: {error}"
        ) from error
