"""The file of tracks beside a recording, of the same name.

It begins with eight bytes that say what it is. Then come records: a length, a CRC-32 that goes on from the record
before, a byte for the kind, and what it holds. So a file that was cut is whole up to its last whole record, and a byte
that was changed is found.

    1  head (JSON), the first
    2  a model and its labels, before the first block that has them
    3  a block of frames
    4  a source has another state
    5  the end, with the activity of the whole file: no more is expected; where more comes after all, it follows, and
       another end
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import groupby
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import structlog

from daemon.errors import LookoutError
from daemon.pipeline.outbox import Served
from daemon.recording.scan import is_left
from daemon.recording.store import TRACKS, VIDEO, NoFileError, Store, open_file, store_error
from daemon.recording.tracks.activity import END, Activity, ActivityCount, packed
from daemon.recording.tracks.codec import BlockError, StoredFrame, decode, encode
from daemon.recording.tracks.records import Labels, SeenFrame, StateChange, TracksHead

if TYPE_CHECKING:
    from daemon.recording.records import FileFacts

log = structlog.get_logger(__name__)
MAGIC: Final = b"lookTRK\1"
_HEAD, _SERVED, _BLOCK, _STATE = range(1, 5)
_RECORD = Struct("<IIB")  # bytes of what it holds; CRC; kind
_MAX_RECORD: Final = 64 << 20
_NEW = os.O_RDWR | os.O_CREAT
_encode_head = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(TracksHead).decode
_encode = msgspec.msgpack.Encoder().encode
_decode_served = msgspec.msgpack.Decoder(tuple[int, Served]).decode
_decode_state = msgspec.msgpack.Decoder(StateChange).decode
Stored = StoredFrame | StateChange


class TracksError(ValueError):
    """A file of tracks is not as it was written; the message says how."""


class TracksBusyError(LookoutError):
    """Somebody else has a file of tracks, for a moment."""


class _Record(NamedTuple):
    kind: int
    data: bytes
    crc: int
    end: int  # offset


class _Written(NamedTuple):
    """The content of a file.

    Attributes:
        size, crc: up to the last whole record.
        numbers: of models that it has.
        last: index of the last frame, by account.
        activity: of its frames.
        is_ended: nothing follows its end.
    """

    size: int
    crc: int
    numbers: set[int]
    last: dict[str, int]
    activity: ActivityCount
    is_ended: bool


class TrackFile:
    """A file that is being written. One thread uses it.

    A lock of the system on it says so, for the process may end in any way.

    Attributes:
        last: index of the last frame, by account of the frame.
    """

    def __init__(self, path: str, file: int, head: TracksHead) -> None:
        self.path, self._file = path, file
        found = _written(file)
        self._head = b"" if found else MAGIC + _record(_HEAD, _encode_head(head), 0)[0]
        self._size, self._crc, self._numbers, self.last, self._activity, self._is_ended = found or _Written(
            0, _crc(_HEAD, _encode_head(head), 0), set(), {}, ActivityCount(), False
        )

    @staticmethod
    def open(store: Store, video: str, head: TracksHead) -> TrackFile | None:
        """The file beside a recording, new or as it was left.

        Args:
            video: path within the store.

        Returns:
            None if the recording is not there any more, or its tracks were damaged.

        Raises:
            TracksBusyError: somebody looks whether it is being written.
            StoreError: it cannot be made.
        """
        path = tracks_path(video)
        *folders, name = path.split("/")
        try:
            with store.folder(*folders) as folder:
                os.stat(video.rpartition("/")[2], dir_fd=folder, follow_symlinks=False)
                file = open_file(name, _NEW, folder)
        except FileNotFoundError:
            return None
        except NoFileError as error:
            log.warning("there is no place for the tracks of a recording", path=path, reason=error.strerror)
            return None
        except OSError as error:
            raise store_error(path, error) from error
        try:
            if not is_left(file):
                raise TracksBusyError(f"{path}: is locked")
            return TrackFile(path, file, head)
        except TracksError as error:
            os.close(file)
            log.warning("the tracks of a recording are damaged: no more are added", path=path, reason=str(error))
            return None
        except BaseException:
            os.close(file)
            raise

    def append(self, items: Sequence[Stored], labels: Labels) -> None:
        """Append frames and changes of the state, all or nothing.

        Raises:
            StoreFullError: there is no room; it may be tried again.
            StoreError: it cannot be written.
        """
        records: list[tuple[int, bytes]] = []
        told: set[int] = set()
        for context, run in groupby(items, key=lambda item: item.context if isinstance(item, StoredFrame) else None):
            rows = [*run]
            if context is None:
                records += [(_STATE, _encode(row)) for row in rows]
                continue
            frames = [row for row in rows if isinstance(row, StoredFrame)]
            served = frames[0].served
            if served not in self._numbers | told:
                told.add(served)
                records.append((_SERVED, _encode((served, labels[served]))))
            records.append((_BLOCK, encode(frames)))
        self._write(records)
        self._is_ended = False
        self._numbers |= told
        for row in items:
            if isinstance(row, StoredFrame):
                self.last[row.info.account] = row.number
                self._activity.add(row.info.captured_at, row.objects)

    @property
    def activity(self) -> Activity:
        """Of all its frames."""
        return self._activity.found

    def finish(self) -> None:
        """Nothing more is expected: say so, and bring it to the disk.

        Raises:
            StoreError: it cannot be written.
        """
        if self._size and not self._is_ended:
            self._write([(END, packed(self.activity))])
            self._is_ended = True
            try:
                os.fdatasync(self._file)
            except OSError as error:
                raise store_error(self.path, error) from error

    def close(self) -> None:
        """Let go of it as it is. A second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, records: Sequence[tuple[int, bytes]]) -> None:
        parts, crc = [b"" if self._size else self._head], self._crc
        for kind, data in records:
            part, crc = _record(kind, data, crc)
            parts.append(part)
        rest, at = memoryview(b"".join(parts)), self._size
        try:
            if os.fstat(self._file).st_size != at:  # of a process that was killed
                os.ftruncate(self._file, at)
            while rest:
                done = os.pwrite(self._file, rest, at)
                rest, at = rest[done:], at + done
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise store_error(self.path, error) from error
        self._size, self._crc = at, crc


