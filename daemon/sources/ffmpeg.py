"""RTSP cameras and recordings: packets through PyAV (FFmpeg), decoded on the GPU or the CPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from time import monotonic_ns
from typing import Any

import msgspec
from av.packet import Packet
from av.video.stream import VideoStream

from daemon.config import AvConfig
from daemon.errors import DecodeError, SourceError
from daemon.messages import FrameClock, VideoFormat
from daemon.redact import Url
from daemon.sources.decode import (
    DecodedPicture,
    Decoder,
    DecoderPool,
    NoHardwareDecoder,
    SoftwareDecoder,
    UnsuitableError,
)
from daemon.sources.packets import Demuxer
from daemon.sources.playlist import Playlist, is_playlist
from daemon.sources.port import DecodeBudget, PacketInfo, PacketTap, Picture, Skipped
from daemon.sources.rotation import rotated, rotated_format, turns_of
from daemon.sources.skipping import FrameSkipper
from detectors.port import Image

_KEY_HINT = ": it has sent no key picture yet; set the camera to send one every second or two"
_NANOSECOND = Fraction(1, 1_000_000_000)
_MAX_UNDELIVERED = 32  # H.264 reorders up to 16 pictures, and each decoder thread holds one


class AvSource:
    """A URL, a file, or several files. By default files are recordings, and URLs with a scheme are live."""

    def __init__(self, config: AvConfig, decoder_pool: DecoderPool | None = None) -> None:
        self._config, self._decoder_pool = config, decoder_pool or NoHardwareDecoder("not asked for")
        self.live = config.url.scheme not in ("", "file") if config.kind == "auto" else config.kind == "live"
        self.plays_once = not self.live and not config.loop
        self.realtime = not self.live and config.pace == "realtime"
        self.clock = FrameClock("arrival") if self.live else FrameClock("file", 0)
        self._refusal: str | None = None  # why the GPU's decoder gave up on the last connection
        path = config.url.reveal().removeprefix("file://")
        several = config.url.scheme in ("", "file") and is_playlist(path)
        self._playlist = Playlist(path, loop=config.loop) if several else None

    @property
    def has_next(self) -> bool:
        return self._playlist is not None and self._playlist.has_next

    def open(self, budget: DecodeBudget | None = None) -> AvReader:
        config = self._config
        if self._playlist:
            config = msgspec.structs.replace(config, url=Url(str(self._playlist.next())), loop=False)
        demuxer = Demuxer(config, live=self.live)
        try:
            turns = turns_of(config, live=self.live)
            decoder, reason = self._decoder(demuxer.stream)
            decoding = Decoding(decoder, reason, turns, self._refuse)
            return AvReader(config, demuxer, decoding, budget or DecodeBudget())
        except BaseException:
            demuxer.close()
            raise

    def _decoder(self, stream: VideoStream) -> tuple[Decoder, str | None]:
        """The stream's decoder, and the reason where `decode: auto` could not use the GPU."""
        if self._config.decode == "cpu":
            return SoftwareDecoder(), None
        try:
            if self._config.decode == "auto" and self._refusal:
                raise UnsuitableError(self._refusal)
            return self._decoder_pool.decoder(stream, low_latency=self.live), None
        except UnsuitableError as error:
            if self._config.decode == "nvdec":
                raise SourceError(f"decode: nvdec is not possible for {self._config.url}: {error}") from error
            self._refusal = None
            return self._decoder_pool.software(stream), str(error)

    def _refuse(self, reason: str) -> None:
        self._refusal = reason


@dataclass(frozen=True)
class Decoding:
    """Decodes and rotates the pictures of a connection.

    Attributes:
        reason: why `decode: auto` did not use the GPU, None if it did.
        turns: quarter turns clockwise that make a picture upright.
        on_refusal: called with the reason when the decoder cannot go on with the stream.
    """

    decoder: Decoder
    reason: str | None
    turns: int
    on_refusal: Callable[[str], None]


