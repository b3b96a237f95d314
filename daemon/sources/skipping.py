"""Skips pictures before they are decoded when decoding is late, so that the pictures that are decoded are fresh."""

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

SkipCause = Literal["late", "rate_limit"]
_WINDOW = 128  # pictures of the running share
_PERIODS = 4  # of key pictures that are remembered


class FrameSkipper:
    """Decides for each packet whether to skip it.

    Lateness: the skipper drops a growing share of the non-reference pictures. Where these are too few it drops every
    picture up to the next key picture. Lateness alone is not enough: packets that a network held back come in a burst,
    and are read fast; and a reader that waits for packets has no backlog. So the source must be late for a while
    without waiting.

    On a busy machine a read takes long although its packet has arrived: the thread waits for the GIL or a core. A few
    such reads must not hide a backlog of seconds. So a source that is very late counts as waiting only if it waits for
    half of the time. Skipping then shows whether there was a backlog: its packets come faster than the camera makes
    them. If they come as fast as it makes them, the lateness is that of the camera or network, and is normal from then
    on. Normal lateness does not shrink; a backlog does, as soon as there is time.

    `skip_ratio` (admission: the decoder is known to be too slow): non-reference pictures go first. Where these are too
    few, as with most cameras, the last pictures before each key picture go too: one gap, instead of lateness for all.

    Sources that share a thread are equally late. A share that grows with lateness treats them equally; a threshold
    would not.
    """

    LATE_NS: Final = 50_000_000  # counts as late
    LATE_FOR_NS: Final = 200_000_000  # continuously, before non-reference pictures are skipped
    SKIP_NONE_NS: Final = 10_000_000  # mean lateness at which no non-reference picture is skipped
    SKIP_ALL_NS: Final = 40_000_000  # mean lateness at which all of them are; a share in between
    MEAN_NS: Final = 100_000_000  # time constant of the mean
    FRESH_FOR_NS: Final = 2_000_000_000  # continuously fresh, before skipping ends
    VERY_LATE_NS: Final = 1_000_000_000
    VERY_LATE_FOR_NS: Final = 2_000_000_000  # continuously, before every picture up to a key picture is skipped
    WAITED_NS: Final = 10_000_000  # a shorter wait for a packet is a wait for the GIL
    AGAIN_NS: Final = 10_000_000_000  # after a backlog a source is skipped again
    AGAIN_FOR_NS: Final = 500_000_000  # if it is very late for so long
    SHRUNK_NS: Final = 500_000_000  # normal lateness that shrinks by more was a backlog

    def __init__(self, stream: VideoStream, now: Callable[[], int] = monotonic_ns) -> None:
        context = stream.codec_context
        self._bitstream = Bitstream(context.name, context.extradata)
        self._now = now
        self._late, self._very_late, self._fresh = _Debounce(), _Debounce(), _Debounce()
        self._waited = 0  # while very late, ns
        self._normal = 0  # lateness that skipping does not end, ns
        self._backlog_at: int | None = None  # when skipping found a backlog, ns
        self._is_active = False
        self._is_behind = False
        self._skip_cause: SkipCause | None = None  # why every picture up to a key picture is skipped
        self._mean, self._updated = 0.0, 0  # mean lateness, and when it was updated, ns
        self._to_skip = 0.0  # pictures to skip, a fraction
        self._disposable, self._counted = 0.0, 0  # share of non-reference pictures, and of how many pictures
        self._tail = _GopTail()
        self._backlog = _Backlog(stream.time_base)

    def skip_cause(self, packet: Packet[Any], budget: DecodeBudget, waited: int) -> SkipCause | None:
        """Why a packet is skipped, None if it is not. Call it once for each packet, in order.

        Args:
            waited: ns spent waiting for the packet.
        """
        late, skip_ratio = budget.late, budget.skip_ratio
        if not (late or skip_ratio or self._is_behind or self._skip_cause):  # the usual case
            if self._is_active:
                self._is_active = False
                self._late.end()
                self._very_late.end()
                self._tail.end()
            return None
        self._is_active = True
        self._update(late, waited, self._now(), packet.pts)
        if packet.size == 0:
            return None
        cause = self._cause(packet, skip_ratio)
        self._tail.add(packet.is_keyframe, skip_ratio, skipped=cause is not None)
        return cause

    def _cause(self, packet: Packet[Any], skip_ratio: float) -> SkipCause | None:
        if self._skip_cause and packet.is_keyframe and not self._skips_key(packet.pts):
            self._skip_cause = None
            self._very_late.end()
        if not (self._is_behind or self._skip_cause or skip_ratio):
            return None
        disposable = self._is_disposable(packet)
        if self._skip_cause:
            return self._skip_cause
        if skip_ratio > self._disposable and not packet.is_keyframe and self._tail.should_skip(skip_ratio):
            self._skip_cause = "rate_limit"
            return self._skip_cause
        if not disposable:
            return None
        behind = (self._mean - self.SKIP_NONE_NS) / (self.SKIP_ALL_NS - self.SKIP_NONE_NS) if self._is_behind else 0.0
        asked = skip_ratio / self._disposable
        if not self._is_due(max(behind, asked)):
            return None
        return "late" if behind > asked else "rate_limit"

    def _skips_key(self, pts: int | None) -> bool:
        """Whether to skip a key picture too: it is just as late, and the pictures after it have arrived already."""
        if self._skip_cause != "late":
            return False
        found = self._backlog.judge(pts, self._updated)
        if found == "backlog":
            self._backlog_at = self._updated
        elif found == "none" and self._had_backlog:
            self._backlog_at = None  # a backlog has ended, or the machine was busy for a moment
        elif found == "none":
            self._normal = self._backlog.late
        return found == "backlog" and self._backlog.late > self.VERY_LATE_NS

    @property
    def _had_backlog(self) -> bool:
        """Whether skipping has found a backlog lately."""
        return self._backlog_at is not None and self._updated - self._backlog_at < self.AGAIN_NS

    def _update(self, late: int, waited: int, now: int, pts: int | None) -> None:
        if late < self._normal - self.SHRUNK_NS:
            self._normal = 0
        unusual = late - self._normal
        behind = 0 if waited > self.WAITED_NS else max(0, unusual)
        self._mean += (behind - self._mean) * (1 - exp((self._updated - now) / self.MEAN_NS))
        self._updated = now
        self._late.now(behind >= self.LATE_NS, now)
        self._fresh.now(self._mean <= self.SKIP_NONE_NS, now)
        if self._late.for_ns > self.LATE_FOR_NS:
            self._is_behind = True
        elif self._fresh.for_ns > self.FRESH_FOR_NS:
            self._is_behind = False
        if not self._skip_cause and self._update_very_late(unusual, waited, now):
            self._skip_cause = "late"
            self._backlog.begin(late, pts, now)

    def _update_very_late(self, unusual: int, waited: int, now: int) -> bool:
        """Whether the source has been very late for long enough, without waiting for packets half of the time."""
        self._very_late.now(unusual >= self.VERY_LATE_NS, now)
        for_ns = self._very_late.for_ns
        self._waited = self._waited + waited if for_ns else 0
        if for_ns <= (self.AGAIN_FOR_NS if self._had_backlog else self.VERY_LATE_FOR_NS):
            return False
        if self._waited > for_ns // 2:
            self._very_late.end()
            return False
        return True

    def _is_disposable(self, packet: Packet[Any]) -> bool:
        """Whether no other picture refers to this one; updates the running share."""
        found = self._bitstream.is_disposable(head(memoryview(packet)))
        self._counted = min(self._counted + 1, _WINDOW)
        self._disposable += (found - self._disposable) / self._counted
        return found

    def _is_due(self, share: float) -> bool:
        """Whether to skip this picture, so that the share is spread evenly."""
        self._to_skip += min(1.0, max(0.0, share))
        if self._to_skip < 1:
            return False
        self._to_skip -= 1
        return True