def tracks_path(video: str) -> str:
    return video.removesuffix(VIDEO) + TRACKS


def read_tracks(store: Store, facts: FileFacts) -> Iterator[SeenFrame | StateChange]:
    """The analysed pictures of a recording, and the states of its source, in their order; also while it is written.

    With several models the frames of each are in order.

    Raises:
        FileNotFoundError: the recording has no tracks.
        TracksError: what follows was changed, or the file is none.
        OSError: it cannot be read.
    """
    with store.opened(tracks_path(facts.path)) as file:
        yield from tracks_in(file, tracks_path(facts.path))


def tracks_in(file: int, path: str) -> Iterator[SeenFrame | StateChange]:
    """`read_tracks` of an open file.

    Raises:
        TracksError, OSError: as there.
    """
    labels: Labels = {}
    for record in _records(file):
        try:
            yield from _items(record, labels)
        except (BlockError, msgspec.DecodeError) as error:
            raise TracksError(f"{path}: {error}") from error


def tracks_head(store: Store, facts: FileFacts) -> TracksHead:
    """The head of the tracks of a recording; raises as `read_tracks` does."""
    with store.opened(tracks_path(facts.path)) as file:
        return head_in(file)


def head_in(file: int) -> TracksHead:
    """`tracks_head` of an open file."""
    return _head_of(next(_records(file), None))


def served_in(file: int) -> tuple[list[Served], int]:
    """The models whose boxes are in an open file, and the bytes of its whole records.

    Raises:
        TracksError: it was changed, or is none.
        OSError: it cannot be read.
    """
    found, size = list[Served](), 0
    for record in _records(file):
        size = record.end
        if record.kind == _SERVED:
            try:
                found.append(_decode_served(record.data)[1])
            except msgspec.DecodeError as error:
                raise TracksError(str(error)) from error
    return found, size


