"""The index of a store: what its files say of themselves, to be found quickly. SQLite; one writer, many readers.

It is made anew from the files whenever it is lost (`reconcile.py`), so nothing here is the only copy of anything.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from daemon.recording.errors import StoreError, StoreFullError
from daemon.recording.records import FileFacts, Gap
from daemon.recording.store import FILE_MODE, Store, translated
from daemon.recording.timeline import Entry, Span, timeline

NAME: Final = "index.sqlite"
DAMAGED: Final = ".damaged"  # behind the name of an index that was replaced
_LOCK: Final = ".index.lock"
_APPLICATION: Final = 0x4C4B5245  # marks the file as an index of recordings
_VERSION: Final = 1
_WAL_PAGES: Final = 128  # beside the index, until they are brought into it: a small disk has to hold them
_WAIT_S: Final = 5.0  # for another process that writes
_GROW = (
    "INSERT INTO sizes VALUES (new.source, new.size) ON CONFLICT (source) DO UPDATE SET bytes = bytes + excluded.bytes"
)
_SHRINK = "UPDATE sizes SET bytes = bytes - old.size WHERE source = old.source"
_TABLES: Final = (
    "CREATE TABLE files (id TEXT PRIMARY KEY, source TEXT NOT NULL, begin INTEGER NOT NULL, end INTEGER NOT NULL,"
    " size INTEGER NOT NULL, claimed INTEGER NOT NULL, path TEXT NOT NULL UNIQUE, facts TEXT NOT NULL) WITHOUT ROWID",
    "CREATE INDEX files_by_begin ON files (source, begin)",
    "CREATE INDEX files_by_end ON files (end)",
    "CREATE TABLE gaps (file TEXT NOT NULL, begin INTEGER NOT NULL, end INTEGER NOT NULL, source TEXT NOT NULL,"
    " cause TEXT NOT NULL, detail TEXT, PRIMARY KEY (file, begin)) WITHOUT ROWID",
    "CREATE TABLE open_gaps (source TEXT PRIMARY KEY, begin INTEGER NOT NULL, end INTEGER NOT NULL,"
    " cause TEXT NOT NULL, detail TEXT) WITHOUT ROWID",
    "CREATE TABLE claims (source TEXT NOT NULL, event TEXT NOT NULL, begin INTEGER NOT NULL, end INTEGER NOT NULL,"
    " state TEXT NOT NULL, PRIMARY KEY (source, event)) WITHOUT ROWID",
    "CREATE TABLE clocks (boot_id TEXT NOT NULL, boot INTEGER NOT NULL, utc INTEGER NOT NULL, step INTEGER NOT NULL,"
    " PRIMARY KEY (boot_id, boot)) WITHOUT ROWID",
    "CREATE TABLE sizes (source TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID",
    f"CREATE TRIGGER file_comes AFTER INSERT ON files BEGIN {_GROW}; END",
    f"CREATE TRIGGER file_changes AFTER UPDATE ON files BEGIN {_SHRINK}; {_GROW}; END",
    f"CREATE TRIGGER file_goes AFTER DELETE ON files BEGIN {_SHRINK}; END",
)
_PUT_FILE = (
    "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET source = excluded.source,"
    " begin = excluded.begin, end = excluded.end, size = excluded.size, claimed = excluded.claimed,"
    " path = excluded.path, facts = excluded.facts"
)
_PUT_GAP = "INSERT OR REPLACE INTO gaps (file, begin, end, cause, detail, source) VALUES (?, ?, ?, ?, ?, ?)"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(FileFacts).decode


class Claim(NamedTuple):
    """What an event wants.

    Attributes:
        event: its id.
        begin, end: UTC ns.
    """

    source: str
    event: str
    begin: int
    end: int
    state: str


class Place(NamedTuple):
    """A file that may go."""

    id: str
    path: str
    source: str
    begin: int
    end: int
    size: int


class IndexReader:
    """Reads the index of a store, whatever happens to it meanwhile. One thread at a time uses it.

    Raises:
        StoreError: there is none, or it cannot be read.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._path = store.path / NAME
        self._stat: os.stat_result | None = None
        self._is_damaged = False  # a query has found it
        self._db = self._open()

    def sources(self) -> list[str]:
        """Those with a recording, or with a gap that goes on."""
        question = "SELECT source FROM files UNION SELECT source FROM open_gaps ORDER BY 1"
        return [source for (source,) in self._ask(question)]

    def file(self, id: str) -> FileFacts | None:
        return next((_decode(facts) for (facts,) in self._ask("SELECT facts FROM files WHERE id = ?", id)), None)

    def files(self, source: str | None = None, begin: int | None = None, end: int | None = None) -> list[FileFacts]:
        """Those with something in a time, by source and begin."""
        limits = {"source = ?": source, "end > ?": begin, "begin < ?": end}
        given = {words: value for words, value in limits.items() if value is not None}
        where = " AND ".join(given) or "1"
        question = f"SELECT facts FROM files WHERE {where} ORDER BY source, begin, id"  # noqa: S608
        return [_decode(facts) for (facts,) in self._ask(question, *given.values())]

    def newest(self, source: str) -> FileFacts | None:
        """The file of a source that ends last."""
        question = "SELECT facts FROM files WHERE source = ? ORDER BY end DESC, begin DESC LIMIT 1"
        return next((_decode(facts) for (facts,) in self._ask(question, source)), None)

    def timeline(self, source: str, begin: int, end: int) -> list[Span | Gap]:
        """Spans and gaps in order, without a hole, up to what is known; see `timeline.timeline`."""
        newest, entries = self.newest(source), self._entries(source, begin, end)
        since = min((entry.file.since for entry in entries), default=newest.since if newest else None)
        return timeline(entries, begin, end, since=since, last=self.open_gap(source))

    def open_gap(self, source: str) -> Gap | None:
        """The gap that goes on, up to when it was last told of."""
        rows = self._ask("SELECT begin, end, cause, detail FROM open_gaps WHERE source = ?", source)
        return next((Gap(*row) for row in rows), None)

    def claims(self, source: str, begin: int, end: int) -> list[Claim]:
        question = "SELECT * FROM claims WHERE source = ? AND end > ? AND begin < ? ORDER BY begin, event"
        return [Claim(*row) for row in self._ask(question, source, begin, end)]

    def claim(self, source: str, event: str) -> Claim | None:
        rows = self._ask("SELECT * FROM claims WHERE source = ? AND event = ?", source, event)
        return next((Claim(*row) for row in rows), None)

    def sizes(self) -> dict[str, int]:
        """Bytes of each source."""
        return dict(self._ask("SELECT source, bytes FROM sizes WHERE bytes > 0"))

    def oldest(self, source: str | None = None) -> Iterator[Place]:
        """Files that may go, those first that end first; deleting them meanwhile is safe."""
        last = (-(1 << 62), "")
        where = "SELECT id, path, source, begin, end, size FROM files WHERE (end, id) > (?, ?)"
        where += " AND source = ?" if source is not None else ""
        while True:
            values = last if source is None else (*last, source)
            rows = [Place(*row) for row in self._ask(f"{where} ORDER BY end, id LIMIT 64", *values)]
            yield from rows
            if not rows:
                return
            last = rows[-1].end, rows[-1].id

    def older_than(self, unclaimed: int, claimed: int) -> Iterator[Place]:
        """Files that end before a time, UTC ns: one for those that events want, one for the others."""
        last = (-(1 << 62), "")
        question = (
            "SELECT id, path, source, begin, end, size FROM files WHERE (end, id) > (?, ?) AND end < ?"
            " AND end < CASE claimed WHEN 0 THEN ? ELSE ? END ORDER BY end, id LIMIT 64"
        )
        while True:
            rows = [Place(*row) for row in self._ask(question, *last, max(unclaimed, claimed), unclaimed, claimed)]
            yield from rows
            if not rows:
                return
            last = rows[-1].end, rows[-1].id

    def close(self) -> None:
        self._db.close()

    def _entries(self, source: str, begin: int, end: int) -> list[Entry]:
        """Files with something in a time, and the next one."""
        within = self._ask(
            "SELECT id, facts FROM files WHERE source = ? AND end > ? AND begin < ? ORDER BY begin, id",
            source, begin, end,
        )  # fmt: skip
        following = self._ask(
            "SELECT id, facts FROM files WHERE source = ? AND begin >= ? ORDER BY begin, id LIMIT 1", source, end
        )
        gaps: dict[str, list[Gap]] = {}
        rows = [*within, *following]
        for first in range(0, len(rows), 500):
            ids = [id for id, _ in rows[first : first + 500]]
            question = f"SELECT file, begin, end, cause, detail FROM gaps WHERE file IN ({', '.join('?' * len(ids))})"  # noqa: S608
            for file, *gap in self._ask(question, *ids):
                gaps.setdefault(file, []).append(Gap(*gap))
        return [Entry(_decode(facts), sorted(gaps.get(id, ()))) for id, facts in rows]

    def _ask(self, question: str, *values: object) -> list[Any]:
        self._follow()
        with _translated(self._path):
            try:
                return self._db.execute(question, values).fetchall()
            except sqlite3.DatabaseError as error:
                self._is_damaged = _is_damage(error)
                raise

    def _follow(self) -> None:
        """Go on with another file of the name, if there is one."""
        with suppress(OSError):
            found = os.stat(self._path)
            if self._stat is None or not os.path.samestat(found, self._stat):
                self._db.close()
                self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        if not self._path.exists():
            raise StoreError(f"{self._path}: is not there: `lookout recordings rebuild` makes it from the files")
        with translated(self._path), _translated(self._path):
            db = _connect(self._path, "ro")
            self._stat = os.stat(self._path)
            return db


