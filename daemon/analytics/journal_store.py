"""The journal at its path, whatever happens there while it is written: removed, moved, damaged, or without room."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from daemon.analytics.journal_file import JournalFile
from daemon.analytics.totals import Key
from daemon.clock import Clock
from daemon.files import try_to_write
from daemon.system.database import DamagedError, remove_leftovers, replace_damaged
from daemon.system.database_lock import NO_ROOM, Lock
from lookout.messages import Event

log = structlog.get_logger(__name__)
Earlier = tuple[int, dict[Key, int]]  # when counting began, and the totals since then
UNWRITABLE = (OSError, sqlite3.Error, DamagedError)


class JournalStore:
    """One thread at a time uses it.

    Args:
        on_gone: called with the number of events of this run that went with a file.

    Raises:
        ConfigError: another daemon uses the path, or the folder cannot be written.
    """

    def __init__(self, path: Path, max_rows: int, clock: Clock, on_gone: Callable[[int], None]) -> None:
        self._path, self._max_rows, self._clock, self._on_gone = path, max_rows, clock, on_gone
        self._lock = Lock(path, "events.journal")
        self._file: JournalFile | None = None
        self._known: tuple[int, Counter[Key]] | None = None  # like `Earlier`, with what was added since
        self._written = 0  # events of this run in the file

    @property
    def reserved(self) -> int:
        """The lowest number that no event of the file has, nor may have been published with; 0 without a file."""
        return max(self._file.last + 1, self._file.reserved) if self._file else 0

    @property
    def last(self) -> int:
        """Number of the newest event in the file; 0 without one."""
        return self._file.last if self._file else 0

    @property
    def is_there(self) -> bool:
        """Whether the file is open, and at its path."""
        file = self._file
        return file is not None and file.is_at(self._path)

    def open(self) -> Earlier | None:
        """Open the file, or begin one, unless it is open. Totals go on: those of a new file are those so far.

        Returns:
            The totals that are to be added to those of this run, if the file was opened now.

        Raises:
            OSError, sqlite3.Error, DamagedError: it cannot be opened now.
            ConfigError: the file belongs to something else, or to another daemon by now.
        """
        if self._file is not None:
            return None
        if not self._lock.is_at(self._path):
            lock = Lock(self._path, "events.journal")
            self._lock.close()
            self._lock = lock
        try:
            return self._opened()
        except DamagedError as error:
            self._replace(error)
            return self._opened()

    def reserve(self, first: int) -> None:
        """Reserve numbers for a run that begins with `first`.

        Raises:
            sqlite3.Error, DamagedError: nothing was changed.
        """
        if self._file:
            self._file.reserve(first)

    def check_place(self) -> None:
        """Let go of a file that was removed or moved: SQLite would go on writing to it."""
        if self._file and not self._file.is_at(self._path):
            self._begin_anew(0)

    def append(self, events: Sequence[Event], grown: Mapping[Key, int]) -> None:
        """Add events to the open file, and numbers to totals.

        Raises:
            OSError, sqlite3.Error, DamagedError, ConfigError: nothing was changed.
        """
        try:
            self._append(events, grown)
        except DamagedError as error:
            self._replace(error)
            self._append(events, grown)
        if not self.is_there:  # since the check before
            self._begin_anew(len(events))
            self._append(events, grown)
        if self._known:
            self._known[1].update(grown)

    def prune(self, before: int) -> None:
        """Remove events that were recorded before a time, UTC, ns.

        Raises:
            sqlite3.Error, DamagedError: nothing was changed.
        """
        if self._file:
            self._file.prune(before)

    def close(self) -> None:
        if self._file:
            self._file.close()
        self._lock.close()

    def _append(self, events: Sequence[Event], grown: Mapping[Key, int]) -> None:
        self.open()
        if self._file:
            self._file.append(events, grown, self._clock.utc_ns(), self._max_rows)
            self._written += len(events)

    def _opened(self) -> Earlier:
        file = JournalFile(self._path, self._clock.utc_ns())
        try:
            earlier = {} if self._known else file.totals()
            if self._known:
                file.set_totals(*self._known)
            else:
                self._known = file.since, Counter(earlier)
        except BaseException:
            file.close()
            raise
        self._file, self._written = file, 0
        return self._known[0], earlier

    def _replace(self, error: DamagedError) -> None:
        """Begin a new file beside the damaged one."""
        gone = self._release(0)
        about = {"path": str(self._path), "moved_to": str(replace_damaged(self._path)), "reason": str(error)}
        log.error("the journal is damaged: a new one is begun", **about, **({"events_lost": gone} if gone else {}))

    def _begin_anew(self, again: int) -> None:
        gone = self._release(again)
        with suppress(OSError):
            remove_leftovers(self._path)
        log.warning("the journal was removed or moved: a new one is begun", path=str(self._path), events_lost=gone)

    def _release(self, again: int) -> int:
        """The number of events that are gone.

        Args:
            again: events that are about to be written to the next file as well.
        """
        file, self._file = self._file, None
        if file is None:
            return 0
        gone = max(0, min(self._written, file.rows) - again)
        file.close()
        self._on_gone(gone)
        return gone


def check_path(path: Path) -> str | None:
    """Why a journal cannot be there; None if it may be."""
    try:
        if not path.parent.is_dir():
            return f"the folder {path.parent} does not exist: make it, or name another file"
        if path.exists() and not path.is_file():
            return f"{path} is not a file"
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    return None


def reason_of(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def check_writable(path: Path) -> None:
    """
    Raises:
        OSError: the journal cannot be written, or made; a disk without room is no reason.
    """
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    try:
        try_to_write(path.parent)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