def recover_tracks(store: Store, video: str) -> None:
    """Cut what was left half written beside a recording, and say that it ends there; nothing if somebody writes it.

    Raises:
        StoreError: it cannot be written.
    """
    path = tracks_path(video)
    try:
        with store.opened(path, os.O_RDWR) as file:
            if not is_left(file):
                return
            with closing(TrackFile(path, os.dup(file), _head_of(next(_records(file), None)))) as own:
                own.finish()
    except FileNotFoundError:
        return
    except (TracksError, NoFileError):  # `verify` tells of it
        return
    except OSError as error:
        raise store_error(path, error) from error


def problem_of(store: Store, video: str) -> str | None:
    """The fault of the tracks beside a recording; None if they are sound, are being written, or there are none.

    Raises:
        OSError: they cannot be read.
    """
    try:
        with store.opened(tracks_path(video), os.O_RDWR) as file:
            if not is_left(file):
                return None
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_UN)  # a recorder may want it
            found = _written(file)
            size = os.fstat(file).st_size
    except FileNotFoundError:
        return None
    except TracksError as error:
        return str(error)
    if found is None or size != found.size or not found.is_ended:
        return "its tracks have no whole end: they were not finished, or were changed there"
    return None


def _record(kind: int, data: bytes, crc: int) -> tuple[bytes, int]:
    """A record, and its CRC."""
    crc = _crc(kind, data, crc)
    return _RECORD.pack(len(data), crc, kind) + data, crc


def _crc(kind: int, data: bytes, crc: int) -> int:
    return zlib.crc32(data, zlib.crc32(bytes((kind,)), crc))


def _records(file: int) -> Iterator[_Record]:
    """The whole records of a file.

    Raises:
        TracksError: one was changed, or the file is none.
    """
    size, at, crc = os.fstat(file).st_size, len(MAGIC), 0
    begin = os.pread(file, at, 0)
    if begin != MAGIC[: len(begin)]:
        raise TracksError("it is no file of tracks")
    while at + _RECORD.size <= size:
        length, told, kind = _RECORD.unpack(os.pread(file, _RECORD.size, at))
        end = at + _RECORD.size + length
        if length > _MAX_RECORD:
            raise TracksError(f"the tracks at byte {at} are not as they were written")
        if end > size:
            return
        data = os.pread(file, length, at + _RECORD.size)
        crc = _crc(kind, data, crc)
        if crc != told:
            raise TracksError(f"the tracks at byte {at} are not as they were written")
        yield _Record(kind, data, crc, end)
        at = end


def _head_of(record: _Record | None) -> TracksHead:
    """
    Raises:
        TracksError: it is no head, or that of another version.
    """
    if record is None or record.kind != _HEAD:
        raise TracksError("it has no head")
    try:
        head = _decode_head(record.data)
    except msgspec.DecodeError as error:
        raise TracksError(f"its head cannot be read: {error}") from error
    if head.version != 1:
        raise TracksError(f"it is of version {head.version}; this Lookout knows 1")
    return head


def _items(record: _Record, labels: Labels) -> Iterator[SeenFrame | StateChange]:
    if record.kind == _HEAD:
        _head_of(record)
    elif record.kind == _SERVED:
        number, served = _decode_served(record.data)
        labels[number] = served
    elif record.kind == _BLOCK:
        yield from decode(record.data, labels)
    elif record.kind == _STATE:
        yield _decode_state(record.data)


def _written(file: int) -> _Written | None:
    """The content of a file; None if not even its head is whole.

    Raises:
        TracksError: it was changed, or is none.
    """
    found: _Written | None = None
    numbers: set[int] = set()
    last: dict[str, int] = {}
    activity = ActivityCount()
    labels: dict[int, Served] = {}
    for record in _records(file):
        try:
            for item in _items(record, labels):
                if isinstance(item, SeenFrame):
                    last[item.frame.account] = item.index
                    activity.add(item.frame.captured_at, item.objects)
        except (BlockError, msgspec.DecodeError) as error:
            raise TracksError(str(error)) from error
        numbers |= labels.keys()
        found = _Written(record.end, record.crc, numbers, last, activity, record.kind == END)
    return found
