"""A store as one thread reads it."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException

from daemon.recording.boxes import BoxError, read_head
from daemon.recording.index import IndexReader
from daemon.recording.locks import Locks
from daemon.recording.records import FileFacts
from daemon.recording.scan import Scanned, scan_open
from daemon.recording.store import NoFileError, Store, folder_name, open_file, store_error
from daemon.recording.tracks.track_records import tracks_path

_HEAD_BYTES: Final = 16 << 10
_BELOW_SOURCE = re.compile(r"\d{4}-\d\d-\d\d/[^/]+\.mp4", re.ASCII)


@dataclass(frozen=True)
class PlayPlace:
    """Where a store is."""

    name: str
    path: Path
    must_be_mount: bool = False


class OpenFile:
    """A recording that stays readable when it is deleted.

    Args:
        file: its descriptor, which this closes.

    Attributes:
        size: bytes, as of now.
        tag: another one if any byte has changed.

    Raises:
        BoxError: it is no recording, or not the one of these facts.
        OSError: it cannot be read.
    """

    def __init__(self, facts: FileFacts, file: int) -> None:
        self.facts, self._file = facts, file
        try:
            found = os.fstat(file)
            self.size = found.st_size
            self.tag = f'"{facts.id}-{found.st_size:x}-{found.st_mtime_ns:x}"'
            begun = read_head(os.pread(file, _HEAD_BYTES, 0))
            if (begun[0] if begun else scan_open(facts.path, file).head).id != facts.id:
                raise BoxError("it is another recording")
        except BaseException:
            os.close(file)
            raise

    def scan(self) -> Scanned:
        """Its head, its fragments and its tail, as of now.

        Raises:
            BoxError, OSError: it cannot be read.
        """
        return scan_open(self.facts.path, self._file)

    def read(self, offset: int, size: int) -> bytes:
        """
        Raises:
            OSError: it cannot be read.
            BoxError: it has become shorter.
        """
        if size < 0 or offset + size > os.fstat(self._file).st_size:  # what a damaged table says may be huge
            raise BoxError("it is shorter than it says")
        data = os.pread(self._file, size, offset)
        if len(data) < size:
            raise BoxError("it has become shorter")
        return data

    def close(self) -> None:
        """A second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class OpenedStore:
    """One thread uses it. Nothing is opened before it is used."""

    def __init__(self, place: PlayPlace) -> None:
        self._place = place
        self._store: Store | None = None
        self._index: IndexReader | None = None

    def refresh(self) -> None:
        """Let go of what is not there any more: the folder may have been mounted since."""
        if self._store is not None and not self._store.is_there():
            if self._index is not None:
                self._index.close()
            self._store.close()
            self._store = self._index = None

    @property
    def store(self) -> Store:
        """
        Raises:
            StoreError: it is not there.
        """
        if self._store is None:
            self._store = Store.open(self._place.path, must_be_mount=self._place.must_be_mount, makes=False)
        return self._store

    @property
    def index(self) -> IndexReader:
        """
        Raises:
            StoreError: it is not there.
        """
        if self._index is None:
            self._index = IndexReader(self.store)
        return self._index

    @property
    def locks(self) -> Locks:
        return Locks(self.store)

    def knows(self, source: str) -> bool:
        """Whether there is, or was, something of a source."""
        return self.index.newest(source) is not None or self.index.open_gap(source) is not None

    def open(self, facts: FileFacts) -> OpenFile:
        """
        Raises:
            HTTPException: 404: it was deleted.
            BoxError: it is no recording, or another one.
            StoreError: it cannot be read.
        """
        if not _is_path(facts):
            raise BoxError("its path is none of a recording")
        try:
            with self.store.opened(facts.path) as file:
                return OpenFile(facts, os.dup(file))
        except FileNotFoundError as error:
            raise HTTPException(404, "it was deleted") from error
        except NoFileError as error:
            raise BoxError(f"it is no recording: {error.strerror}") from error
        except OSError as error:
            raise store_error(facts.path, error) from error

    def tracks_of(self, files: Iterable[FileFacts]) -> Iterator[tuple[FileFacts, int]]:
        """The files of tracks beside recordings, each as a descriptor that is closed when the next one is wanted; those
        that have none are left out.

        Args:
            files: in their order, so that those of a day follow each other.

        Raises:
            StoreError: one cannot be opened.
        """
        for folder, rows in groupby(files, key=_folder_of):
            try:
                with self.store.folder(*folder.split("/")) as day:
                    for facts in rows:
                        if not _is_path(facts):
                            continue
                        name = tracks_path(facts.path).rpartition("/")[2]
                        with suppress(FileNotFoundError), _opened_at(day, name) as file:
                            yield facts, file
            except FileNotFoundError:
                continue
            except OSError as error:
                raise store_error(folder, error) from error

    def files(self, source: str, begin: int, end: int) -> list[FileFacts]:
        """See `IndexReader.files_with_open`."""
        return self.index.files_with_open(source, begin, end)


def _folder_of(facts: FileFacts) -> str:
    return facts.path.rpartition("/")[0]


def _is_path(facts: FileFacts) -> bool:
    """Whether its path is one of a recording."""
    folder, _, rest = facts.path.partition("/")
    return folder == folder_name(facts.source) and _BELOW_SOURCE.fullmatch(rest) is not None


@contextmanager
def _opened_at(folder: int, name: str) -> Iterator[int]:
    """
    Raises:
        FileNotFoundError: it is not there, or is no file.
    """
    try:
        file = open_file(name, os.O_RDONLY, folder)
    except NoFileError as error:
        raise FileNotFoundError from error
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link
            raise FileNotFoundError from error
        raise
    try:
        yield file
    finally:
        os.close(file)


def close_all(files: Iterable[OpenFile]) -> None:
    for file in files:
        with suppress(OSError):
            file.close()
