"""Packets become samples of MP4: each NAL unit after its length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from struct import Struct
from typing import Final

import numpy as np

from daemon.sources.bitstream import length_size

_CODE_BYTES: Final = 3  # of a start code: 0, 0, 1
_AT_ONCE: Final = 64 << 10  # bytes that are looked through: more leave the cache, and take fresh memory
_LENGTH = Struct(">I").pack


class Sampling:
    """Converts the packets of one stream.

    Args:
        extradata: of the stream, from FFmpeg: says whether units follow start codes or lengths.
    """

    def __init__(self, codec: str, extradata: bytes) -> None:
        self._length = length_size(codec, extradata)

    def convert(self, packets: Sequence[memoryview]) -> tuple[list[bytes], list[int]]:
        """The bytes of all samples: every unit, in order, once; and how many bytes each sample has."""
        parts: list[bytes] = []
        sizes: list[int] = []
        for some in _groups(packets):
            if self._length == 4:
                parts.append(b"".join(some))
                sizes += map(len, some)
                continue
            pieces: list[bytes | memoryview] = []
            for units in _by_lengths(some, self._length) if self._length else _by_codes(some):
                for unit in units:
                    pieces += (_LENGTH(len(unit)), unit)
                sizes.append(4 * len(units) + sum(map(len, units)))
            parts.append(b"".join(pieces))
        return parts, sizes


def _groups(packets: Sequence[memoryview]) -> Iterator[Sequence[memoryview]]:
    """Packets that follow each other, of `_AT_ONCE` together or somewhat more."""
    first = size = 0
    for number, packet in enumerate(packets, 1):
        size += len(packet)
        if size >= _AT_ONCE or number == len(packets):
            yield packets[first:number]
            first, size = number, 0


def _by_codes(packets: Sequence[memoryview]) -> Iterator[list[memoryview]]:
    """The units of each packet. Zeros before a start code, and after the last unit, belong to no unit (H.264 and H.265,
    annex B)."""
    data = b"".join(packets)  # to look through all at once is several times as fast
    view, codes = memoryview(data), iter(start_codes(data))
    code = next(codes, len(data))
    for first, end in pairwise(accumulate(map(len, packets), initial=0)):
        units, begin = [], first
        while begin < end:
            last = until = min(code, end)
            if not data[last - 1]:
                last = begin + len(data[begin:last].rstrip(b"\0"))
            if last > begin:
                units.append(view[begin:last])
            begin = end
            if until == code < end:
                begin, code = code + _CODE_BYTES, next(codes, len(data))
        yield units


def start_codes(data: bytes) -> list[int]:
    """Where in H.264 or H.265 the start codes are.

    A code is two zeros and a one. Each has a pair of bytes at an even place that is 0, 0 or 0, 1, which few have.
    """
    words, octets = np.frombuffer(data, "<u2", len(data) // 2), np.frombuffer(data, np.uint8)
    near = np.flatnonzero((words & 0xFEFF) == 0) * 2
    begins = np.concatenate([near, near - 1])
    begins = begins[(begins >= 0) & (begins <= len(data) - _CODE_BYTES)]
    is_code = (octets[begins] == 0) & (octets[begins + 1] == 0) & (octets[begins + 2] == 1)
    found: list[int] = np.sort(begins[is_code]).tolist()
    return found


def _by_lengths(packets: Iterable[memoryview], length: int) -> Iterator[list[memoryview]]:
    for view in packets:
        at, units = 0, []
        while at + length <= len(view):
            begin = at + length
            at = min(begin + int.from_bytes(view[at:begin], "big"), len(view))
            units.append(view[begin:at])
        yield units
