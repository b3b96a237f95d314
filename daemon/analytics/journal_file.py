"""The journal's database: events by number, and totals. SQLite; one writer, any number of readers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from daemon.analytics.totals import Key
from daemon.system.database import WAIT_S, DamagedError, Database, Form, damage_found, tables_of
from lookout.messages import Event

_TABLES = (
    "CREATE TABLE events (number INTEGER PRIMARY KEY, recorded_at INTEGER NOT NULL, source TEXT NOT NULL,"
    " kind TEXT NOT NULL, rule TEXT, message TEXT NOT NULL)",
    "CREATE TABLE totals (key TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
)
_FORM = Form("events.journal", 0x4C4F4F4B, 1, _TABLES)
_RESERVE = 1_000_000  # numbers; a disk that takes nothing for longer leaves those of the clock, a thousand a second
_RESERVE_NUMBERS = "INSERT INTO facts VALUES ('reserved', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_GROW = "INSERT INTO totals VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET count = count + excluded.count"
_DELETE_OLDEST = "DELETE FROM events WHERE number IN (SELECT number FROM events ORDER BY number LIMIT ?)"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode
_decode_key = msgspec.json.Decoder(Key).decode


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
        self._db = Database(path, _FORM)
        try:
            self._begin(now)
            with self._db.reading() as db:
                ((rows, last),) = db.execute("SELECT count(*), max(number) FROM events")
                ((self.since,),) = db.execute("SELECT value FROM facts WHERE name = 'since'")
                ((reserved,),) = db.execute("SELECT max(value) FROM facts WHERE name = 'reserved'")
        except BaseException:
            self._db.close()
            raise
        self.rows, self.last, self.reserved = int(rows), int(last or 0), int(reserved or 0)

    def totals(self) -> dict[Key, int]:
        with self._db.reading() as db, _undecodable_found():
            return {_decode_key(key): int(count) for key, count in db.execute("SELECT key, count FROM totals")}

    def append(self, events: Sequence[Event], grown: Mapping[Key, int], now: int, max_rows: int) -> None:
        """Add events, and numbers to totals, in one transaction; the oldest events beyond the limit go.

        Something is written where there is nothing to add, too: it tells whether the disk takes it.

        Raises:
            DamagedError, sqlite3.Error: nothing was changed.
        """
        rows = [(row.number, now, row.source, row.kind, row.rule, _encode(row).decode()) for row in events]
        totals = [(_encode(key).decode(), count) for key, count in grown.items()]
        gone = max(0, self.rows + len(rows) - max_rows)
        last = max([self.last, *(event.number for event in events)])
        reserved = last + _RESERVE if last > self.reserved - _RESERVE // 2 else self.reserved
        with self._db.transaction() as db:
            if reserved != self.reserved or not events:
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
        with self._db.transaction() as db:
            db.execute(_RESERVE_NUMBERS, (first + _RESERVE,))
        self.reserved = first + _RESERVE

    def prune(self, before: int) -> None:
        """Remove the oldest events, up to the first that was recorded at a time or later.

        Raises:
            DamagedError, sqlite3.Error: nothing was changed.
        """
        with self._db.transaction() as db:
            first = "SELECT number FROM events WHERE recorded_at >= ? ORDER BY number LIMIT 1"
            found = db.execute(first, (before,)).fetchone()
            end = found[0] if found else self.last + 1
            gone = db.execute("DELETE FROM events WHERE number < ?", (end,)).rowcount
        self.rows -= gone

    def is_at(self, path: Path) -> bool:
        """See `Database.is_at`."""
        return self._db.is_at(path)

    def set_totals(self, since: int, totals: Mapping[Key, int]) -> None:
        """Replace all totals, and the time since when they count.

        Raises:
            DamagedError, sqlite3.Error: nothing was changed.
        """
        with self._db.transaction() as db:
            db.execute("UPDATE facts SET value = ? WHERE name = 'since'", (since,))
            db.execute("DELETE FROM totals")
            db.executemany(_GROW, [(_encode(key).decode(), count) for key, count in totals.items()])

    def close(self) -> None:
        self._db.close()

    def _begin(self, now: int) -> None:
        with self._db.transaction() as db:
            db.execute("INSERT INTO facts VALUES ('since', ?) ON CONFLICT (name) DO NOTHING", (now,))


def check_owner(path: Path) -> None:
    """Whether the file may be a journal, or become one; changes nothing.

    Raises:
        ConfigError: it belongs to something else.
        DamagedError: it must be replaced.
        sqlite3.Error: it cannot be read now.
    """
    if path.exists():
        with closing(_opened_for_reading(path)) as db, damage_found():
            tables_of(db, path, _FORM)


def _opened_for_reading(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=WAIT_S)


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


@contextmanager
def _undecodable_found() -> Iterator[None]:
    try:
        yield
    except msgspec.MsgspecError as error:
        raise DamagedError(str(error)) from error
