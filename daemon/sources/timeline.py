"""The time of each picture of a connection or recording, on one line that goes on over loops and splices."""

from __future__ import annotations

from fractions import Fraction

from daemon.sources.pending import TimeSlot

_DEFAULT_PERIOD_NS = 40_000_000
_MAX_DISORDER_NS = 1_000_000_000  # a longer step back begins another timeline
_MAX_DISORDER = 4  # pictures in a row; so does a step back that lasts


class Timeline:
    """Converts timestamps to ns.

    The time of a recording never goes back, because decoders give pictures in the order of display. Where a timestamp
    does, it is that of another packet (the container has no times of display), it is wrong (the time stands still), or
    another recording begins (its timeline goes on at the end of this one).

    Args:
        live: pictures without a timestamp have no time; those of a recording are counted by the rate.
        rate: frames a second, None if unknown.
        unordered: timestamps are not those of display.
        max_step: of a live stream that is put together from parts: where a timestamp goes back, or ahead by more than
            this, ns, another part begins, and the timeline goes on. None if timestamps are taken as they are.

    Attributes:
        period: of a picture by the rate, ns.
        step: from the last picture but one to the last, ns.
        end: ns, where the next pass starts.
    """

    def __init__(self, *, live: bool, rate: float | None, unordered: bool = False, max_step: int | None = None) -> None:
        self._live, self._unordered, self._max_step = live, unordered, max_step
        self.period = round(1e9 / rate) if rate else _DEFAULT_PERIOD_NS
        self.step = self.period
        self._offset = 0  # ns, added to the timestamps of this pass
        self.end = 0
        self._first: int | None = None  # ns, time of this pass's first picture
        self._origin = 0  # ns, timestamp of the first picture
        self._last: int | None = None  # ns, time of the last picture
        self._line = 0
        self._behind = 0  # pictures in a row whose timestamps went back
        self._unit, self._scale = Fraction(1), (1_000_000_000, 1)  # time base of the last timestamp, and the same in ns

    def time_of(self, pts: int | None, unit: Fraction | None, slot: TimeSlot | None = None) -> int | None:
        """Time of a picture, ns. Call it once for each picture, in order."""
        if slot is not None and self._unordered:
            pts = slot.time
        if pts is not None and unit is not None:
            if unit is not self._unit:
                self._unit, self._scale = unit, (unit.numerator * 1_000_000_000, unit.denominator)
            time = self._offset + pts * self._scale[0] // self._scale[1]
        elif self._live:
            return None
        else:  # a bare H.264 file has no timestamps: count by the rate
            time = self.end
        if self._max_step and self._last is not None:
            time = self._continued(time, self._last, self._max_step)
        if self._last is not None and time < self._last and not self._live:
            time = self._ordered(time, self._last, slot)
        else:
            self._behind = 0
        if self._last is not None and time > self._last:
            self.step = time - self._last
        if self._first is None:
            self._first = time
            self._origin = time - self._offset
        if slot is not None:
            self._line = slot.line
        self._last = time
        self.end = max(self.end, time + self.period)
        return time

    def placed(self, time: int | None, unit: Fraction) -> int | None:
        """A timestamp of a packet of this pass, ns."""
        return None if time is None else self._offset + nanoseconds(time, unit)

    @property
    def played(self) -> int:
        """Length of this pass so far, ns."""
        return self.end - (self._first or 0)

    def begin_pass(self) -> None:
        """The next timestamps are those of the same recording from its start."""
        self._offset, self._first, self._line = self.end - self._origin, None, 0

    def _continued(self, time: int, last: int, max_step: int) -> int:
        """The time of a live picture, which may begin another part."""
        if not 0 < time - last <= max_step:
            self._offset += last + self.step - time
            return last + self.step
        return time

    def begin_stream(self) -> None:
        """The next timestamps are those of another stream: if they go back, another recording begins."""
        self._behind = _MAX_DISORDER

    def _ordered(self, time: int, last: int, slot: TimeSlot | None) -> int:
        """The time of a picture whose timestamp went back."""
        self._behind += 1
        if last - time > _MAX_DISORDER_NS or self._behind > _MAX_DISORDER:
            self._offset += self.end - time
            self._behind = 0
            return self.end
        if slot is not None and slot.line == self._line:
            self._unordered = True
        return last


def nanoseconds(count: int, unit: Fraction) -> int:
    """Integer arithmetic: Fraction's own costs as much as demuxing."""
    return count * unit.numerator * 1_000_000_000 // unit.denominator
