"""Memory that a server on this host shares with Lookout.

A region is a file in /dev/shm. Its owner holds a lock on it, so a file without a lock is left over from a crash, and
the server may still have it registered.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
from contextlib import suppress
from pathlib import Path

from detectors.port import DetectorError
from detectors.triton.http import Connection, ServerError

_FOLDER = Path("/dev/shm")  # noqa: S108 - where shm_open has its files
_PREFIX = "lookout-triton-"


class Region:
    """A region of one lane.

    Attributes:
        name: of the file, and at the server.
        memory: writable.

    Raises:
        DetectorError: there is no room for it.
    """

    def __init__(self, size: int) -> None:
        self.name = f"{_PREFIX}{os.getpid()}-{secrets.token_hex(6)}"
        self.size = size
        self._path = _FOLDER / self.name
        unlocked = _FOLDER / f".{self.name}"  # nobody takes this name for a leftover
        try:
            self._fd = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _no_room(size, error) from error
        try:
            os.posix_fallocate(self._fd, 0, size)  # a full /dev/shm is an error here, not SIGBUS later
            self.memory = mmap.mmap(self._fd, size)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unlocked.rename(self._path)
        except OSError as error:
            unlocked.unlink(missing_ok=True)
            os.close(self._fd)
            raise _no_room(size, error) from error

    def register(self, link: Connection) -> None:
        """Make the region known to the server, again if it is.

        Raises:
            ServerError: the server does not take it, or cannot be reached.
        """
        unregister(link, self.name)
        body = {"key": f"/{self.name}", "offset": 0, "byte_size": self.size}
        link.query(f"{_path(self.name)}/register", body)

    def close(self) -> None:
        """Remove the file. The memory goes when nobody maps it; idempotent."""
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1
            with suppress(BufferError):  # an array still shows it
                self.memory.close()


def unregister(link: Connection, name: str) -> None:
    """Make the server forget a region, if it has it.

    Raises:
        ServerError: the server cannot be reached.
    """
    try:
        link.query(f"{_path(name)}/unregister", {})
    except ServerError as error:
        if error.status == 0:
            raise


def remove_leftovers(link: Connection) -> int:
    """Unregister and remove the regions of processes that are gone; returns their number.

    Raises:
        ServerError: the server cannot be reached.
    """
    found = 0
    for path in _FOLDER.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, or in use
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                unregister(link, path.name)
                path.unlink(missing_ok=True)
                found += 1
            finally:
                os.close(fd)
    return found


def _path(name: str) -> str:
    return f"/v2/systemsharedmemory/region/{name}"


def _no_room(size: int, error: OSError) -> DetectorError:
    return DetectorError(
        f"{_FOLDER} has no room for {size / (1 << 20):.0f} MiB, which a lane shares with the server: {error.strerror}; "
        "make it larger, or set model.transport: http"
    )
