"""Packets of connections and recordings, through PyAV (FFmpeg): time limits, timestamps, loops, error messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from fractions import Fraction
from itertools import takewhile
from struct import Struct
from time import monotonic
from typing import Any, Final, cast

import av.error
from av.format import ContainerFormat, Flags
from av.packet import Packet
from av.stream import Stream
from av.video.stream import VideoStream

from daemon.config.sources import AvConfig
from daemon.errors import SourceError
from daemon.sources.bitstream import Bitstream
from daemon.sources.completeness import shortfall, stated_length, tolerance
from daemon.sources.file_range import FileRange
from daemon.sources.history import SourceHistory
from daemon.sources.libav import message_of
from daemon.sources.pending import TimeSlot
from daemon.sources.structure import is_whole
from daemon.sources.timeline import Timeline, nanoseconds
from daemon.sources.video_packets import VideoPackets

_WALL_CLOCK: Final = "prft"  # AV_PKT_DATA_PRFT: AVProducerReferenceTime, begins with microseconds since 1970
_MAX_CACHE_BYTES = 64 << 20  # a looped recording up to this size is cached in memory
_MIN_SEAMLESS = 64  # pictures; no decoder delays as many
_MICROSECONDS = Struct("=q")
_LIVE_TOLERANCE, _TOLERANCE = 0.1, 0.3  # of a claimed rate; that of a recording is often the mean of a varying one
_TIMED_BY_RATE = ("avi", "ivf")  # formats whose times are numbers of pictures, by the rate in the header
_MAX_RATE = 1000  # frames a second; there are cameras of high speed
_COMPLETE = "its playlist is complete (#EXT-X-ENDLIST): to analyse it as a recording, set kind: recording"
_STILLS = "_pipe"  # ends the names of formats that are one still picture after the other
CUT_SHORT: Final = "cut short: it ends after"  # in the reason why a recording ended


class Demuxer:
    """Demuxes one video of a connection or recording, which may loop.

    Attributes:
        stream: of the first packet of this pass.
        has_times: pictures of the stream have times of their own, which are not invented by FFmpeg.
        live: the source is a live stream.
        notes: warnings about the stream, for the operator.
        passed_over: packets that `next` has not returned, by kind; see `lookout.messages.SourceMetrics`.
        has_order: pts are times of display.
        has_datagrams, hls: see `Connection`.
    """

    def __init__(self, config: AvConfig, *, live: bool, history: SourceHistory | None = None) -> None:
        self._config, self.live, self._history = config, live, history or SourceHistory()
        self._pass_start = 0  # ns, start of this pass
        self._wall_clock: tuple[int, int] | None = None  # pts and UTC ns of the latest packet with a wall clock
        self.passed_over: Counter[str] = Counter()
        self.notes: tuple[str, ...] = ()
        self._packets: Iterator[Packet[Any]]
        self._cached: tuple[Packet[Any], ...] = ()
        self._is_cacheable = True
        self._pass_ticks = 0  # length of a pass in ticks, if the recording loops seamlessly; otherwise 0
        self._times = _PacketTimes()
        self._start()
        format = self._video.part.container.format
        invents_times = _invents_times(format)
        self.has_times = not (live and invents_times)
        rates = self.stream.average_rate, self.stream.guessed_rate
        if invents_times:
            rates = rates[::-1]  # FFmpeg says 25, and guesses by what the stream itself says
        rate = (rates[0] or rates[1]) if self.has_times else None
        self._history.rate.begin(float(rate) if rate else None, tolerance=_LIVE_TOLERANCE if live else _TOLERANCE)
        self._counts = not live and bool(rate and rate > _MAX_RATE) and format.name in _TIMED_BY_RATE
        if self._counts:
            self.notes = (*self.notes, f"its header claims {float(rate or 0):.0f} frames/s: they are counted as 25/s")
        self.has_order = "avi" not in format.name  # AVI has no times of display
        max_step = round(1e9 * self.hls.max_step_s) if self.hls and live else None
        self._timeline = Timeline(live=live, rate=self.rate, unordered=not self.has_order, max_step=max_step)

    def next(self) -> Packet[Any] | None:
        """The next packet; None at the end of this pass of a recording.

        Raises:
            SourceError: the connection broke, or no data came within the read time limit.
        """
        started = monotonic()
        if hls := self.hls:
            hls.begin_read()
        try:
            packet = next(self._packets, None)
        except (av.error.FFmpegError, OSError) as error:
            waited = monotonic() - started
            if waited >= (hls.limit_s if hls else self._config.read_timeout_s) * 0.9:
                raise SourceError(f"no data from {self._config.url} for {waited:.1f} s") from error
            raise SourceError(f"{self._config.url} broke off: {message_of(error)}") from error
        if packet is None and self.live:
            if hls and hls.is_complete:
                raise SourceError(f"{self._config.url} has ended: {_COMPLETE}")
            raise SourceError(f"{self._config.url} was closed by its server; if it is a recording, set kind: recording")
        if packet is not None and self.live:
            self._note_wall_clock(packet)
        return packet

    @property
    def loops_seamlessly(self) -> bool:
        """Whether the next pass continues this one as one stream, so that the decoder is not restarted."""
        return self._pass_ticks > 0

    def rewind(self) -> None:
        """Restart a recording; its timeline goes on.

        Raises:
            SourceError: the last pass gave no picture, so the loop would never end.
        """
        if self._timeline.end <= self._pass_start:
            raise SourceError(f"{self._config.url} holds no picture that can be decoded: nothing to loop")
        self._pass_start = self._timeline.end
        if self.loops_seamlessly:
            self._packets = self._shifted()
            return
        self._timeline.begin_pass()
        if not self._seek_back():
            self.close()
            self._start()

    def check_length(self) -> None:
        """Check at the end of a recording that it is whole.

        Raises:
            SourceError: it is cut short.
        """
        played = self._timeline.played
        ends = f"{self._config.url} is {CUT_SHORT} {played / 1e9:.1f} s"
        if self._video.part.new_streams and self._video.path is None:
            raise SourceError(f"{ends}, and goes on with video streams that only a file can be searched for")
        if self.hls and self.hls.missing:
            raise SourceError(f"{ends}, and segments of its playlist could not be loaded: {self.hls.missing}")
        part, path = self._video.part, self._video.path
        with FileRange(path, part.splice.begin) if path else nullcontext() as file:
            length = stated_length(part.container)
            whole = is_whole(part.formats, file, length - tolerance(length)) if file else None
        if self._video.is_spliced:  # lengths are those of parts
            stated = 0 if whole is False else None
        else:
            stated = shortfall(part.container, self.stream, whole, played, self._timeline.period, self._timeline.step)
        if stated is not None:
            missing = f" of {stated / 1e9:.1f} s" if stated else ", and the end of its file is missing"
            raise SourceError(f"{ends}{missing}")

    def time_of(self, pts: int | None, time_base: Fraction | None, slot: TimeSlot | None = None) -> int | None:
        """See `Timeline.time_of`."""
        if self._counts:
            return self._timeline.time_of(None, None)
        return self._timeline.time_of(pts, time_base, slot) if self.has_times else None

    def is_new(self, pts: int | None, time_base: Fraction | None) -> bool:
        """Whether no connection before has given this picture. Call it for each picture, in order."""
        if self.hls is None or not self.live or pts is None or time_base is None:
            return True
        return self._history.hls.is_new(nanoseconds(pts, time_base), self.hls)

    def note_rate(self, packet: Packet[Any], got: int) -> bool:
        """Note the time of a packet with a picture; whether the rate is another one now.

        Args:
            got: when it came, monotonic ns.
        """
        if not self.has_times:
            return self._history.rate.add(got)
        time = self._times.of(packet)
        return time is not None and self._history.rate.add(time)

    @property
    def rate(self) -> float | None:
        """Frames a second, as far as it is known."""
        return self._history.rate.fps

    def begin_stream(self) -> None:
        """See `Timeline.begin_stream`."""
        self._timeline.begin_stream()

    @property
    def played_s(self) -> float:
        """Length of this pass so far, seconds."""
        return self._timeline.played / 1e9

    def placed(self, time: int | None, unit: Fraction) -> int | None:
        """A timestamp of a packet of this pass on the timeline of `time_of`, ns."""
        return self._timeline.placed(time, unit) if self.has_times else None

    def sent_at(self, pts: int | None, time_base: Fraction | None) -> int | None:
        """When the camera took a picture, by the camera's clock, UTC ns; None if unknown."""
        if self._wall_clock is None or pts is None or time_base is None:
            return None
        known, utc = self._wall_clock
        return utc + nanoseconds(pts - known, time_base)

    def close(self) -> None:
        self._video.close()

    def _cache(self) -> None:
        """Cache the packets of a looped recording, if it is small.

        Demuxing a packet releases the GIL five times, which costs more than decoding where there are many sources.
        """
        path = self._video.path
        if not (self._config.loop and self._is_cacheable) or path is None or path.stat().st_size > _MAX_CACHE_BYTES:
            return
        try:
            packets = tuple(takewhile(lambda _: not self._video.is_spliced, self._packets))
        except (av.error.FFmpegError, OSError, SourceError):  # `next` reports it when it gets there
            self._is_cacheable = False
        if not self._is_cacheable or self._video.is_spliced:  # a splice closes the container of earlier packets
            self._is_cacheable = False
            self.close()
            self.passed_over.clear()
            self._open()
            return
        self._pass_ticks = _length_of(self.stream, packets)
        self._cached = tuple(packet for packet in packets if packet.size) if self.loops_seamlessly else packets
        self._packets = iter(self._cached)

    def _shifted(self) -> Iterator[Packet[Any]]:
        """The cached packets with the timestamps of the next pass."""
        return (_later(packet, self._pass_ticks) for packet in self._cached)

    def _seek_back(self) -> bool:
        """Go back to the first packet without reopening; False if impossible."""
        if self._cached:
            self._packets = iter(self._cached)
            return True
        if not self._video.seek_to_start():
            return False
        self._packets = iter(self._video)
        return True

    def _start(self) -> None:
        self._open()
        self._cache()

    def _open(self) -> None:
        self._video = VideoPackets(self._config, self.passed_over, live=self.live)
        self.hls, self.has_datagrams = self._video.hls, self._video.has_datagrams
        if self.live and self.hls and self.hls.is_complete:
            self.close()
            raise SourceError(f"{self._config.url} is not live: {_COMPLETE}")
        self.stream, self.notes = self._video.stream, self._video.notes
        self._packets = iter(self._video)

    def _note_wall_clock(self, packet: Packet[Any]) -> None:
        """From the second RTCP sender report on, FFmpeg attaches the camera's wall clock to packets."""
        if packet.pts is not None and packet.has_sidedata(_WALL_CLOCK):
            (microseconds,) = _MICROSECONDS.unpack_from(bytes(packet.get_sidedata(_WALL_CLOCK)))
            self._wall_clock = (packet.pts, microseconds * 1000)


