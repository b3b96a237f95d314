"""Reading the index of a store."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from daemon.recording.causes import Cause
from daemon.recording.clips import ClaimedTime
from daemon.recording.errors import StoreError, StoreFullError
from daemon.recording.open_gaps import OpenGap
from daemon.recording.records import FileFacts, Gap
from daemon.recording.store import Store, translated
from daemon.recording.timeline import Entry, Span, timeline

NAME: Final = "index.sqlite"
_WAIT_S: Final = 5.0  # for another process that writes
_SAME_CLIP_NS: Final = 1_000_000_000  # claims of one clip begin together, as the clocks were measured at each
_decode = msgspec.json.Decoder(FileFacts).decode


class Place(NamedTuple):
    """A file that may go.

    Attributes:
        size: bytes, with those of the tracks beside it.
    """

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

    @property
    def is_whole(self) -> bool:
        """Whether all files were read for it, as far as they can be; False while it is made from them."""
        return not self._has("unread") or not self._ask("SELECT 1 FROM unread")

    def sources(self) -> list[str]:
        """Those with a recording, or with a gap that goes on."""
        question = "SELECT source FROM sizes WHERE bytes > 0 UNION SELECT source FROM open_gaps ORDER BY 1"
        return [source for (source,) in self._ask(question)]

    def file(self, id: str) -> FileFacts | None:
        return next((_decode(facts) for (facts,) in self._ask("SELECT facts FROM files WHERE id = ?", id)), None)

    def file_at(self, path: str) -> FileFacts | None:
        question = "SELECT facts FROM files WHERE path = ?"
        return next((_decode(facts) for (facts,) in self._ask(question, path)), None)

    def files(self, source: str | None = None, begin: int | None = None, end: int | None = None) -> list[FileFacts]:
        """Those with something in a time, by source and begin."""
        limits = {"source = ?": source, "end > ?": begin, "begin < ?": end}
        given = {words: value for words, value in limits.items() if value is not None}
        where = " AND ".join(given) or "1"
        question = f"SELECT facts FROM files WHERE {where} ORDER BY source, begin, id"  # noqa: S608
        return [_decode(facts) for (facts,) in self._ask(question, *given.values())]

    def files_with_open(self, source: str, begin: int, end: int) -> list[FileFacts]:
        """Those that may have something in a time: one that is being written has more than the index knows."""
        found, newest = self.files(source, begin, end), self.newest(source)
        if newest is not None and newest.reason is None and newest.begin < end and newest not in found:
            found.append(newest)
        return found

    def newest(self, source: str) -> FileFacts | None:
        """The file of a source that ends last."""
        question = "SELECT facts FROM files WHERE source = ? ORDER BY end DESC, begin DESC LIMIT 1"
        return next((_decode(facts) for (facts,) in self._ask(question, source)), None)

    def timeline(self, source: str, begin: int, end: int) -> list[Span | Gap]:
        """Spans and gaps in order, without a hole, up to what is known; see `timeline.timeline`."""
        untold: Cause = "expired" if self.is_whole else "unread"
        newest, entries = self.newest(source), self._entries(source, begin, end)
        if untold == "expired" and not self.is_whole:  # it was lost meanwhile
            untold = "unread"
        since = min((entry.file.since for entry in entries), default=newest.since if newest else None)
        return timeline(entries, begin, end, since=since, after=self.open_gaps(source), untold=untold)

    def open_gap(self, source: str) -> Gap | None:
        """The gap that goes on, up to when it was last told of."""
        return next(reversed(self.open_gaps(source)), None)

    def open_gaps(self, source: str) -> list[Gap]:
        """Those since the last file."""
        question = "SELECT begin, end, cause, detail FROM open_gaps WHERE source = ? ORDER BY begin"
        return [Gap(*row) for row in self._ask(question, source)]

    def open_gaps_of_all(self) -> list[OpenGap]:
        """Likewise, of all sources."""
        question = "SELECT source, begin, end, cause, detail FROM open_gaps ORDER BY source, begin"
        return [OpenGap(*row) for row in self._ask(question)]

    def activity(self, source: str, begin: int, end: int) -> list[tuple[str, int, bytes]]:
        """How much was seen beside files with something in a time: their ids, and what was put of each. Some files may
        lack: those that are written, or were when the process ended, and those that the index was made again from."""
        if not self._has("activity"):
            return []
        question = (
            "SELECT file, first, counts FROM files JOIN activity ON file = id"
            " WHERE source = ? AND end > ? AND begin < ?"
        )
        return self._ask(question, source, begin, end)

    def open_tracks(self) -> list[str]:
        """Paths of recordings whose tracks are being written, or were when their process ended."""
        return [path for (path,) in self._ask("SELECT path FROM open_tracks ORDER BY path")]

    def claim(self, source: str, event: str) -> ClaimedTime | None:
        """The time that an event wants, and later events of its clip; None for an event that wanted nothing, or whose
        video was deleted."""
        rows = self._ask("SELECT * FROM claims WHERE source = ? AND event = ?", source, event)
        found = next((ClaimedTime(*row) for row in rows), None)
        if found is None or found.state != "recording":
            return found
        question = "SELECT max(end) FROM claims WHERE source = ? AND state = 'recording' AND begin BETWEEN ? AND ?"
        ((end,),) = self._ask(question, source, found.begin - _SAME_CLIP_NS, found.begin + _SAME_CLIP_NS)
        return found._replace(end=max(found.end, end or 0))

    def file_sizes(self, source: str, begin: int, end: int) -> dict[str, int]:
        """Bytes of each file with something in a time, with those of the tracks beside it, by id."""
        question = "SELECT id, size FROM files WHERE source = ? AND end > ? AND begin < ?"
        return dict(self._ask(question, source, begin, end))

    def sizes(self) -> dict[str, int]:
        """Bytes of each source, with those of tracks."""
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

    def _has(self, table: str) -> bool:
        """False for one that an index of an earlier version lacks."""
        return bool(self._ask("SELECT 1 FROM sqlite_master WHERE name = ?", table))

    def _ask(self, question: str, *values: object) -> list[Any]:
        self._follow()
        with sqlite_translated(self._path):
            try:
                return self._db.execute(question, values).fetchall()
            except sqlite3.DatabaseError as error:
                self._is_damaged = is_damage(error)
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
        with translated(self._path), sqlite_translated(self._path):
            db = connect(self._path, "ro")
            if not db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'files'").fetchone()[0]:
                db.close()
                raise StoreError(f"{self._path}: has nothing yet: it is being made, or was not finished")
            self._stat = os.stat(self._path)
            return db


def is_damage(error: BaseException) -> bool:
    others = sqlite3.OperationalError, sqlite3.IntegrityError, sqlite3.ProgrammingError
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(error, others)


def connect(path: os.PathLike[str], mode: str) -> sqlite3.Connection:
    """
    Raises:
        StoreError: something that is no file lies in its place, which SQLite might wait for.
    """
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(f"{os.fspath(path)}{suffix}").st_mode):
                raise StoreError(f"{os.fspath(path)}{suffix}: is no regular file: move it away")
    uri = f"file:{quote(os.fspath(path))}?mode={mode}"
    db = sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
    try:
        db.execute("SELECT count(*) FROM sqlite_master")
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def sqlite_translated(place: object) -> Iterator[None]:
    """Errors of SQLite become those of stores."""
    try:
        yield
    except sqlite3.Error as error:
        if "full" in str(error):
            raise StoreFullError(f"{place}: {error}") from error
        raise StoreError(f"{place}: {error}") from error
