"""The beginning of a recording, which a player needs before all fragments: `ftyp` and `moov`, made by FFmpeg."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from struct import Struct, error
from typing import Any, Final

import av
import av.error

from daemon.recording.errors import StoreError
from daemon.recording.records import Stream
from daemon.sources.bitstream import Bitstream

CODECS: Final = {"h264": "avc1", "hevc": "hvc1"}
_FLAGS = {"movflags": "empty_moov+default_base_moof+frag_custom"}
_MAX_TICKS = 90_000  # a second; finer units of time are rounded to this one
_KEPT = 512  # of streams, each under a kilobyte
_NANOSECONDS = 1_000_000_000
_MDHD_TIMESCALE = 12  # offsets from the end of a box's type
_TKHD_MATRIX = 40
_WORD = Struct(">I")
_MATRIX = Struct(">9i")
# Of the display matrix (ISO/IEC 14496-12, 8.3.2) for quarter turns clockwise: a, b, c, d.
_TURNS = ((1, 0, 0, 1), (0, 1, -1, 0), (-1, 0, 0, -1), (0, -1, 1, 0))


@dataclass(frozen=True)
class InitSegment:
    """The beginning of the files of a stream.

    Attributes:
        ftyp, moov: bytes of the boxes.
        timescale: ticks a second of the file.
        unit: seconds, of the stream; a whole number of ticks.
    """

    ftyp: bytes
    moov: bytes
    timescale: int
    unit: Fraction

    def ticks(self, times_ns: Iterable[int]) -> list[int]:
        """The nearest times that the stream can say, in ticks: the daemon has rounded down to whole nanoseconds."""
        numerator, denominator = self.unit.numerator, self.unit.denominator
        scale = numerator * _NANOSECONDS
        half, step = scale // 2, self.timescale * numerator // denominator
        return [(time * denominator + half) // scale * step for time in times_ns]

    def nanoseconds(self, ticks: int) -> int:
        """Rounded down, as the daemon has it."""
        return ticks * _NANOSECONDS // self.timescale


_Key = tuple[Stream, bytes]
_made: OrderedDict[_Key, InitSegment] = OrderedDict()


def init_segment(stream: Stream, first: memoryview | bytes) -> InitSegment:
    """The beginning for a stream; kept for its next files.

    Args:
        first: a packet of the stream, best a key picture: parameter sets may stand there alone.

    Raises:
        StoreError: it cannot be recorded, with the cause `codec`.
    """
    bits = Bitstream(stream.codec, stream.extradata)
    sets = bits.parameter_sets(bytes(first))
    key = Stream("", *(getattr(stream, name) for name in stream.__struct_fields__[1:])), sets
    if key in _made:
        _made.move_to_end(key)
        return _made[key]
    if stream.codec not in CODECS:
        raise StoreError(f"{stream.codec} cannot be recorded: only H.264 and HEVC can", "codec")
    try:
        made = _make(stream, bits, bytes(first))
    except (av.error.FFmpegError, ValueError, IndexError, OSError, error) as problem:
        raise StoreError(f"its {stream.codec} cannot be recorded: {problem}", "codec") from problem
    _made[key] = made
    while len(_made) > _KEPT:
        _made.popitem(last=False)
    return made


def _make(stream: Stream, bits: Bitstream, first: bytes) -> InitSegment:
    data = bytes(bits.to_annex_b(first, key=True)) if bits.has_lengths else first
    if bits.has_start_codes and not bits.parameters(first):
        data = stream.extradata + data
    unit, sink = _unit(stream), io.BytesIO()
    with av.open(io.BytesIO(data), format=stream.codec) as probe:
        output: Any = av.open(sink, "w", format="mp4", options=_FLAGS)
        track: Any = output.add_stream_from_template(probe.streams.video[0])
        track.codec_context.codec_tag = CODECS[stream.codec]
        track.time_base = unit
        output.start_encoding()
    written = bytearray(sink.getvalue())
    moov = _find(written, b"moov")
    ftyp, body = bytes(written[: moov - 8]), written[moov - 8 :]
    at = _find(body, b"mdhd") + _MDHD_TIMESCALE
    (timescale,) = _WORD.unpack_from(body, at)
    if timescale * unit.numerator % unit.denominator:
        unit = Fraction(1, timescale)
    _turn(body, stream)
    return InitSegment(ftyp, bytes(body), timescale, unit)


def _turn(moov: bytearray, stream: Stream) -> None:
    """Have players show the picture upright."""
    turns, one, width, height = stream.turns % 4, 1 << 16, stream.width << 16, stream.height << 16
    a, b, c, d = (number * one for number in _TURNS[turns])
    x, y = ((0, 0), (height, 0), (width, height), (0, width))[turns]
    _MATRIX.pack_into(moov, _find(moov, b"tkhd") + _TKHD_MATRIX, a, b, 0, c, d, 0, x, y, 1 << 30)


def _find(data: bytes | bytearray, kind: bytes) -> int:
    """Offset behind a box's type."""
    at = data.find(kind)
    if at < 0:
        raise ValueError(f"no box {kind!r} was written")
    return at + 4


def _unit(stream: Stream) -> Fraction:
    numerator, denominator = stream.time_base
    if numerator <= 0 or denominator <= 0 or denominator > _MAX_TICKS * numerator:
        return Fraction(1, _MAX_TICKS)
    return Fraction(numerator, denominator)
