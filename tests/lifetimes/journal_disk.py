"""A disk without room for a journal."""

from __future__ import annotations

import threading
from collections.abc import Callable

from daemon.analytics.journal import Journal
from daemon.clock import SystemClock


class JournalDisk(SystemClock):
    """The clock that a daemon looks at before it writes to its journal: that is when the room is set, in the journal's
    own thread.

    Attributes:
        is_full: the database may not grow. SQLite says what it says of a full disk.
    """

    def __init__(self, journal: Callable[[], Journal | None]) -> None:
        self._journal = journal
        self.is_full = False

    def utc_ns(self) -> int:
        is_writing = threading.current_thread().name == "journal"
        if is_writing and (journal := self._journal()) and (file := journal._store._file):
            with file._db.reading() as db:
                db.execute(f"PRAGMA max_page_count = {1 if self.is_full else 1 << 30}").fetchall()
        return super().utc_ns()
