"""The index of a store: what its files say of themselves, to be found quickly. SQLite; one writer, many readers.

It is made anew from the files whenever it is lost (`reconcile.py`), and has the gaps that go on from `open_gaps.py` and
the times that events want from `claim_files.py`.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic_ns
from typing import Final

import msgspec

from daemon.recording.clips import ClaimedTime
from daemon.recording.errors import StoreError
from daemon.recording.index_reader import NAME, IndexReader, Place, connect, is_damage, sqlite_translated
from daemon.recording.open_gaps import OpenGap, saved_gaps
from daemon.recording.records import FileFacts, Gap
from daemon.recording.store import FILE_MODE, TRACKS, VIDEO, Store, give, open_file, translated

__all__ = ["DAMAGED", "NAME", "ClaimedTime", "Index", "IndexReader", "Place"]

DAMAGED: Final = ".damaged"  # behind the name of an index that was replaced
_LOCK: Final = ".index.lock"
_APPLICATION: Final = 0x4C4B5245  # marks the file as an index of recordings
_VERSION: Final = 1
_WAL_PAGES: Final = 128  # beside the index, until they are brought into it: a small disk has to hold them
_GROW = (
    "INSERT INTO sizes VALUES (new.source, new.size) ON CONFLICT (source) DO UPDATE SET bytes = bytes + excluded.bytes"
)
_SHRINK = "UPDATE sizes SET bytes = bytes - old.size WHERE source = old.source"
_TABLES: Final = (
    "CREATE TABLE files (id TEXT PRIMARY KEY, source TEXT NOT NULL, begin INTEGER NOT NULL, end INTEGER NOT NULL,"
    " size INTEGER NOT NULL, claimed INTEGER NOT NULL, path TEXT NOT NULL UNIQUE, facts TEXT NOT NULL) WITHOUT ROWID",
    "CREATE INDEX files_by_begin ON files (source, begin)",
    "CREATE INDEX files_by_end ON files (end)",
    "CREATE INDEX files_by_source ON files (source, end)",
    "CREATE TABLE gaps (file TEXT NOT NULL, begin INTEGER NOT NULL, end INTEGER NOT NULL, source TEXT NOT NULL,"
    " cause TEXT NOT NULL, detail TEXT, PRIMARY KEY (file, begin)) WITHOUT ROWID",
    "CREATE TABLE open_gaps (source TEXT NOT NULL, begin INTEGER NOT NULL, end INTEGER NOT NULL,"
    " cause TEXT NOT NULL, detail TEXT, PRIMARY KEY (source, begin)) WITHOUT ROWID",
    "CREATE TABLE claims (source TEXT NOT NULL, event TEXT NOT NULL, begin INTEGER NOT NULL, end INTEGER NOT NULL,"
    " state TEXT NOT NULL, PRIMARY KEY (source, event)) WITHOUT ROWID",
    "CREATE TABLE sizes (source TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID",
    f"CREATE TRIGGER file_comes AFTER INSERT ON files BEGIN {_GROW}; END",
    f"CREATE TRIGGER file_changes AFTER UPDATE ON files BEGIN {_SHRINK}; {_GROW}; END",
    f"CREATE TRIGGER file_goes AFTER DELETE ON files BEGIN {_SHRINK}; END",
)
# Of version 1 as well: an index of an earlier Lookout gets them, and nothing is made anew.
_LATER: Final = (
    "CREATE TABLE IF NOT EXISTS activity (file TEXT PRIMARY KEY, first INTEGER NOT NULL, counts BLOB NOT NULL)"
    " WITHOUT ROWID",
    "CREATE TRIGGER IF NOT EXISTS activity_goes AFTER DELETE ON files BEGIN"
    " DELETE FROM activity WHERE file = old.id; END",
    "CREATE TABLE IF NOT EXISTS unread (token TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS open_tracks (path TEXT PRIMARY KEY) WITHOUT ROWID",
)
_PUT_ACTIVITY = "INSERT OR REPLACE INTO activity SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM files WHERE id = ?1)"
_PUT_FILE = (
    "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET source = excluded.source,"
    " begin = excluded.begin, end = excluded.end, size = excluded.size, claimed = excluded.claimed,"
    " path = excluded.path, facts = excluded.facts"
)
_PUT_GAP = "INSERT OR REPLACE INTO gaps (file, begin, end, cause, detail, source) VALUES (?, ?, ?, ?, ?, ?)"
_FORGET_CLAIMS = (
    "DELETE FROM claims WHERE source = ?1 AND end <= coalesce((SELECT min(begin) FROM files WHERE source = ?1), ?2)"
)
_RESTORE_CLAIM = (
    "INSERT INTO claims SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (SELECT 1 FROM files WHERE source = ?1 AND begin < ?4)"
    " ON CONFLICT DO UPDATE SET begin = excluded.begin, end = excluded.end, state = excluded.state"
    " WHERE claims.state = 'recording'"
)
_PUT_OPEN_GAP = "INSERT OR REPLACE INTO open_gaps VALUES (?, ?, ?, ?, ?)"
_encode = msgspec.json.Encoder().encode


class Index(IndexReader):
    """The index of a store, with its writer. A lost or damaged one is begun anew.

    Attributes:
        unread: names the reading of files that it lacks, whoever begins or ends it; None for none. `reconcile` ends it.
        waited_ns: in vain for other processes that write, in all.

    Raises:
        StoreFullError: there is no room.
        StoreError: it cannot be opened.
    """

    def __init__(self, store: Store) -> None:
        self.unread: str | None = None
        self._lacks_tables = False
        self._waits_once = self._is_in_vain = False
        self.waited_ns = 0
        super().__init__(store)

    def add_file(self, facts: FileFacts, gaps: Iterable[Gap] = ()) -> None:
        """A file, new or grown, with the gaps of its head.

        Raises:
            StoreFullError: there is no room.
            StoreError: it cannot be written.
        """
        self.add_files([(facts, tuple(gaps))])

    def add_files(self, files: Iterable[tuple[FileFacts, Sequence[Gap]]]) -> None:
        """Several at once."""
        with self.writing() as db:
            _add(db, files, self._store)

    def measure(self, id: str) -> None:
        """The tracks beside a file have grown."""
        facts = self.file(id)
        if facts is not None:
            size = facts.size + tracks_bytes(self._store, facts.path)
            with self.writing() as db:
                db.execute("UPDATE files SET size = ? WHERE id = ? AND size != ?", (size, id, size))

    def remove_file(self, id: str) -> None:
        """A file is gone. Events that want nothing but what was before the first one that is left are forgotten."""
        with self.writing() as db:
            gone = db.execute("SELECT source, end FROM files WHERE id = ?", (id,)).fetchone()
            db.execute("DELETE FROM files WHERE id = ?", (id,))
            db.execute("DELETE FROM gaps WHERE file = ?", (id,))
            if gone is not None:
                db.execute(_FORGET_CLAIMS, gone)

    def replace_files(self, files: Callable[[], Iterable[tuple[FileFacts, Sequence[Gap]]]]) -> None:
        """All at once, by a function that is called while nobody else writes."""
        with self.writing() as db:
            db.execute("DELETE FROM files")
            db.execute("DELETE FROM gaps")
            _add(db, files(), self._store)

    def put_activity(self, file: str, first: int, counts: bytes) -> None:
        """How much was seen beside a file, as `daemon.recording.tracks.activity.Activity` has it; nothing where there
        is no such file any more."""
        with self.writing() as db:
            db.execute(_PUT_ACTIVITY, (file, first, counts))

    def open_tracks(self) -> list[str]:
        if self._lacks_tables:
            with self.writing() as db:
                _add_later(db)
            self._lacks_tables = False
        return super().open_tracks()

    def put_open_gaps(self, source: str, gaps: Sequence[Gap]) -> None:
        """The gaps since the last file, as far as they are known; the last of them goes on."""
        known = self.open_gaps(source)
        if known == [*gaps]:
            return
        with self.writing() as db:
            for gap in known:
                if gap not in gaps:
                    db.execute("DELETE FROM open_gaps WHERE source = ? AND begin = ?", (source, gap.begin))
            for gap in gaps:
                if gap not in known:
                    db.execute(_PUT_OPEN_GAP, OpenGap(source, gap.begin, gap.end, gap.cause, gap.detail))

    def put_claims(self, claims: Iterable[ClaimedTime]) -> None:
        """The times that events want, new or changed."""
        with self.writing() as db:
            db.executemany("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?)", claims)

    def restore_claims(self, claims: Iterable[ClaimedTime]) -> None:
        """Those that it lacks or knows no end of, and of which there is some video."""
        with self.writing() as db:
            db.executemany(_RESTORE_CLAIM, claims)

    def forget_claims(self, before: int) -> None:
        """Those that end before a time, UTC ns."""
        with self.writing() as db:
            db.execute("DELETE FROM claims WHERE end < ?", (before,))

    def mark_known(self, reading: str | None) -> None:
        """It knows all files, unless another reading is wanted by now.

        Args:
            reading: `unread` when it was begun.

        Raises:
            StoreError: it cannot be written.
        """
        if reading is not None:
            with self.writing() as db:
                db.execute("DELETE FROM unread WHERE token = ?", (reading,))
        if self.unread == reading:
            self.unread = None

    @contextmanager
    def waiting_once(self) -> Iterator[None]:
        """Within, nothing waits any more for another process that writes after the first has waited in vain."""
        if self._waits_once:  # of a caller
            yield
            return
        self._waits_once, self._is_in_vain = True, False
        try:
            yield
        finally:
            self._waits_once = self._is_in_vain = False

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it, or nothing.

        Raises:
            StoreFullError: there is no room.
            StoreError: it cannot be written.
        """
        self._follow()
        with sqlite_translated(self._path):
            self._lock()
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                if is_damage(error):
                    self._is_damaged = True
                raise

    def _lock(self) -> None:
        if self._is_in_vain:
            ((wait,),) = self._db.execute("PRAGMA busy_timeout")
            self._db.execute("PRAGMA busy_timeout = 0")
            try:
                self._db.execute("BEGIN IMMEDIATE")
            finally:
                self._db.execute(f"PRAGMA busy_timeout = {wait}")
            return
        begun = monotonic_ns()
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                self._is_in_vain = self._waits_once
                self.waited_ns += monotonic_ns() - begun
            raise

    def _follow(self) -> None:
        """Go on with another file of the name, or with a new one where it is gone or damaged."""
        try:
            found = os.stat(self._path)
            if not self._is_damaged and self._stat is not None and os.path.samestat(found, self._stat):
                return
        except FileNotFoundError:
            pass
        except OSError:
            return
        self._db.close()
        self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        """One process at a time: a file that another one has just made must not lose what SQLite has beside it."""
        with translated(self._path), self._store.folder() as folder, _alone(folder), sqlite_translated(self._path):
            if not self._path.exists():
                self._begin(folder)
            try:
                if self._is_damaged:
                    raise sqlite3.DatabaseError("damaged")
                db = self._opened()
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    raise
                self._is_damaged = False
                os.replace(NAME, NAME + DAMAGED, src_dir_fd=folder, dst_dir_fd=folder)
                self._begin(folder)
                db = self._opened()
            self._stat = os.stat(self._path)
            return db

    def _begin(self, folder: int) -> None:
        """An empty file, without what another one of its name has left."""
        for name in (f"{NAME}-wal", f"{NAME}-shm", f"{NAME}-journal"):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(NAME, flags, FILE_MODE, dir_fd=folder)
        give(file, folder)
        os.close(file)

    def _opened(self) -> sqlite3.Connection:
        db = connect(self._path, "rw")
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
            ((application,),) = db.execute("PRAGMA application_id")
            ((version,),) = db.execute("PRAGMA user_version")
            if (application, version) == (_APPLICATION, _VERSION):
                try:
                    _add_later(db)
                    self._lacks_tables = False
                except sqlite3.OperationalError:  # a full disk, or somebody else writes: `open_tracks` tries again
                    self._lacks_tables = True
                with suppress(sqlite3.OperationalError):  # it lacks this table, too
                    self.unread = next((token for (token,) in db.execute("SELECT token FROM unread")), None)
                return db
            if application not in (0, _APPLICATION):
                raise StoreError(f"{self._path}: belongs to another program: move it away")
            self.unread = secrets.token_hex(8) if next(self._store.files(), None) else None
            db.execute("BEGIN IMMEDIATE")
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                db.execute(f'DROP TABLE "{name}"')
            for statement in _TABLES:
                db.execute(statement)
            _add_later(db)
            db.executemany("INSERT INTO unread VALUES (?)", [(self.unread,)] if self.unread else [])
            db.executemany(_PUT_OPEN_GAP, saved_gaps(self._store))
            db.execute(f"PRAGMA application_id = {_APPLICATION}")
            db.execute(f"PRAGMA user_version = {_VERSION}")
            db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
        return db


