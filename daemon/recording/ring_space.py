"""Where in a ring the records lie, and where the next ones go.

A page of memory that is touched for the first time costs as much as copying four packets. So records go round in a few
pages as long as they are read in time, and into more where they are not. They lie in runs: at the end of one, a record
says where the next begins. A table of the runs lies in the head of the ring.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from daemon.recording.ring_layout import HEAD_BYTES, PAGE, TABLE_SLOTS, TABLED, TAIL, RingError

STEP_BYTES: Final = 256 << 10
"""A run goes on for so long before another place is looked for."""
JUMP: Final = Struct("<IBBHq")  # see ring_layout.HEADER; where the next run begins, in the data
_COUNT, _RUN = Struct("<q"), Struct("<qq")
_MAX_RUNS = 1000
_SPARE_BYTES = 1 << 20  # of memory beyond twice what is used


class Run(NamedTuple):
    """Records that lie side by side.

    Attributes:
        begin: of the first, in all that was ever written.
        place: of the first, in the data.
    """

    begin: int
    place: int


def runs_of(map: mmap.mmap, words: memoryview[int]) -> list[Run]:
    """The runs from before the tail to the head, or beyond it if a writer was killed."""
    while True:
        version = words[TABLED]
        at = TABLE_SLOTS[version & 1]
        (count,) = _COUNT.unpack_from(map, at)
        first = at + _COUNT.size
        is_sound = 0 <= count <= _MAX_RUNS
        runs = [Run(*row) for row in _RUN.iter_unpack(map[first : first + count * _RUN.size])] if is_sound else []
        if words[TABLED] - version < 2:  # otherwise it may have been written over meanwhile
            if not is_sound:
                raise RingError(f"a ring has a table of {count} runs")
            return runs or [Run(0, 0)]


def place_of(runs: list[Run], at: int) -> int:
    """Where a byte of all that was ever written lies in the data."""
    run = runs[max(0, bisect_right(runs, at, key=lambda run: run.begin) - 1)]
    return run.place + at - run.begin


class RingSpace:
    """The writer's view. The lock of the writer guards it.

    Args:
        head: up to where records count.

    Attributes:
        limit: up to where records may lie in this run, with a jump behind the last, before `find` is asked.
    """

    def __init__(self, map: mmap.mmap, words: memoryview[int], size: int, head: int) -> None:
        self._map, self._words, self._size = map, words, size
        self._version = words[TABLED]
        self._runs = runs_of(map, words)
        self._touched = size  # no page behind it has memory
        self.limit = 0
        self.rewind(head)  # a writer may have been killed before the records of a run counted

    def place_of(self, head: int) -> int:
        return place_of(self._runs, head)

    def find(self, place: int, length: int) -> int | None:
        """Where a record can lie; None without room.

        Args:
            place: behind the last record.
        """
        tail, runs, need = self._words[TAIL], self._runs, length + JUMP.size
        while len(runs) > 1 and runs[1].begin <= tail:
            del runs[0]
        used = self._used(tail, place)
        ahead = min((begin for begin, _ in used if begin > place), default=self._size)
        gaps = self._gaps(used)
        gap = next((gap for gap in gaps if gap[1] - gap[0] >= max(need, STEP_BYTES)), None)
        if place + need <= ahead and (gap is None or gap[0] >= place):
            self.limit = min(ahead, max(place + need, (place // STEP_BYTES + 1) * STEP_BYTES))
            self._trim(used)
            return place
        gap = gap or next((gap for gap in gaps if gap[1] - gap[0] >= need), None)
        if gap is None or len(runs) >= _MAX_RUNS:
            return None
        self.limit = min(gap[1], gap[0] + max(need, STEP_BYTES))
        self._trim(used)
        return gap[0]

    def begin_run(self, head: int, place: int) -> None:
        self._runs.append(Run(head, place))
        self._publish()

    def rewind(self, head: int) -> None:
        """Forget the runs behind the head: no record in them counts."""
        if self._runs[-1].begin > head:
            self._runs = [run for run in self._runs if run.begin <= head]
            self.limit = 0
            self._publish()

    def _used(self, tail: int, place: int) -> list[tuple[int, int]]:
        """Begins and ends of all that is in use, sorted. The page in which unread records begin is, as a whole."""
        runs = self._runs
        ends = [before.place + after.begin - before.begin for before, after in pairwise(runs)]
        begins = [run.place for run in runs]
        begins[0] = (runs[0].place + max(0, tail - runs[0].begin)) & -PAGE
        return sorted(zip(begins, [*ends, place]))

    def _gaps(self, used: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Whole pages between them."""
        ends = [0, *((end + PAGE - 1) & -PAGE for _, end in used)]
        return [*zip(ends, [*(begin for begin, _ in used), self._size])]

    def _trim(self, used: list[tuple[int, int]]) -> None:
        """Give memory back that was needed once."""
        most = max(self.limit, *(end for _, end in used))
        self._touched = max(self._touched, most)
        if self._touched > 2 * most + _SPARE_BYTES:
            keep = (most + _SPARE_BYTES // 2) & -PAGE
            give_back(self._map, keep, self._touched)
            self._touched = keep

    def _publish(self) -> None:
        self._version += 1
        at = TABLE_SLOTS[self._version & 1]
        _COUNT.pack_into(self._map, at, len(self._runs))
        for number, run in enumerate(self._runs):
            _RUN.pack_into(self._map, at + _COUNT.size + number * _RUN.size, *run)
        self._words[TABLED] = self._version


def give_back(map: mmap.mmap, begin: int, end: int) -> None:
    """Give back the whole pages between two places of the data."""
    begin, end = (begin + PAGE - 1) & -PAGE, end & -PAGE
    if begin < end:
        map.madvise(mmap.MADV_REMOVE, HEAD_BYTES + begin, end - begin)
