"""What to leave out undecoded when decoding has fallen behind, so that what is decoded is fresh."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from fractions import Fraction
from math import exp
from time import monotonic_ns
from typing import Any, Final, Literal

from av.packet import Packet
from av.video.stream import VideoStream

from daemon.sources.bitstream import Bitstream, head
from daemon.sources.port import DecodeBudget

Cause = Literal["late", "rate_limit"]
_LOOK = 128  # pictures
_PERIODS = 4  # from one key picture to the next


class FrameSkipper:
    """First pictures that no other needs, the more of them the later it is. Where that does not do, because there are
    too few, everything up to the next key picture, which needs no other, and which is fresh, as far as there is more.

    That pictures are late is no reason alone. What a network held back comes in a burst, which is read in no time; and
    where packets must be waited for, nothing has piled up. Behind is who has been late for a while and waited for none.

    The same pictures go first where it is known beforehand that the decoder has no time for all. Where there are too
    few, as in what most cameras send, the last ones before each key picture go too: a gap there, as long as it must be,
    instead of everything being late.

    Sources that one thread serves are late together. A share that follows from lateness alone is therefore the same
    for all of them, where a threshold would take more from some than from others.
    """

    LATE: Final = 50_000_000  # ns
    LATE_FOR: Final = 200_000_000  # ns without a break, before it is behind
    NONE: Final = 10_000_000  # ns late, in the mean: no more than this leaves out none of those that no other needs
    EVERY: Final = 40_000_000  # this much every one, between them a share
    MEAN: Final = 100_000_000  # ns that the mean looks back
    CAUGHT_UP: Final = 2_000_000_000  # ns with none to leave out, after which it is not behind any more
    VERY_LATE: Final = 1_000_000_000
    VERY_LATE_FOR: Final = 2_000_000_000  # before all are left out, up to a key picture
    WAITED: Final = 10_000_000  # ns; less is the interpreter's lock

    def __init__(self, stream: VideoStream, now: Callable[[], int] = monotonic_ns) -> None:
        context = stream.codec_context
        self._bitstream = Bitstream(context.name, context.extradata)
        self._now = now
        self._late, self._very_late, self._fresh = _Debounce(), _Debounce(), _Debounce()
        self._watched = False  # the last packet was
        self._behind = False
        self._to_key: Cause | None = None  # why everything up to a key picture is left out
        self._mean, self._asked = 0.0, 0  # ns late, and when
        self._owed = 0.0  # pictures to leave out
        self._disposable, self._seen = 0.0, 0  # share of the last pictures that no other needed, and how many these are
        self._tail = _GopTail()
        self._backlog = _Backlog(stream.time_base)

    def skip_cause(self, packet: Packet[Any], budget: DecodeBudget, waited: int) -> Cause | None:
        """To be asked for each packet once, in order.

        Args:
            waited: ns that it took to get the packet.

        Returns:
            Why it is skipped; None if it is not.
        """
        late, skip_ratio = budget.late, budget.skip_ratio
        if not (late or skip_ratio or self._behind or self._to_key):  # nearly always
            if self._watched:
                self._watched = False
                self._late.end()
                self._very_late.end()
                self._tail.end()
            return None
        self._watched = True
        self._note(0 if waited > self.WAITED else late, self._now(), packet.pts)
        if packet.size == 0:
            return None
        cause = self._cause(packet, skip_ratio)
        self._tail.passed(packet.is_keyframe, skip_ratio, left_out=cause is not None)
        return cause

    def _cause(self, packet: Packet[Any], skip_ratio: float) -> Cause | None:
        if self._to_key and packet.is_keyframe and not self._goes_on(packet.pts):
            self._to_key = None
            self._very_late.end()
        if not (self._behind or self._to_key or skip_ratio):
            return None
        disposable = self._is_disposable(packet)
        if self._to_key:
            return self._to_key
        if skip_ratio > self._disposable and not packet.is_keyframe and self._tail.may_go(skip_ratio):
            self._to_key = "rate_limit"
            return self._to_key
        if not disposable:
            return None
        behind = (self._mean - self.NONE) / (self.EVERY - self.NONE) if self._behind else 0.0
        asked = skip_ratio / self._disposable
        if not self._has_turn(max(behind, asked)):
            return None
        return "late" if behind > asked else "rate_limit"

    def _goes_on(self, pts: int | None) -> bool:
        """Whether to leave out a key picture as well: it is as stale, and what comes after it is there already."""
        return (
            self._to_key == "late" and self._backlog.shrinks(pts, self._asked) and self._backlog.late > self.VERY_LATE
        )

    def _note(self, late: int, now: int, pts: int | None) -> None:
        self._mean += (late - self._mean) * (1 - exp((self._asked - now) / self.MEAN))
        self._asked = now
        self._late.now(late >= self.LATE, now)
        self._very_late.now(late >= self.VERY_LATE, now)
        self._fresh.now(self._mean <= self.NONE, now)
        if self._late.for_ns > self.LATE_FOR:
            self._behind = True
        elif self._fresh.for_ns > self.CAUGHT_UP:
            self._behind = False
        if self._very_late.for_ns > self.VERY_LATE_FOR and not self._to_key:
            self._to_key = "late"
            self._backlog.begin(late, pts, now)

    def _is_disposable(self, packet: Packet[Any]) -> bool:
        """No other picture needs it; how many there are of that kind is noted."""
        found = self._bitstream.is_disposable(head(memoryview(packet)))
        self._seen = min(self._seen + 1, _LOOK)
        self._disposable += (found - self._disposable) / self._seen
        return found

    def _has_turn(self, share: float) -> bool:
        """Whether this one is of the share to leave out, spread evenly over those that no other needs."""
        self._owed += min(1.0, max(0.0, share))
        if self._owed < 1:
            return False
        self._owed -= 1
        return True


class _GopTail:
    """The last pictures before a key picture.

    It is expected after the longest of the last few periods: one that comes sooner leaves something owed, where one
    that came later would leave a gap as long as nobody knows.
    """

    def __init__(self) -> None:
        self._owed = 0.0  # pictures to leave out, less those that were
        self._since = 0  # pictures from the last key picture on, 0 before the first
        self._periods: deque[int] = deque(maxlen=_PERIODS)

    def passed(self, key: bool, skip_ratio: float, *, left_out: bool) -> None:
        """One more picture, and whether it was left out; `skip_ratio` is the share of all that is to be, 0 to 1."""
        if key:
            if self._since:
                self._periods.append(self._since)
            self._since = 1
        elif self._since:
            self._since += 1
        # No more is made up for than one period has room for.
        self._owed = min(max(self._owed + skip_ratio - left_out, -self._period), self._period)

    def may_go(self, skip_ratio: float) -> bool:
        """Whether to leave out this picture and all others up to the key picture makes up for what is owed."""
        left = self._period - self._since
        return left > 0 and self._owed >= left * (1 - skip_ratio)

    def end(self) -> None:
        """Pictures pass that nobody asks about."""
        self._owed, self._since = 0.0, 0
        self._periods.clear()

    @property
    def _period(self) -> int:
        return max(self._periods, default=0)


class _Backlog:
    """How late packets are that nobody decodes, by that of the last picture, their own times and the clock.

    Attributes:
        late: ns, of the last packet that was asked about.
    """

    def __init__(self, time_base: Fraction | None) -> None:
        self._tick = float(time_base or 0) * 1e9  # ns
        self.late, self._pts, self._then = 0, 0, 0

    def begin(self, late: int, pts: int | None, now: int) -> None:
        self.late, self._pts, self._then = late, pts or 0, now

    def shrinks(self, pts: int | None, now: int) -> bool:
        """Whether packets come at least twice as fast as the camera made them, since last asked."""
        if pts is None:
            return False
        made, passed = (pts - self._pts) * self._tick, now - self._then
        self.late, self._pts, self._then = round(self.late + passed - made), pts, now
        return made > 2 * passed


class _Debounce:
    """Something that holds or does not.

    Attributes:
        for_ns: how long it has held without a break.
    """

    def __init__(self) -> None:
        self.for_ns = 0
        self._since: int | None = None

    def now(self, holds: bool, now: int) -> None:
        if not holds:
            self.end()
        elif self._since is None:
            self._since = now
        else:
            self.for_ns = now - self._since

    def end(self) -> None:
        self._since, self.for_ns = None, 0