def _add_later(db: sqlite3.Connection) -> None:
    for statement in _LATER:
        db.execute(statement)


def _add(db: sqlite3.Connection, files: Iterable[tuple[FileFacts, Sequence[Gap]]], store: Store) -> None:
    for facts, gaps in files:
        db.execute("DELETE FROM files WHERE path = ? AND id != ?", (facts.path, facts.id))
        size = facts.size + tracks_bytes(store, facts.path)
        row = facts.id, facts.source, facts.begin, facts.end, size, facts.claimed, facts.path
        db.execute(_PUT_FILE, (*row, _encode(facts).decode()))
        rows = [(facts.id, gap.begin, gap.end, gap.cause, gap.detail, facts.source) for gap in gaps]
        db.executemany(_PUT_GAP, rows)


def tracks_bytes(store: Store, video: str) -> int:
    """Bytes of the tracks beside a recording; 0 if there are none."""
    *folders, name = video.split("/")
    with suppress(OSError), store.folder(*folders) as folder:
        return os.stat(name.removesuffix(VIDEO) + TRACKS, dir_fd=folder, follow_symlinks=False).st_size
    return 0


@contextmanager
def _alone(folder: int) -> Iterator[None]:
    lock = open_file(_LOCK, os.O_RDWR | os.O_CREAT, folder)
    try:
        give(lock, folder)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
