"""A file that lines are appended to for months: nobody else may read it, and it may be moved away at any time."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path


class AppendedFile:
    """For its owner and group, because lines name sources; without buffers, that would fail later and elsewhere.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _opened(path)

    def current(self) -> io.FileIO:
        """The file at the path. One that was moved away, as logrotate does, is begun anew; if that cannot be, the old
        one goes on."""
        with suppress(OSError):
            try:
                moved = not os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno()))
            except FileNotFoundError:
                moved = True
            if moved:
                old, self._file = self._file, _opened(self._path)
                old.close()
        return self._file

    def close(self) -> None:
        self._file.close()


def _opened(path: Path) -> io.FileIO:
    """A pipe that nobody reads is an error, and does not block."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    number = os.open(path, flags, 0o640)
    os.set_blocking(number, True)
    return io.FileIO(number, "a")
