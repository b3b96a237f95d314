"""Reads the first bytes of a packet without decoding it: its parameter sets, and whether other pictures need it.

H.264 (ITU-T H.264, 7.4.1) and HEVC (H.265, 7.4.2.2) consist of NAL units. Each follows a start code ("Annex B": live
streams and bare files) or its length (MP4, Matroska). VP9 and MJPEG state their size in the picture's header.
`pictures.py` counts the pictures of a packet.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

_START = b"\0\0\1"
_START_4 = b"\0\0\0\1"
_LENGTH = Struct(">I")
_LONG_PREFIX = len(_START_4)
_HEADER_BYTES = 2  # bytes of a NAL unit's header
_HEAD_BYTES = 256  # bytes read of a packet without parameter sets
_PICTURE, _PARAMETER_SET, _OTHER = range(3)  # kinds of NAL units
_H264 = dict.fromkeys(range(1, 6), _PICTURE) | {7: _PARAMETER_SET}
_HEVC = dict.fromkeys(range(32), _PICTURE) | {33: _PARAMETER_SET}
# First bytes of the units that are beside pictures: SEI, parameter sets, delimiters, ends, filler.
_SIDE = {
    "h264": frozenset(first for first in range(128) if 6 <= first & 0x1F <= 13),
    "hevc": frozenset(first for first in range(128) if 32 <= first >> 1 <= 40),
}
# All parameter sets: those of a sequence, of pictures, and of layers.
_ALL_SETS = {
    "h264": frozenset(first for first in range(128) if first & 0x1F in (7, 8, 13, 15)),
    "hevc": frozenset(first for first in range(128) if 32 <= first >> 1 <= 34),
}
# The beginning of an SEI unit with a recovery point.
_RECOVERY_POINTS = {"h264": b"\0\0\1\x06\x06", "hevc": b"\0\0\1\x4e\x01\x06"}
# The kind of a unit, by its first byte.
_KINDS = {
    "h264": bytes(_H264.get(first & 0x1F, _OTHER) for first in range(256)),
    "hevc": bytes(_HEVC.get(first >> 1 & 0x3F, _OTHER) for first in range(256)),
}


class Bitstream:
    """The bitstream of one codec.

    Args:
        extradata: of the stream, from FFmpeg.

    Attributes:
        has_lengths: units follow their lengths.
        has_start_codes: units follow start codes, also in extradata.
    """

    def __init__(self, codec: str, extradata: bytes | None) -> None:
        self._codec = codec
        self._kinds = _KINDS.get(codec, b"")
        self._side = _SIDE.get(codec, frozenset())
        self._length = length_size(codec, extradata or b"")
        self._sets = _parameter_sets(codec, extradata or b"") if self._length else b""
        self._top_layer = 0  # HEVC: the highest temporal layer seen
        self.has_lengths = self._length > 0
        self.has_start_codes = self._length == 0 and codec in ("h264", "hevc")

    def parameters(self, data: bytes | bytearray) -> bytes:
        """The parameters that a decoder is created for: sequence parameter sets, or the size; empty if there are none.

        Args:
            data: a whole packet, or its beginning; H.264 and HEVC with start codes.
        """
        if self._kinds:
            return _sets(data, self._kinds)
        if self._codec == "vp9":
            return _vp9_size(bytes(data))
        if self._codec == "mjpeg":
            return _jpeg_size(bytes(data))
        return b"\0"  # other codecs: one decoder for every stream

    def parameter_sets(self, data: bytes) -> bytes:
        """All parameter sets before the picture, with start codes; of H.264 and HEVC with start codes.

        Args:
            data: a packet, or its beginning.
        """
        if not self.has_start_codes:
            return b""
        return b"".join(_START_4 + unit for unit in self._set_units(data))

    def has_sets(self, sets: bytes, extradata: bytes) -> bool:
        """Whether extradata holds all of some parameter sets; both with start codes."""
        return set(self._set_units(sets)) <= set(self._set_units(extradata))

    def to_annex_b(self, data: memoryview | bytes, *, key: bool) -> bytearray:
        """Replace lengths by start codes, and put parameter sets before a key picture.

        Does what FFmpeg's filters h264_mp4toannexb and hevc_mp4toannexb do, without releasing the GIL three times.
        """
        size = self._length
        converted = bytearray(data)
        units = []
        at, end = 0, len(converted) - size
        if size == 4:
            while at <= end:
                (length,) = _LENGTH.unpack_from(converted, at)
                converted[at : at + 4] = _START_4
                at += 4 + length
        else:
            while at <= end:
                length = int.from_bytes(converted[at : at + size], "big")
                units.append(converted[at + size : at + size + length])
                at += size + length
            converted = bytearray(b"".join(_START_4 + unit for unit in units))
        if key and not self.parameters(converted):
            converted[:0] = self._sets
        return converted

    def is_disposable(self, data: bytes) -> bool:
        """Whether no other picture refers to this one, so that it can be skipped.

        Args:
            data: the beginning of a packet, as it is in the stream.
        """
        if self._codec == "mjpeg":
            return True
        unit = self._picture(data)
        if not unit:
            return False
        if self._codec == "h264":
            return unit[0] >> 5 & 3 == 0  # nal_ref_idc
        kind, layer = unit[0] >> 1 & 0x3F, unit[1] & 7
        self._top_layer = max(self._top_layer, layer)
        # Even types below 16 are non-reference pictures of their layer. In the highest layer nothing refers to them.
        return kind < 16 and kind % 2 == 0 and layer == self._top_layer

    def is_random_access(self, data: bytes | memoryview) -> bool:
        """Whether this picture and all that follow refer to no earlier picture.

        Args:
            data: a whole packet, as it is in the stream.
        """
        if self._codec == "mjpeg":
            return True
        if self._codec == "vp9":
            return bool(_vp9_size(bytes(data)))
        unit = self._picture(data)
        if not unit:
            return False
        # IDR pictures. Other key pictures may be followed by pictures that refer to older ones.
        return unit[0] & 0x1F == 5 if self._codec == "h264" else unit[0] >> 1 & 0x3F in (19, 20)

    def has_picture(self, data: bytes | memoryview) -> bool:
        """Whether a packet of H.264 or HEVC is to hold a part of a picture: it is damaged, or not all of its units are
        parameter sets, SEI or delimiters."""
        first = self._length or _LONG_PREFIX  # most packets begin with a picture
        if len(data) > first and self._kinds[data[first]] == _PICTURE and (self._length or data[:first] == _START_4):
            return True
        if self._picture(head(data)):
            return True
        units = list(_prefixed_units(data, self._length) if self._length else _units(bytes(data)))
        is_side = all(unit and unit[0] in self._side for unit in units)
        return not (units and is_side and (self._length == 0 or _fits(data, self._length)))

    def begins_recovery(self, data: bytes) -> bool:
        """Whether a decoder may begin with this picture though it is no key picture: encoders that refresh the picture
        bit by bit send none. Of streams with start codes.

        Args:
            data: the beginning of a packet.
        """
        return self.has_start_codes and _RECOVERY_POINTS[self._codec] in data

    def _set_units(self, data: bytes) -> Iterator[bytes]:
        at = data.find(_START)
        while 0 <= at < len(data) - 3:
            begin = at + 3
            if self._kinds[data[begin]] == _PICTURE:
                return
            at = data.find(_START, begin)
            if data[begin] in _ALL_SETS[self._codec]:
                yield (data[begin:at] if at >= 0 else data[begin:]).rstrip(b"\0")

    def _picture(self, data: bytes | memoryview) -> bytes:
        """The header of the first unit that is part of a picture; empty if there is none, or the codec has no units."""
        if self._kinds:
            for unit in _prefixed_units(data, self._length) if self._length else _units(bytes(data)):
                if len(unit) == _HEADER_BYTES and self._kinds[unit[0]] == _PICTURE:
                    return unit
        return b""


def head(packet: memoryview | bytearray | bytes) -> bytes:
    """The part of a packet that `is_disposable` and `parameters` need."""
    return bytes(packet[:_HEAD_BYTES])


def _units(data: bytes) -> Iterator[bytes]:
    """Headers of the units that follow start codes, found one by one."""
    at = data.find(_START)
    while at >= 0:
        yield data[at + 3 : at + 3 + _HEADER_BYTES]
        at = data.find(_START, at + 3)


def _sets(data: bytes | bytearray, units: bytes) -> bytes:
    """The distinct parameter sets before the picture.

    Args:
        units: the kind of a unit, by its first byte.
    """
    found: dict[bytes, None] = {}
    at = data.find(_START)
    while 0 <= at < len(data) - 3:
        begin = at + 3
        kind = units[data[begin]]
        if kind == _PICTURE:
            break
        at = data.find(_START, begin)
        if kind == _PARAMETER_SET:
            found[bytes(data[begin:at] if at >= 0 else data[begin:]).rstrip(b"\0")] = None
    return b"".join(found)


def _prefixed_units(data: bytes | memoryview, size: int) -> Iterator[bytes]:
    """Headers of the units that follow lengths of `size` bytes."""
    at = 0
    while at + size < len(data):
        length = int.from_bytes(data[at : at + size], "big")
        yield bytes(data[at + size : at + size + min(length, _HEADER_BYTES)])
        at += size + length


def _fits(data: bytes | memoryview, size: int) -> bool:
    """Whether units with lengths of `size` bytes fill the packet."""
    at = 0
    while at + size < len(data):
        at += size + int.from_bytes(data[at : at + size], "big")
    return at == len(data)


def length_size(codec: str, extradata: bytes) -> int:
    """Bytes of each unit's length field, from avcC or hvcC (ISO/IEC 14496-15); 0 for start codes."""
    if not extradata or extradata[0] != 1:
        return 0
    if codec == "h264" and len(extradata) > 4:
        return (extradata[4] & 3) + 1
    if codec == "hevc" and len(extradata) > 21:
        return (extradata[21] & 3) + 1
    return 0


