"""The lock of a database: one process writes to it."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from daemon.errors import ConfigError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class Lock:
    """Keeps a second process from writing to the same database, until `close` or the end of the process.

    A disk without room for the file of the lock gives a lock that keeps nobody out.

    Args:
        path: of the database.
        key: of the configuration that names it.

    Raises:
        ConfigError: another process has it, or the folder cannot be written.
    """

    def __init__(self, path: Path, key: str) -> None:
        self._fd: int | None = None
        try:
            self._fd = os.open(self.path_of(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise ConfigError(f"{key}: another Lookout writes to {path}: name another file") from error
        except OSError as error:
            self.close()
            if error.errno not in NO_ROOM:
                raise ConfigError(f"{key}: {path} cannot be written: {error.strerror}") from error

    def is_at(self, path: Path) -> bool:
        """Whether it still keeps others from this database: its file may have been removed or moved."""
        try:
            return self._fd is None or os.path.samestat(os.stat(self.path_of(path)), os.fstat(self._fd))
        except OSError:
            return False

    @staticmethod
    def path_of(path: Path) -> Path:
        return path.with_name(f"{path.name}.lock")

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
