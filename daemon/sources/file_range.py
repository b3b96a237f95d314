"""A part of a file as a file of its own."""

from __future__ import annotations

import io
import os
from pathlib import Path


class FileRange(io.RawIOBase):
    """Reads a file from one byte to another, behind a header.

    Args:
        begin, end: bytes; an `end` of None is the file's own.
        head: bytes that come before them.

    Raises:
        OSError: the file cannot be read.
    """

    def __init__(self, path: Path, begin: int, end: int | None = None, head: bytes = b"") -> None:
        self._file = path.open("rb", buffering=0)
        self._begin, self._head, self._at = begin, head, 0
        size = os.fstat(self._file.fileno()).st_size
        self._size = len(head) + max(0, min(size, size if end is None else end) - begin)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        left = self._size - self._at
        wanted = left if size < 0 else min(size, left)
        data = self._head[self._at : self._at + wanted]
        if not data and wanted > 0:
            self._file.seek(self._begin + self._at - len(self._head))
            data = self._file.read(wanted)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self._file.close()
        super().close()
