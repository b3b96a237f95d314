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
    """A packet, the number of its pictures, and when it came, monotonic ns."""

    packet: Packet[Any]
    pictures: int
    got: int

    def is_stale(self, now: int) -> bool:
        """Whether its pictures are decoded only because others refer to them, and not shown."""
        return self.pictures > 0 and now - self.got > _STALE_NS


class HeldPackets:
    """From the newest picture with which a decoder can begin.

    Attributes:
        passed_over: pictures that are older, and have not been taken by `take_passed_over`.
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

    def pop(self) -> Held:
        """The first packet, which is to be decoded now."""
        row = self._rows.popleft()
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
            self.passed_over += row.pictures
        self.is_due = False

    def _begins(self, packet: Packet[Any], bitstream: Bitstream) -> bool:
        return packet.is_keyframe or bitstream.begins_recovery(bytes(memoryview(packet)[:_HEAD_BYTES]))
