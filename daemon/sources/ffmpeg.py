"""RTSP cameras and recordings: packets through PyAV (FFmpeg), decoded on the GPU or the CPU."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic_ns
from typing import Any

import msgspec
from av.packet import Packet
from av.video.stream import VideoStream

from daemon.config.sources import AvConfig
from daemon.errors import CorruptError, DecodeError, SourceError
from daemon.redact import Url
from daemon.sources.bitstream import Bitstream
from daemon.sources.decode import (
    DecodedPicture,
    Decoder,
    DecoderPool,
    NoHardwareDecoder,
    SoftwareDecoder,
    UnsuitableError,
    marked,
)
from daemon.sources.held_packets import Held, HeldPackets
from daemon.sources.history import SourceHistory
from daemon.sources.key_pictures import KeyPictures
from daemon.sources.libav import LOCAL
from daemon.sources.logins import LOGINS
from daemon.sources.packet_info import PacketDescriber
from daemon.sources.packets import Demuxer
from daemon.sources.pending import PendingPictures, PictureMarks
from daemon.sources.pictures import PictureCounter
from daemon.sources.playlist import Playlist, is_playlist
from daemon.sources.port import DecodeBudget, PacketInfo, PacketTap, Picture, Skipped
from daemon.sources.shape import StreamShape, rotated, turns_of
from daemon.sources.skipping import FrameSkipper, SkipCause
from detectors.port import Image
from lookout.messages import FrameClock, VideoFormat


class AvSource:
    """A URL, a file, or several files. By default files are recordings, and URLs with a scheme are live."""

    def __init__(self, config: AvConfig, decoder_pool: DecoderPool | None = None) -> None:
        self._config, self._decoder_pool = config, decoder_pool or NoHardwareDecoder("not asked for")
        self.live = config.is_live
        self.plays_once = not self.live and not config.loop
        self.realtime = not self.live and config.pace == "realtime"
        self.clock = FrameClock("arrival") if self.live else FrameClock("file", 0)
        self._history = SourceHistory()
        self._refusal: str | None = None  # why the GPU's decoder gave up on the last connection
        path = config.url.path
        several = config.url.scheme in LOCAL and is_playlist(path)
        self._playlist = Playlist(path, loop=config.loop) if several else None

    @property
    def has_next(self) -> bool:
        return self._playlist is not None and self._playlist.has_next

    def open(self, budget: DecodeBudget | None = None) -> AvReader:
        config = self._config
        if self._playlist:
            config = msgspec.structs.replace(config, url=Url(str(self._playlist.next())), loop=False)
        with LOGINS.attempt(config):
            demuxer = Demuxer(config, live=self.live, history=self._history)
        try:
            decoding = Decoding(self._decoder, turns_of(config, live=self.live), self._refuse)
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
    """How the pictures of a connection are decoded and rotated.

    Attributes:
        make: makes a stream's decoder; the second value is why `decode: auto` did not use the GPU, None if it did.
        turns: quarter turns clockwise that make a picture upright.
        on_refusal: called with the reason when the decoder cannot go on with the stream.
    """

    make: Callable[[VideoStream], tuple[Decoder, str | None]]
    turns: int
    on_refusal: Callable[[str], None]


@dataclass(frozen=True)
class _StreamTools:
    """Looks into the packets of the stream that is decoded now.

    Attributes:
        parameters: name and extradata of its codec.
        in_bursts: see `Picture.in_burst`.
    """

    parameters: tuple[str, bytes | None]
    bitstream: Bitstream
    pictures: PictureCounter
    skipper: FrameSkipper
    describer: PacketDescriber
    in_bursts: bool

    @staticmethod
    def of(stream: VideoStream, *, live: bool) -> _StreamTools:
        context = stream.codec_context
        parameters = context.name, context.extradata
        bitstream = Bitstream(*parameters)
        pictures = PictureCounter(*parameters, bitstream)
        in_bursts = live and bool(context.has_b_frames)
        return _StreamTools(parameters, bitstream, pictures, FrameSkipper(stream), PacketDescriber(stream), in_bursts)


class AvReader:
    """One connection; see `daemon.sources.port.Reader`."""

    def __init__(self, config: AvConfig, demuxer: Demuxer, decoding: Decoding, budget: DecodeBudget) -> None:
        self._config, self._demuxer, self._decoding, self._budget = config, demuxer, decoding, budget
        self._shape = StreamShape(decoding.turns, follows=config.rotate == "auto")
        self._keys = KeyPictures(config.url)
        self._pending = PendingPictures(by_dts=not demuxer.has_order)
        self._tap: PacketTap | None = None
        self._frames: deque[DecodedPicture] = deque()
        self._held = HeldPackets()
        self._marks = PictureMarks()
        self._decode_ns = 0
        self._passed_over: Counter[str] = Counter()  # of packets without a picture
        self._is_interlaced = False
        self._notes = demuxer.notes
        self._codec: str | None = None  # of the decoder
        self._decoder: Decoder
        self._reason: str | None  # why it is not the GPU's
        self._stream = demuxer.stream
        self._prepare(self._stream)
        self._decoder.begin(self._stream)

    @property
    def format(self) -> VideoFormat:
        """Of the stream that is decoded now."""
        return self._shape.format

    def set_tap(self, tap: PacketTap | None) -> None:
        self._tap = tap

    def read(self) -> Picture | Skipped | None:
        while True:
            while self._frames:
                frame = self._frames.popleft()
                if self._marks.stale.has(frame.pts):  # it was passed over while it waited
                    self._decode_ns = 0
                    continue
                if self._demuxer.is_new(frame.pts, frame.time_base):
                    return self._picture(frame)
                self._pending.deliver(frame.pts)
            if self._pending.is_late:
                self._report_lost()
            if self._held.take_passed_over():
                return Skipped("late")
            if self._held.is_due:
                self._decode_held()
                continue
            asked = monotonic_ns()
            try:
                packet = self._demuxer.next() or self._next_pass()
            except SourceError as error:
                self._held.end(error)
                continue
            if packet is None:
                return None
            if cause := self._handle(packet, monotonic_ns(), asked):
                return Skipped(cause)

    def _handle(self, packet: Packet[Any], got: int, asked: int) -> SkipCause | None:
        """Decode a packet, or return why it is skipped.

        Args:
            got, asked: when the packet came, and when the demuxer was asked for it, ns.
        """
        if packet.stream is not self._stream:
            self._change(packet.stream)
        tools = self._tools
        if packet.is_keyframe and packet.size and tools.describer.note_key(packet):
            self._shape.forget_stated()
        if tap := self._tap:  # another thread may clear it
            tap(packet)
        pictures = tools.pictures.count(memoryview(packet)) if packet.size else 0
        if packet.size and not pictures:
            self._passed_over["no_picture" if tools.pictures.shows_all else "not_shown"] += 1
        if pictures and not self._is_interlaced and self._demuxer.note_rate(packet, got):
            self._shape.set_rate(self._demuxer.rate)
        if pictures and not self._keys.has_begun and self._demuxer.live:
            self._keys.require(packet, tools.parameters[0], tools.bitstream)
        if pictures and (cause := tools.skipper.skip_cause(packet, self._budget, got - asked)):
            return cause
        if self._held:
            self._held.add(Held(packet, pictures, got), tools.bitstream)
            if self._held.has_picture and self._decoder.can_begin():
                self._held.begin()
            return None
        try:
            if not self._decode_packet(packet, pictures):
                self._held.add(Held(packet, pictures, got), tools.bitstream)
        finally:
            self._decode_ns += monotonic_ns() - got
        return None

    def _decode_held(self) -> None:
        """Decode the first packet that is held."""
        begun = monotonic_ns()
        row = self._held.pop(begun)
        if row.is_stale:
            self._marks.stale.add(row.packet.pts)
        try:
            if not self._decode_packet(row.packet, 0 if row.is_stale else row.pictures):
                self._held.put_back(row)
        finally:
            self._decode_ns += monotonic_ns() - begun

    @property
    def awaits_decoder(self) -> bool:
        return bool(self._held) and not self._held.is_due

    @property
    def can_wait(self) -> bool:
        return self._demuxer.live and not self._demuxer.has_datagrams

    @property
    def segment_s(self) -> float:
        return self._demuxer.hls.segment_s if self._demuxer.hls else 0.0

    @property
    def is_behind(self) -> bool:
        return self._demuxer.hls is not None and self._demuxer.hls.is_behind

    def describe(self, packet: Packet[Any]) -> PacketInfo:
        return self._tools.describer.describe(packet, self._demuxer.placed)

    def take_passed_over(self) -> Mapping[str, int]:
        if not self._passed_over and not self._demuxer.passed_over:
            return {}
        counts = self._passed_over + self._demuxer.passed_over
        self._passed_over.clear()
        self._demuxer.passed_over.clear()
        return counts

    def close(self) -> None:
        self._frames.clear()
        self._decoder.close()
        self._demuxer.close()

    def _begin(self, stream: VideoStream) -> None:
        """Decode a stream from now on. The decoder is drained, and its pictures have been loaded."""
        context, self._stream = stream.codec_context, stream
        if self._tools.parameters != (context.name, context.extradata):
            self._prepare(stream)
        self._decoder.begin(stream)

    def _prepare(self, stream: VideoStream) -> None:
        """Make what belongs to a stream: its decoder, and what looks into its packets."""
        codec = stream.codec_context.name
        if codec != self._codec:
            if self._codec:
                self._decoder.close()
            self._decoder, self._reason = self._decoding.make(stream)
            self._codec = codec
        self._tools = _StreamTools.of(stream, live=self._demuxer.live)
        facts = self._tools.describer
        facts.set_turns(self._shape.turns)
        rate, decoder = self._demuxer.rate, self._decoder.name
        seen = VideoFormat(codec, *facts.size, rate, decoder, self._reason, facts.pixel_aspect, self._notes)
        self._shape.begin(seen)

    def _note_shape(self, size: tuple[int, int], turns: int) -> None:
        """Note the size of a picture, as in the stream, and its quarter turns."""
        facts = self._tools.describer
        if self._shape.note(size, turns, facts.pixel_aspect):
            facts.set_turns(turns)
            facts.set_size(size)

    def _change(self, stream: VideoStream) -> None:
        """Go on with another stream."""
        codec = stream.codec_context.name
        what = f"changes from {self._codec} to {codec}" if codec != self._codec else "goes on in another stream"
        self._notes = (*self._demuxer.notes, f"its video {what} after {self._demuxer.played_s:.1f} s")
        self._pending.clear()
        self._held.clear()
        self._demuxer.begin_stream()
        self._stream = stream
        self._prepare(stream)
        self._decoder.begin(stream)

    def _picture(self, frame: DecodedPicture) -> Picture:
        decode, self._decode_ns = self._decode_ns, 0
        place = self._pending.deliver(frame.pts)
        if frame.interlaced:  # a packet may hold one field, so packets and pictures cannot be compared
            self._pending.clear()
            self._is_interlaced = True
        time = self._demuxer.time_of(frame.pts, frame.time_base, place)
        sent_at = self._demuxer.sent_at(frame.pts, frame.time_base)
        is_corrupt = self._marks.corrupt.has(frame.pts)
        turns = self._shape.turns_of(frame.turns)
        if frame.size:
            self._note_shape(frame.size, turns)
        load = partial(self._load, frame.load, is_corrupt, turns)
        return Picture(time, decode, load, sent_at, self._tools.in_bursts)

    def _load(self, load: Callable[[], Image], is_corrupt: bool, turns: int) -> Image:
        image = load()
        self._note_shape((image.width, image.height), turns)
        if (is_corrupt or image.corrupt) and self._config.corrupt == "drop":
            raise self._keys.lost(CorruptError(f"a picture of {self._config.url} is damaged"))
        self._keys.note_decoded()
        if is_corrupt:
            image = marked(image)
        return rotated(image, turns) if turns else image

    def _next_pass(self) -> Packet[Any] | None:
        """At the end of a recording: the first packet of the next pass, None if it does not loop."""
        if self._demuxer.loops_seamlessly:
            self._demuxer.rewind()
            return self._demuxer.next() or self._next_pass()
        if self._pending.count:
            self._report_lost()
        if self._config.loop:
            self._demuxer.rewind()
            self._pending.clear()
            self._begin(self._demuxer.stream)
            return self._demuxer.next() or self._next_pass()
        self._demuxer.check_length()
        return None

    def _decode_packet(self, packet: Packet[Any], pictures: int) -> bool:
        """Whether the decoder has taken it. Another packet is counted when it comes again."""
        hidden = 0  # pictures
        if packet.is_discard and packet.pts is not None:  # others may refer to it, but it is not shown
            self._marks.discarded.add(packet.pts)
            hidden, pictures = pictures, 0
        if packet.is_corrupt and pictures:
            self._marks.corrupt.add(packet.pts)
        try:
            for frame in self._decoder.decode(packet):
                if not self._marks.discarded.has(frame.pts):  # the decoder does not know edit lists
                    self._frames.append(frame)
            if self._decoder.is_waiting:
                return False
        except DecodeError as error:
            self._note_sent(packet, pictures, hidden)
            if packet.size and not pictures:
                return True
            self._pending.lose(packet)
            hint = self._keys.hint or f": {error}"
            raise self._keys.lost(DecodeError(f"a picture of {self._config.url} cannot be decoded{hint}")) from error
        except UnsuitableError as error:
            self._decoding.on_refusal(str(error))
            raise SourceError(f"{self._config.url} cannot be decoded: {error}") from error
        self._note_sent(packet, pictures, hidden)
        return True

    def _note_sent(self, packet: Packet[Any], pictures: int, hidden: int) -> None:
        """Note a packet that the decoder has taken, the pictures that are expected of it, and those that are hidden."""
        self._pending.add(packet, pictures)
        if hidden:
            self._passed_over["not_shown"] += hidden
        self._keys.note_packet(packet)

    def _report_lost(self) -> None:
        """Decoders drop broken pictures silently; more packets than pictures reveal it."""
        self._pending.lose()
        raise self._keys.lost(DecodeError(f"a packet of {self._config.url} gave no picture{self._keys.hint}"))
