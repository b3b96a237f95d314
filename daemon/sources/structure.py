"""Whether the structure of a recording's file is whole, by the sizes that its parts state."""

from __future__ import annotations

import os
from collections.abc import Callable
from struct import unpack
from typing import Protocol

_SEGMENT = b"\x18\x53\x80\x67"  # Matroska
_BEGIN_BYTES = 64 << 10  # that hold the headers
_FLV_TAG_HEADER, _FLV_TAGS = 11, 64  # bytes; tags at the end that are read
_MILLISECOND = 1_000_000  # ns
_ASF_FILE_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")
_MXF_PARTITION = bytes.fromhex("060e2b34020501010d01020101")
_OGG_HEADER, _OGG_BEGIN, _OGG_END = 27, 2, 4  # bytes; flags


class SeekableFile(Protocol):
    """A file of bytes."""

    def read(self, size: int = -1, /) -> bytes: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...


def is_whole(formats: set[str], file: SeekableFile, end: int) -> bool | None:
    """Whether the structure of a file is whole; None if it does not tell.

    Args:
        formats: FFmpeg's names of its format.
        end: time that a stream of a whole file reaches, ns; 0 if unknown.
    """
    size = file.seek(0, os.SEEK_END)
    if "flv" in formats:
        reached = _last_tag(file, size)
        return False if reached is None else True if 0 < end <= reached else None
    check = next((_CHECKS[name] for name in formats if name in _CHECKS), None)
    file.seek(0)
    return None if check is None else check(file, size)


def _atoms(file: SeekableFile, size: int) -> bool | None:
    """ISO/IEC 14496-12, 4.2: boxes state their size; fragments say nothing of those that follow."""
    at, is_fragmented = 0, False
    while at + 8 <= size:
        file.seek(at)
        length, kind = unpack(">I4s", file.read(8))
        if length == 1:
            length = int.from_bytes(file.read(8), "big")
        if length == 0:  # to the end of the file
            break
        if length < 8:
            return None
        is_fragmented |= kind == b"moof"
        at += length
    if at > size:
        return False
    return None if is_fragmented else True


def _segment(file: SeekableFile, size: int) -> bool | None:
    """RFC 9559 and RFC 8794: the segment states its size, unless it was written live."""
    begin = file.read(_BEGIN_BYTES)
    at = begin.find(_SEGMENT)
    if at < 0 or at + 12 > len(begin):
        return None
    width = 9 - begin[at + 4].bit_length()
    if width > 8:
        return None
    unknown = (1 << 7 * width) - 1
    length = int.from_bytes(begin[at + 4 : at + 4 + width], "big") & unknown
    return None if length == unknown else at + 4 + width + length <= size


def _riff(file: SeekableFile, size: int) -> bool | None:
    """Whether the lists of pictures are there, by the sizes that they state; recorders that were stopped leave a zero.

    An index may be missing behind them.
    """
    at = 0
    while at + 12 <= size:
        file.seek(at)
        kind, length, content = unpack("<4sI4s", file.read(12))
        if kind == b"RIFF" and length:
            at += 12
            continue
        if length == 0:
            return None
        if content == b"movi" and at + 8 + length > size:
            return False
        at += 8 + length + length % 2
    return True


def _last_tag(file: SeekableFile, size: int) -> int | None:
    """FLV file format, annex E: each tag is followed by its size. The latest time of the last tags, which are of any
    stream, ns; None if the last one is not whole."""
    latest, at = -1, size
    for _ in range(_FLV_TAGS):
        if at < _FLV_TAG_HEADER + 4:
            break
        file.seek(at - 4)
        length = int.from_bytes(file.read(4), "big")
        if not _FLV_TAG_HEADER <= length <= at - 4:
            break
        file.seek(at - 4 - length)
        tag = file.read(8)
        if int.from_bytes(tag[1:4], "big") + _FLV_TAG_HEADER != length:
            break
        latest = max(latest, int.from_bytes(tag[7:8] + tag[4:7], "big"))
        at -= 4 + length
    return latest * _MILLISECOND if latest >= 0 else None


def _file_properties(file: SeekableFile, size: int) -> bool | None:
    """Advanced Systems Format, 3.2: the size of the file, unless it was broadcast."""
    begin = file.read(_BEGIN_BYTES)
    at = begin.find(_ASF_FILE_PROPERTIES)
    if at < 0 or at + 92 > len(begin) or begin[at + 88] & 1:
        return None
    return int.from_bytes(begin[at + 40 : at + 48], "little") <= size


def _footer(file: SeekableFile, size: int) -> bool | None:
    """SMPTE ST 377-1, 7.1: the header states where the footer is, if it was closed."""
    begin = file.read(_BEGIN_BYTES)
    at = begin.find(_MXF_PARTITION)
    if at < 0 or at + 60 > len(begin):
        return None
    value = at + 16 + 1 + (begin[at + 16] & 0x7F if begin[at + 16] & 0x80 else 0)
    footer = int.from_bytes(begin[value + 24 : value + 32], "big")
    return None if footer == 0 else footer < size


def _pages(file: SeekableFile, size: int) -> bool | None:
    """RFC 3533, 6: the first and the last page of each stream are marked."""
    at, open_streams = 0, set[bytes]()
    while at + _OGG_HEADER <= size:
        file.seek(at)
        header = file.read(_OGG_HEADER)
        if header[:4] != b"OggS":
            return None
        if header[5] & _OGG_BEGIN:
            open_streams.add(header[14:18])
        if header[5] & _OGG_END:
            open_streams.discard(header[14:18])
        at += _OGG_HEADER + header[26] + sum(file.read(header[26]))
    return at == size and not open_streams


_CHECKS: dict[str, Callable[[SeekableFile, int], bool | None]] = {
    "mov": _atoms,
    "matroska": _segment,
    "avi": _riff,
    "asf": _file_properties,
    "mxf": _footer,
    "ogg": _pages,
}
