"""A store: a folder that is marked as one. Paths are opened below it, and links are not followed."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
import uuid as uuids
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from daemon.clock import Clock, SystemClock, utc_text
from daemon.recording.causes import Cause
from daemon.recording.errors import StoreAwayError, StoreError, StoreFullError

MARKER: Final = "lookout-store.json"
LOCKS: Final = "locks"
VIDEO: Final = ".mp4"
TRACKS: Final = ".trk"  # beside a file, of the same name
CLAIMS: Final = "events.jsonl"  # in the folder of a day
_VERSION = 1
_OURS = {MARKER, "lost+found"}  # of a fresh file system
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_MODE, FILE_MODE = 0o750, 0o640
_MAX_MARKER = 4096
_MAX_NAME = 120  # bytes, of a source's folder
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/%\\]|^\.")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_FULL = (errno.ENOSPC, errno.EDQUOT)


class NoFileError(OSError):
    """A pipe, a socket or a device lies in the place of a file."""


class Marker(msgspec.Struct, frozen=True):
    """The file that makes a folder a store."""

    uuid: str
    made_at: str
    version: int = _VERSION


class Store:
    """An open store.

    Args:
        folder: its file descriptor, which the store closes.

    Attributes:
        path: where it was opened.
        uuid: of its marker.
        is_new: it was made now.
    """

    def __init__(self, path: Path, folder: int, marker: Marker, *, is_new: bool = False) -> None:
        self.path, self.uuid, self.is_new = path, marker.uuid, is_new
        self._folder = folder
        self._claim: int | None = None
        self._stat = os.stat(MARKER, dir_fd=folder, follow_symlinks=False)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        must_be_mount: bool = False,
        uuid: str | None = None,
        makes: bool = True,
        clock: Clock | None = None,
    ) -> Store:
        """Open a store. A folder that is empty, or is not there, becomes one, unless a mount is asked for.

        Args:
            uuid: that it must have.
            makes: an empty folder may become one.

        Raises:
            StoreAwayError: it is not the store; nothing was written.
            StoreError: it cannot be used.
        """
        with translated(path):
            if must_be_mount and not os.path.ismount(path):
                raise StoreAwayError(f"{path}: nothing is mounted there, and must_be_mount is set: mount it")
            if makes and not must_be_mount and uuid is None and is_unused(path):
                return cls.init(path, clock=clock)
            try:
                folder = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise StoreAwayError(f"{path}: {error.strerror}") from error
            try:
                marker = _read_marker(path, folder)
                if uuid is not None and marker.uuid != uuid:
                    raise StoreAwayError(f"{path}: is another store, {marker.uuid}, and not {uuid}")
                return cls(path, folder, marker)
            except BaseException:
                os.close(folder)
                raise

    @classmethod
    def init(cls, path: Path, *, clock: Clock | None = None) -> Store:
        """Make a folder a store.

        Raises:
            StoreError: it is one already, has something else in it, or cannot be written.
        """
        with translated(path):
            path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            others = sorted(set(os.listdir(path)) - _OURS)
            if others:
                raise StoreError(f"{path}: is no empty folder: it has {others[0]}; name another, or empty it")
            folder = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
            try:
                marker = Marker(str(uuids.uuid4()), utc_text((clock or SystemClock()).utc_ns()))
                write_whole(folder, MARKER, msgspec.json.encode(marker) + b"\n", replaces=False)
                return cls(path, folder, marker, is_new=True)
            except FileExistsError as error:
                os.close(folder)
                raise StoreError(f"{path}: is a store already") from error
            except BaseException:
                os.close(folder)
                raise

    def claim(self) -> None:
        """Become the only writer of the index, until this is closed or the process ends.

        Raises:
            StoreError: another process is.
        """
        with translated(self.path):
            claim = open_file(MARKER, os.O_RDWR, self._folder)
            try:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(claim)
                raise StoreError(f"{self.path}: another process records into it") from error
            except OSError:  # a file system without locks
                os.close(claim)
                return
        self._claim = claim

    def is_there(self) -> bool:
        """Whether its path still leads to it: nothing was unmounted, or mounted over it."""
        with suppress(OSError):
            return os.path.samestat(os.stat(self.path / MARKER, follow_symlinks=False), self._stat)
        return False

    def check(self) -> None:
        """Raises:
        StoreAwayError: its path leads elsewhere.
        """
        if not self.is_there():
            raise StoreAwayError(f"{self.path}: the store is not there any more: is it mounted?")

    @property
    def free_bytes(self) -> int:
        """Of the disk, for us."""
        with translated(self.path):
            found = os.fstatvfs(self._folder)
            return found.f_bavail * found.f_frsize

    @contextmanager
    def folder(self, *names: str, makes: bool = False) -> Iterator[int]:
        """A folder below it, as a file descriptor.

        Raises:
            OSError: it is not there, or something else is.
        """
        held = os.dup(self._folder)
        try:
            for name in names:
                found = _entered(held, name, makes=makes)
                os.close(held)
                held = found
            yield held
        finally:
            os.close(held)

    @contextmanager
    def opened(self, path: str, flags: int = os.O_RDONLY) -> Iterator[int]:
        """A file below it, as a file descriptor.

        Raises:
            OSError: it is not there, or something else is.
        """
        *folders, name = path.split("/")
        with self.folder(*folders) as folder:
            file = open_file(name, flags, folder)
        try:
            yield file
        finally:
            os.close(file)

    def days(self) -> Iterator[str]:
        """Paths of the folders of all sources and days, in their order by name."""
        for source in self._names(lambda name: name != LOCKS):
            yield from (f"{source}/{day}" for day in self._names(lambda name: _DAY.fullmatch(name) is not None, source))

    def files(self) -> Iterator[str]:
        """Paths of all recordings, within the store; those of a source in their order by name."""
        for path in self.days():
            with suppress(FileNotFoundError), self.folder(*path.split("/")) as folder:
                yield from (f"{path}/{name}" for name in sorted(os.listdir(folder)) if name.endswith(VIDEO))

    def newest_file(self, source: str) -> str | None:
        """The last recording of a source by name, within the store; None if it has none."""
        folder_of = folder_name(source)
        for day in reversed(self._names(lambda name: _DAY.fullmatch(name) is not None, folder_of)):
            with suppress(FileNotFoundError), self.folder(folder_of, day) as folder:
                names = [name for name in os.listdir(folder) if name.endswith(VIDEO)]
                if names:
                    return f"{folder_of}/{day}/{max(names)}"
        return None

    def close(self) -> None:
        """A second call does nothing."""
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _names(self, chosen: Callable[[str], bool], *folders: str) -> list[str]:
        with suppress(FileNotFoundError), self.folder(*folders) as folder, os.scandir(folder) as found:
            return sorted(row.name for row in found if row.is_dir(follow_symlinks=False) and chosen(row.name))
        return []


def folder_name(source: str) -> str:
    """The folder of a source: its id, but for what a path cannot have."""
    name = _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", source)
    if name in (LOCKS, "lost+found"):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name.encode(errors="surrogatepass")) <= _MAX_NAME:
        return name
    digest = hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{name.encode(errors='ignore')[: _MAX_NAME - 20].decode(errors='ignore')}%{digest}"


@contextmanager
def translated(place: object) -> Iterator[None]:
    """Errors of the system become those of stores."""
    try:
        yield
    except OSError as error:
        raise store_error(place, error) from error


def store_error(place: object, error: OSError, cause: Cause = "disk_error") -> StoreError:
    words = f"{place}: {error.strerror or error}"
    if error.errno in _FULL:
        return StoreFullError(words)
    return StoreAwayError(words) if error.errno == errno.ESTALE else StoreError(words, cause)


def open_file(name: str, flags: int, folder: int) -> int:
    """Open a file; nobody waits for the other end of a pipe, or sets off a device, that lies in its place.

    Args:
        folder: a file descriptor.

    Raises:
        NoFileError: it is something else.
        OSError: it is not there.
    """
    try:
        file = os.open(name, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE, dir_fd=folder)
        if stat.S_ISREG(os.fstat(file).st_mode):
            return file
        os.close(file)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.ENODEV):  # a socket, or a pipe that nobody reads
            raise
    raise NoFileError(errno.EINVAL, f"{name} is no regular file")


def write_whole(folder: int, name: str, content: bytes, *, replaces: bool = True, begun: str | None = None) -> None:
    """Write a small file at once: it is there whole, or not at all.

    Args:
        begun: its name meanwhile, which a kill leaves; None for one of this process.

    Raises:
        OSError: it cannot be written.
    """
    begun = begun or f".{name}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(begun, flags, FILE_MODE, dir_fd=folder)
    try:
        try:
            give(file, folder)
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
        finally:
            os.close(file)
        if not replaces and name in os.listdir(folder):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        os.replace(begun, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(begun, dir_fd=folder)
        raise
    os.fsync(folder)


def _entered(folder: int, name: str, *, makes: bool) -> int:
    if makes:
        with suppress(FileExistsError):
            os.mkdir(name, _FOLDER_MODE, dir_fd=folder)
            made = os.open(name, _FOLDER, dir_fd=folder)
            give(made, folder)
            return made
    return os.open(name, _FOLDER, dir_fd=folder)


def give(file: int, folder: int) -> None:
    """A file that an administrator makes belongs to the user of its folder, which the recorder runs as."""
    if os.geteuid() == 0:
        owner = os.fstat(folder)
        with suppress(OSError):  # a share that knows no owners
            os.fchown(file, owner.st_uid, owner.st_gid)


def is_unused(path: Path) -> bool:
    """Whether a folder is not there, or has nothing in it: it may become a store."""
    try:
        return not set(os.listdir(path)) - _OURS and not (path / MARKER).exists()
    except FileNotFoundError:
        return True


def _read_marker(path: Path, folder: int) -> Marker:
    hint = f"make it one by `lookout recordings init {path}`"
    try:
        file = open_file(MARKER, os.O_RDONLY, folder)
    except FileNotFoundError as error:
        raise StoreAwayError(f"{path}: has no {MARKER}: it is not mounted, or no store yet: {hint}") from error
    try:
        marker = msgspec.json.decode(os.read(file, _MAX_MARKER), type=Marker)
    except msgspec.MsgspecError as error:
        raise StoreAwayError(f"{path / MARKER}: is no marker of a store: {error}") from error
    finally:
        os.close(file)
    if marker.version != _VERSION:
        raise StoreError(f"{path}: is a store of version {marker.version}; this Lookout knows {_VERSION}")
    return marker