class Index(IndexReader):
    """The index of a store, with its writer. A lost or damaged one is begun anew.

    Attributes:
        is_behind: it may not know all files: `reconcile` is to be called.

    Raises:
        StoreFullError: there is no room.
        StoreError: it cannot be opened.
    """

    def __init__(self, store: Store) -> None:
        self.is_behind = False
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
            _add(db, files)

    def remove_file(self, id: str) -> None:
        with self.writing() as db:
            db.execute("DELETE FROM files WHERE id = ?", (id,))
            db.execute("DELETE FROM gaps WHERE file = ?", (id,))

    def replace_files(self, files: Callable[[], Iterable[tuple[FileFacts, Sequence[Gap]]]]) -> None:
        """All at once, by a function that is called while nobody else writes."""
        with self.writing() as db:
            db.execute("DELETE FROM files")
            db.execute("DELETE FROM gaps")
            _add(db, files())

    def put_open_gap(self, source: str, gap: Gap | None) -> None:
        """The gap that goes on, as far as it is known; None if there is none."""
        with self.writing() as db:
            db.execute("DELETE FROM open_gaps WHERE source = ?", (source,))
            if gap is not None:
                row = source, gap.begin, gap.end, gap.cause, gap.detail
                db.execute("INSERT INTO open_gaps VALUES (?, ?, ?, ?, ?)", row)

    def put_claim(self, claim: Claim) -> None:
        with self.writing() as db:
            db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?)", claim)

    def remove_claims(self, before: int) -> None:
        """Those that end before a time, UTC ns."""
        with self.writing() as db:
            db.execute("DELETE FROM claims WHERE end < ?", (before,))

    def put_clock(self, boot_id: str, boot: int, utc: int, step: int) -> None:
        """The time of day was set by `step` ns."""
        with self.writing() as db:
            db.execute("INSERT OR REPLACE INTO clocks VALUES (?, ?, ?, ?)", (boot_id, boot, utc, step))

    def mark_known(self) -> None:
        """It knows all files."""
        self.is_behind = False

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it, or nothing.

        Raises:
            StoreFullError: there is no room.
            StoreError: it cannot be written.
        """
        self._follow()
        with _translated(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                if _is_damage(error):
                    self._is_damaged = True
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
        with translated(self._path), self._store.folder() as folder, _alone(folder), _translated(self._path):
            if not self._path.exists():
                self._begin(folder)
            try:
                if self._is_damaged:
                    raise sqlite3.DatabaseError("damaged")
                db = self._opened()
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._is_damaged = False
                os.replace(NAME, NAME + DAMAGED, src_dir_fd=folder, dst_dir_fd=folder)
                self._begin(folder)
                db = self._opened()
            self._stat = os.stat(self._path)
            return db

    def _begin(self, folder: int) -> None:
        """An empty file, without what another one of its name has left."""
        self.is_behind = True
        for name in (f"{NAME}-wal", f"{NAME}-shm", f"{NAME}-journal"):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(NAME, flags, FILE_MODE, dir_fd=folder))

    def _opened(self) -> sqlite3.Connection:
        db = _connect(self._path, "rw")
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
            ((application,),) = db.execute("PRAGMA application_id")
            ((version,),) = db.execute("PRAGMA user_version")
            if (application, version) == (_APPLICATION, _VERSION):
                return db
            if application not in (0, _APPLICATION):
                raise StoreError(f"{self._path}: belongs to another program: move it away")
            self.is_behind = True
            db.execute("BEGIN IMMEDIATE")
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                db.execute(f'DROP TABLE "{name}"')
            for statement in _TABLES:
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {_APPLICATION}")
            db.execute(f"PRAGMA user_version = {_VERSION}")
            db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
        return db


def _add(db: sqlite3.Connection, files: Iterable[tuple[FileFacts, Sequence[Gap]]]) -> None:
    for facts, gaps in files:
        db.execute("DELETE FROM files WHERE path = ? AND id != ?", (facts.path, facts.id))
        row = facts.id, facts.source, facts.begin, facts.end, facts.size, facts.claimed, facts.path
        db.execute(_PUT_FILE, (*row, _encode(facts).decode()))
        rows = [(facts.id, gap.begin, gap.end, gap.cause, gap.detail, facts.source) for gap in gaps]
        db.executemany(_PUT_GAP, rows)


def _is_damage(error: BaseException) -> bool:
    others = sqlite3.OperationalError, sqlite3.IntegrityError, sqlite3.ProgrammingError
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(error, others)


def _connect(path: os.PathLike[str], mode: str) -> sqlite3.Connection:
    uri = f"file:{quote(os.fspath(path))}?mode={mode}"
    db = sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
    try:
        db.execute("SELECT count(*) FROM sqlite_master")
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def _translated(place: object) -> Iterator[None]:
    """Errors of SQLite become those of stores."""
    try:
        yield
    except sqlite3.Error as error:
        if "full" in str(error):
            raise StoreFullError(f"{place}: {error}") from error
        raise StoreError(f"{place}: {error}") from error


@contextmanager
def _alone(folder: int) -> Iterator[None]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(_LOCK, flags, FILE_MODE, dir_fd=folder)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
