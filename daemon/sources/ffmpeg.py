"""RTSP cameras and recordings: packets through PyAV (FFmpeg), pictures by the GPU's decoder or on the CPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
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
from daemon.sources.decode import Decoded, Decoder, DecoderPool, NoHardwareDecoder, SoftwareDecoder, UnsuitableError
from daemon.sources.packets import Demuxer
from daemon.sources.playlist import Playlist, is_several
from daemon.sources.port import DecodeBudget, PacketTap, Picture, Skipped
from daemon.sources.rotation import turned, turns_of, upright
from daemon.sources.skipping import FrameSkipper
from detectors.port import Image

_NO_KEY = ": it has sent no key picture yet, with which decoding begins; have it send one every second or two"
_MOST_DELAYED = 32  # pictures in a decoder: 16 that H.264 may reorder, and one for each thread


class AvSource:
    """A URL, a file, or several files. Unless told otherwise, files are recordings, and what has a scheme is live."""

    def __init__(self, config: AvConfig, hardware: DecoderPool | None = None) -> None:
        self._config, self._hardware = config, hardware or NoHardwareDecoder("not asked for")
        self.live = config.url.scheme not in ("", "file") if config.kind == "auto" else config.kind == "live"
        self.once = not self.live and not config.loop
        self.paced = not self.live and config.pace == "realtime"
        self.clock = FrameClock("arrival") if self.live else FrameClock("file", 0)
        self._refused: str | None = None  # why the GPU's decoder gave up on the last connection
        path = config.url.reveal().removeprefix("file://")
        several = config.url.scheme in ("", "file") and is_several(path)
        self._playlist = Playlist(path, loop=config.loop) if several else None

    @property
    def goes_on(self) -> bool:
        return self._playlist is not None and self._playlist.goes_on

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
        """What decodes this stream; where auto would rather have had another, why not."""
        if self._config.decode == "cpu":
            return SoftwareDecoder(), None
        try:
            if self._config.decode == "auto" and self._refused:
                raise UnsuitableError(self._refused)
            return self._hardware.decoder(stream, low_latency=self.live), None
        except UnsuitableError as error:
            if self._config.decode == "nvdec":
                raise SourceError(f"decode: nvdec is not possible for {self._config.url}: {error}") from error
            self._refused = None
            return self._hardware.software(stream), str(error)

    def _refuse(self, reason: str) -> None:
        self._refused = reason


@dataclass(frozen=True)
class Decoding:
    """How a connection's packets become pictures.

    Attributes:
        reason: why it is this decoder, where auto would rather have had another.
        turns: quarters of a turn clockwise that make a picture upright.
        on_refusal: told why the decoder cannot go on with this stream.
    """

    decoder: Decoder
    reason: str | None
    turns: int
    on_refusal: Callable[[str], None]


class AvReader:
    """One connection; see `daemon.sources.port.Reader`.

    Attributes:
        tap: sees each packet; None where nobody looks, which costs nothing. From any thread.
    """

    tap: PacketTap | None = None

    def __init__(self, config: AvConfig, demuxer: Demuxer, decoding: Decoding, budget: DecodeBudget) -> None:
        decoder, turns = decoding.decoder, decoding.turns
        self._config, self._demuxer, self._budget = config, demuxer, budget
        self._decoder, self._on_refusal, self._turns = decoder, decoding.on_refusal, turns
        self._frames: deque[Decoded] = deque()
        self._unseen: set[int] = set()  # times of pictures that an edit list leaves out
        self._decode = 0
        self._owed = 0  # pictures that the decoder has packets for and has not given yet
        self._has_begun = False  # there was a key picture
        self._skipper = FrameSkipper(demuxer.stream)
        decoder.begin(demuxer.stream)
        context = demuxer.stream.codec_context
        size = context.width, context.height
        self._in_bursts = demuxer.live and bool(context.has_b_frames)
        aspect = float(demuxer.stream.sample_aspect_ratio or 1)
        seen = VideoFormat(
            context.name, *size, demuxer.rate, decoder.name, decoding.reason, round(aspect, 6), demuxer.notes
        )
        self.format = upright(seen, turns)

    def read(self) -> Picture | Skipped | None:
        while not self._frames:
            if self._owed > _MOST_DELAYED:
                self._give_up_one()
            asked = monotonic_ns()
            packet = self._demuxer.next() or self._first_again()
            if packet is None:
                return None
            got = monotonic_ns()
            if tap := self.tap:  # another thread may take it away meanwhile
                tap(packet)
            if cause := self._skipper.skip_cause(packet, self._budget, got - asked):
                return Skipped(cause)
            try:
                self._decode_packet(packet)
            finally:
                self._decode += monotonic_ns() - got
        frame = self._frames.popleft()
        decode, self._decode = self._decode, 0
        time = self._demuxer.time_of(frame.pts, frame.time_base)
        load = partial(self._load_turned, frame.load) if self._turns else frame.load
        sent_at = self._demuxer.sent_at(frame.pts, frame.time_base)
        return Picture(time, decode, load, sent_at, self._in_bursts)

    def close(self) -> None:
        self._frames.clear()
        self._decoder.close()
        self._demuxer.close()

    def _load_turned(self, load: Callable[[], Image]) -> Image:
        return turned(load(), self._turns)

    def _first_again(self) -> Packet[Any] | None:
        """At the end of a recording: the first packet of the next pass; None if it does not loop."""
        if self._demuxer.is_endless:
            self._demuxer.begin_again()
            return self._demuxer.next() or self._first_again()
        if self._owed > 0:
            self._give_up_one()
        if self._config.loop:
            self._demuxer.begin_again()
            self._decoder.begin(self._demuxer.stream)
            return self._demuxer.next() or self._first_again()
        self._demuxer.check_length()
        return None

    def _decode_packet(self, packet: Packet[Any]) -> None:
        if packet.is_discard and packet.pts is not None:  # others may need it, and nobody is to see it
            self._unseen.add(packet.pts)
        else:
            self._owed += packet.size > 0
        self._has_begun = self._has_begun or packet.is_keyframe
        try:
            for frame in self._decoder.decode(packet):
                if frame.pts in self._unseen:  # of a decoder that does not know
                    continue
                self._unseen = {pts for pts in self._unseen if frame.pts is None or pts > frame.pts}
                self._frames.append(frame)
                # Where pictures are interlaced a packet may hold one field, and the sum would not come out.
                self._owed = 0 if frame.interlaced else max(0, self._owed - 1)
        except DecodeError as error:
            self._owed = max(0, self._owed - 1)
            words = self._no_key or f": {error}"
            raise DecodeError(f"a picture of {self._config.url} cannot be decoded{words}") from error
        except UnsuitableError as error:
            self._on_refusal(str(error))
            raise SourceError(f"{self._config.url} cannot be decoded: {error}") from error

    @property
    def _no_key(self) -> str:
        return "" if self._has_begun else _NO_KEY

    def _give_up_one(self) -> None:
        """Decoders drop what they cannot decode without a word; the sum of packets and pictures tells."""
        self._owed -= 1
        raise DecodeError(f"no picture came of a packet of {self._config.url}{self._no_key}")
