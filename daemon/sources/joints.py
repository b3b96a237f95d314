"""Where a file goes on as another recording: a second header, or another codec."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_MAX_HEADER_BYTES = 4 << 20  # between two packets, where a header is looked for
_TS_PACKETS = (188, 192, 204)  # bytes of a packet of an MPEG transport stream
_TS_REACH = 256 << 10
# How a recording of a format begins, and how far into it these bytes are.
_SIGNATURES = {
    "matroska": (b"\x1a\x45\xdf\xa3", 0),
    "mov": (b"ftyp", 4),
    "flv": (b"FLV\x01", 0),
    "avi": (b"AVI LIST", 8),
}
# The units that only a key picture of a codec begins with, behind a start code: parameter sets, or a picture. In the
# other codecs these bytes are forbidden there.
_SIGNS = {
    "h264": (b"\x27", b"\x47", b"\x67"),
    "hevc": (b"\x40\x01", b"\x42\x01"),
    "mpeg2video": (b"\xb3",),
    "mpeg4": (b"\xb6",),
}
_START = b"\0\0\1"
_ALIKE = {"mpeg1video": "mpeg2video"}


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


def codecs_in(data: bytes) -> set[str]:
    """The codecs of the key pictures in a stream with start codes, by FFmpeg's names."""
    return {codec for codec, signs in _SIGNS.items() if any(_START + sign in data for sign in signs)}


def is_of_another_codec(data: bytes, codec: str) -> bool:
    """Whether a packet holds a key picture of another codec than FFmpeg's `codec`."""
    codec = _ALIKE.get(codec, codec)
    return codec in _SIGNS and not codecs_in(data) <= {codec}


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
    tables, end = None, 0
    for at in range(0, len(data) - size, size):
        found = int.from_bytes(data[at + 1 : at + 3], "big") & 0x1FFF
        if found == 0:
            tables = at
        elif found == pid:
            if data[at + 1] & 0x40 and is_of_another_codec(_content(data[at : at + 188]), codec):
                return CodecChange(begin + end, begin + (at if tables is None else tables), begin + at)
            end = at + size
    return None


def _content(packet: bytes) -> bytes:
    """The content of the first packet of a picture (ISO/IEC 13818-1, 2.4.3)."""
    at = 5 + packet[4] if packet[3] & 0x20 else 4
    return packet[at + 9 + packet[at + 8] :] if packet[3] & 0x10 and len(packet) > at + 9 else b""
