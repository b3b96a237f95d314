"""The packets whose pictures a decoder has not given yet: which pictures are lost, the order of their times, and what
their packets say of them."""

from __future__ import annotations

from bisect import insort
from typing import Any, NamedTuple

from av.packet import Packet

_MAX_DELAY = 32  # pictures; H.264 reorders up to 16 pictures, and each decoder thread holds one


class TimeSlot(NamedTuple):
    """A picture's place in the order of pictures.

    Attributes:
        time: the smallest time of all packets whose pictures were due, in the stream's unit; None if unknown.
        line: number of the packet's timeline; another one begins where the time of decoding goes back.
    """

    time: int | None
    line: int


class PendingPictures:
    """Compares packets with pictures, because decoders drop broken pictures silently.

    Args:
        by_dts: the times of packets are those of decoding, where the container has no other.
    """

    def __init__(self, *, by_dts: bool) -> None:
        self._by_dts = by_dts
        self.clear()

    def clear(self) -> None:
        """The decoder is empty."""
        self._sent: list[tuple[int | None, int]] = []  # pts and line, in order of decoding
        self._times: list[int] = []  # sorted
        self._line, self._dts = 0, -1 << 63
        self._without_time = 0  # pictures that came in one packet with others, and have no time of their own

    @property
    def count(self) -> int:
        return len(self._sent)

    @property
    def is_late(self) -> bool:
        """Whether more packets wait than a decoder delays, so that the first is lost."""
        return len(self._sent) > _MAX_DELAY

    def add(self, packet: Packet[Any], pictures: int) -> None:
        """Note a packet that goes to the decoder, and how many pictures it holds."""
        pts, dts = packet.pts, packet.dts
        if dts is not None:
            if dts < self._dts:
                self._line += 1
            self._dts = dts
        for _ in range(pictures):
            self._sent.append((pts, self._line))
        time = dts if self._by_dts else pts
        if pictures or self._without_time:  # a packet without a picture may stand for one of an earlier packet
            self._without_time += pictures - 1
            if time is not None:
                insort(self._times, time)

    def deliver(self, pts: int | None) -> TimeSlot:
        """Note a picture by the pts of its packet."""
        sent, line = self._sent, self._line
        if sent:
            at = next((at for at, one in enumerate(sent) if one[0] == pts), 0) if sent[0][0] != pts else 0
            line = sent.pop(at)[1]
        return TimeSlot(self._times.pop(0) if self._times else None, line)

    def lose(self, packet: Packet[Any] | None = None) -> None:
        """Note that a packet, or the first one, gives no picture."""
        if packet is None:
            del self._sent[:1], self._times[:1]
            return
        time = packet.dts if self._by_dts else packet.pts
        if self._sent:
            self._sent.pop()
        if time in self._times:
            self._times.remove(time)


class MarkedTimes:
    """Timestamps (pts) of one mark. A packet without a time cannot be marked."""

    def __init__(self) -> None:
        self._times: set[int] = set()

    def add(self, pts: int | None) -> None:
        if pts is not None:
            self._times.add(pts)

    def has(self, pts: int | None) -> bool:
        """Whether a picture is marked. Call it for each, in the order in which they are shown: earlier marks are
        forgotten."""
        if not self._times or pts is None:
            return False
        found = pts in self._times
        self._times = {other for other in self._times if other >= pts}
        return found


class PictureMarks:
    """
    Attributes:
        discarded: pictures that an edit list removes.
        corrupt: pictures whose packets are damaged.
        stale: pictures that waited too long for their decoder.
    """

    def __init__(self) -> None:
        self.discarded, self.corrupt, self.stale = MarkedTimes(), MarkedTimes(), MarkedTimes()
