"""Which time belongs to which picture.

Packets come in the order of decoding, each with the time at which its picture is to be shown; pictures come out in the
order of showing. PyNvVideoCodec passes times through a queue, so that with B-frames they are another picture's (seen on
one H200 with 2.x, both codecs, both latencies); so the earliest time that waits is taken for each picture that comes.
"""

from __future__ import annotations

import heapq
from fractions import Fraction

_JUMP = 10  # in so many seconds nothing is reordered: a time that is earlier begins another timeline
_LOOK = 64  # pictures over which a decoder holds back as few packets as it ever does


class ShowTimes:
    """Times of packets that wait for their pictures.

    A packet of which no picture came leaves its time behind, and all after would be one picture's time early; so the
    number that waits is watched, whose least is the same all the time for one stream. It is lower for a moment where a
    decoder that begins anew gives what it held back, which is not counted.

    Args:
        second: how many units of the times a second has.
    """

    def __init__(self, second: Fraction) -> None:
        self._jump = int(second * _JUMP)  # comparing with a Fraction costs as much as all else here
        self._waiting: list[tuple[int, int]] = []  # timeline and time
        self._timeline, self._latest = 0, 0
        self._anew = False  # the last packet began anew
        self._begun = False  # a packet with a time has come
        self._without = 0  # packets without a time
        self._untimed = 0  # those of them before any with one: RTSP's first, whose picture is shown first, too
        self._least: int | None = None
        self._fewest, self._seen = 1 << 30, 0  # in this look

    def push(self, time: int | None, *, anew: bool = False) -> None:
        """A packet goes in.

        Args:
            anew: pictures of all packets before are shown before this one and all that follow.
        """
        if time is None:
            if self._begun:
                self._without += 1
            else:
                self._untimed += 1
            return
        self._begun = True
        if self._latest - time > self._jump or (anew and not self._anew):  # not where every picture begins anew
            self._timeline, self._latest = self._timeline + 1, time
        self._anew = anew
        self._latest = max(self._latest, time)
        heapq.heappush(self._waiting, (self._timeline, time))

    def pop(self) -> int | None:
        """A picture comes out; its time, None where it has none."""
        if self._untimed:
            self._untimed -= 1
            return None
        if not self._waiting:
            self._without = max(0, self._without - 1)
            return None
        timeline, time = heapq.heappop(self._waiting)
        if timeline != self._timeline:
            return time
        self._fewest, self._seen = min(self._fewest, len(self._waiting)), self._seen + 1
        if self._seen == _LOOK:
            least = self._fewest if self._least is None else min(self._least, self._fewest)
            for _ in range(self._fewest - least):
                time = heapq.heappop(self._waiting)[1]
            self._least, self._fewest, self._seen = least, 1 << 30, 0
        return time

    def clear(self) -> None:
        """The decoder is empty."""
        self._waiting.clear()
        self._begun, self._untimed = False, 0
        self._without, self._least = 0, None
        self._fewest, self._seen = 1 << 30, 0
