"""Connections and recordings as packets, through PyAV (FFmpeg): time limits, times, loops, and what breaks, in words.

What decodes the packets is another's: `daemon.sources.av` does it on the CPU.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from struct import Struct
from time import monotonic
from typing import Any, Final, cast

import av
import av.error
from av.container import InputContainer
from av.packet import Packet
from av.stream import Discard
from av.video.stream import VideoStream

from daemon.config import AvConfig
from daemon.errors import SourceError
from daemon.redact import scrub
from daemon.sources.bitstream import Bitstream

_RTSP = ("rtsp", "rtsps")
# By default FFmpeg reads 20 frames before it says that it is open, to guess a rate that nobody here needs.
_RTSP_OPTIONS = {"fpsprobesize": "0"}
# FFmpeg's own limit for RTSP's sockets, in us. PyAV's asks the interpreter for the time, and so for its lock, at each
# turn of a socket: with 150 cameras that cost more than all else. Not tried through TLS.
_OWN_LIMIT = "timeout"
_NETWORK = "crypto,data,hls,http,httpproxy,https,rtmp,rtmps,rtmpt,rtp,rtsp,rtsps,srtp,tcp,tls,udp"
_WALL_CLOCK: Final = "prft"  # AV_PKT_DATA_PRFT: AVProducerReferenceTime, which begins with microseconds since 1970
_KEPT_BYTES = 64 << 20  # of a looped recording that is read once and kept in memory
_REWINDABLE = {"mp4", "matroska"}  # they have an index, so that the first packet is found again
_ENDLESS = 64  # pictures; no decoder holds back as many
_MICROSECONDS = Struct("=q")
# FFmpeg allocates what a camera or file asks for: an RTSP answer that says it is 2 GiB long, a picture of 16000x16000.
_MOST_PIXELS = 8192 * 4320  # 8K
_MOST_BYTES = 256 << 20  # at once; the index of a two days' recording takes half of it
# What FFmpeg's words mean when they come from opening.
_MEANING: dict[type[Exception], str] = {
    av.error.InvalidDataError: ": it is empty, cut short or not a video",
    av.error.OSError: ": the host name may be wrong, or the server closed the connection",
    av.error.HTTPUnauthorizedError: ": check user name and password",
}


class Demuxer:
    """One connection, or one recording played once or over and over; its first video stream.

    Attributes:
        stream: what the packets belong to; another one after `begin_again`.
        rate: frames a second, or None where it is not known.
    """

    def __init__(self, config: AvConfig, *, live: bool) -> None:
        self._config, self._live = config, live
        self._offset = 0  # ns, added to the times of this pass
        self._end = 0  # ns, where the next pass begins
        self._begun = 0  # ns, that of this one
        self._wall_clock: tuple[int, int] | None = None  # pts of the latest packet that told, and its UTC, ns
        self._begin: int | None = None  # ns, the first picture of this pass
        self._unit, self._scale = Fraction(1), (1_000_000_000, 1)  # of the last time, and ns as a ratio
        self._packets: Iterator[Packet[Any]]
        self._kept: tuple[Packet[Any], ...] = ()
        self._lap = 0  # ticks by which times of the kept packets move on with each pass; 0 where passes are apart
        self._start()
        rate = self.stream.average_rate or self.stream.guessed_rate
        self.rate = float(rate) if rate else None
        self._period = round(1e9 / (self.rate or 25.0))

    def next(self) -> Packet[Any] | None:
        """The next packet; None when the recording has come to its end, this time.

        Raises:
            SourceError: the connection broke, or nothing came for the read time limit.
        """
        started = monotonic()
        try:
            packet = next(self._packets, None)
        except (av.error.EOFError, IndexError):  # IndexError: PyAV, at the end, over a stream that appeared on the way
            packet = None
        except (av.error.FFmpegError, OSError) as error:
            waited = monotonic() - started
            if waited >= self._config.read_timeout_s * 0.9:
                raise SourceError(f"no data from {self._config.url} for {waited:.1f} s") from error
            raise SourceError(f"{self._config.url} broke off: {words_of(error)}") from error
        if packet is None and self._live:
            raise SourceError(f"{self._config.url} ended the stream")
        if packet is not None and self._live:
            self._note_wall_clock(packet)
        return packet

    @property
    def is_endless(self) -> bool:
        """The next pass follows this one as if it were more of the same: whoever decodes need not be told."""
        return self._lap > 0

    def begin_again(self) -> None:
        """Open a recording anew; its times go on where they were.

        Raises:
            SourceError: not one picture came of it, so that this would go on for ever.
        """
        if self._end <= self._begun:
            raise SourceError(f"{self._config.url} holds no picture that can be decoded: nothing to loop")
        self._begun = self._end
        if self.is_endless:
            self._packets = self._moved_on()
            return
        self._offset, self._begin = self._end, None
        if not self._rewind():
            self.close()
            self._start()

    def check_length(self) -> None:
        """FFmpeg takes a file that was cut off for one that ends there; its own header knows better.

        Raises:
            SourceError: it ended before it should have.
        """
        stated = self._stated_length()
        played = self._end - (self._begin or 0)
        if stated is not None and stated - played > max(1_000_000_000, stated // 20):
            url, ends = self._config.url, f"{played / 1e9:.1f} s of {stated / 1e9:.1f} s"
            raise SourceError(f"{url} is cut short: it ends after {ends}")

    def time_of(self, pts: int | None, time_base: Fraction | None) -> int | None:
        """The time of a picture, on a timeline that goes on over loops, ns; to be asked once for each, in order."""
        if pts is not None and time_base is not None:
            if time_base is not self._unit:
                self._unit, self._scale = time_base, (time_base.numerator * 1_000_000_000, time_base.denominator)
            time = self._offset + pts * self._scale[0] // self._scale[1]
        elif self._live:
            return None
        else:  # a bare H.264 file has no times: its rate must do
            time = self._end
        if self._begin is None:
            self._begin = time
        self._end = max(self._end, time + self._period)
        return time

    def sent_at(self, pts: int | None, time_base: Fraction | None) -> int | None:
        """When the camera took a picture, by its own clock, UTC ns; None where it does not say."""
        if self._wall_clock is None or pts is None or time_base is None:
            return None
        known, utc = self._wall_clock
        return utc + _nanoseconds(pts - known, time_base)

    def close(self) -> None:
        self._container.close()

    def _keep(self) -> None:
        """Read a recording that is to be looped whole, if it is small.

        Demuxing a packet gives the interpreter's lock up five times, which with many sources costs more than decoding.
        """
        path = Path(self._config.url.reveal().removeprefix("file://"))
        if not self._config.loop or self._live or not path.is_file() or path.stat().st_size > _KEPT_BYTES:
            return
        try:
            self._kept = tuple(self._packets)
        except (av.error.FFmpegError, OSError, IndexError):  # it breaks off: to be said when it comes to that
            self.close()
            self._container, self.stream = _open(self._config)
            self._packets = iter(self._container.demux(self.stream))
        else:
            self._lap = _length_of(self.stream, self._kept)
            if self.is_endless:
                self._kept = tuple(packet for packet in self._kept if packet.size)
            self._packets = iter(self._kept)

    def _moved_on(self) -> Iterator[Packet[Any]]:
        """The kept packets, as those of the next pass."""
        for packet in self._kept:
            packet.pts = cast("int", packet.pts) + self._lap
            if packet.dts is not None:
                packet.dts += self._lap
            yield packet

    def _rewind(self) -> bool:
        """Back to the first packet without opening anew, which takes as long as 500 packets; False if it cannot be."""
        if self._kept:
            self.stream.codec_context.flush_buffers()
            self._packets = iter(self._kept)
            return True
        if not _REWINDABLE & set(self._container.format.name.split(",")):
            return False
        try:
            self._container.seek(self.stream.start_time or 0, stream=self.stream)
        except (av.error.FFmpegError, OSError):
            return False
        self._packets = iter(self._container.demux(self.stream))
        return True

    def _start(self) -> None:
        self._container, self.stream = _open(self._config)
        self._packets = iter(self._container.demux(self.stream))
        self._keep()

    def _note_wall_clock(self, packet: Packet[Any]) -> None:
        """From the second RTCP sender report on, FFmpeg attaches to packets what the camera's clock showed."""
        if packet.pts is not None and packet.has_sidedata(_WALL_CLOCK):
            (microseconds,) = _MICROSECONDS.unpack_from(bytes(packet.get_sidedata(_WALL_CLOCK)))
            self._wall_clock = (packet.pts, microseconds * 1000)

    def _stated_length(self) -> int | None:
        """By the header, ns."""
        stream = self.stream
        if stream.duration is not None and stream.time_base is not None:
            return _nanoseconds(stream.duration, stream.time_base)
        return None if self._container.duration is None else self._container.duration * 1000


