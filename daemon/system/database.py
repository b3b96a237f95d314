"""A file of SQLite that may be lost, moved, damaged, or of another program."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from daemon.errors import ConfigError

DAMAGED = ".damaged"  # behind the name of a database that was replaced
WAIT_S = 2.0  # for a lock of another program that reads the file
_WAL_BYTES = 4 << 20
_CHECKED_BYTES = 256 << 20  # a larger file is not checked at the start, which would take seconds


class DamagedError(Exception):
    """The file is no database, or a damaged one."""


@dataclass(frozen=True)
class Form:
    """The form of a database.

    Attributes:
        key: of the configuration that names it.
        application: marks the file.
        tables: statements that make them.
        mode: of a new file: SQLite would let everybody read it.
    """

    key: str
    application: int
    version: int
    tables: Sequence[str]
    mode: int = 0o640


class Database:
    """Opens a database, or makes it. A thread at a time is let in.

    Raises:
        DamagedError: it must be replaced.
        ConfigError: the file belongs to something else.
        OSError, sqlite3.Error: it cannot be opened now.
    """

    def __init__(self, path: Path, form: Form) -> None:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, form.mode))
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
        self._db.text_factory = _text
        try:
            with damage_found():
                self._prepare(path, form)
        except BaseException:
            self._db.close()
            raise
        self._stat = os.stat(path)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """
        Raises:
            DamagedError, sqlite3.Error: it cannot be read.
        """
        with self._let_in(), damage_found():
            yield self._db

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All changes, or none.

        Raises:
            DamagedError, sqlite3.Error: nothing was changed.
        """
        with self._let_in(), damage_found():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite has rolled back already
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _let_in(self) -> Iterator[None]:
        """A thread that the disk holds keeps others out for a while, and not for ever."""
        if not self._lock.acquire(timeout=WAIT_S):
            raise sqlite3.OperationalError("the disk does not answer")
        try:
            yield
        finally:
            self._lock.release()

    def is_at(self, path: Path) -> bool:
        """Whether the file is still at the path: SQLite goes on writing to one that was removed."""
        try:
            return os.path.samestat(os.stat(path), self._stat)
        except OSError:
            return False

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _prepare(self, path: Path, form: Form) -> None:
        db, tables = self._db, tables_of(self._db, path, form)
        if tables and path.stat().st_size <= _CHECKED_BYTES:
            ((state,),) = db.execute("PRAGMA quick_check(1)")
            if state != "ok":
                raise DamagedError(state)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")  # a kill loses nothing; a power cut loses the last transactions
        db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        if not tables:
            with self.transaction():
                for statement in form.tables:
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {form.application}")
                db.execute(f"PRAGMA user_version = {form.version}")


def _text(content: bytes) -> str:
    """Damage may lie in a text, which SQLite does not look into."""
    return content.decode(errors="replace")


def tables_of(db: sqlite3.Connection, path: Path, form: Form) -> int:
    """The number of tables.

    Raises:
        ConfigError: the file belongs to something else.
    """
    ((application,),) = db.execute("PRAGMA application_id")
    ((version,),) = db.execute("PRAGMA user_version")
    ((tables,),) = db.execute("SELECT count(*) FROM sqlite_master")
    if tables and application != form.application:
        raise ConfigError(f"{form.key}: {path} is a database of another program: name another file")
    if version > form.version:
        raise ConfigError(f"{form.key}: {path} is of a newer Lookout: name another file")
    return int(tables)


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
def damage_found() -> Iterator[None]:
    """SQLite has no class for a damaged file; the errors of everything else are of subclasses."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if type(error) is sqlite3.DatabaseError or "no such table" in str(error):
            raise DamagedError(str(error)) from error
        raise
