"""The file of seen marks: lines that are appended, and a lock, so that one page writes to it.

The first line says what the file is. Each further line is a mark, or takes one back. A line that a kill or a full disk
has left half written is not read, and the next write makes the file anew.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from daemon.errors import ConfigError

_HEAD = b'{"schema":"lookout.seen/1"}\n'
_MAX_BYTES = 256 << 20  # no page has written a larger one
_encode = msgspec.json.Encoder().encode


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the file.

    Attributes:
        id: of the event.
        by: name of the token that marked it; absent where a mark is taken back.
        at: UTC ns of the mark.
    """

    id: str
    by: str | None = None
    at: int = 0


_decode = msgspec.json.Decoder(Line).decode


class SeenFile:
    """The open file; one thread at a time uses it.

    Args:
        path: in a folder that is there.

    Attributes:
        lines: in the file, after the head.

    Raises:
        ConfigError: another page has it, or the file belongs to something else.
        OSError: it cannot be used now.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self.lines = 0
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._check_head()
        except BlockingIOError as error:
            self.close()
            line = f"dashboard.seen: another page writes to {path}: name another file, or off"
            raise ConfigError(line) from error
        except BaseException:
            self.close()
            raise

    def read(self) -> tuple[list[Line], bool]:
        """All lines, and whether the file is whole; if it is not, it must be replaced before the next `append`.

        Raises:
            OSError: it cannot be read.
        """
        try:
            if self._path.stat().st_size > _MAX_BYTES:
                raise OSError(errno.EFBIG, f"it has more than {_MAX_BYTES >> 20} MiB", str(self._path))
            content = self._path.read_bytes()
        except FileNotFoundError:
            return [], False
        rows = content.split(b"\n")
        found, is_whole = [], content.startswith(_HEAD) and rows[-1] == b""
        for row in rows[1:-1]:
            try:
                found.append(_decode(row))
            except (msgspec.MsgspecError, RecursionError):
                is_whole = False
        self.lines = len(found)
        return found, is_whole

    def append(self, lines: Iterable[Line]) -> None:
        """Add lines, which are on the disk afterwards.

        Raises:
            OSError: they are not; the file must be replaced before the next `append`.
        """
        rows = [_encode(line) for line in lines]
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            _write(fd, b"".join(row + b"\n" for row in rows))
        finally:
            os.close(fd)
        self.lines += len(rows)

    def replace(self, lines: Iterable[Line]) -> None:
        """Make the file anew, whole or not at all.

        Raises:
            OSError: it is as it was.
        """
        rows = [_encode(line) for line in lines]
        temporary = self._path.with_name(f".{self._path.name}")
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
            try:
                _write(fd, _HEAD + b"".join(row + b"\n" for row in rows))
            finally:
                os.close(fd)
            os.replace(temporary, self._path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        self.lines = len(rows)

    def close(self) -> None:
        """Leave the file to another page."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _check_head(self) -> None:
        """A file that another program has written is left as it is."""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            head = file.read(len(_HEAD))
            if not _HEAD.startswith(head):
                raise ConfigError(f"dashboard.seen: {self._path} is of another program: name another file")


def _write(fd: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]
    os.fdatasync(fd)