class _PacketTimes:
    """Times of packets in the order of decoding."""

    def __init__(self) -> None:
        self._stream: Stream | None = None  # of the last packet
        self._tick: tuple[int, int] | None = None  # its unit, ns, as a fraction

    def of(self, packet: Packet[Any]) -> int | None:
        """ns, None if it has no time."""
        if packet.stream is not self._stream:  # PyAV makes a fraction each time that it is asked for the unit
            self._stream, unit = packet.stream, packet.time_base
            self._tick = (unit.numerator * 1_000_000_000, unit.denominator) if unit else None
        stamp, tick = packet.dts, self._tick
        if stamp is None:
            stamp = packet.pts
        return None if stamp is None or tick is None else stamp * tick[0] // tick[1]


def _later(packet: Packet[Any], ticks: int) -> Packet[Any]:
    packet.pts = cast("int", packet.pts) + ticks
    if packet.dts is not None:
        packet.dts += ticks
    return packet


def _invents_times(format: ContainerFormat) -> bool:
    """Whether FFmpeg invents the times of a format's pictures."""
    return Flags.no_timestamps in Flags(format.flags) or format.name.endswith(_STILLS)


def _length_of(stream: VideoStream, packets: Sequence[Packet[Any]]) -> int:
    """Length of a recording that loops seamlessly, ticks; 0 if it does not.

    It does if its first packet is a random access point. A recording that is shorter than a decoder's delay is
    excluded, because no picture of it would be seen.
    """
    context = stream.codec_context
    whole = [packet for packet in packets if packet.size]
    if len(whole) < _MIN_SEAMLESS or any(packet.pts is None for packet in whole):
        return 0
    if not Bitstream(context.name, context.extradata).is_random_access(bytes(whole[0])):
        return 0
    times = sorted(cast("int", packet.pts) for packet in whole)
    return times[-1] - times[0] + (times[-1] - times[0]) // (len(times) - 1)
