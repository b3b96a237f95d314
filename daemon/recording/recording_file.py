"""A file of a source while it is written: fragments are appended whole, and it can be played at any moment."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from daemon.clock import utc_text
from daemon.recording.boxes import BoxError, Buffer, claimed_at, tail_box
from daemon.recording.errors import StoreError
from daemon.recording.fragment_writer import FragmentWriter
from daemon.recording.init_segment import init_segment
from daemon.recording.records import FileFacts, FileHead, FileTail, FragmentRow, Sample
from daemon.recording.store import FILE_MODE, VIDEO, Store, folder_name, store_error, translated

_WRITE_OUT: Final = 2 << 20  # bytes after which the disk is asked to begin
_SYNC_NS: Final = 10_000_000_000
_MAX_PARTS: Final = 1024  # of one call of the system (IOV_MAX)
_SYNC_FILE_RANGE_WRITE: Final = 2  # sync_file_range(2)
_MAX_SAME: Final = 1000  # names that are tried
_UNSAFE = re.compile(r"[^0-9A-Za-z_]")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)
_start_write = getattr(_libc, "sync_file_range", None)
if _start_write is not None:
    _start_write.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]


class RecordingFile:
    """An open file. One thread uses it.

    A lock of the system on it says that it is being written: the process may end in any way.

    Attributes:
        path: within the store.
        head: what it says of itself.
        size: bytes that are whole fragments.
        fragments: in their order.
        trouble: why its end could not be written, or not be brought to the disk; None if it could.
    """

    def __init__(self, store: Store, head: FileHead, first: memoryview | bytes) -> None:
        self.head, self.size = head, 0
        self.fragments: list[FragmentRow] = []
        self.trouble: StoreError | None = None
        self._writer = FragmentWriter(head, init_segment(head.stream, first))
        self._reason: str | None = None
        self._end = head.begin
        self._written_out = self._dropped = 0  # bytes that the disk was asked to write; that may leave the memory
        self._synced_boot = head.begin_boot
        self._is_ragged = False  # something may lie behind the last fragment
        self.path, self._file = _created(store, head)
        self._store = store

    @staticmethod
    def create(store: Store, head: FileHead, first: memoryview | bytes) -> RecordingFile:
        """A new file; its head is written with its first fragment.

        Args:
            first: the first packet that comes into it.

        Raises:
            StoreFullError: there is no room.
            StoreError: it cannot be made, or the stream cannot be recorded (cause `codec`).
        """
        return RecordingFile(store, head, first)

    @property
    def facts(self) -> FileFacts:
        """As the index has them."""
        return facts_of(self.path, self.head, self.fragments, self._writer.chain, self.size, (self._reason, self._end))

    def append(
        self, samples: Sequence[Sample], *, number: int, begin: int, begin_boot: int, end: int, claimed: bool
    ) -> FragmentRow:
        """Append a fragment, whole or not at all.

        Args:
            samples: at least one, in the order of decoding.
            number: of the first packet in its ring.
            begin, end: UTC ns.
            begin_boot: ns; also the clock of what is brought to the disk every ten seconds.
            claimed: an event wants it.

        Raises:
            StoreFullError: there is no room; it may be tried again.
            StoreError: it cannot be written.
        """
        if begin_boot - self._synced_boot >= _SYNC_NS:
            self.sync()
            self._synced_boot = begin_boot
        try:
            written = self._writer.make(
                samples, number=number, begin=begin, begin_boot=begin_boot, end=end, claimed=claimed
            )
        except BoxError as error:
            raise StoreError(f"{self.path}: {error}", "codec") from error
        parts = written.parts if self.size else [self._writer.beginning, *written.parts]
        offset = self.size or len(self._writer.beginning)
        self._write(parts)
        self._writer.accept(written)
        self.size = offset + written.box.size
        row = written.box.row(offset)
        self.fragments.append(row)
        self._write_out()
        return row

    def claim(self, begin: int, end: int) -> bool:
        """An event wants what lies between two times, UTC ns: mark it in the file.

        Returns:
            Whether something was marked that was not.

        Raises:
            StoreError: it cannot be written.
        """
        found = False
        for number, row in enumerate(self.fragments):
            if not row.claimed and row.begin < end and row.end > begin:
                with translated(self.path):
                    os.pwrite(self._file, b"\1", claimed_at(row.offset))
                self.fragments[number] = row._replace(claimed=True)
                found = True
        return found

    def sync(self) -> None:
        """Bring all to the disk.

        Raises:
            StoreError: the disk refused.
        """
        with translated(self.path):
            os.fdatasync(self._file)
        self._forget(self.size)

    def close(self, reason: str, end: int) -> FileFacts:
        """Write the tail, and bring all to the disk. A file without a fragment is removed: its facts have no fragment.

        Where the tail cannot be written the file stays without: it ends with its last fragment, and `trouble` says why.

        Args:
            end: UTC ns, of the span.
        """
        if self._file < 0:
            return self.facts
        try:
            if self.fragments:
                self._finish(reason, end)
            else:
                with self._store.folder(*self.path.split("/")[:-1]) as folder:
                    os.unlink(self.path.rpartition("/")[2], dir_fd=folder)
        except (OSError, StoreError) as error:
            self.trouble = error if isinstance(error, StoreError) else store_error(self.path, error)
        finally:
            self.detach()
        return self.facts

    def detach(self) -> None:
        """Let go of the file as it is: `scan.recover` finishes it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _finish(self, reason: str, end: int) -> None:
        tail = tail_box(tail_of(self.fragments, self._writer.chain, reason, end))
        self._write([tail])
        self.size += len(tail)
        self._reason, self._end = reason, end
        self.sync()
        with self._store.folder(*self.path.split("/")[:-1]) as folder:
            os.fsync(folder)

    def _write(self, parts: list[Buffer]) -> None:
        """All of it at the end of the file, or nothing.

        Raises:
            StoreError: nothing.
        """
        try:
            if self._is_ragged:
                self._cut()
            self._is_ragged = True
            at = self.size
            for first in range(0, len(parts), _MAX_PARTS):
                at = _write_all(self._file, parts[first : first + _MAX_PARTS], at)
            self._is_ragged = False
        except OSError as error:
            with suppress(OSError):
                self._cut()
            raise store_error(self.path, error) from error

    def _cut(self) -> None:
        os.ftruncate(self._file, self.size)
        self._is_ragged = False

    def _write_out(self) -> None:
        """Have the disk begin with what has gathered, and let go of what it has had time to write."""
        if self.size - self._written_out < _WRITE_OUT:
            return
        if _start_write is not None:
            _start_write(self._file, self._written_out, self.size - self._written_out, _SYNC_FILE_RANGE_WRITE)
        self._forget(self._written_out)
        self._written_out = self.size

    def _forget(self, until: int) -> None:
        with suppress(OSError):  # advice
            os.posix_fadvise(self._file, self._dropped, until - self._dropped, os.POSIX_FADV_DONTNEED)
        self._dropped = until


