"""Playout of a live source whose pictures come in bursts: HLS sends a segment at once, and some servers a group of
pictures. Each picture is delayed until it is due by its own time. Otherwise a burst would replace itself on the board.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from daemon.sources.port import BurstyReader, Reader

_JUMP_NS = 10_000_000_000  # between two pictures: a new timeline
_CATCH_UP = 20  # HLS that has fallen behind plays faster by 1 / this
_GAP_NS = 250_000_000  # a shorter pause does not end a burst
_MIN_PICTURES = 3  # of a burst
_MIN_SHARE = 0.5  # of the time between two bursts that the pictures of the first cover
_BURSTS = 2  # in a row, before pictures are delayed
_MAX_LENGTH_NS = 4_000_000_000  # longer bursts are not delayed
_SHRINK = 100  # the delay shrinks by 1 / this of the time that passes, and grows where a burst comes late
_DRIFT = 1000  # clocks drift apart by less than 1 / this


class Playout(Protocol):
    """Schedules the pictures of one connection.

    Attributes:
        is_active: pictures are delayed.
    """

    @property
    def is_active(self) -> bool: ...

    def due(self, pts: int, now: int, waited: int) -> int:
        """The moment at which a picture is due, ns; a moment that is over means at once. Call it once for each picture,
        in order.

        Args:
            pts: time of the picture on the source's own timeline, ns.
            now: monotonic, ns.
            waited: for its data, ns. A picture that is late for want of data moves the schedule; one that is late for
                want of time to decode it does not.
        """
        ...


def playout_of(reader: Reader) -> Playout | None:
    """The playout of a new connection; None if its pictures cannot wait."""
    if not isinstance(reader, BurstyReader) or not reader.can_wait:
        return None
    return SegmentPlayout(reader) if reader.segment_s else BurstPlayout()


class SegmentPlayout:
    """HLS: pictures are delayed from the first one on, so that the segments that follow it are there in time."""

    is_active = True

    def __init__(self, reader: BurstyReader) -> None:
        self._reader = reader
        self._jump = max(_JUMP_NS, round(3e9 * reader.segment_s))
        self._offset: int | None = None  # from a picture's time to the moment at which it is due, ns
        self._last = 0  # time of the last picture, ns

    def due(self, pts: int, now: int, waited: int) -> int:
        step, self._last = pts - self._last, pts
        if self._offset is None or not 0 <= step < self._jump:
            self._offset = now - pts
        elif self._reader.is_behind:
            self._offset -= step // _CATCH_UP
        self._offset += _move(now - pts - self._offset, waited)
        return pts + self._offset


class BurstPlayout:
    """Any other stream: once it has come in bursts a few times in a row, its pictures are delayed, by as much as the
    first one of a burst needs."""

    def __init__(self) -> None:
        self._detector = _BurstDetector()
        self._offset: int | None = None  # from a picture's time to the moment at which it is due, ns; None: no bursts
        self._max_offset = 0
        self._last: int | None = None  # time of the last picture, ns

    @property
    def is_active(self) -> bool:
        return self._offset is not None

    def due(self, pts: int, now: int, waited: int) -> int:
        step, self._last = 0 if self._last is None else pts - self._last, pts
        if not 0 <= step < _JUMP_NS:
            self._offset, self._detector = None, _BurstDetector()
        if self._offset is None:
            length = self._detector.add(pts, now, waited)
            if 0 < length <= _MAX_LENGTH_NS:
                self._offset, self._max_offset = now - pts, now - pts + length
            return now
        self._max_offset += step // _DRIFT
        self._offset -= step // _SHRINK
        self._offset = min(self._offset + _move(now - pts - self._offset, waited), self._max_offset)
        return pts + self._offset


def _move(late: int, waited: int) -> int:
    """How far a picture that is late by the schedule moves it."""
    return max(0, min(late, waited))


class _Burst(NamedTuple):
    """Attributes:
    pts, at: time and arrival of its first picture, ns.
    """

    pts: int
    at: int


class _BurstDetector:
    """Finds streams that pause, and then send what they made meanwhile."""

    def __init__(self) -> None:
        self._first: _Burst | None = None  # the burst that is coming
        self._pts = self._at = 0  # of the last picture
        self._pictures = 0  # of this burst
        self._bursts = 0  # in a row

    def add(self, pts: int, at: int, waited: int) -> int:
        """Time from one burst to the next, ns, if this picture begins another one after enough of them; otherwise 0."""
        length = 0
        if self._first is None or waited >= _GAP_NS:
            length = self._next(pts, at)
            self._first, self._pictures = _Burst(pts, at), 0
        self._pts, self._at, self._pictures = pts, at, self._pictures + 1
        return length

    def _next(self, pts: int, at: int) -> int:
        if self._first is None:
            return 0
        period = pts - self._first.pts
        span, took = self._pts - self._first.pts, self._at - self._first.at
        is_burst = self._pictures >= _MIN_PICTURES and span > _MIN_SHARE * period and took < span / 2
        is_steady = period / 2 < at - self._first.at < period * 2
        self._bursts = self._bursts + 1 if is_burst and is_steady else 0
        return period if self._bursts >= _BURSTS else 0
