"""How many pictures a packet holds that a decoder shows: not all packets hold one."""

from __future__ import annotations

from collections.abc import Callable

from daemon.sources.bitstream import Bitstream

_VOP = b"\0\0\1\xb6"  # MPEG-4 Visual (ISO/IEC 14496-2, 6.2.5): a picture
_VOL = b"\0\0\1"  # and a code of 0x20 to 0x2F: the parameters of pictures
_PICTURE = b"\0\0\1\0"  # MPEG-1 and MPEG-2 video: a picture
_OBUS = frozenset((3, 4, 6))  # AV1: header of a frame, tiles of one, or both
_START_BYTES = 4


class PictureCounter:
    """Counts the pictures of packets.

    Args:
        codec: FFmpeg's name.
        extradata: of the stream.

    Attributes:
        shows_all: a packet without a picture holds no picture at all, and not one that is not shown.
    """

    def __init__(self, codec: str, extradata: bytes | None, bitstream: Bitstream) -> None:
        self.shows_all = codec not in ("vp8", "vp9")
        self._bitstream = bitstream
        self._time_bits = _time_bits(extradata or b"")
        self._count: Callable[[memoryview], int] | None = {
            "h264": self._units,
            "hevc": self._units,
            "mpeg4": self._mpeg4,
            "mpeg1video": _mpeg2,
            "mpeg2video": _mpeg2,
            "vp8": _vp8,
            "vp9": _vp9,
            "av1": _av1,
            "libdav1d": _av1,
            "theora": _theora,
        }.get(codec)

    def count(self, packet: memoryview) -> int:
        """The number of pictures that the decoder gives for a packet; 1 for codecs that are not known here."""
        return 1 if self._count is None else self._count(packet)

    def _units(self, packet: memoryview) -> int:
        return int(self._bitstream.has_picture(packet))

    def _mpeg4(self, packet: memoryview) -> int:
        """DivX puts a P and a B picture into one packet, and an empty picture into the next."""
        data = bytes(packet)
        self._time_bits = _time_bits(data) or self._time_bits
        count, at = 0, data.find(_VOP)
        while at >= 0:
            count += _is_coded(data[at + _START_BYTES : at + _START_BYTES + 8], self._time_bits)
            at = data.find(_VOP, at + _START_BYTES)
        return count


def _theora(packet: memoryview) -> int:
    """Headers, which come again where recordings are joined, have the highest bit (Theora specification, 6.1)."""
    return 0 if packet[0] & 0x80 else 1


def _mpeg2(packet: memoryview) -> int:
    return int(_PICTURE in bytes(packet))


def _vp8(packet: memoryview) -> int:
    """RFC 6386, 9.1: show_frame."""
    return packet[0] >> 4 & 1


def _vp9(packet: memoryview) -> int:
    """VP9 bitstream specification, 6.2 and annex B: a superframe shows one of its frames."""
    if packet[-1] & 0xE0 == 0xC0:
        return 1
    profile = packet[0] >> 5 & 1 | packet[0] >> 3 & 2
    bits = packet[0] << (1 if profile == 3 else 0)
    return 1 if bits & 0x08 else bits >> 1 & 1  # show_existing_frame; frame_type; show_frame


def _av1(packet: memoryview) -> int:
    """AV1 bitstream specification, 5.3: a temporal unit shows one frame."""
    at = 0
    while at < len(packet):
        header = packet[at]
        if header >> 3 & 15 in _OBUS:
            return 1
        at += 2 if header & 4 else 1
        if not header & 2:
            return 0
        size = shift = 0
        while at < len(packet):
            byte = packet[at]
            size |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if not byte & 0x80:
                break
        at += size
    return 0


def _is_coded(header: bytes, time_bits: int) -> bool:
    """Whether an MPEG-4 picture is coded, and not the sign that the last one is shown again.

    Args:
        header: the bytes behind its start code.
        time_bits: of its time within a second; 0 if unknown.
    """
    bits = _Bits(header)
    bits.read(2)  # vop_coding_type
    while bits.read(1):  # modulo_time_base
        pass
    bits.read(1 + time_bits + 1)
    return time_bits == 0 or bool(bits.read(1))


def _time_bits(data: bytes) -> int:
    """Bits of a picture's time, from the parameters in extradata or a packet (6.2.3); 0 if there are none."""
    at = data.find(_VOL)
    while at >= 0 and data[at + 3 : at + 4] and not 0x20 <= data[at + 3] <= 0x2F:
        at = data.find(_VOL, at + 3)
    if at < 0 or not data[at + 3 : at + 4]:
        return 0
    bits = _Bits(data[at + _START_BYTES : at + 40])
    bits.read(1 + 8)
    if bits.read(1):  # is_object_layer_identifier
        bits.read(4 + 3)
    if bits.read(4) == 15:  # aspect_ratio_info: extended
        bits.read(8 + 8)
    if bits.read(1):  # vol_control_parameters
        bits.read(2 + 1)
        if bits.read(1):  # vbv_parameters
            bits.read(79)
    bits.read(2 + 1)  # video_object_layer_shape
    return max(1, (bits.read(16) - 1).bit_length())


class _Bits:
    """Reads bits, the highest of each byte first; zeros behind the end."""

    def __init__(self, data: bytes) -> None:
        self._value, self._left = int.from_bytes(data, "big"), 8 * len(data)

    def read(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            return 0
        return self._value >> self._left & (1 << count) - 1