def _length_of(stream: VideoStream, packets: Sequence[Packet[Any]]) -> int:
    """Of a recording, ticks; 0 where its pictures cannot be decoded as if they followed themselves.

    They can where the first needs a decoder that is as new, or may have had any pictures. A recording of so few that
    a decoder may hold them all back would not be seen to give any.
    """
    context = stream.codec_context
    whole = [packet for packet in packets if packet.size]
    if len(whole) < _ENDLESS or any(packet.pts is None for packet in whole):
        return 0
    if not Bitstream(context.name, context.extradata).begins_anew(bytes(whole[0])):
        return 0
    times = sorted(cast("int", packet.pts) for packet in whole)
    return times[-1] - times[0] + (times[-1] - times[0]) // (len(times) - 1)


def _nanoseconds(count: int, unit: Fraction) -> int:
    """Without Fraction's own arithmetic, which costs as much as demuxing."""
    return count * unit.numerator * 1_000_000_000 // unit.denominator


def words_of(error: Exception) -> str:
    """FFmpeg's own words, without the URL that PyAV adds to them."""
    words = error.strerror if isinstance(error, OSError | av.error.FFmpegError) and error.strerror else str(error)
    return scrub(words)


@cache
def _bound_allocations() -> None:
    """No single allocation of FFmpeg's in this process is larger than `_MOST_BYTES`; it fails, and says so."""
    library = ctypes.PyDLL(sys.modules[Packet.__module__].__file__)  # its dependencies are searched, too
    library.av_max_alloc.argtypes, library.av_max_alloc.restype = (ctypes.c_size_t,), None
    library.av_max_alloc(_MOST_BYTES)


