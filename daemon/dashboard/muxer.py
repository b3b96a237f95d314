"""Packets of one source become fragmented MP4, which browsers play. Nothing is encoded again."""

from __future__ import annotations

import io
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
import av.error
import msgspec
from av.packet import Packet as AvPacket

from daemon.lateness import Lateness
from daemon.sources.bitstream import Bitstream
from daemon.sources.mime import mime_of
from lookout.messages import Packet

CODECS = {"h264": "avc1", "hevc": "hvc1"}
_FLAGS = {"movflags": "empty_moov+default_base_moof+frag_every_frame"}
_MAX_JUMP_S = 10.0  # forward in time; a longer one begins a new stream
_MAX_REORDER_NS = 1_000_000_000
_MAX_UNTIMED = 100  # packets
_MAX_TICKS = 90_000  # finer units of time are rounded to this one


class Init(msgspec.Struct, frozen=True):
    """A stream begins.

    Attributes:
        mime: for a SourceBuffer.
        base_pts: ns, pts of media time 0.
        turns: quarter turns clockwise that make the picture upright.
        segment: what a SourceBuffer gets before all fragments.
    """

    mime: str
    session: str
    base_pts: int
    width: int
    height: int
    turns: int
    segment: bytes


@dataclass(frozen=True)
class Fragment:
    """One picture.

    Attributes:
        key: playing may begin here.
        at_ns: when it was new here, monotonic: when it came, or earlier if those before it had come late.
    """

    data: bytes
    key: bool
    at_ns: int


@dataclass(frozen=True)
class Unplayable:
    """The stream cannot be shown as video."""

    reason: str


@dataclass(frozen=True)
class Lost:
    """Packets that did not come, or could not be used; the next fragment is of a key picture."""

    packets: int


Output = Init | Fragment | Unplayable | Lost


class SourceVideo:
    """The stream of one source: begins it, and begins it anew where its parameters change.

    Attributes:
        key_interval_s: between the last two key pictures; None if unknown.
    """

    def __init__(self) -> None:
        self.key_interval_s: float | None = None
        self._muxer: _Muxer | None = None
        self._parameters: tuple[object, ...] = ()
        self._index: int | None = None  # expected
        self._needs_key = True
        self._lost = 0
        self._key_pts: int | None = None
        self._untimed = 0  # packets in a row without a time
        self._refused = ""  # said once
        self._lateness = Lateness()

    def add(self, header: Packet, data: bytes, now_ns: int) -> list[Output]:
        """The output of a packet that comes now."""
        if header.codec not in CODECS:
            return self._refuse(f"its codec, {header.codec}, is not one that the page plays")
        if header.pts is None:  # a camera may send a few before its first report of the time
            self._untimed += 1
            return self._refuse("its packets have no timestamps") if self._untimed > _MAX_UNTIMED else []
        self._untimed = 0
        found: list[Output] = []
        missed = 0 if self._index is None else header.index - self._index
        self._index = header.index + 1
        if missed > 0 and self._muxer:
            self._needs_key = True
            self._lost += missed
        self._note_key(header)
        parameters = (header.session, header.codec, header.extradata, header.width, header.height, header.turns)
        if parameters[:1] != self._parameters[:1]:
            self._lateness = Lateness()  # another connection
        at_ns = now_ns - self._lateness.add(header.pts if header.dts is None else header.dts, now_ns)
        if parameters != self._parameters or (self._muxer and not self._muxer.follows(header)):
            self._close()
        if self._needs_key and not header.key:
            self._lost += self._muxer is not None
            return found
        if self._lost:
            found.append(Lost(self._lost))
        self._needs_key, self._lost = False, 0
        try:
            if self._muxer is None:
                self._muxer, self._parameters = _Muxer(header, data), parameters
                found.append(self._muxer.init)
            found += self._muxer.add(header, data, at_ns)
        except (av.error.FFmpegError, ValueError, IndexError, OSError) as error:
            self._close()
            return [*found, *self._refuse(f"its packets cannot be packed: {error}")]
        self._refused = ""
        return found

    def _refuse(self, reason: str) -> list[Output]:
        if reason == self._refused:
            return []
        self._refused = reason
        return [Unplayable(reason)]

    def _note_key(self, header: Packet) -> None:
        if header.key and header.pts is not None:
            if self._key_pts is not None and header.pts > self._key_pts:
                self.key_interval_s = round((header.pts - self._key_pts) / 1e9, 2)
            self._key_pts = header.pts

    def _close(self) -> None:
        self._muxer, self._parameters, self._needs_key, self._lost = None, (), True, 0


