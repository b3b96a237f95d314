"""The account of a time: rules could see each second of it, or there is a cause why not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice

import msgspec

from daemon.recording.causes import Cause
from daemon.recording.records import Gap
from daemon.recording.search.answers import Blind, Unseen

_PAUSE_NS = 2_000_000_000  # between two frames, or as many of the source's own intervals
_INTERVALS = 5
_NEAR_NS = 1_000_000_000  # what is closer together is told as one
_LONGEST_NS = 60_000_000_000


class _Run(msgspec.Struct):
    """Time that was not seen for one cause, which may go on.

    Attributes:
        begin, end, unseen: ns; the last is the share that was not seen.
        frames: that are missing; 0 if they are not counted.
    """

    cause: Cause | Blind
    detail: str | None
    begin: int
    end: int
    unseen: int
    frames: int


class Sight:
    """Told of frames in their order, and answers with what was not seen before them.

    Args:
        begin, end: UTC ns.
        gaps: of the recording.

    Attributes:
        unseen_ns: so far.
    """

    def __init__(self, begin: int, end: int, gaps: Sequence[Gap]) -> None:
        self._begin, self._end = begin, end
        self._at = begin
        self._gaps = deque(gaps)  # those that are not told
        self._beside: deque[Gap] = deque()  # those that are told, and are not over
        self._run: _Run | None = None
        self._usual = 0
        self._is_explained = True  # why there was no frame just before
        self.unseen_ns = 0

    def sees(self, at: int) -> bool:
        """`saw`, where that has nothing to say, as for most frames; returns whether it has been done."""
        step = at - self._at
        if self._run or self._beside or not 0 < step <= _PAUSE_NS or (self._gaps and self._gaps[0].begin < at):
            return False
        self._at, self._usual, self._is_explained = at, step, False
        return True

    def saw(self, at: int) -> Iterator[Unseen]:
        """A frame was analysed at a time, UTC ns, and none was lost before it."""
        step = at - self._at
        if step > self._pause_ns:
            yield from self.missed(at, "no_frames", ends_at_frame=True)
            return
        if step > 0 and not self._is_beside_others(at):
            self._usual = step
        self._is_explained = False
        yield from self._advance(at)

    def missed(
        self, at: int, cause: Blind, detail: str | None = None, frames: int = 0, *, ends_at_frame: bool = False
    ) -> Iterator[Unseen]:
        """The time up to `at` was not seen. Less than a pause beside another cause counts as seen.

        Args:
            frames: that are missing, where the others were seen; 0 if nothing of it was.
        """
        is_beside = self._is_beside_others(at)
        for begin, end in self._outside_gaps(self._at, at):
            if not is_beside or end - begin > self._pause_ns:
                yield from self._advance(begin)
                yield from self._add(begin, end, cause, detail, frames)
        self._is_explained = not ends_at_frame
        yield from self._advance(at)

    def finish(self, cause: Blind) -> Iterator[Unseen]:
        """The time is over; what is left of it was not seen for a cause."""
        if self._end - self._at > self._pause_ns:
            yield from self.missed(self._end, cause)
        yield from self._advance(self._end)
        yield from self._flush()

    @property
    def _pause_ns(self) -> int:
        return max(_PAUSE_NS, _INTERVALS * self._usual)

    def _is_beside_others(self, at: int) -> bool:
        """Whether something else explains a part of the time up to `at`."""
        return self._is_explained or any(gap.begin < at for gap in chain(self._beside, islice(self._gaps, 1)))

    def _advance(self, at: int) -> Iterator[Unseen]:
        """Go on, and tell the gaps that have begun."""
        while self._gaps and self._gaps[0].begin < min(at, self._end):
            gap = self._gaps.popleft()
            yield from self._flush()
            begin, end = max(gap.begin, self._begin), min(gap.end, self._end)
            self.unseen_ns += end - begin
            yield Unseen(begin=begin, end=end, cause=gap.cause, detail=gap.detail)
            self._beside.append(gap)
        self._at = max(self._at, at)
        while self._beside and self._beside[0].end <= self._at:
            self._beside.popleft()
        if self._run is not None and self._at - self._run.end > _NEAR_NS:
            yield from self._flush()

    def _outside_gaps(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The parts of a time that are asked, and are in no gap."""
        at, last = max(begin, self._begin), min(end, self._end)
        found = []
        for gap in chain(self._beside, self._gaps):
            if gap.begin >= last:
                break
            if gap.begin > at:
                found.append((at, gap.begin))
            at = max(at, gap.end)
        if at < last:
            found.append((at, last))
        return found

    def _add(self, begin: int, end: int, cause: Blind, detail: str | None, frames: int) -> Iterator[Unseen]:
        unseen = (end - begin) * frames // (frames + 1) if frames else end - begin
        run = self._run
        if (
            run is None
            or (run.cause, run.detail) != (cause, detail)
            or begin - run.end > _NEAR_NS
            or end - run.begin > _LONGEST_NS
        ):
            yield from self._flush()
            run = self._run = _Run(cause, detail, begin, begin, 0, 0)
        run.end, run.unseen, run.frames = end, run.unseen + unseen, run.frames + frames

    def _flush(self) -> Iterator[Unseen]:
        run, self._run = self._run, None
        if run is None:
            return
        self.unseen_ns += run.unseen
        counted = f"{run.frames} frame{'' if run.frames == 1 else 's'}" if run.frames else None
        yield Unseen(begin=run.begin, end=run.end, cause=run.cause, detail=run.detail or counted)
