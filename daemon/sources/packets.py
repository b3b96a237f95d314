"""Connections and recordings as packets, through PyAV (FFmpeg): time limits, times, loops, and what breaks, in words.

What decodes the packets is another's: `daemon.sources.ffmpeg` does it on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from struct import Struct
from time import monotonic
from typing import Any, Final, cast

import av
import av.error
from av.packet import Packet
from av.video.stream import VideoStream

from daemon.config import AvConfig
from daemon.errors import SourceError
from daemon.sources.bitstream import Bitstream
from daemon.sources.connection import connect, message_of

_WALL_CLOCK: Final = "prft"  # AV_PKT_DATA_PRFT: AVProducerReferenceTime, which begins with microseconds since 1970
_KEPT_BYTES = 64 << 20  # of a looped recording that is read once and kept in memory
_REWINDABLE = {"mp4", "matroska"}  # they have an index, so that the first packet is found again
_ENDLESS = 64  # pictures; no decoder holds back as many
_MICROSECONDS = Struct("=q")


class Demuxer:
    """One connection, or one recording played once or over and over; its first video stream.

    Attributes:
        stream: what the packets belong to; another one after `begin_again`.
        rate: frames a second, or None where it is not known.
        live, notes: as it was told; what a person who set this up should know of it.
    """

    def __init__(self, config: AvConfig, *, live: bool) -> None:
        self._config, self.live = config, live
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
            raise SourceError(f"{self._config.url} broke off: {message_of(error)}") from error
        if packet is None and self.live:
            raise SourceError(f"{self._config.url} ended the stream; if it is a recording, set kind: recording")
        if packet is not None and self.live:
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
        stated, from_ns = self._stated_length()
        played = self._end - (self._begin or 0) if from_ns is None else self._end - self._offset - from_ns
        if stated is not None and stated - played > max(1_000_000_000, stated // 20):
            url, ends = self._config.url, f"{played / 1e9:.1f} s of {stated / 1e9:.1f} s"
            raise SourceError(f"{url} is cut short: it ends after {ends}")

    def time_of(self, pts: int | None, time_base: Fraction | None) -> int | None:
        """The time of a picture, on a timeline that goes on over loops, ns; to be asked once for each, in order."""
        if pts is not None and time_base is not None:
            if time_base is not self._unit:
                self._unit, self._scale = time_base, (time_base.numerator * 1_000_000_000, time_base.denominator)
            time = self._offset + pts * self._scale[0] // self._scale[1]
        elif self.live:
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
        if not self._config.loop or self.live or not path.is_file() or path.stat().st_size > _KEPT_BYTES:
            return
        try:
            self._kept = tuple(self._packets)
        except (av.error.FFmpegError, OSError, IndexError):  # it breaks off: to be said when it comes to that
            self.close()
            self._connect()
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
        self._connect()
        self._packets = iter(self._container.demux(self.stream))
        self._keep()

    def _connect(self) -> None:
        found = connect(self._config)
        self._container, self.stream = found.container, found.stream
        self.notes = found.notes

    def _note_wall_clock(self, packet: Packet[Any]) -> None:
        """From the second RTCP sender report on, FFmpeg attaches to packets what the camera's clock showed."""
        if packet.pts is not None and packet.has_sidedata(_WALL_CLOCK):
            (microseconds,) = _MICROSECONDS.unpack_from(bytes(packet.get_sidedata(_WALL_CLOCK)))
            self._wall_clock = (packet.pts, microseconds * 1000)

    def _stated_length(self) -> tuple[int | None, int | None]:
        """By the header, ns; and from when on, ns, where that is not the first picture: sound may begin before."""
        stream = self.stream
        if stream.duration is not None and stream.time_base is not None:
            return _nanoseconds(stream.duration, stream.time_base), None
        if self._container.duration is None:
            return None, None
        return self._container.duration * 1000, (self._container.start_time or 0) * 1000


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