class _Sink(io.RawIOBase):
    """The output of the muxer."""

    def __init__(self) -> None:
        super().__init__()
        self._chunks: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._chunks.append(bytes(data))
        return len(data)

    def pop(self) -> bytes:
        found = b"".join(self._chunks)
        self._chunks.clear()
        return found


class _Muxer:
    """One stream. A picture leaves when the next one comes, because its duration is unknown before.

    Args:
        header, data: of a key picture.

    Raises:
        ValueError, FFmpegError: the stream cannot be packed.
    """

    def __init__(self, header: Packet, data: bytes) -> None:
        self._bits = Bitstream(header.codec, header.extradata)
        self._extradata = header.extradata if self._bits.has_start_codes else b""
        self._unit = _unit(header)
        # Before the time of decoding is known, it is less than a second before the picture's own time.
        first = header.dts if header.dts is not None else (header.pts or 0) - _MAX_REORDER_NS
        self._base = _ticks(first, self._unit)
        self._last: int | None = None  # dts, ticks
        self._pending_key, self._pending_ns = True, 0
        self._sink = _Sink()
        with av.open(io.BytesIO(self._annex_b(header, data)), format=header.codec) as probe:
            self._output: Any = av.open(self._sink, "w", format="mp4", options=_FLAGS)
            self._stream: Any = self._output.add_stream_from_template(probe.streams.video[0])
            self._stream.codec_context.codec_tag = CODECS[header.codec]
            self._stream.time_base = self._unit
            self._output.start_encoding()
        segment = self._sink.pop()
        base_pts = round(self._base * self._unit * 1_000_000_000)
        size = header.width, header.height
        self.init = Init(mime_of(segment), header.session, base_pts, *size, header.turns, segment)

    def follows(self, header: Packet) -> bool:
        """Whether a packet is a little later than the last one."""
        if self._last is None or header.dts is None:
            return True
        ahead = (_ticks(header.dts, self._unit) - self._base - self._last) * self._unit
        return 0 < ahead < _MAX_JUMP_S

    def add(self, header: Packet, data: bytes, at_ns: int) -> list[Fragment]:
        """The picture before this one, if there is one."""
        pts = _ticks(header.pts or 0, self._unit) - self._base
        dts = None if header.dts is None else _ticks(header.dts, self._unit) - self._base
        if dts is None:
            dts = 0 if self._last is None else min(pts, self._last + 1)
        if pts < dts or (self._last is not None and dts <= self._last):
            return []  # FFmpeg would refuse it
        packet: Any = AvPacket(self._annex_b(header, data))
        packet.stream, packet.time_base = self._stream, self._unit
        packet.pts, packet.dts, packet.is_keyframe = pts, dts, header.key
        self._last = dts
        self._output.mux_one(packet)
        written, key, pending_ns = self._sink.pop(), self._pending_key, self._pending_ns
        self._pending_key, self._pending_ns = header.key, at_ns
        return [Fragment(written, key, pending_ns)] if written else []

    def _annex_b(self, header: Packet, data: bytes) -> bytes:
        """With start codes, and with parameter sets before a key picture: a camera may send them in SDP alone."""
        if self._bits.has_lengths:
            return bytes(self._bits.to_annex_b(data, key=header.key))
        if header.key and self._extradata and not self._bits.parameters(data):
            return self._extradata + data
        return data


def _unit(header: Packet) -> Fraction:
    numerator, denominator = header.time_base
    if numerator <= 0 or denominator <= 0 or denominator > _MAX_TICKS * numerator:
        return Fraction(1, _MAX_TICKS)
    return Fraction(numerator, denominator)


def _ticks(time_ns: int, unit: Fraction) -> int:
    """To the nearest tick: the daemon has rounded down to whole nanoseconds."""
    scale = unit.numerator * 1_000_000_000
    return (time_ns * unit.denominator + scale // 2) // scale
