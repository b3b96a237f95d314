"""RTSP cameras and recordings through PyAV (FFmpeg), decoded on the CPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from struct import Struct
from time import monotonic, perf_counter_ns
from typing import Any, Final, cast

import av
import av.error
import numpy as np
import numpy.typing as npt
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from daemon.config import AvConfig
from daemon.errors import DecodeError, SourceError
from daemon.messages import FrameClock, VideoFormat
from daemon.redact import scrub
from daemon.sources.port import Picture
from detectors.port import HostImage

_RTSP = ("rtsp", "rtsps")
# By default FFmpeg reads 20 frames before it says that it is open, to guess a rate that nobody here needs.
_RTSP_OPTIONS = {"fpsprobesize": "0"}
_WALL_CLOCK: Final = "prft"  # AV_PKT_DATA_PRFT: AVProducerReferenceTime, which begins with microseconds since 1970
_MICROSECONDS = Struct("=q")
_MOST_DELAYED = 32  # pictures in a decoder: 16 that H.264 may reorder, and one for each thread
# What FFmpeg's words mean when they come from opening.
_MEANING: dict[type[Exception], str] = {
    av.error.InvalidDataError: ": it is empty, cut short or not a video",
    av.error.OSError: ": the host name may be wrong, or the server closed the connection",
    av.error.HTTPUnauthorizedError: ": check user name and password",
}


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
    """One connection; see `daemon.sources.port.Reader`.

    A looped recording is opened again at its end, and its times go on where they were.
    """

    def __init__(self, config: AvConfig, *, live: bool) -> None:
        self._config, self._live = config, live
        self._frames: deque[VideoFrame] = deque()
        self._decode = 0
        self._owed = 0  # pictures that the decoder has packets for and has not given yet
        self._offset = 0  # ns, added to the times of this pass
        self._end = 0  # ns, where the next pass begins
        self._wall_clock: tuple[int, int] | None = None  # pts of the latest packet that told, and its UTC, ns
        self._begin: int | None = None  # ns, the first picture of this pass
        self._container, self._stream = _open(config)
        self._packets: Iterator[Packet[Any]] = self._container.demux(self._stream)
        self.format = _format(self._stream)

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
        return Picture(self._time_of(frame), decode, lambda: _to_image(frame), self._sent_at(frame))

    def close(self) -> None:
        self._frames.clear()
        self._container.close()

    def _next_packet(self) -> Packet[Any] | None:
        """The next packet; None at the end of a recording that does not loop."""
        started = monotonic()
        try:
            packet = next(self._packets, None)
        except av.error.EOFError:
            packet = None
        except (av.error.FFmpegError, OSError) as error:
            waited = monotonic() - started
            if waited >= self._config.read_timeout_s * 0.9:
                raise SourceError(f"no data from {self._config.url} for {waited:.1f} s") from error
            raise SourceError(f"{self._config.url} broke off: {_text(error)}") from error
        if packet is not None:
            if self._live:
                self._note_wall_clock(packet)
            return packet
        if self._live:
            raise SourceError(f"{self._config.url} ended the stream")
        if self._owed > 0:
            self._give_up_one()
        if self._config.loop:
            self._begin_again()
            return self._next_packet()
        self._check_length()
        return None

    def _note_wall_clock(self, packet: Packet[Any]) -> None:
        """From the second RTCP sender report on, FFmpeg attaches to packets what the camera's clock showed."""
        if packet.pts is not None and packet.has_sidedata(_WALL_CLOCK):
            (microseconds,) = _MICROSECONDS.unpack_from(bytes(packet.get_sidedata(_WALL_CLOCK)))
            self._wall_clock = (packet.pts, microseconds * 1000)

    def _sent_at(self, frame: VideoFrame) -> int | None:
        if self._wall_clock is None or frame.pts is None or frame.time_base is None:
            return None
        pts, utc = self._wall_clock
        return utc + int((frame.pts - pts) * frame.time_base * 1_000_000_000)

    def _begin_again(self) -> None:
        if self._end <= self._offset:
            raise SourceError(f"{self._config.url} holds no picture that can be decoded: nothing to loop")
        self._container.close()
        self._offset, self._begin = self._end, None
        self._container, self._stream = _open(self._config)
        self._packets = self._container.demux(self._stream)

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
            raise DecodeError(f"a picture of {self._config.url} cannot be decoded: {_text(error)}") from error
        finally:
            self._decode += perf_counter_ns() - started

    def _give_up_one(self) -> None:
        """FFmpeg drops what it cannot decode without a word; the sum of packets and pictures tells."""
        self._owed -= 1
        raise DecodeError(f"no picture came of a packet of {self._config.url}")

    def _check_length(self) -> None:
        """FFmpeg takes a file that was cut off for one that ends there; its own header knows better."""
        stated = _duration(self._container, self._stream)
        played = self._end - (self._begin or 0)
        if stated is not None and stated - played > max(1_000_000_000, stated // 20):
            url, ends = self._config.url, f"{played / 1e9:.1f} s of {stated / 1e9:.1f} s"
            raise SourceError(f"{url} is cut short: it ends after {ends}")

    def _time_of(self, frame: VideoFrame) -> int | None:
        if frame.pts is not None and frame.time_base is not None:
            time = self._offset + int(frame.pts * frame.time_base * 1_000_000_000)
        elif self._live:
            return None
        else:  # a bare H.264 file has no times: its rate must do
            time = self._end
        self._begin = time if self._begin is None else self._begin
        self._end = max(self._end, time + round(1e9 / (self.format.fps or 25.0)))
        return time


def _open(config: AvConfig) -> tuple[InputContainer, VideoStream]:
    options = _RTSP_OPTIONS | {"rtsp_transport": config.transport} if config.url.scheme in _RTSP else {}
    limits = (config.open_timeout_s, config.read_timeout_s)
    started = monotonic()
    try:
        container = av.open(config.url.reveal(), options=options | config.options, timeout=limits)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        waited = monotonic() - started
        if waited >= config.open_timeout_s * 0.9:
            raise SourceError(f"no answer from {config.url} within {config.open_timeout_s:g} s") from error
        raise SourceError(f"cannot open {config.url}: {_text(error)}{_MEANING.get(type(error), '')}") from error
    try:
        if not container.streams.video:
            kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
            raise SourceError(f"no video in {config.url}: it holds {kinds}")
        stream = container.streams.video[0]
        # A stream without a codec context crashes PyAV when it is decoded (PyAV #2344).
        if getattr(stream, "codec_context", None) is None:
            raise SourceError(f"{config.url}: its video codec is not known to this FFmpeg")
        stream.codec_context.thread_count = config.decode_threads
    except BaseException:
        container.close()
        raise
    return container, stream


def _format(stream: VideoStream) -> VideoFormat:
    rate = stream.average_rate or stream.guessed_rate
    context = stream.codec_context
    return VideoFormat(context.name, context.width, context.height, float(rate) if rate else None, "cpu")


def _duration(container: InputContainer, stream: VideoStream) -> int | None:
    """What the header states, ns."""
    if stream.duration is not None and stream.time_base is not None:
        return int(stream.duration * stream.time_base * 1_000_000_000)
    return None if container.duration is None else container.duration * 1000


def _to_image(frame: VideoFrame) -> HostImage:
    try:
        return HostImage(cast("npt.NDArray[np.uint8]", frame.to_ndarray(format="bgr24", threads=1)))
    except (av.error.FFmpegError, ValueError, MemoryError) as error:
        raise DecodeError(
            f"a picture of {frame.width}x{frame.height} {frame.format.name} has no BGR form: {error}"
        ) from error


def _text(error: Exception) -> str:
    """FFmpeg's own words, without the URL that PyAV adds to them."""
    words = error.strerror if isinstance(error, OSError | av.error.FFmpegError) and error.strerror else str(error)
    return scrub(words)