def _parameter_sets(codec: str, extradata: bytes) -> bytes:
    """The parameter sets in avcC or hvcC, with start codes; if it is damaged, those that are complete."""
    sets: list[bytes] = []

    def read(at: int, count: int) -> int:
        for _ in range(count):
            length = int.from_bytes(extradata[at : at + 2], "big")
            sets.append(extradata[at + 2 : at + 2 + length])
            at += 2 + length
        return at

    if codec == "h264":
        at = read(6, extradata[5] & 31 if len(extradata) > 5 else 0)
        read(at + 1, extradata[at] if at < len(extradata) else 0)
    elif codec == "hevc":
        at = 23
        for _ in range(extradata[22] if len(extradata) > 22 else 0):
            at = read(at + 3, int.from_bytes(extradata[at + 1 : at + 3], "big"))
    return b"".join(_START_4 + unit for unit in sets if unit)


def _vp9_size(data: bytes) -> bytes:
    """Width and height of a key picture of profile 0 or 1 (VP9 bitstream specification, 6.2)."""
    # frame_marker 10, profile 2 bits, show_existing 0, frame_type 0 for a key picture; then a sync code and colour
    is_key = len(data) > 8 and data[0] & 0xCC == 0x80 and data[1:4] == b"\x49\x83\x42"
    return data[4:9] if is_key else b""


def _jpeg_size(data: bytes) -> bytes:
    """The frame header, with size and sampling (ITU-T T.81, B.2.2)."""
    at = 2
    while at + 4 < len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return data[at + 4 : at + 2 + length]
        at += 2 + length
    return b""
