"""The folder of results: each is written under another name, and gets its own when it is whole.

Several processes may share it. Their files of work are in `.lookout-batch`, each locked by its owner for as long as
that lives, so that those of a killed one are found and removed.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from daemon.batch.clips import Clip, path_of
from daemon.batch.records import Footer, Header
from daemon.errors import LookoutError

SUFFIX = ".jsonl"
STATE = ".lookout-batch"
_PART, _LOCK, _ID = ".part", "lock", "folder"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_TAIL = 1 << 14  # bytes that hold most last lines
_BUFFER = 1 << 18
_NAMES = (errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY)  # faults of one name


class FolderError(LookoutError):
    """The folder cannot be used; all work ends."""


class ResultError(LookoutError):
    """The result of one clip cannot have its name."""


class Result:
    """A result that is being written.

    Raises:
        FolderError: from every method; the disk is full, or the folder is gone.
    """

    def __init__(self, folder: Path, prefix: str, final: Path) -> None:
        self._final = final
        with _named(folder):
            self._file, self._path = _open_part(folder, prefix)
            self._identity = os.fstat(self._file.fileno())

    def write(self, line: bytes) -> None:
        with _named(self._final):
            self._file.write(line)

    def flush(self) -> None:
        """Everything is on the disk."""
        with _named(self._final):
            self._file.flush()
            os.fsync(self._file.fileno())

    def publish(self) -> None:
        """Give the file its own name; after `flush`.

        Raises:
            ResultError: it cannot have this name.
        """
        with _named(self._final):
            try:
                self._final.parent.mkdir(parents=True, exist_ok=True)
                os.rename(self._path, self._final)
            except OSError as error:
                if error.errno in _NAMES:
                    raise ResultError(f"its result cannot be named {self._final}: {error.strerror}") from error
                raise
            _sync(self._final.parent)
        self._file.close()

    def withdraw(self) -> None:
        """Remove a published file, unless another one has its name by now."""
        with suppress(OSError):
            if os.path.samestat(self._identity, self._final.stat()):
                self._final.unlink()

    def discard(self) -> None:
        """Throw the file away; does nothing after `publish`."""
        if self._file.closed:
            return
        self._path.unlink(missing_ok=True)
        with suppress(OSError):  # what the buffer holds may find no room
            self._file.close()


class ResultFolder:
    """Results of one worker.

    Args:
        exclusive: no other process may use the folder.

    Attributes:
        id: of the folder, the same for every process that shares it.

    Raises:
        FolderError: it cannot be written, or another process uses it.
    """

    def __init__(self, root: Path, *, exclusive: bool) -> None:
        self.root, self._state = Path(os.path.abspath(root)), Path(os.path.abspath(root)) / STATE
        self._host = socket.gethostname()
        with _named(root):
            self._state.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._state / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._acquire(exclusive=exclusive)
            self.id = self._read_id()
            self.remove_leftovers()
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def where(self) -> str:
        """The host and the path, for people."""
        return f"{self._host}:{self.root}"

    def state_file(self, name: str) -> Path:
        return self._state / name

    def path_of(self, clip: Clip) -> Path:
        """Where the result of a clip is; `daemon.batch.clips.path_of` gives the clip's path from its name."""
        path = path_of(clip.name)
        return self.root / path.parent / f"{path.name}{SUFFIX}"

    def begin(self, clip: Clip) -> Result:
        """Begin a result.

        Raises:
            FolderError: see the class.
        """
        return Result(self._state, f"{self._host}-", self.path_of(clip))

    def header_of(self, clip: Clip) -> Header | None:
        """The header of the result of a clip; None if there is no result.

        Raises:
            FolderError: something else has its name.
        """
        path = self.path_of(clip)
        try:
            with path.open("rb") as file:
                first, last = file.readline(), _last_line(file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise FolderError(f"{path} cannot be read: {error.strerror}") from error
        try:
            msgspec.json.decode(last, type=Footer)
            return msgspec.json.decode(first, type=Header)
        except (msgspec.MsgspecError, ValueError) as error:
            raise FolderError(f"{path} is no result of a batch: move it, or name another folder with --out") from error

    def remove_leftovers(self) -> int:
        """Remove the files of this host's workers that were killed; returns their number.

        Locks of other hosts may not be seen here, so those are left to them.
        """
        return sum(_remove_unlocked(path) for path in self._state.glob(f"{glob.escape(self._host)}-*{_PART}"))

    def close(self) -> None:
        """A second call does nothing."""
        if self._lock >= 0:
            self.remove_leftovers()
            os.close(self._lock)
            self._lock = -1

    def _acquire(self, *, exclusive: bool) -> None:
        try:
            fcntl.flock(self._lock, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FolderError(
                f"another `lookout batch` works in {self.root}: wait for its end, or let both have the same coordinator"
            ) from error
        except OSError as error:
            raise FolderError(f"{self.root} cannot be locked: {error.strerror}") from error

    def _read_id(self) -> str:
        """The id, which the first process writes."""
        with _named(self.root), open(self._state / _ID, "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # held for a moment only
            file.seek(0)
            found = file.read()
            if not found:
                found = secrets.token_hex(8)
                file.write(found)
                file.flush()
            return found


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors name the path, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            words = f"{path}: no space is left: make room, and start the same command again, which goes on from here"
            raise FolderError(words) from error
        raise FolderError(f"{path} cannot be written: {error.strerror}") from error


def _last_line(file: BinaryIO) -> bytes:
    size, tail = os.fstat(file.fileno()).st_size, _TAIL
    while True:
        file.seek(max(0, size - tail))
        _, separator, last = file.read().rstrip(b"\n").rpartition(b"\n")
        if separator or tail >= size:
            return last
        tail *= 4


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _open_part(folder: Path, prefix: str) -> tuple[BinaryIO, Path]:
    """A new file that is locked."""
    while True:
        path = folder / f"{prefix}{secrets.token_hex(8)}{_PART}"
        file = open(path, "xb", _BUFFER)  # noqa: SIM115 - closed by `publish` and `discard`
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists():
                return file, path
        except BlockingIOError:
            """Another worker takes it for a leftover."""
        except BaseException:
            file.close()
            path.unlink(missing_ok=True)
            raise
        file.close()


def _remove_unlocked(path: Path) -> bool:
    """Remove a file of a worker that does not live."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
            return True
    except OSError:  # its owner lives, or has just removed it
        return False
