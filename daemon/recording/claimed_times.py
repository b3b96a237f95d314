"""The times that events want, on their way into the store: `clip.mp4` of an event is found by them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import structlog

from daemon.recording.claim_files import append_claims
from daemon.recording.clips import ClaimedTime
from daemon.recording.errors import StoreError

if TYPE_CHECKING:
    from daemon.recording.clips import Clip, ClipState
    from daemon.recording.index import Index
    from daemon.recording.source_recorder import SourceRecorder
    from daemon.recording.store import Store

log = structlog.get_logger(__name__)
_MOST: Final = 20_000  # that wait for a store; the oldest go


class ClaimedTimes:
    """One thread uses it."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], ClaimedTime] = {}  # by source and event
        self._forgotten, self._is_refused = 0, False

    def note(self, source: SourceRecorder, clip: Clip, state: ClipState, events: Iterable[str] = ()) -> None:
        """The time of a clip.

        Args:
            events: that want it; none for those that the clip names.
        """
        begin, end = source.times_of(clip)
        for event in events or clip.events:
            self._waiting.pop((source.source, event), None)  # the newest is the last
            self._waiting[source.source, event] = ClaimedTime(source.source, event, begin, end, state)
        while len(self._waiting) > _MOST:
            del self._waiting[next(iter(self._waiting))]
            self._forgotten += 1  # it may come again with its clip

    def write(self, store: Store, index: Index, *, is_last: bool = False) -> None:
        """Tell the index, now or when it can be written again; and the files that it is made from if it is lost.

        Args:
            is_last: an index that cannot be written now knows it once it is made anew.
        """
        if not self._waiting:
            return
        try:
            index.put_claims(self._waiting.values())
        except StoreError:
            if not is_last:
                return
        try:
            append_claims(store, self._waiting.values())
        except OSError as error:
            if not self._is_refused:
                reason = error.strerror or str(error)
                log.warning("the times of events are not beside their recordings", store=str(store.path), reason=reason)
            self._is_refused = True
        else:
            self._is_refused = False
        self._waiting.clear()
        if self._forgotten:
            log.warning("the index does not know when some events were", at_most=self._forgotten)
            self._forgotten = 0
