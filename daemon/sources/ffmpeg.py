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

from daemon.config import AvConfig
from daemon.errors import CorruptError, DecodeError, NoKeyError, SourceError
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
from daemon.sources.history import SourceHistory
from daemon.sources.logins import LOGINS
from daemon.sources.packet_info import PacketDescriber
from daemon.sources.packets import Demuxer
from daemon.sources.pending import PendingPictures
from daemon.sources.pictures import PictureCounter
from daemon.sources.playlist import Playlist, is_playlist
from daemon.sources.port import DecodeBudget, PacketInfo, PacketTap, Picture, Skipped
from daemon.sources.rotation import rotated, rotated_format, turns_of
from daemon.sources.skipping import FrameSkipper, SkipCause
from detectors.port import Image
from lookoutd.messages import FrameClock, VideoFormat

_KEY_HINT = ": it has sent no key picture yet; set the camera to send one every second or two"
_KEY_LIMIT_S = 600.0  # without a key picture, after which another connection may bring one
_KEYED = ("h264", "hevc")  # codecs whose pictures refer to others for long
_HEAD_BYTES = 4096  # of a packet, with all that stands before its picture


class AvSource:
    """A URL, a file, or several files. By default files are recordings, and URLs with a scheme are live."""

    def __init__(self, config: AvConfig, decoder_pool: DecoderPool | None = None) -> None:
        self._config, self._decoder_pool = config, decoder_pool or NoHardwareDecoder("not asked for")
        self.live = config.url.scheme not in ("", "file") if config.kind == "auto" else config.kind == "live"
        self.plays_once = not self.live and not config.loop
        self.realtime = not self.live and config.pace == "realtime"
        self.clock = FrameClock("arrival") if self.live else FrameClock("file", 0)
        self._history = SourceHistory()
        self._refusal: str | None = None  # why the GPU's decoder gave up on the last connection
        path = config.url.path
        several = config.url.scheme in ("", "file") and is_playlist(path)
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


