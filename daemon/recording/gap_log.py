"""Why nothing is recorded, from when on: what a gap is made of when it ends."""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from daemon.recording.causes import Cause
from daemon.recording.records import Gap

_MAX_NOTES = 256  # of one gap; a source that flaps for days has more, and the oldest of them tell enough


class Note(msgspec.Struct, frozen=True, gc=False):
    """From a time on nothing was recorded, for this cause."""

    at: int
    cause: Cause
    detail: str | None = None


class GapLog:
    """The causes since the last second that was recorded.

    Args:
        notes: as a process before had them.
        default: the cause of what nothing was noted for.
    """

    def __init__(self, notes: list[Note] | None = None, default: Cause = "source_down") -> None:
        self._notes = list(notes or ())
        self._default = default

    @property
    def notes(self) -> list[Note]:
        return [*self._notes]

    def note(self, at: int, cause: Cause, detail: str | None = None) -> None:
        """Nothing is recorded from then on, for this cause. One that came late comes to its place."""
        place = bisect_right(self._notes, at, key=lambda row: row.at)
        before = self._notes[place - 1] if place else None
        if before is not None and before.cause == cause and detail in (None, before.detail):
            return
        if len(self._notes) < _MAX_NOTES:
            self._notes.insert(place, Note(at, cause, detail))

    def gaps(self, begin: int, end: int) -> list[Gap]:
        """From begin to end, without a hole: each time has the latest cause that was noted before it."""
        if end <= begin:
            return []
        before = [row for row in self._notes if row.at <= begin]
        within = [row for row in self._notes if begin < row.at < end]
        first = before[-1] if before else (within[0] if within else Note(begin, self._default))
        found = [Gap(begin, end, first.cause, first.detail)]
        for row in within:
            last = found[-1]
            if row.cause == last.cause and (last.detail is None or row.detail in (None, last.detail)):
                found[-1] = msgspec.structs.replace(last, detail=last.detail or row.detail)
                continue
            found[-1] = msgspec.structs.replace(found[-1], end=row.at)
            found.append(Gap(row.at, end, row.cause, row.detail))
        return [gap for gap in found if gap.begin < gap.end]

    def clear(self, until: int) -> None:
        """It was recorded up to then."""
        self._notes = [row for row in self._notes if row.at >= until]
