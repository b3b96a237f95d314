"""Sessions of browsers in a file, so that they outlive the page's process.

The file has no cookie and no token: a session is a digest of its cookie, the name of its token, and a proof that needs
both. A reader of the file can sign in nowhere, and neither can a writer without a token.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import structlog

from daemon.config.http import DashboardConfig
from daemon.errors import ConfigError
from daemon.files import state_folder

log = structlog.get_logger(__name__)
_MAX_BYTES = 1 << 20
_WRITE_S = 2.0  # so long somebody waits for the disk
_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class KeptSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A session.

    Attributes:
        key: SHA-256 of its cookie.
        name: of its token.
        proof: see `daemon.dashboard.sessions`.
        begun, seen: when it began, and was last seen, UTC, s.
    """

    key: _Digest
    name: str
    proof: _Digest
    begun: int
    seen: int


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    version: Literal[1]
    sessions: list[KeptSession]


class SessionFile:
    """A file that one page alone uses.

    Raises:
        ConfigError: it is another user's, open to others or no file; its folder is not there; another page has it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._lock = os.open(
                path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise self._refusal(f"cannot be kept: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise self._refusal("is another page's: give each page a file of its own") from error
        except OSError:  # a file system without locks
            pass
        for left in path.parent.glob(f".{path.name}.*.part"):
            with suppress(OSError):
                left.unlink()

    def read(self) -> Sequence[KeptSession]:
        """The sessions that were written last; none of a damaged file.

        Raises:
            ConfigError: as the constructor.
        """
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self._refusal(f"cannot be read: {error.strerror}") from error
        with os.fdopen(file, "rb") as opened:
            self._check(os.fstat(opened.fileno()))
            content = opened.read(_MAX_BYTES + 1)
        try:
            return msgspec.json.decode(content, type=_Content).sessions
        except (msgspec.MsgspecError, RecursionError) as error:
            log.warning(
                "the file of sessions is damaged: everybody signs in again", path=str(self._path), reason=str(error)
            )
            return ()

    def write(self, rows: Sequence[KeptSession]) -> None:
        """Write them in place of what there was, at once and to the disk.

        Raises:
            OSError: it cannot be written.
        """
        content = msgspec.json.encode(_Content(1, [*rows]))
        part, temporary = tempfile.mkstemp(prefix=f".{self._path.name}.", suffix=".part", dir=self._path.parent)
        try:
            with os.fdopen(part, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def remove(self) -> None:
        """No session outlives the process.

        Raises:
            OSError: it cannot be removed.
        """
        with suppress(FileNotFoundError):
            self._path.unlink()

    def close(self) -> None:
        os.close(self._lock)

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_BYTES:
            raise self._refusal("is no file of sessions: remove it")
        if found.st_uid != os.geteuid():
            raise self._refusal(f"belongs to the user {found.st_uid}, and not to the page's: remove it")
        if found.st_mode & 0o077:
            raise self._refusal("may be read or written by others, who could have changed it: remove it")

    def _refusal(self, words: str) -> ConfigError:
        return ConfigError(f"dashboard.sessions: {self._path} {words}")


class SessionKeeper:
    """Writes in a thread, one write at a time: nobody waits long for a disk that hangs, and what waits for it is one
    state of things. The event loop's thread alone uses it."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._next: tuple[Sequence[KeptSession], bool, asyncio.Future[bool]] | None = None
        self._is_busy = False

    async def keep(self, rows: Sequence[KeptSession], *, ending: bool) -> bool:
        """Whether they are on the disk, or something newer is.

        Args:
            ending: sessions that were written before have ended. If that cannot be written, the file is removed.
        """
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._next is not None:
                _, was_ending, other = self._next
                ending = ending or was_ending
                done.add_done_callback(lambda newer: _settle(other, newer.result()))
            self._next = rows, ending, done
            is_busy, self._is_busy = self._is_busy, True
        if not is_busy:
            threading.Thread(target=self._write, args=(done.get_loop(),), name="sessions", daemon=True).start()
        try:
            return await asyncio.wait_for(asyncio.shield(done), _WRITE_S)
        except asyncio.TimeoutError:
            log.warning("sessions cannot be kept: the disk does not answer")
            return False

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            with self._lock:
                order, self._next = self._next, None
                if order is None:
                    self._is_busy = False
                    return
            rows, ending, done = order
            is_kept = self._try(rows, ending=ending)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_settle, done, is_kept)

    def _try(self, rows: Sequence[KeptSession], *, ending: bool) -> bool:
        try:
            self._file.write(rows)
        except OSError as error:
            log.warning("sessions cannot be kept: they end with the page", reason=error.strerror)
        else:
            return True
        if not ending:
            return False
        try:
            self._file.remove()
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._file.close()


def _settle(future: asyncio.Future[bool], is_kept: bool) -> None:
    if not future.done():
        future.set_result(is_kept)


def session_file_of(config: DashboardConfig) -> SessionFile | None:
    """Where sessions are kept; None if they end with the process, or if nobody signs in.

    Raises:
        ConfigError: see `SessionFile`.
    """
    if config.sessions == "off" or not config.tokens:
        return None
    if config.sessions != "auto":
        return SessionFile(Path(config.sessions))
    folder = state_folder()
    if folder and config.port:
        return SessionFile(folder / f"sessions-{config.port}.json")
    log.info("sessions end with the page's process: dashboard.sessions names a file that keeps them")
    return None
