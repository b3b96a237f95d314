"""One segment of HLS.

The packets of a transport stream are numbered, so that lost ones are missed. Each segment may begin to count anew, and
FFmpeg would call the last picture before it damaged.
"""

from __future__ import annotations

from collections.abc import Iterator

import av.error

from daemon.sources.avio import AvioFile

_PACKET = 188  # bytes (ISO/IEC 13818-1, 2.4.3.2)
_SYNC = 0x47
_COUNTED = 64  # packets at the beginning, in which each stream appears
_NULL = 0x1FFF  # packets that nobody counts


class Segment:
    """A file after its first bytes were read.

    Args:
        after: the segment before, if the count of packets may begin anew; None otherwise.

    Attributes:
        is_whole: nothing of it was missing so far.
    """

    def __init__(self, begin: bytes, file: AvioFile, *, after: Segment | None) -> None:
        self._begin, self._file = begin, file
        self.is_whole = True
        if begin[:1] == bytes((_SYNC,)) and after and after.is_whole:
            self._fill(_COUNTED * _PACKET)
            self._begin = b"".join(_counted_anew(self._begin))

    def read(self, size: int) -> bytes:
        """Empty at the end, and where the connection breaks: FFmpeg then takes the next segment."""
        if self._begin:
            begin, self._begin = self._begin[:size], self._begin[size:]
            return begin
        return self._read(size)

    def close(self) -> None:
        self._file.close()

    def _read(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except av.error.FFmpegError:
            self.is_whole = False
            return b""

    def _fill(self, size: int) -> None:
        while len(self._begin) < size and (more := self._read(size - len(self._begin))):
            self._begin += more


def _counted_anew(data: bytes) -> Iterator[bytes]:
    """The packets of a transport stream, with one before the first of each stream that says: the count begins anew."""
    known = {_NULL}
    for at in range(0, len(data), _PACKET):
        packet = data[at : at + _PACKET]
        if len(packet) == _PACKET and packet[0] == _SYNC:
            pid = int.from_bytes(packet[1:3], "big") & 0x1FFF
            if pid not in known:
                known.add(pid)
                yield _discontinuity(pid, packet[3])
        yield packet


def _discontinuity(pid: int, flags: int) -> bytes:
    """A packet without content before one of a stream.

    Args:
        flags: the byte of that packet with its count, which only content increases.
    """
    count = (flags & 0xF) - (flags >> 4 & 1) & 0xF
    head = bytes((_SYNC, pid >> 8, pid & 0xFF, 0x20 | count, _PACKET - 5, 0x80))
    return head.ljust(_PACKET, b"\xff")
