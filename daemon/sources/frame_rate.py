"""The frame rate of a source, measured: its pictures confirm or correct the rate that a header claims."""

from __future__ import annotations

MAX_CREDIBLE = 240.0  # frames a second; a higher claim is that of another unit, or of nobody
_S = 1_000_000_000  # ns
_WINDOW_NS, _MIN_STEPS = 2 * _S, 8  # a measurement takes so long, and so many steps between pictures
_SLOW_NS, _MIN_SLOW_STEPS = 10 * _S, 2  # or these, of a slow source
_LATER_NS = 60 * _S  # a measurement after the first ones takes so long
_LATER_TOLERANCE = 0.25  # a smaller change of a rate that was measured is none
_MAX_GAP_NS = 10 * _S  # between two pictures; a longer one, or a step back, begins a measurement anew
_DISORDER_NS = _S  # a smaller step back is that of B-frames


class FrameRate:
    """Measures the rate of a source, over its connections.

    A claim is believed until two measurements in a row contradict it and agree with each other. Then theirs counts, and
    a later connection with the same claim begins with it.

    Attributes:
        fps: frames a second, claimed or measured; None if unknown.
        is_measured: the pictures have confirmed or corrected the claim.
    """

    def __init__(self) -> None:
        self.fps: float | None = None
        self.is_measured = False
        self._claim: float | None = None
        self._tolerance = 0.0
        self._other: float | None = None  # the last measurement, if it contradicts `fps`
        self._first: int | None = None  # time of a measurement's first picture, ns
        self._last = 0  # of the last one
        self._steps = 0

    def begin(self, claim: float | None, *, tolerance: float) -> None:
        """Begin a connection.

        Args:
            claim: frames a second by the header, None without.
            tolerance: a measurement that differs by a smaller share confirms the claim.
        """
        if claim != self._claim or not self.is_measured:
            self._claim, self.is_measured = claim, False
            self.fps = claim if claim is not None and 0 < claim <= MAX_CREDIBLE else None
        self._tolerance, self._other = tolerance, None
        self._begin_window()

    def add(self, time: int) -> bool:
        """Note a picture by its time, ns; whether `fps` has changed."""
        if self._first is None:
            self._first = self._last = time
            return False
        step = time - self._last
        if not -_DISORDER_NS < step < _MAX_GAP_NS:
            self._begin_window()
            return False
        self._steps += 1
        self._last = max(self._last, time)
        return self._is_long_enough() and self._end_window()

    def _begin_window(self) -> None:
        self._first, self._steps = None, 0

    def _is_long_enough(self) -> bool:
        span = self._last - (self._first or 0)
        if self.is_measured and self._other is None:
            return span >= _LATER_NS
        return (span >= _WINDOW_NS and self._steps >= _MIN_STEPS) or (
            span >= _SLOW_NS and self._steps >= _MIN_SLOW_STEPS
        )

    def _end_window(self) -> bool:
        measured = self._steps * _S / (self._last - (self._first or 0))
        self._begin_window()
        if measured > MAX_CREDIBLE:  # pictures that had gathered came at once
            return False
        tolerance = _LATER_TOLERANCE if self.is_measured else self._tolerance
        if self.fps is not None and _agree(measured, self.fps, tolerance):
            self.is_measured, self._other = True, None
            return False
        if self.fps is not None and (self._other is None or not _agree(measured, self._other, self._tolerance)):
            self._other = measured
            return False
        self.fps = round(measured if self._other is None else (measured + self._other) / 2, 2)
        self.is_measured, self._other = True, None
        return True


def _agree(one: float, other: float, tolerance: float) -> bool:
    return abs(one - other) <= tolerance * max(one, other)
