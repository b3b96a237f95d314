"""How much was seen in each second of a file of tracks: its end tells, so that nobody has to read the rest. The index
has the same for many files at once.

The record at the end holds MessagePack, and behind it its length, its CRC-32 and four bytes that say what it is. So a
reader finds it from the end of the file.
"""

from __future__ import annotations

import os
import zlib
from struct import Struct
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

END: Final = 5  # kind of the record
_SECOND: Final = 1_000_000_000
_NOTHING: Final = 0xFFFF  # in a second nothing was analysed
_MOST: Final = _NOTHING - 1
_MAX_SECONDS: Final = 3600
_MARK: Final = b"most"
_TAIL, _RECORD = Struct("<II4s"), Struct("<IIB")
RECORD_BYTES: Final = _RECORD.size  # before what it holds
_READ: Final = 512  # bytes; enough for three minutes
Counts = npt.NDArray[np.int32]


class Activity(msgspec.Struct, frozen=True, array_like=True):
    """
    Attributes:
        first: the first second, since 1970, UTC.
        counts: of each second, as 16-bit numbers, the lowest byte first.
    """

    first: int
    counts: bytes

    @property
    def most(self) -> Counts:
        """The largest number of objects at once, -1 where nothing was analysed."""
        found = np.frombuffer(self.counts, "<u2").astype(np.int32)
        found[found == _NOTHING] = -1
        return found


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Activity).decode


class ActivityCount:
    """Counts the objects of frames as they come."""

    def __init__(self) -> None:
        self._most: dict[int, int] = {}

    def add(self, captured_at: int, objects: int) -> None:
        """A frame.

        Args:
            captured_at: UTC ns.
            objects: tracks, or boxes where nothing is tracked.
        """
        second = captured_at // _SECOND
        if objects > self._most.get(second, -1):
            self._most[second] = min(objects, _MOST)

    @property
    def found(self) -> Activity:
        """Up to now. Where the clock was set by hours, the seconds of the first hour alone."""
        first = min(self._most, default=0)
        last = min(max(self._most, default=-1), first + _MAX_SECONDS - 1)
        counts = [self._most.get(second, _NOTHING) for second in range(first, last + 1)]
        return Activity(first, np.array(counts, "<u2").tobytes())


def packed(activity: Activity) -> bytes:
    """As the end of a file has it."""
    content = _encode(activity)
    return content + _TAIL.pack(len(content), zlib.crc32(content), _MARK)


def activity_at_end(file: int) -> Activity | None:
    """From an open file; None if it does not end so, as files of earlier versions and those that were cut.

    Raises:
        OSError: it cannot be read.
    """
    size = os.fstat(file).st_size
    data = _end_of(file, size, _READ)
    if len(data) < RECORD_BYTES + _TAIL.size:
        return None
    length, crc, mark = _TAIL.unpack(data[-_TAIL.size :])
    if mark != _MARK or length > _MAX_SECONDS * 2 + 64:
        return None
    whole = RECORD_BYTES + length + _TAIL.size
    data = _end_of(file, size, whole) if whole > len(data) else data[-whole:]
    content = data[RECORD_BYTES : -_TAIL.size]
    if len(data) < whole or zlib.crc32(content) != crc:
        return None
    told, _, found = _RECORD.unpack(data[:RECORD_BYTES])
    if (told, found) != (length + _TAIL.size, END):
        return None
    try:
        activity = _decode(content)
    except msgspec.DecodeError:
        return None
    return activity if len(activity.counts) % 2 == 0 else None


def _end_of(file: int, size: int, count: int) -> bytes:
    return os.pread(file, count, max(0, size - count))
