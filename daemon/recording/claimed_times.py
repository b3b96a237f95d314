"""The times that events want, on their way into the index: `clip.mp4` of an event is found by them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from daemon.recording.errors import StoreError
from daemon.recording.index_reader import ClaimedTime

if TYPE_CHECKING:
    from daemon.recording.clips import Clip, ClipState
    from daemon.recording.index import Index
    from daemon.recording.source_recorder import SourceRecorder

log = structlog.get_logger(__name__)
_MOST: Final = 20_000  # that wait for a store; the oldest go


class ClaimedTimes:
    """One thread uses it."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], ClaimedTime] = {}  # by source and event
        self._forgotten = 0

    def note(self, source: SourceRecorder, clip: Clip, state: ClipState, events: Iterable[str] = ()) -> None:
        """The time of a clip.

        Args:
            events: that want it; none for those that the clip names.
        """
        begin, end = source.utc_of(clip.begin), source.utc_of(clip.end)
        for event in events or clip.events:
            self._waiting.pop((source.source, event), None)  # the newest is the last
            self._waiting[source.source, event] = ClaimedTime(source.source, event, begin, end, state)
        while len(self._waiting) > _MOST:
            del self._waiting[next(iter(self._waiting))]
            self._forgotten += 1  # it may come again with its clip

    def write(self, index: Index) -> None:
        """Tell the index, now or when it can be written again."""
        if self._waiting:
            with suppress(StoreError):
                index.put_claims(self._waiting.values())
                self._waiting.clear()
                if self._forgotten:
                    log.warning(
                        "the index does not know when some events were", at_most=self._forgotten
                    )
                    self._forgotten = 0
