"""Facts of a file, also of one that was not finished; and the repair of such a one."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from daemon.recording.boxes import (
    FRAGMENT_BYTES,
    BoxError,
    FragmentBox,
    chain_of,
    claimed_at,
    read_fragment,
    read_head,
    read_tail,
    tail_box,
    tail_claims_at,
    tail_size,
)
from daemon.recording.errors import StoreError
from daemon.recording.recording_file import facts_of, tail_of
from daemon.recording.records import FileFacts, FileHead, FileTail, FragmentRow
from daemon.recording.store import NoFileError, Store, translated

_HEAD_BYTES: Final = 4096  # read at first
_MAX_HEAD: Final = 16 << 20
_TAIL_BYTES: Final = 8192
_CHUNK: Final = 1 << 20


class Scanned(NamedTuple):
    """A file as it is on disk.

    Attributes:
        beginning: bytes before the first fragment: `ftyp`, the head, `moov`.
        fragments: those that are whole.
        end: offset behind the last of them.
        tail: None if the file was not finished.
        ragged: bytes that are neither.
    """

    facts: FileFacts
    head: FileHead
    beginning: int
    fragments: list[FragmentRow]
    end: int
    tail: FileTail | None
    ragged: int


def scan(store: Store, path: str) -> Scanned:
    """Read what a file says; of a finished one head and tail alone.

    Args:
        path: within the store.

    Raises:
        BoxError: it is no recording.
        FileNotFoundError: it is not there.
        StoreError: it cannot be read.
    """
    try:
        with store.opened(path) as file:
            return scan_open(path, file)
    except FileNotFoundError:
        raise
    except NoFileError as error:
        raise BoxError(f"it is no recording: {error.strerror}") from error
    except OSError as error:
        with translated(path):
            raise error from None
        raise


def scan_open(path: str, file: int) -> Scanned:
    """`scan` of an open file.

    Raises:
        BoxError: it is no recording.
        OSError: it cannot be read.
    """
    size = os.fstat(file).st_size
    head, beginning = _head_of(file, size)
    tail, tail_at = _tail_of(file, size)
    ending: tuple[str | None, int] = None, 0
    if tail is not None:
        rows, end, chain = tail.fragments, tail_at, bytes.fromhex(tail.chain)
        ending, whole = (tail.reason, tail.end), size
    else:
        boxes = list(fragments_of(file, beginning, size))
        rows = [box.row(offset) for offset, box in boxes]
        chain = boxes[-1][1].chain if boxes else chain_of_beginning(file, beginning)
        end = rows[-1].offset + rows[-1].size if rows else beginning
        whole = end
    facts = facts_of(path, head, rows, chain, whole, ending)
    return Scanned(facts, head, beginning, rows, end, tail, size - whole)


def fragments_of(file: int, offset: int, size: int) -> Iterator[tuple[int, FragmentBox]]:
    """Whole fragments from an offset on; bytes that are none end them."""
    while offset + FRAGMENT_BYTES <= size:
        box = read_fragment(os.pread(file, FRAGMENT_BYTES, offset))
        if box is None or offset + box.size > size:
            return
        yield offset, box
        offset += box.size


def chunks(file: int, offset: int, size: int) -> Iterator[bytes]:
    """Bytes of a file."""
    while size > 0:
        data = os.pread(file, min(size, _CHUNK), offset)
        if not data:
            return
        yield data
        offset, size = offset + len(data), size - len(data)


def chain_of_beginning(file: int, beginning: int) -> bytes:
    """The chain before the first fragment."""
    return hashlib.sha256(b"".join(chunks(file, 0, beginning))).digest()


def is_sound(file: int, offset: int, box: FragmentBox) -> bool:
    """Whether a fragment is as it was written."""
    found = os.pread(file, FRAGMENT_BYTES, offset)
    return chain_of(found, chunks(file, offset + FRAGMENT_BYTES, box.media_bytes)) == box.chain


def recover(store: Store, path: str, reason: str = "killed") -> Scanned | None:
    """Give a file that was not finished its tail, after its last sound fragment; one with a tail stays as it is.

    A power cut may leave fragments at the end that were never on the disk.

    Returns:
        The file; None if it is being written.

    Raises:
        BoxError: it is no recording.
        FileNotFoundError: it is not there.
        StoreError: it cannot be read or written.
    """
    found = scan(store, path)
    if found.tail is not None:
        return found
    with translated(path), store.opened(path, os.O_RDWR) as file:
        if not is_left(file):
            return None
        found = scan_open(path, file)
        if found.tail is not None:
            return found
        rows, boxes = list(found.fragments), list(fragments_of(file, found.beginning, found.end))
        while boxes and not is_sound(file, *boxes[-1]):
            rows.pop()
            boxes.pop()
        chain = boxes[-1][1].chain if boxes else chain_of_beginning(file, found.beginning)
        end = rows[-1].offset + rows[-1].size if rows else found.beginning
        os.ftruncate(file, end)
        tail = tail_box(tail_of(rows, chain, reason, rows[-1].end if rows else found.head.begin))
        if os.pwrite(file, tail, end) < len(tail):
            os.ftruncate(file, end)
            raise StoreError(f"{path}: there is no room for its end", "disk_full")
        os.fdatasync(file)
        return scan_open(path, file)


def discard_begun(store: Store, path: str) -> bool:
    """Remove a file of which a recorder that was killed had not even written the head; nothing of another one.

    Raises:
        StoreError: it cannot be removed.
    """
    *folders, name = path.split("/")
    with translated(path):
        try:
            with store.opened(path) as file:
                size = os.fstat(file).st_size
                if size > _MAX_HEAD or not is_left(file) or not _is_cut_head(os.pread(file, size, 0)):
                    return False
                with store.folder(*folders) as folder:
                    os.unlink(name, dir_fd=folder)
        except (FileNotFoundError, NoFileError):
            return False
    return True


def _is_cut_head(data: bytes) -> bool:
    """Whether these bytes are the beginning of a head, and not all of it."""
    try:
        return read_head(data) is None
    except BoxError:
        return False


def claim(store: Store, path: str, begin: int, end: int) -> Scanned:
    """An event wants what lies between two times, UTC ns, of a file that is written no more: mark it there.

    Returns:
        The file as it is now.

    Raises:
        BoxError: it is no recording.
        FileNotFoundError: it is not there.
        StoreError: it cannot be written.
    """
    found = scan(store, path)
    wanted = [number for number, row in enumerate(found.fragments)
              if not row.claimed and row.begin < end and row.end > begin]  # fmt: skip
    if not wanted:
        return found
    with translated(path), store.opened(path, os.O_RDWR) as file:
        for number in wanted:
            at = claimed_at(found.fragments[number].offset)
            os.pwrite(file, b"\1", tail_claims_at(found.end) + number if found.tail else at)
        os.fdatasync(file)
        return scan_open(path, file)


def is_left(file: int) -> bool:
    """Whether no recorder writes into a file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _head_of(file: int, size: int) -> tuple[FileHead, int]:
    wanted = _HEAD_BYTES
    while True:
        found = read_head(os.pread(file, wanted, 0))
        if found is not None:
            return found
        if wanted >= min(size, _MAX_HEAD):
            raise BoxError("it is no recording: it ends within its head")
        wanted *= 4


def _tail_of(file: int, size: int) -> tuple[FileTail | None, int]:
    """The tail and its offset."""
    wanted = min(size, _TAIL_BYTES)
    found = os.pread(file, wanted, size - wanted)
    length = tail_size(found) if len(found) == wanted and wanted > 4 else None
    if length is None or length > size:
        return None, size
    if length > wanted:
        found = os.pread(file, length, size - length)
    return read_tail(memoryview(found)[-length:]), size - length
