"""The packets of a live source while its decoder waits for its turn to be opened.

The capture goes on reading, so that the camera need not wait, and its recording has no gap. Packets that are old when
the decoder is open would be decoded as fast as the GPU can, beside all other sources, for pictures that nobody needs.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from av.packet import Packet

from daemon.sources.bitstream import Bitstream

_MAX_BYTES = 4 << 20  # after the picture that begins; more are passed over, up to the next key picture
_STALE_NS = 200_000_000
_HEAD_BYTES = 4096  # of a packet, with all that stands before its picture


class Held(NamedTuple):
    """
    Attributes:
        pictures: their number in the packet.
        got: when it came, monotonic ns.
        is_stale: its pictures are decoded only because others refer to them, and not shown. They are passed over.
    """

    packet: Packet[Any]
    pictures: int
    got: int
    is_stale: bool = False


class HeldPackets:
    """From the newest picture with which a decoder can begin.

    Attributes:
        passed_over: pictures that are older, or have waited for too long, and have not been taken by
            `take_passed_over`. So whoever reads has them one by one, and not at once when the turn comes.
        is_due: the decoder's turn has come: they are to be decoded.
    """

    def __init__(self) -> None:
        self.passed_over, self.is_due = 0, False
        self._is_waiting = False
        self._rows: deque[Held] = deque()
        self._bytes, self._max_bytes = 0, _MAX_BYTES
        self._end: Exception | None = None  # of the connection

    def __bool__(self) -> bool:
        """Whether the next packet is to be added, too."""
        return self._is_waiting

    @property
    def has_picture(self) -> bool:
        """Whether a decoder can begin."""
        return any(row.pictures for row in self._rows)

    def add(self, row: Held, bitstream: Bitstream) -> None:
        """Hold a packet, or pass it over; a key picture replaces all that is older."""
        self._is_waiting = True
        for at, other in enumerate(self._rows):
            if row.got - other.got <= _STALE_NS:
                break
            self._rows[at] = self._aged(other, row.got)
        if row.pictures:
            if self._begins(row.packet, bitstream):
                self._drop_pictures()
                self._max_bytes = _MAX_BYTES + self._bytes + row.packet.size
            elif not self.has_picture:
                self.passed_over += row.pictures
                return
        self._rows.append(row)
        self._bytes += row.packet.size
        if self._bytes > self._max_bytes:
            self._drop_pictures()
            if self._bytes > self._max_bytes:
                self._drop(len(self._rows))

    def begin(self) -> None:
        """The decoder's turn has come."""
        self.is_due = True

    def pop(self, now: int) -> Held:
        """The first packet, which is to be decoded now; monotonic ns."""
        row = self._aged(self._rows.popleft(), now)
        self._bytes -= row.packet.size
        self.is_due = self._is_waiting = bool(self._rows)
        return row

    def put_back(self, row: Held) -> None:
        """The decoder does not take the packet of the last `pop`: it waits again."""
        self._rows.appendleft(row)
        self._bytes += row.packet.size
        self._is_waiting, self.is_due = True, False

    def take_passed_over(self) -> bool:
        """Take one picture that is passed over; False if there is none.

        Raises:
            Exception: of `end`, when all have been taken.
        """
        if self.passed_over:
            self.passed_over -= 1
            return True
        if self._end:
            try:
                raise self._end
            finally:
                self._end = None  # its traceback refers to the reader
        return False

    def end(self, error: Exception) -> None:
        """The connection has ended, and with it what is held."""
        self.clear()
        self._end = error

    def clear(self) -> None:
        """Pass over what is held: another stream begins."""
        self._drop(len(self._rows))
        self._is_waiting = False

    def _drop_pictures(self) -> None:
        """Pass all pictures over. Parameter sets after the last one belong to the next."""
        self._drop(max((at for at, row in enumerate(self._rows, 1) if row.pictures), default=0))
        self._max_bytes = _MAX_BYTES

    def _drop(self, count: int) -> None:
        """Pass over the first rows."""
        for _ in range(count):
            row = self._rows.popleft()
            self._bytes -= row.packet.size
            if not row.is_stale:
                self.passed_over += row.pictures
        self.is_due = False

    def _aged(self, row: Held, now: int) -> Held:
        """The row, whose pictures are passed over if it is too old. One without a time cannot be told from others."""
        if row.is_stale or not row.pictures or row.packet.pts is None or now - row.got <= _STALE_NS:
            return row
        self.passed_over += row.pictures
        return row._replace(is_stale=True)

    def _begins(self, packet: Packet[Any], bitstream: Bitstream) -> bool:
        return packet.is_keyframe or bitstream.begins_recovery(bytes(memoryview(packet)[:_HEAD_BYTES]))