def facts_of(
    path: str,
    head: FileHead,
    fragments: Sequence[FragmentRow],
    chain: bytes,
    size: int,
    ending: tuple[str | None, int],
) -> FileFacts:
    """The facts of a file.

    Args:
        chain: of the last fragment.
        ending: reason and end of its tail; without a reason it ends with its last fragment.
    """
    reason, end = ending
    if reason is None:
        end = fragments[-1].end if fragments else head.begin
    return FileFacts(
        id=head.id,
        path=path,
        source=head.source,
        session=head.session,
        begin=head.begin,
        end=end,
        begin_boot=head.begin_boot,
        boot_id=head.boot_id,
        first_pts=head.first_pts,
        last_pts=max((row.pts + row.duration for row in fragments), default=head.first_pts),
        size=size,
        fragments=len(fragments),
        packets=sum(row.packets for row in fragments),
        codec=head.stream.codec,
        width=head.stream.width,
        height=head.stream.height,
        claimed=any(row.claimed for row in fragments),
        reason=reason,
        chain=chain.hex(),
        previous=head.previous,
        since=head.since,
        covered_until=head.covered_until,
    )


def tail_of(fragments: Sequence[FragmentRow], chain: bytes, reason: str, end: int) -> FileTail:
    packets = sum(row.packets for row in fragments)
    return FileTail(end=end, reason=reason, packets=packets, chain=chain.hex(), fragments=list(fragments))


def _created(store: Store, head: FileHead) -> tuple[str, int]:
    """A new file of a name that no other has, locked."""
    day, time = utc_text(head.begin)[:19].split("T")
    source, rest = folder_name(head.source), head.begin % 1_000_000_000 // 1_000_000
    begun = f"{time.replace(':', '')}.{rest:03d}Z-{_UNSAFE.sub('', head.session)[:32]}"
    with translated(f"{store.path}/{source}/{day}"), store.folder(source, day, makes=True) as folder:
        for number in range(_MAX_SAME):
            name = f"{begun}-{number}{VIDEO}"
            try:
                file = os.open(name, _NEW, FILE_MODE, dir_fd=folder)
            except FileExistsError:
                continue
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                return f"{source}/{day}/{name}", file
            os.close(file)  # taken for an empty one that was left behind
    raise StoreError(f"{store.path}/{source}/{day}: has {_MAX_SAME} files that begin at the same time")


def _write_all(file: int, parts: list[Buffer], at: int) -> int:
    """Returns the offset behind it.

    Raises:
        OSError: some of it may be there.
    """
    left = sum(map(len, parts))
    while left:
        done = os.pwritev(file, parts, at)
        at, left = at + done, left - done
        if left:  # the disk is full, or a signal came
            parts = _rest(parts, done)
    return at


def _rest(parts: list[Buffer], done: int) -> list[Buffer]:
    for number, part in enumerate(parts):
        if done < len(part):
            return [memoryview(part)[done:], *parts[number + 1 :]]
        done -= len(part)
    return []