class AvReader:
    """One connection; see `daemon.sources.port.Reader`.

    Attributes:
        format: of the stream that is decoded now.
        tap: called with each packet, None for no tap; any thread may set it.
    """

    tap: PacketTap | None = None
    format: VideoFormat

    def __init__(self, config: AvConfig, demuxer: Demuxer, decoding: Decoding, budget: DecodeBudget) -> None:
        self._config, self._demuxer, self._decoding, self._budget = config, demuxer, decoding, budget
        self._turns, self._drops_corrupt = decoding.turns, config.corrupt == "drop"
        self._frames: deque[DecodedPicture] = deque()
        self._discarded: set[int] = set()  # pts of pictures that an edit list removes
        self._corrupt: set[int] = set()  # pts of pictures whose packets are damaged
        self._decode_ns = 0
        self._pending = PendingPictures(by_dts=not demuxer.has_order)
        self._passed_over: Counter[str] = Counter()  # of packets without a picture
        self._stated_turns: int | None = None  # in the video itself
        self._has_key = False
        self._keys = 0  # pictures since the last one that was decoded
        self._decoded_ns = monotonic_ns()  # when the last picture was decoded, or the connection began
        self._is_interlaced = False
        self._codec: str | None = None  # of the decoder
        self._parameters: tuple[str, bytes | None] | None = None  # of the stream
        self._decoder: Decoder
        self._notes = demuxer.notes
        self._begin(demuxer.stream)

    def read(self) -> Picture | Skipped | None:
        while True:
            while self._frames:
                frame = self._frames.popleft()
                if self._demuxer.is_new(frame.pts, frame.time_base):
                    return self._picture(frame)
                self._pending.deliver(frame.pts)
            if self._pending.is_late:
                self._report_lost()
            asked = monotonic_ns()
            packet = self._demuxer.next() or self._next_pass()
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
        if packet.is_keyframe and packet.size and self._packet_describer.note_key(packet):
            self._stated_turns = None
        if tap := self.tap:  # another thread may clear it
            tap(packet)
        pictures = self._pictures.count(memoryview(packet)) if packet.size else 0
        if pictures and not self._is_interlaced and self._demuxer.note_rate(packet, got):
            self._set_format(fps=self._demuxer.rate)
        if pictures and not self._has_key and self._demuxer.live:
            self._wait_for_key(packet)
        if pictures and (cause := self._skipper.skip_cause(packet, self._budget, got - asked)):
            return cause
        try:
            self._decode_packet(packet, pictures)
        finally:
            self._decode_ns += monotonic_ns() - got
        return None

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
        return self._packet_describer.describe(packet, self._demuxer.placed)

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
        context = stream.codec_context
        before, self._parameters = self._parameters, (context.name, context.extradata)
        self._stream = stream
        if self._parameters != before:
            self._prepare(stream, self._parameters)
        self._decoder.begin(stream)

    def _prepare(self, stream: VideoStream, parameters: tuple[str, bytes | None]) -> None:
        """Make what belongs to a stream: its decoder, and what looks into its packets."""
        codec, context, demuxer = parameters[0], stream.codec_context, self._demuxer
        if codec != self._codec:
            if self._codec:
                self._decoder.close()
            self._decoder, self._reason = self._decoding.make(stream)
            self._codec = codec
        self._bitstream = Bitstream(*parameters)
        self._pictures = PictureCounter(*parameters, self._bitstream)
        self._skipper = FrameSkipper(stream)
        self._in_bursts = demuxer.live and bool(context.has_b_frames)
        self._packet_describer = facts = PacketDescriber(stream, self._turns)
        self._seen = VideoFormat(
            codec, *facts.size, demuxer.rate, self._decoder.name, self._reason, facts.pixel_aspect, self._notes
        )
        self._set_format()

    def _set_format(self, **changes: object) -> None:
        self._seen = msgspec.structs.replace(self._seen, **changes)
        self.format = rotated_format(self._seen, self._turns)

    def _note_shape(self, size: tuple[int, int], turns: int) -> None:
        """Note the size of a picture, as in the stream, and its quarter turns. A camera may change them at any time."""
        seen, facts = self._seen, self._packet_describer
        if (seen.width, seen.height, seen.pixel_aspect, self._turns) != (*size, facts.pixel_aspect, turns):
            self._turns = facts.turns = turns
            facts.size = size
            self._set_format(width=size[0], height=size[1], pixel_aspect=facts.pixel_aspect)

    def _change(self, stream: VideoStream) -> None:
        """Go on with another stream."""
        codec, self._parameters = stream.codec_context.name, None
        what = f"changes from {self._codec} to {codec}" if codec != self._codec else "goes on in another stream"
        self._notes = (*self._demuxer.notes, f"its video {what} after {self._demuxer.played_s:.1f} s")
        self._pending.clear()
        self._demuxer.begin_stream()
        self._begin(stream)

    def _picture(self, frame: DecodedPicture) -> Picture:
        decode, self._decode_ns = self._decode_ns, 0
        place = self._pending.deliver(frame.pts)
        if frame.interlaced:  # a packet may hold one field, so packets and pictures cannot be compared
            self._pending.clear()
            self._is_interlaced = True
        time = self._demuxer.time_of(frame.pts, frame.time_base, place)
        sent_at = self._demuxer.sent_at(frame.pts, frame.time_base)
        is_corrupt = frame.pts in self._corrupt
        if is_corrupt:
            self._corrupt = {pts for pts in self._corrupt if frame.pts is not None and pts > frame.pts}
        turns = self._turns_of(frame)
        if frame.size:
            self._note_shape(frame.size, turns)
        load = partial(self._load, frame.load, is_corrupt, turns)
        return Picture(time, decode, load, sent_at, self._in_bursts)

    def _turns_of(self, frame: DecodedPicture) -> int:
        """Quarter turns of a picture: as was set, or as the video states; that holds until it states another, or begins
        anew with other parameter sets."""
        if self._config.rotate != "auto":
            return self._decoding.turns
        if frame.turns is not None:
            self._stated_turns = frame.turns
        return self._decoding.turns if self._stated_turns is None else self._stated_turns

    def _load(self, load: Callable[[], Image], is_corrupt: bool, turns: int) -> Image:
        image = load()
        self._note_shape((image.width, image.height), turns)
        if (is_corrupt or image.corrupt) and self._drops_corrupt:
            raise self._lost(CorruptError(f"a picture of {self._config.url} is damaged"))
        self._keys, self._decoded_ns = 0, monotonic_ns()
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

    def _decode_packet(self, packet: Packet[Any], pictures: int) -> None:
        if packet.size and not pictures:
            self._passed_over["no_picture" if self._pictures.shows_all else "not_shown"] += 1
        if packet.is_discard and packet.pts is not None:  # others may refer to it, but it is not shown
            self._discarded.add(packet.pts)
            self._passed_over["not_shown"] += pictures
            pictures = 0
        if packet.is_corrupt and packet.pts is not None and pictures:
            self._corrupt.add(packet.pts)
        self._pending.add(packet, pictures)
        self._has_key = self._has_key or packet.is_keyframe
        self._keys += packet.is_keyframe
        try:
            for frame in self._decoder.decode(packet):
                if frame.pts in self._discarded:  # the decoder does not know edit lists
                    continue
                self._discarded = {pts for pts in self._discarded if frame.pts is None or pts > frame.pts}
                self._frames.append(frame)
        except DecodeError as error:
            if packet.size and not pictures:
                return
            self._pending.lose(packet)
            hint = self._key_hint or f": {error}"
            raise self._lost(DecodeError(f"a picture of {self._config.url} cannot be decoded{hint}")) from error
        except UnsuitableError as error:
            self._decoding.on_refusal(str(error))
            raise SourceError(f"{self._config.url} cannot be decoded: {error}") from error

    @property
    def _key_hint(self) -> str:
        return "" if self._has_key else _KEY_HINT

    def _report_lost(self) -> None:
        """Decoders drop broken pictures silently; more packets than pictures reveal it."""
        self._pending.lose()
        raise self._lost(DecodeError(f"a packet of {self._config.url} gave no picture{self._key_hint}"))

    def _wait_for_key(self, packet: Packet[Any]) -> None:
        """Decode nothing of a live stream before its first key picture: decoders would show remains of pictures.

        Raises:
            NoKeyError: it has not come yet.
        """
        self._has_key = packet.is_keyframe or self._codec not in _KEYED
        self._has_key = self._has_key or self._bitstream.begins_recovery(bytes(memoryview(packet)[:_HEAD_BYTES]))
        if not self._has_key:
            raise self._lost(NoKeyError(f"a picture of {self._config.url} cannot be decoded{_KEY_HINT}"))

    def _lost(self, error: DecodeError) -> DecodeError:
        """The loss of a picture, marked if it is not worth another connection: the next key picture may bring the rest.

        Raises:
            SourceError: none has come for too long.
        """
        error.awaits_key = self._keys == 0
        waited = (monotonic_ns() - self._decoded_ns) / 1e9
        if error.awaits_key and waited > _KEY_LIMIT_S:
            raise SourceError(f"no key picture of {self._config.url} in {waited:.0f} s; the last: {error}")
        return error
