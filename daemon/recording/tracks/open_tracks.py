"""The index knows which files of tracks are open, so that those that a process left behind get their end.

Tracks come later than their video, and the process may be killed meanwhile, or its store be away. Nobody has to look
through the files for those.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from daemon.recording.errors import StoreError
from daemon.recording.tracks.activity import Activity
from daemon.recording.tracks.track_file import TracksBusyError, recover_tracks

if TYPE_CHECKING:
    from daemon.recording.index import Index
    from daemon.recording.store import Store

log = structlog.get_logger(__name__)
_PUT = "INSERT OR IGNORE INTO open_tracks VALUES (?)"


def note_open(index: Index, videos: Iterable[str]) -> None:
    """Tracks beside recordings are being written, by the paths of the recordings. An index that cannot be written now
    is told again by `LeftTracks`."""
    with suppress(StoreError), index.writing() as db:
        db.executemany(_PUT, [(path,) for path in videos])


def note_ended(index: Index, video: str, activity: Activity | None) -> None:
    """They have their end; likewise.

    Args:
        activity: what was seen; None if there are no tracks.
    """
    with suppress(StoreError):
        facts = index.file_at(video)
        if facts is not None:
            index.measure(facts.id)
            if activity is not None:
                index.put_activity(facts.id, activity.first, activity.counts)
        with index.writing() as db:  # the last: what could not be written is tried again
            db.execute("DELETE FROM open_tracks WHERE path = ?", (video,))


class LeftTracks:
    """Gives their end to tracks that nobody writes any more. Some may fail each time, and are no trouble to others."""

    def __init__(self) -> None:
        self._last = ""  # path that was tried
        self._told: set[str] = set()

    def finish(self, store: Store, index: Index, written: Collection[str], is_late: Callable[[], bool]) -> None:
        """Go on behind those of the last time; call it now and then.

        Args:
            written: recordings whose tracks are open here.
            is_late: asked after each; the rest is done the next time.
        """
        with suppress(StoreError):
            known = set(index.open_tracks())
            if not known.issuperset(written):  # the index was lost, or could not be written
                note_open(index, written)
            left = sorted(known.difference(written))
            self._told.intersection_update(left)
            first = bisect_right(left, self._last)
            for path in (*left[first:], *left[:first]):
                self._last = path
                self._finish(store, index, path)
                if is_late():
                    return

    def _finish(self, store: Store, index: Index, path: str) -> None:
        try:
            note_ended(index, path, recover_tracks(store, path))
        except (TracksBusyError, StoreError) as error:  # perhaps the process that was killed is not gone yet
            if path not in self._told:
                self._told.add(path)
                log.warning("the boxes of a recording have no end yet", recording=path, reason=str(error))
