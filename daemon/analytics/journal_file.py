"""The journal's database: events by number, and totals. SQLite; one writer, any number of readers."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from daemon.analytics.totals import Key
from daemon.errors import ConfigError
from lookoutd.messages import Event

DAMAGED = ".damaged"  # behind the name of a database that was replaced
_APPLICATION = 0x4C4F4F4B  # marks the file as a journal
_VERSION = 1
_WAIT_S = 2.0  # for a lock of another program that reads the file
_WAL_BYTES = 4 << 20
_CHECKED_BYTES = 256 << 20  # a larger file is not checked at the start, which would take seconds
_TABLES = (
    "CREATE TABLE events (number INTEGER PRIMARY KEY, recorded_at INTEGER NOT NULL, source TEXT NOT NULL,"
    " kind TEXT NOT NULL, rule TEXT, message TEXT NOT NULL)",
    "CREATE TABLE totals (key TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
)
_RESERVE = 1_000_000  # numbers; a disk that takes nothing for longer leaves those of the clock, a thousand a second
_RESERVE_NUMBERS = "INSERT INTO facts VALUES ('reserved', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_GROW = "INSERT INTO totals VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET count = count + excluded.count"
_DELETE_OLDEST = "DELETE FROM events WHERE number IN (SELECT number FROM events ORDER BY number LIMIT ?)"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode
_decode_key = msgspec.json.Decoder(Key).decode


class DamagedError(Exception):
    """The file is no database, or a damaged one."""


@dataclass(frozen=True)
class Query:
    """A selection of events.

    Attributes:
        since: those with a larger number, from the oldest on; None for the newest ones.
        limit: maximum number.
        before: those with a smaller number.
        begin, end: those that were recorded from `begin` on and before `end`; UTC, ns.
        attribute: those about an attribute: a classifier's name, or NAME=VALUE.
    """

    since: int | None = None
    limit: int = 100
    source: str | None = None
    kind: str | None = None
    rule: str | None = None
    label: str | None = None
    before: int | None = None
    begin: int | None = None
    end: int | None = None
    attribute: str | None = None


class JournalFile:
    """The open database. One thread at a time uses it.

    Args:
        now: UTC, ns: the totals of a new database count from then.

    Attributes:
        rows: number of events.
        last: number of the newest event; 0 without one.
        since: UTC, ns, when counting began.
        reserved: numbers below are used, or may be by events that were not written before the process was killed.

    Raises:
        DamagedError: it must be replaced.
        ConfigError: the file belongs to something else.
        OSError, sqlite3.Error: it cannot be opened now.
    """

    def __init__(self, path: Path, now: int) -> None:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640))  # SQLite would let everybody read it
        self._db = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
        try:
            with _damage_found():
                self._prepare(path, now)
                ((rows, last),) = self._db.execute("SELECT count(*), max(number) FROM events")
                ((self.since,),) = self._db.execute("SELECT value FROM facts WHERE name = 'since'")
                ((reserved,),) = self._db.execute("SELECT max(value) FROM facts WHERE name = 'reserved'")
        except BaseException:
            self._db.close()
            raise
        self.rows, self.last, self.reserved = int(rows), int(last or 0), int(reserved or 0)
        self._stat = os.stat(path)

    def totals(self) -> dict[Key, int]:
        with _damage_found():
            return {_decode_key(key): int(count) for key, count in self._db.execute("SELECT key, count FROM totals")}

    def append(self, events: Sequence[Event], grown: Mapping[Key, int], now: int, max_rows: int) -> None:
        """Add events, and numbers to totals, in one transaction; the oldest events beyond the limit go.

        Raises:
            DamagedError, sqlite3.Error: nothing was changed.
        """
        rows = [(row.number, now, row.source, row.kind, row.rule, _encode(row).decode()) for row in events]
        totals = [(_encode(key).decode(), count) for key, count in grown.items()]
        gone = max(0, self.rows + len(rows) - max_rows)
        last = max([self.last, *(event.number for event in events)])
        reserved = last + _RESERVE if last > self.reserved - _RESERVE // 2 else self.reserved
        with self._transaction() as db:
            if reserved != self.reserved:
                db.execute(_RESERVE_NUMBERS, (reserved,))
            db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)
            db.executemany(_GROW, totals)
            if gone:
                db.execute(_DELETE_OLDEST, (gone,))
        self.rows += len(rows) - gone
        self.last, self.reserved = last, reserved

    def reserve(self, first: int) -> None:
        """Reserve numbers for a run that begins with `first`.

        Raises:
            DamagedError, sqlite3.Error: nothing was changed.
        """
        with self._transaction() as db:
            db.execute(_RESERVE_NUMBERS, (first + _RESERVE,))
        self.reserved = first + _RESERVE

    def prune(self, before: int) -> None:
        """Remove the oldest events, up to the first that was recorded at a time or later.

        Raises:
            DamagedError, sqlite3.Error: nothing was changed.
        """
        with self._transaction() as db:
            first = "SELECT number FROM events WHERE recorded_at >= ? ORDER BY number LIMIT 1"
            found = db.execute(first, (before,)).fetchone()
            end = found[0] if found else self.last + 1
            gone = db.execute("DELETE FROM events WHERE number < ?", (end,)).rowcount
        self.rows -= gone

    def is_at(self, path: Path) -> bool:
        """Whether the file is still at the path: SQLite goes on writing to one that was removed."""
        try:
            return os.path.samestat(os.stat(path), self._stat)
        except OSError:
            return False

    def set_totals(self, since: int, totals: Mapping[Key, int]) -> None:
        """Replace all totals, and the time since when they count.

        Raises:
            DamagedError, sqlite3.Error: nothing was changed.
        """
        with self._transaction() as db:
            db.execute("UPDATE facts SET value = ? WHERE name = 'since'", (since,))
            db.execute("DELETE FROM totals")
            db.executemany(_GROW, [(_encode(key).decode(), count) for key, count in totals.items()])

    def close(self) -> None:
        self._db.close()

    def _prepare(self, path: Path, now: int) -> None:
        db, tables = self._db, _tables_of(self._db, path)
        if tables and path.stat().st_size <= _CHECKED_BYTES:
            ((state,),) = db.execute("PRAGMA quick_check(1)")
            if state != "ok":
                raise DamagedError(state)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")  # a kill loses nothing; a power cut loses the last transactions
        db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        if not tables:
            with self._transaction():
                for statement in _TABLES:
                    db.execute(statement)
                db.execute("INSERT INTO facts VALUES ('since', ?)", (now,))
                db.execute(f"PRAGMA application_id = {_APPLICATION}")
                db.execute(f"PRAGMA user_version = {_VERSION}")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _damage_found():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite has rolled back already
                    self._db.execute("ROLLBACK")
                raise


def check_owner(path: Path) -> None:
    """Whether the file may be a journal, or become one; changes nothing.

    Raises:
        ConfigError: it belongs to something else.
        DamagedError: it must be replaced.
        sqlite3.Error: it cannot be read now.
    """
    if path.exists():
        with closing(_opened_for_reading(path)) as db, _damage_found():
            _tables_of(db, path)


def _tables_of(db: sqlite3.Connection, path: Path) -> int:
    """The number of tables.

    Raises:
        ConfigError: the file belongs to something else.
    """
    ((application,),) = db.execute("PRAGMA application_id")
    ((version,),) = db.execute("PRAGMA user_version")
    ((tables,),) = db.execute("SELECT count(*) FROM sqlite_master")
    if tables and application != _APPLICATION:
        raise ConfigError(f"events.journal: {path} is a database of another program: name another file")
    if version > _VERSION:
        raise ConfigError(f"events.journal: {path} is of a newer Lookout: name another file")
    return int(tables)


def _opened_for_reading(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_WAIT_S)


def read(path: Path, query: Query) -> list[Event]:
    """Events in the order of their numbers.

    Raises:
        sqlite3.Error: the journal cannot be read.
    """
    name, equals, value = (query.attribute or "").partition("=")
    filters = {
        "source = ?": query.source,
        "kind = ?": query.kind,
        "rule = ?": query.rule,
        "json_extract(message, '$.label') = ?": query.label,
        "number < ?": query.before,
        "recorded_at >= ?": query.begin,
        "recorded_at < ?": query.end,
        "json_extract(message, '$.attribute.name') = ?": name or None,
        "json_extract(message, '$.attribute.value') = ?": value if equals else None,
    }
    given = {condition: value for condition, value in filters.items() if value is not None}
    conditions = [*given, "number > ?"]
    order = "DESC" if query.since is None else "ASC"
    text = f"SELECT message FROM events WHERE {' AND '.join(conditions)} ORDER BY number {order} LIMIT ?"  # noqa: S608
    with closing(_opened_for_reading(path)) as db:
        found = db.execute(text, (*given.values(), query.since or 0, query.limit)).fetchall()
    rows = [_decode(message) for (message,) in found]
    return rows if query.since is not None else rows[::-1]


def replace_damaged(path: Path) -> Path:
    """Move a damaged database out of the way, over an earlier one; returns its new path.

    Raises:
        OSError: that cannot be done.
    """
    target = path.with_name(path.name + DAMAGED)
    os.replace(path, target)
    remove_leftovers(path)
    return target


def remove_leftovers(path: Path) -> None:
    """Remove what SQLite keeps beside a database that is gone: a new one would be taken for the old."""
    if path.exists():
        return
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")


@contextmanager
def _damage_found() -> Iterator[None]:
    """SQLite has no class for a damaged file; the errors of everything else are of subclasses."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if type(error) is sqlite3.DatabaseError or "no such table" in str(error):
            raise DamagedError(str(error)) from error
        raise
    except msgspec.MsgspecError as error:
        raise DamagedError(str(error)) from error