class _GopTail:
    """The last pictures before a key picture.

    The next key picture is expected after the longest of the last few periods. If it comes sooner, the rest is skipped
    later; if it came later than expected, the gap would be of unknown length.
    """

    def __init__(self) -> None:
        self._to_skip = 0.0  # pictures to skip, less pictures skipped
        self._since = 0  # pictures since the last key picture, 0 before the first
        self._periods: deque[int] = deque(maxlen=_PERIODS)

    def add(self, key: bool, skip_ratio: float, *, skipped: bool) -> None:
        """Count a picture; `skip_ratio` is the share of all pictures to be skipped, 0 to 1."""
        if key:
            if self._since:
                self._periods.append(self._since)
            self._since = 1
        elif self._since:
            self._since += 1
        # At most one period is made up for.
        self._to_skip = min(max(self._to_skip + skip_ratio - skipped, -self._period), self._period)

    def should_skip(self, skip_ratio: float) -> bool:
        """Whether skipping every picture from here to the key picture reaches the share."""
        left = self._period - self._since
        return left > 0 and self._to_skip >= left * (1 - skip_ratio)

    def end(self) -> None:
        """Forget the state: pictures pass uncounted."""
        self._to_skip, self._since = 0.0, 0
        self._periods.clear()

    @property
    def _period(self) -> int:
        return max(self._periods, default=0)


class _Backlog:
    """Lateness of packets that are not decoded: that of the last decoded picture, adjusted by pts and clock.

    Attributes:
        late: ns, of the last packet.
    """

    _JITTER: Final = 0.2  # of packets that are waited for, in the pace of the camera; faster ones had arrived before

    def __init__(self, time_base: Fraction | None) -> None:
        self._tick = float(time_base or 0) * 1e9  # ns
        self.late, self._then = 0, 0
        self._pts: int | None = None

    def begin(self, late: int, pts: int | None, now: int) -> None:
        self.late, self._pts, self._then = late, pts, now

    def judge(self, pts: int | None, now: int) -> Literal["backlog", "none", "unknown"]:
        """Whether packets have come faster than the camera made them since the last call: "backlog"; or as fast:
        "none". Slower ones are those of a slow network, or of a reader that has no time even for this: "unknown"."""
        if pts is None or self._pts is None:
            return "unknown"
        made, took = (pts - self._pts) * self._tick, now - self._then
        self.late, self._pts, self._then = max(0, round(self.late + took - made)), pts, now
        if made > (1 + self._JITTER) * took:
            return "backlog"
        return "none" if abs(made - took) < self._JITTER * took else "unknown"


class _Debounce:
    """Measures how long a condition has held.

    Attributes:
        for_ns: ns without a break.
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
