"""Packets become samples of MP4: each NAL unit after its length."""

from __future__ import annotations

from struct import Struct
from typing import Final

from daemon.recording.boxes import Buffer
from daemon.recording.records import Sample
from daemon.sources.bitstream import length_size

_START: Final = b"\0\0\1"
_LENGTH = Struct(">I").pack


class Sampling:
    """Converts the packets of one stream.

    Args:
        extradata: of the stream, from FFmpeg: says whether units follow start codes or lengths.
    """

    def __init__(self, codec: str, extradata: bytes) -> None:
        self._length = length_size(codec, extradata)

    def add(self, sample: Sample, parts: list[Buffer]) -> int:
        """Append the bytes of a sample to `parts`: every unit, in order, once.

        Returns:
            How many bytes they are.
        """
        if self._length == 4:
            parts.append(sample.data)
            return len(sample.data)
        return _by_lengths(sample.data, self._length, parts) if self._length else _by_codes(sample.data, parts)


def _by_codes(view: memoryview, parts: list[Buffer]) -> int:
    """Zeros before a start code, and after the last unit, belong to no unit (H.264 and H.265, annex B)."""
    size = 0
    for piece in bytes(view).rsplit(_START):  # from the right: some Pythons search twice as fast that way
        unit = piece.rstrip(b"\0")
        if unit:
            parts += (_LENGTH(len(unit)), unit)
            size += 4 + len(unit)
    return size


def _by_lengths(view: memoryview, length: int, parts: list[Buffer]) -> int:
    at = size = 0
    while at + length <= len(view):
        begin = at + length
        at = min(begin + int.from_bytes(view[at:begin], "big"), len(view))
        parts += (_LENGTH(at - begin), view[begin:at])
        size += 4 + at - begin
    return size
