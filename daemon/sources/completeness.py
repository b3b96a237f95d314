"""Whether a recording is cut short. FFmpeg does not report it, and the length in a header is a claim.

A container's own structure proves it: a part whose stated size goes beyond the file. A whole structure disproves it,
whatever length the header states. Where the structure says nothing, the stated length counts if no stream reaches it:
sound or subtitles may be longer than the video.
"""

from __future__ import annotations

import os
from struct import unpack
from typing import Protocol

import av.error
from av.container import InputContainer
from av.stream import Discard
from av.video.stream import VideoStream

from daemon.sources.timeline import nanoseconds

# Formats with a length in their header.
_STATING = {"asf", "avi", "dhav", "flv", "ivf", "matroska", "mov", "mxf", "nut", "ogg", "rm", "wtv"}
_TOLERANCE_NS, _TOLERANCE = 1_000_000_000, 20  # or one part of so many, of the stated length
_MAX_PACKETS = 200_000  # of other streams that are read to the stated end
_MICROSECOND = 1000  # ns
_SEGMENT = b"\x18\x53\x80\x67"  # Matroska
_FLV_TAG_HEADER = 11


class SeekableFile(Protocol):
    """A file of bytes."""

    def read(self, size: int = -1, /) -> bytes: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...


def shortfall(container: InputContainer, stream: VideoStream, whole: bool | None, played: int) -> int | None:
    """The stated length of a recording that is cut short, ns; 0 if it states none. None if it is whole.

    Args:
        whole: as `is_whole` says.
        played: from the first picture to the last, ns.
    """
    formats = set(container.format.name.split(","))
    stated, is_own = _stated_length(container, stream, formats)
    is_short = bool(formats & _STATING) and stated - played > max(_TOLERANCE_NS, stated // _TOLERANCE)
    if whole is None:
        whole = not is_short or (not is_own and _reaches(container, stated))
    return None if whole else stated if is_short else 0


def is_whole(container: InputContainer, file: SeekableFile | None) -> bool | None:
    """Whether the structure of a recording's file is whole; None if it does not tell."""
    checks = {"mov": _atoms, "matroska": _segment, "avi": _riff, "flv": _tags}
    check = next((checks[name] for name in container.format.name.split(",") if name in checks), None)
    if file is None or check is None:
        return None
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return check(file, size)


def _stated_length(container: InputContainer, stream: VideoStream, formats: set[str]) -> tuple[int, bool]:
    """Length by the header, ns, 0 if there is none; and whether it is the video's own."""
    if formats & {"mov", "avi"} and stream.duration is not None and stream.time_base is not None:
        return nanoseconds(stream.duration, stream.time_base), True
    return (container.duration or 0) * _MICROSECOND, False


def _reaches(container: InputContainer, stated: int) -> bool:
    """Whether a stream of the container reaches the stated length, ns."""
    wanted = (container.start_time or 0) * _MICROSECOND + stated - max(_TOLERANCE_NS, stated // _TOLERANCE)
    for stream in container.streams:
        stream.discard = Discard.default
    try:
        container.seek(wanted // _MICROSECOND)
        for _, packet in zip(range(_MAX_PACKETS), container.demux()):
            if packet.pts is not None and packet.time_base is not None:
                end = packet.pts + (packet.duration or 0)
                if nanoseconds(end, packet.time_base) >= wanted:
                    return True
    except (av.error.FFmpegError, OSError, IndexError):
        pass
    return False


def _atoms(file: SeekableFile, size: int) -> bool | None:
    """ISO/IEC 14496-12, 4.2: boxes state their size; fragments say nothing of what follows."""
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
    begin = file.read(4096)
    at = begin.find(_SEGMENT)
    if at < 0 or at + 12 > len(begin):
        return None
    first = begin[at + 4]
    width = 9 - first.bit_length()
    if width > 8:
        return None
    length = int.from_bytes(begin[at + 4 : at + 4 + width], "big") & (1 << 7 * width) - 1
    if length == (1 << 7 * width) - 1:  # unknown
        return None
    return at + 4 + width + length <= size


def _riff(file: SeekableFile, size: int) -> bool | None:
    """Each RIFF list states its size; recorders that were stopped leave a zero."""
    at = 0
    while at + 8 <= size:
        file.seek(at)
        kind, length = unpack("<4sI", file.read(8))
        if kind != b"RIFF":
            break
        if length == 0:
            return None
        at += 8 + length + length % 2
    return at <= size + 1


def _tags(file: SeekableFile, size: int) -> bool | None:
    """FLV file format, annex E.3: each tag is followed by its size. A file that ends with one says nothing more."""
    if size < _FLV_TAG_HEADER + 4:
        return False
    file.seek(size - 4)
    length = int.from_bytes(file.read(4), "big")
    if not _FLV_TAG_HEADER <= length <= size - 4:
        return False
    file.seek(size - 4 - length)
    tag = file.read(4)
    return None if int.from_bytes(tag[1:], "big") + _FLV_TAG_HEADER == length else False
