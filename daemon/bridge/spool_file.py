"""The spool's database: records, how far each target is, and what feeds and targets must know after a restart.

SQLite; one process has it open, and a lock lets one of its threads in at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from daemon.bridge.records import Record
from daemon.system.database import Database, Form

_ROW_BYTES = 200  # of a record beside its body, about
_TABLES = (
    "CREATE TABLE records (position INTEGER PRIMARY KEY, run INTEGER NOT NULL, kind TEXT NOT NULL,"
    " daemon TEXT NOT NULL, source TEXT NOT NULL, id TEXT NOT NULL, at INTEGER NOT NULL, body BLOB NOT NULL)",
    "CREATE TABLE texts (owner TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (owner, key))"
    " WITHOUT ROWID",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
)
_INSERT = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT = "SELECT run, position, kind, daemon, source, id, at, body FROM records WHERE position > ? ORDER BY position"
_SET_TEXT = "INSERT INTO texts VALUES (?, ?, ?) ON CONFLICT (owner, key) DO UPDATE SET value = excluded.value"
_SET_FACT = "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_OLDEST = "SELECT position, length(body) FROM records WHERE position >= ? ORDER BY position LIMIT 1000"
_FORM = Form("bridge.spool", 0x4C4F4252, 1, _TABLES, 0o600)


class Text(NamedTuple):
    """A text that is kept; None removes it."""

    owner: str
    key: str
    value: str | None


class SpoolFile:
    """The open database.

    Attributes:
        first, last: positions of the oldest and the newest record; `first` is `last` + 1 where there is none.
        bytes: of all records, about.

    Raises:
        DamagedError: it must be replaced.
        ConfigError: the file belongs to something else.
        OSError, sqlite3.Error: it cannot be opened now.
    """

    def __init__(self, path: Path) -> None:
        self._db = Database(path, _FORM)
        try:
            with self._db.reading() as db:
                text = "SELECT min(position), max(position), total(length(body)), count(*) FROM records"
                ((first, last, size, rows),) = db.execute(text)
                ((kept,),) = db.execute("SELECT max(value) FROM facts WHERE name = 'last'")
        except BaseException:
            self._db.close()
            raise
        self.last = max(int(last or 0), int(kept or 0))
        self.first = int(first) if first is not None else self.last + 1
        self.bytes = int(size) + rows * _ROW_BYTES

    def facts(self) -> dict[str, int]:
        with self._db.reading() as db:
            return {name: int(value) for name, value in db.execute("SELECT name, value FROM facts")}

    def texts(self) -> dict[tuple[str, str], str]:
        """By owner and key."""
        with self._db.reading() as db:
            rows = db.execute("SELECT owner, key, value FROM texts")
            return {(owner, key): value for owner, key, value in rows}

    def read(self, after: int, limit: int) -> list[Record]:
        """
        Raises:
            DamagedError, sqlite3.Error: it cannot be read now.
        """
        with self._db.reading() as db:
            return [Record(*row) for row in db.execute(f"{_SELECT} LIMIT ?", (after, limit))]

    def write(self, records: Sequence[Record], texts: Iterable[Text], facts: Mapping[str, int]) -> None:
        """All of it, or nothing.

        Raises:
            DamagedError, sqlite3.Error: nothing was changed.
        """
        rows = [(row.position, row.run, row.kind, row.daemon, row.source, row.id, row.at, row.body) for row in records]
        last = max([self.last, *(row.position for row in records)])
        with self._db.transaction() as db:
            db.executemany(_INSERT, rows)
            for text in texts:
                if text.value is None:
                    db.execute("DELETE FROM texts WHERE owner = ? AND key = ?", (text.owner, text.key))
                else:
                    db.execute(_SET_TEXT, text)
            db.executemany(_SET_FACT, {**facts, "last": last}.items())
        if records and self.first > self.last:
            self.first = records[0].position
        self.last = last
        self.bytes += sum(len(row.body) + _ROW_BYTES for row in records)

    def remove(self, before: int) -> None:
        """Records that nobody needs any more: those before a position.

        Raises:
            DamagedError, sqlite3.Error: nothing was changed.
        """
        if before <= self.first:
            return
        with self._db.transaction() as db:
            ((size, rows),) = db.execute(
                "SELECT total(length(body)), count(*) FROM records WHERE position < ?", (before,)
            )
            db.execute("DELETE FROM records WHERE position < ?", (before,))
        self.bytes -= int(size) + rows * _ROW_BYTES
        self.first = min(before, self.last + 1)

    def oldest_beyond(self, limit_bytes: int) -> int:
        """The position up to which records must go, so that the rest has so many bytes: `first` for none.

        Raises:
            DamagedError, sqlite3.Error: it cannot be read now.
        """
        left, end = self.bytes, self.first
        while left > limit_bytes:
            with self._db.reading() as db:
                rows = db.execute(_OLDEST, (end,)).fetchall()
            if not rows:
                break
            for position, size in rows:
                left, end = left - size - _ROW_BYTES, position + 1
                if left <= limit_bytes:
                    break
        return end

    def begin_at(self, position: int) -> None:
        """An empty file begins with this record."""
        self.first, self.last = position, position - 1

    def is_at(self, path: Path) -> bool:
        """See `Database.is_at`."""
        return self._db.is_at(path)

    def close(self) -> None:
        self._db.close()
