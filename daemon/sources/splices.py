"""Where a file goes on as another recording: a second header, or another codec."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_MAX_HEADER_BYTES = 4 << 20  # between two packets, where a header is looked for
_TS_PACKETS = (188, 192, 204)  # bytes of a packet of an MPEG transport stream
_TS_REACH = 4 << 20
# How a recording of a format begins, and how far into it these bytes are.
_SIGNATURES = {
    "matroska": (b"\x1a\x45\xdf\xa3", 0),
    "mov": (b"ftyp", 4),
    "flv": (b"FLV\x01", 0),
    "avi": (b"AVI LIST", 8),
}
_START = b"\0\0\1"
_MPEG2, _MPEG4, _USER_DATA = 0xB3, 0xB6, 0xB2  # a sequence; a picture
_HEVC_SETS = (b"\x40\x01", b"\x42\x01")
_H264_SETS = (0x27, 0x47, 0x67)
_H264_PROFILES = (66, 77, 88, 100, 110, 122, 244)
_CODECS = {"h264": "h264", "hevc": "hevc", "mpeg1video": "mpeg2video", "mpeg2video": "mpeg2video", "mpeg4": "mpeg4"}


@dataclass(frozen=True)
class Splice:
    """Where a file goes on in a container of its own; bytes of the file.

    Attributes:
        begin: of the container.
        read_to: packets that begin up to this byte are not of it, or have been read.
        until: where the container ends, because another one begins; None for the end of the file.
        end: where the packets before it end, None if the demuxer holds none of them.
        is_same: the stream goes on.
        id: the container's identifier of the stream that is read from there, None if it is the same as before.
        head: bytes that the container begins with before its own.
    """

    begin: int
    read_to: int = -1
    until: int | None = None
    end: int | None = None
    is_same: bool = False
    id: int | None = None
    head: bytes = b""


# The first units of most packets, by the bytes of their headers that tell: slices, parameter sets, SEI, delimiters of
# H.264 and HEVC; sequences, groups, pictures and user data of the others.
_H264_UNITS = (0x01, 0x06, 0x09, 0x21, 0x41, 0x61, 0x25, 0x45, 0x65, 0x27, 0x47, 0x67, 0x28, 0x48, 0x68)
_BEGINNINGS = {
    "h264": {(first, 0) for first in _H264_UNITS},
    "hevc": {(kind << 1, layer) for kind in (*range(10), *range(16, 22), *range(32, 41)) for layer in range(1, 8)},
    "mpeg2video": {(first, 0) for first in (0x00, 0xB2, 0xB3, 0xB5, 0xB8)},
    "mpeg4": {(first, 0) for first in (0x00, 0x20, 0xB0, 0xB2, 0xB3, 0xB5, 0xB6)},
}


def begins_at(path: Path, formats: set[str], begin: int, end: int | None) -> int | None:
    """Where a recording begins between two bytes of a file, None if none does.

    Args:
        formats: FFmpeg's names of its format.
        end: None for the end of the file.
    """
    signature, offset = next((_SIGNATURES[name] for name in formats if name in _SIGNATURES), (b"", 0))
    if not signature:
        return None
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size if end is None else end
        file.seek(begin)
        at = file.read(min(size - begin, _MAX_HEADER_BYTES)).find(signature) if size > begin else -1
    return None if at < offset else begin + at - offset


def tables_before(path: Path, at: int) -> int:
    """The last table of programs (PAT) of a transport stream before the packet at a byte; that byte if none is near."""
    begin = max(0, at - _TS_REACH)
    with path.open("rb") as file:
        file.seek(begin)
        data = file.read(at - begin + 1)
    last = len(data) - 1
    size = next((size for size in _TS_PACKETS if last >= size and data[last] == data[last - size] == 0x47), None)
    for place in range(last - size, -1, -size) if size else ():
        if data[place] == 0x47 and data[place + 1] & 0x1F == 0 and data[place + 2] == 0:
            return begin + place
    return at


def other_codec(data: bytes, codec: str) -> str | None:
    """The codec of a key picture in a packet with start codes, if it is certainly not the stream's; FFmpeg's names."""
    codec = _CODECS.get(codec, "")
    at = data.find(_START) if codec else -1
    while at >= 0:
        after = data.find(_START, at + 3)
        found = _codec_of(data[at + 3 : at + 5], data[after + 3] if 0 < after < len(data) - 3 else None, codec)
        if found is not None and found != codec:
            return found
        at = after
    return None


def begins_like(data: bytes, codec: str) -> bool:
    """Whether a packet with start codes begins as packets of a codec do, or the codec is not known here."""
    at = data.find(_START)
    if at < 0 or codec not in _CODECS or len(data) < at + 5:
        return True
    return (data[at + 3], data[at + 4] if codec == "hevc" else 0) in _BEGINNINGS[_CODECS[codec]]


def _codec_of(unit: bytes, following: int | None, codec: str) -> str | None:
    """The codec whose key pictures alone have a unit that begins so; in the others these bytes are forbidden there.

    Args:
        following: the first byte of the next unit.
        codec: of the stream.
    """
    if len(unit) < 2:
        return None
    if unit[0] == _MPEG2 and following == _MPEG4:  # a group of MPEG-4, which begins with the same byte
        return "mpeg4"
    if unit[0] == _MPEG2:
        return None if codec == "mpeg4" and following in (None, _USER_DATA) else "mpeg2video"
    if unit[0] == _MPEG4:
        return "mpeg4"
    if unit in _HEVC_SETS:
        return "hevc"
    # MPEG-2's slices have the numbers of their rows, which end before the last of these.
    first = _H264_SETS[2:] if codec in ("mpeg2video", "mpeg4") else _H264_SETS
    return "h264" if unit[0] in first and unit[1] in _H264_PROFILES else None


@dataclass(frozen=True)
class CodecChange:
    """Where a stream of a transport stream begins to be of another codec; bytes of the file.

    Attributes:
        end: of the last packet of the codec before.
        tables: the table of programs (PAT) before the first packet of the new one.
        begin: that packet.
    """

    end: int
    tables: int
    begin: int


def change_of_codec(path: Path, begin: int, pid: int, codec: str) -> CodecChange | None:
    """Find the change of codec of a stream of a transport stream.

    Args:
        begin: byte of the last picture of the codec before.
        pid: identifier of the stream.
        codec: FFmpeg's name of the codec before.
    """
    with path.open("rb") as file:
        file.seek(begin)
        data = file.read(_TS_REACH)
    size = next((size for size in _TS_PACKETS if data[:1] == data[size : size + 1] == b"\x47"), _TS_PACKETS[0])
    tables, end = None, 0  # before the packet that is looked at
    change, picture = None, bytearray()  # at the last picture's beginning, and its content
    for at in range(0, len(data) - size, size):
        packet = data[at : at + 188]
        found = int.from_bytes(packet[1:3], "big") & 0x1FFF
        if found == 0:
            tables = at
        elif found == pid:
            begins = bool(packet[1] & 0x40)
            if begins and change and other_codec(bytes(picture), codec):
                return change
            if begins:
                change, picture = (
                    CodecChange(begin + end, begin + (at if tables is None else tables), begin + at),
                    bytearray(),
                )
            picture += _content(packet, begins=begins)
            end = at + size
    return change if other_codec(bytes(picture), codec) else None


def _content(packet: bytes, *, begins: bool) -> bytes:
    """The content of a packet (ISO/IEC 13818-1, 2.4.3), behind the header of a picture that begins with it."""
    at = 5 + packet[4] if packet[3] & 0x20 else 4
    if not packet[3] & 0x10 or len(packet) <= at + 9:
        return b""
    return packet[at + 9 + packet[at + 8] :] if begins else packet[at:]
