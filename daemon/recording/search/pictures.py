"""Where the picture of an event is recorded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress

from daemon.pipeline.frames import FrameInfo
from daemon.recording.boxes import BoxError
from daemon.recording.records import FileFacts, FragmentRow
from daemon.recording.scan import scan_open
from daemon.recording.search.answers import Picture
from daemon.recording.store import Store

_NEAR = 3  # files before the time of a frame that are looked at first
_AROUND_NS = 5_000_000_000  # of a clip


class Pictures:
    """Finds recorded pictures of a source.

    Args:
        files: of the source, by their begin.
    """

    def __init__(self, store: Store, files: Sequence[FileFacts]) -> None:
        self._store, self._files = store, files
        self._begins = [facts.begin for facts in files]
        self._scanned: tuple[str, Sequence[FragmentRow]] = "", ()

    def of(self, began: FrameInfo, confirmed: FrameInfo, *, same_stream: bool) -> Picture | None:
        """The picture of the frame in which an event began; None if it is not recorded."""
        near = bisect_right(self._begins, began.captured_at)
        for facts in (*self._files[max(0, near - _NEAR) : near + 1], *self._files):
            at = self._at(facts, began, same_stream=same_stream)
            if at is not None:
                later = max(0, confirmed.captured_at - began.captured_at)
                return Picture(
                    file=facts.id, at=at, begin=at - _AROUND_NS, end=at + later + _AROUND_NS, same_stream=same_stream
                )
        return None

    def _at(self, facts: FileFacts, frame: FrameInfo, *, same_stream: bool) -> int | None:
        """UTC ns on the timeline of recordings; None if the file does not have the picture."""
        is_open = facts.reason is None
        if not same_stream or frame.pts is None:
            begins = facts.begin <= frame.captured_at
            return frame.captured_at if begins and (is_open or frame.captured_at < facts.end) else None
        if facts.session != frame.session or frame.pts < facts.first_pts:
            return None
        if not is_open and frame.pts >= facts.last_pts:
            return None
        for row in self._fragments(facts):
            if row.pts <= frame.pts < row.pts + row.duration:
                return row.begin + frame.pts - row.pts
        return None

    def _fragments(self, facts: FileFacts) -> Sequence[FragmentRow]:
        path, rows = self._scanned
        if path != facts.path:
            rows = ()
            with suppress(OSError, BoxError), self._store.opened(facts.path) as file:  # deleted meanwhile
                rows = scan_open(facts.path, file).fragments
            self._scanned = facts.path, rows
        return rows
