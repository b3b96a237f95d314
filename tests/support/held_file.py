"""A disk that does not answer."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path


class HeldFile:
    """A file that others wait to open: of a lease, which Linux asks back, and which is not given back."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR)
        fcntl.fcntl(self._file, fcntl.F_SETSIG, signal.SIGCHLD)  # which is ignored; SIGIO would end the process
        fcntl.fcntl(self._file, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits."""
        return fcntl.fcntl(self._file, fcntl.F_GETLEASE) != fcntl.F_WRLCK

    def close(self) -> None:
        os.close(self._file)