class AvReader:
    """One connection; see `daemon.sources.port.Reader`.

    Attributes:
        tap: called with each packet, None for no tap; any thread may set it.
    """

    tap: PacketTap | None = None

    def __init__(self, config: AvConfig, demuxer: Demuxer, decoding: Decoding, budget: DecodeBudget) -> None:
        decoder, turns = decoding.decoder, decoding.turns
        self._config, self._demuxer, self._budget = config, demuxer, budget
        self._decoder, self._on_refusal, self._turns = decoder, decoding.on_refusal, turns
        self._frames: deque[DecodedPicture] = deque()
        self._discarded: set[int] = set()  # pts of pictures that an edit list removes
        self._decode_ns = 0
        self._undelivered = 0  # packets decoded, less pictures received
        self._has_key = False
        self._described: VideoStream | None = None  # the stream of these facts
        self._stream_facts: tuple[Fraction, tuple[str, bytes, tuple[int, int], int, int, int]]
        self._skipper = FrameSkipper(demuxer.stream)
        decoder.begin(demuxer.stream)
        context = demuxer.stream.codec_context
        size = context.width, context.height
        self._in_bursts = demuxer.live and bool(context.has_b_frames)
        aspect = float(demuxer.stream.sample_aspect_ratio or 1)
        seen = VideoFormat(
            context.name, *size, demuxer.rate, decoder.name, decoding.reason, round(aspect, 6), demuxer.notes
        )
        self.format = rotated_format(seen, turns)

    def read(self) -> Picture | Skipped | None:
        while not self._frames:
            if self._undelivered > _MAX_UNDELIVERED:
                self._report_lost()
            asked = monotonic_ns()
            packet = self._demuxer.next() or self._next_pass()
            if packet is None:
                return None
            got = monotonic_ns()
            if tap := self.tap:  # another thread may clear it
                tap(packet)
            if cause := self._skipper.skip_cause(packet, self._budget, got - asked):
                return Skipped(cause)
            try:
                self._decode_packet(packet)
            finally:
                self._decode_ns += monotonic_ns() - got
        frame = self._frames.popleft()
        decode, self._decode_ns = self._decode_ns, 0
        time = self._demuxer.time_of(frame.pts, frame.time_base)
        load = partial(self._load_turned, frame.load) if self._turns else frame.load
        sent_at = self._demuxer.sent_at(frame.pts, frame.time_base)
        return Picture(time, decode, load, sent_at, self._in_bursts)

    def describe(self, packet: Packet[Any]) -> PacketInfo:
        stream = self._demuxer.stream
        if stream is not self._described:
            self._described, context = stream, stream.codec_context
            unit = packet.time_base or stream.time_base or _NANOSECOND
            size = context.width, context.height
            kind = context.name, context.extradata or b"", (unit.numerator, unit.denominator)
            self._stream_facts = (unit, (*kind, *size, self._turns))
        unit, facts = self._stream_facts
        place = self._demuxer.placed
        return PacketInfo(*facts, place(packet.pts, unit), place(packet.dts, unit), packet.is_keyframe)

    def close(self) -> None:
        self._frames.clear()
        self._decoder.close()
        self._demuxer.close()

    def _load_turned(self, load: Callable[[], Image]) -> Image:
        return rotated(load(), self._turns)

    def _next_pass(self) -> Packet[Any] | None:
        """At the end of a recording: the first packet of the next pass, None if it does not loop."""
        if self._demuxer.loops_seamlessly:
            self._demuxer.rewind()
            return self._demuxer.next() or self._next_pass()
        if self._undelivered > 0:
            self._report_lost()
        if self._config.loop:
            self._demuxer.rewind()
            self._decoder.begin(self._demuxer.stream)
            return self._demuxer.next() or self._next_pass()
        self._demuxer.check_length()
        return None

    def _decode_packet(self, packet: Packet[Any]) -> None:
        if packet.is_discard and packet.pts is not None:  # others may refer to it, but it is not shown
            self._discarded.add(packet.pts)
        else:
            self._undelivered += packet.size > 0
        self._has_key = self._has_key or packet.is_keyframe
        try:
            for frame in self._decoder.decode(packet):
                if frame.pts in self._discarded:  # the decoder does not know edit lists
                    continue
                self._discarded = {pts for pts in self._discarded if frame.pts is None or pts > frame.pts}
                self._frames.append(frame)
                # An interlaced packet may hold one field, so packets and pictures cannot be compared.
                self._undelivered = 0 if frame.interlaced else max(0, self._undelivered - 1)
        except DecodeError as error:
            self._undelivered = max(0, self._undelivered - 1)
            hint = self._key_hint or f": {error}"
            raise DecodeError(f"a picture of {self._config.url} cannot be decoded{hint}") from error
        except UnsuitableError as error:
            self._on_refusal(str(error))
            raise SourceError(f"{self._config.url} cannot be decoded: {error}") from error

    @property
    def _key_hint(self) -> str:
        return "" if self._has_key else _KEY_HINT

    def _report_lost(self) -> None:
        """Decoders drop broken pictures silently; more packets than pictures reveal it."""
        self._undelivered -= 1
        raise DecodeError(f"a packet of {self._config.url} gave no picture{self._key_hint}")
