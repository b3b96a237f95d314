"""Clips that events want: each event asks for the time around it, and those that overlap share one clip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

ClipState = Literal["recording", "ready", "failed"]
_MAX_EVENTS = 200  # of one clip; the first ones are named
_MAX_OPEN = 64
_MAX_WRITTEN = 64  # spans
_MAX_UNMARKED = 1000  # while an index is locked
# While a store is away no clip ends, and the ring has little room for what another process must know.
_MAX_HELD, _MAX_NAMED = 256, 1500  # clips, and events of all


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """An event wants what was seen around it.

    Attributes:
        session: of the event; None to go by the time of day alone, for another stream than the one analysed.
        pts: ns on the timeline of the session.
        at: UTC ns.
    """

    event: str
    session: str | None
    pts: int | None
    at: int


class ClaimedTime(NamedTuple):
    """A time that an event wants.

    Attributes:
        event: its id.
        begin, end: UTC ns.
    """

    source: str
    event: str
    begin: int
    end: int
    state: ClipState


class Clip(msgspec.Struct):
    """A time that events want.

    Attributes:
        id: of its first event.
        begin, end: BOOTTIME ns.
        covered: ns of it that are in files, once it is over.
        told: its end, as the wire has it.
    """

    id: str
    events: list[str]
    begin: int
    end: int
    covered: int = 0
    told: int = 0


class ClipsState(msgspec.Struct):
    """The state of clips that another process must know.

    Attributes:
        open: those that are not over.
        written: begin and end of what was written lately, BOOTTIME ns; an event may come after what it wants.
    """

    open: list[Clip] = []
    written: list[tuple[int, int]] = []


class Clips:
    """Those of one source that are not over.

    Args:
        pre, post, longest: ns.
        state: of the process before.

    Attributes:
        unmarked: those whose time is still to be marked in files; the last ones.
    """

    def __init__(self, pre: int, post: int, longest: int, state: ClipsState | None = None) -> None:
        self._pre, self._post, self._longest = pre, post, longest
        self.state = state or ClipsState()
        self.unmarked = [*self.open]
        self._shed: list[Clip] = []

    @property
    def open(self) -> list[Clip]:
        return self.state.open

    def configure(self, pre: int, post: int, longest: int) -> None:
        self._pre, self._post, self._longest = pre, post, longest

    @property
    def pre(self) -> int:
        return self._pre

    def has(self, event: str) -> bool:
        """Whether a clip that is not over names it."""
        return any(event in clip.events for clip in self.open)

    def add(self, event: str, boot: int) -> Clip:
        """An event at a time, BOOTTIME ns: the clip that has it from now on."""
        clip = self._clip_for(event, boot)
        if clip not in self.unmarked:
            self.unmarked.append(clip)
        self._bound()
        return clip

    def note_marked(self, clip: Clip) -> None:
        """Its time is marked in all files that have some of it by now."""
        self.unmarked.remove(clip)

    def take_shed(self) -> list[Clip]:
        """Those that were too many: they are over."""
        shed, self._shed = self._shed, []
        return shed

    def _clip_for(self, event: str, boot: int) -> Clip:
        begin, end = boot - self._pre, boot + self._post
        for clip in reversed(self.open):
            if begin <= clip.end and end >= clip.begin:
                if end - clip.begin > self._longest:
                    break
                clip.begin, clip.end = min(clip.begin, begin), max(clip.end, end)
                if len(clip.events) < _MAX_EVENTS:
                    clip.events.append(event)
                return clip
        if self.open:
            begin = max(begin, min(self.open[-1].end, boot))
        clip = Clip(event, [event], begin, end)
        self.open.append(clip)
        if len(self.open) > _MAX_OPEN:
            self.open[0].end = min(self.open[0].end, boot)
        return clip

    def _bound(self) -> None:
        """Give the oldest up where there are too many."""
        held = self.open
        while len(held) > 1 and (len(held) > _MAX_HELD or sum(len(clip.events) for clip in held) > _MAX_NAMED):
            self._shed.append(self._covered(held.pop(0)))
        del self.unmarked[:-_MAX_UNMARKED]

    def wants(self, begin: int, end: int) -> bool:
        """Whether some clip wants something between two times, BOOTTIME ns."""
        return any(clip.begin < end and clip.end > begin for clip in self.open)

    def note_written(self, begin: int, end: int) -> None:
        """The time between was written; by and by."""
        written = self.state.written
        if written and begin <= written[-1][1]:
            begin, end = written[-1][0], max(end, written.pop()[1])
        written.append((begin, end))
        del written[:-_MAX_WRITTEN]

    def take_over(self, decided: int | None) -> Iterator[Clip]:
        """The clips of which everything is written or lost.

        Args:
            decided: BOOTTIME ns until which that is so; None for all.
        """
        over = [clip for clip in self.open if decided is None or clip.end <= decided]
        self.state.open = [clip for clip in self.open if clip not in over]
        for clip in over:
            yield self._covered(clip)

    def _covered(self, clip: Clip) -> Clip:
        """A clip that is over, with how much of it is written."""
        within = (min(clip.end, end) - max(clip.begin, begin) for begin, end in self.state.written)
        clip.covered = sum(length for length in within if length > 0)
        return clip
