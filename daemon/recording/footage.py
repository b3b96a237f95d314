"""Pieces of recordings as FFmpeg reads them: the beginning of a file, and then only the fragments that are wanted."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from daemon.recording.boxes import BoxError
from daemon.recording.errors import StoreError
from daemon.recording.index import IndexReader
from daemon.recording.records import FileHead, FragmentRow
from daemon.recording.scan import Scanned, scan_open
from daemon.recording.store import Store, store_error


class Footage:
    """Fragments of one file, open.

    Attributes:
        head: of the file.
        rows: the fragments, in their order; the first begins with a key picture, if there is one.
    """

    def __init__(self, file: int, found: Scanned, rows: Sequence[FragmentRow]) -> None:
        self._file, self._beginning = os.dup(file), found.beginning
        self.head: FileHead = found.head
        self.path = found.facts.path
        self.rows = tuple(rows)

    def reader(self) -> Any:
        """A file for FFmpeg."""
        return io.BufferedReader(_Ranges(self._file, self._beginning, self.rows), 256 << 10)

    def moov(self) -> bytes:
        """The description of the pictures, to be compared with that of other files."""
        data = os.pread(self._file, self._beginning, 0)
        return data[data.find(b"moov") :]

    def utc(self, pts: int) -> int:
        """UTC ns of a picture, by the fragment that it is in.

        Args:
            pts: ns on the timeline of the session.
        """
        row = next((row for row in self.rows if pts < row.pts + row.duration), self.rows[-1])
        return row.begin + pts - row.pts

    def close(self) -> None:
        """A second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class _Ranges(io.RawIOBase):
    """The wanted bytes of a file, one after the other."""

    def __init__(self, file: int, beginning: int, rows: Sequence[FragmentRow]) -> None:
        super().__init__()
        self._file, self._at = file, 0
        self._ranges = [(0, 0, beginning)]  # offset here, offset in the file, bytes
        for row in rows:
            here, _, size = self._ranges[-1]
            self._ranges.append((here + size, row.offset, row.size))
        self._size = self._ranges[-1][0] + self._ranges[-1][2]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        for here, there, size in self._ranges:
            if here <= self._at < here + size:
                within = self._at - here
                data = os.pread(self._file, min(len(buffer), size - within), there + within)
                buffer[: len(data)] = data
                self._at += len(data)
                return len(data)
        return 0


def footage(store: Store, index: IndexReader, source: str, begin: int, end: int) -> Iterator[Footage]:
    """Recordings of a time, file by file, from the key picture before it; the caller closes each.

    Args:
        begin, end: UTC ns.

    Raises:
        StoreError: a file cannot be read.
    """
    for facts in index.files(source, begin, end):
        with ExitStack() as stack:
            try:
                file = stack.enter_context(store.opened(facts.path))
                found = scan_open(facts.path, file)
            except FileNotFoundError:
                continue  # deleted meanwhile
            except OSError as error:
                raise store_error(facts.path, error) from error
            except BoxError as error:
                raise StoreError(f"{facts.path}: {error}") from error
            rows = wanted(found.fragments, begin, end)
            if rows:
                yield Footage(file, found, rows)


def wanted(fragments: Sequence[FragmentRow], begin: int, end: int) -> Sequence[FragmentRow]:
    """Fragments that a player needs to show a time, UTC ns."""
    chosen = [number for number, row in enumerate(fragments) if row.begin < end and row.end > begin]
    if not chosen:
        return ()
    first = chosen[0]
    with suppress(ValueError):
        first = max(number for number in range(first + 1) if fragments[number].key)
    return fragments[first : chosen[-1] + 1]