def _check_size(config: AvConfig, stream: VideoStream, most_pixels: str) -> None:
    width, height = stream.codec_context.width, stream.codec_context.height
    if most_pixels.isdecimal() and width * height > int(most_pixels):
        raise SourceError(
            f"{config.url}: its pictures of {width}x{height} are larger than {int(most_pixels) / 1e6:.0f} megapixels; "
            "set options: {max_pixels: ...} if that is meant"
        )


def _protocols(scheme: str) -> str:
    """What FFmpeg may read: no `concat:` or `subfile:` in a path, no file named by a playlist from the network."""
    return "file,crypto,data" if scheme in ("", "file") else f"{scheme},{_NETWORK}"


def _open(config: AvConfig) -> tuple[InputContainer, VideoStream]:
    _bound_allocations()
    most_pixels = config.options.get("max_pixels", str(_MOST_PIXELS))
    options = {"protocol_whitelist": _protocols(config.url.scheme), "max_pixels": most_pixels}
    if config.url.scheme in _RTSP:
        options |= _RTSP_OPTIONS | {"rtsp_transport": config.transport}
    limits: tuple[float, float | None] = (config.open_timeout_s, config.read_timeout_s)
    answer_s = config.open_timeout_s
    if config.url.scheme == "rtsp" and _OWN_LIMIT not in config.options:
        options[_OWN_LIMIT] = str(round(config.read_timeout_s * 1e6))
        limits = (config.open_timeout_s, None)
        answer_s = min(config.open_timeout_s, config.read_timeout_s)
    started = monotonic()
    try:
        container = av.open(config.url.reveal(), options=options | config.options, timeout=limits)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        waited = monotonic() - started
        if waited >= answer_s * 0.9:
            raise SourceError(f"no answer from {config.url} within {answer_s:g} s") from error
        raise SourceError(f"cannot open {config.url}: {words_of(error)}{_MEANING.get(type(error), '')}") from error
    try:
        if not container.streams.video:
            kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
            raise SourceError(f"no video in {config.url}: it holds {kinds}")
        stream = container.streams.video[0]
        # A stream without a codec context crashes PyAV when it is decoded (PyAV #2344).
        if getattr(stream, "codec_context", None) is None:
            raise SourceError(f"{config.url}: its video codec is not known to this FFmpeg")
        _check_size(config, stream, most_pixels)
        stream.codec_context.options = {"max_pixels": most_pixels}
        stream.codec_context.thread_count = config.decode_threads
        for other in container.streams:
            if other.index != stream.index:
                other.discard = Discard.all
    except BaseException:
        container.close()
        raise
    return container, stream
