"""The time of each picture of a connection or recording, on one line that goes on over loops."""

from __future__ import annotations

from fractions import Fraction

_DEFAULT_PERIOD_NS = 40_000_000


class Timeline:
    """Converts timestamps to ns.

    Args:
        live: pictures without a timestamp have no time; those of a recording are counted by the rate.
        rate: frames a second, None if unknown.

    Attributes:
        end: ns, where the next pass starts.
    """

    def __init__(self, *, live: bool, rate: float | None) -> None:
        self._live = live
        self._period = round(1e9 / rate) if rate else _DEFAULT_PERIOD_NS
        self._offset = 0  # ns, added to the timestamps of this pass
        self.end = 0
        self._first: int | None = None  # ns, time of this pass's first picture
        self._unit, self._scale = Fraction(1), (1_000_000_000, 1)  # time base of the last timestamp, and the same in ns

    def time_of(self, pts: int | None, unit: Fraction | None) -> int | None:
        """Time of a picture, ns. Call it once for each picture, in order."""
        if pts is not None and unit is not None:
            if unit is not self._unit:
                self._unit, self._scale = unit, (unit.numerator * 1_000_000_000, unit.denominator)
            time = self._offset + pts * self._scale[0] // self._scale[1]
        elif self._live:
            return None
        else:  # a bare H.264 file has no timestamps: count by the rate
            time = self.end
        if self._first is None:
            self._first = time
        self.end = max(self.end, time + self._period)
        return time

    def placed(self, time: int | None, unit: Fraction) -> int | None:
        """A timestamp of a packet of this pass, ns."""
        return None if time is None else self._offset + nanoseconds(time, unit)

    def played(self, begin: int | None) -> int:
        """Length of this pass so far, ns, from a timestamp in ns, or from its first picture."""
        return self.end - (self._first or 0) if begin is None else self.end - self._offset - begin

    def begin_pass(self) -> None:
        """The next timestamps are those of the same recording from its start."""
        self._offset, self._first = self.end, None


def nanoseconds(count: int, unit: Fraction) -> int:
    """Integer arithmetic: Fraction's own costs as much as demuxing."""
    return count * unit.numerator * 1_000_000_000 // unit.denominator
