"""The file of tracks beside a recording, of the same name, while it is written; see `track_records`."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

import msgspec
import structlog

from daemon.errors import LookoutError
from daemon.pipeline.outbox import Served
from daemon.recording.scan import is_left
from daemon.recording.store import NoFileError, Store, open_file, store_error
from daemon.recording.tracks.activity import END, Activity, ActivityCount, activity_at_end, packed
from daemon.recording.tracks.codec import BlockError, encode
from daemon.recording.tracks.records import Labels, SeenFrame, StateChange, TracksHead
from daemon.recording.tracks.stored_frames import StoredFrame
from daemon.recording.tracks.track_records import (
    BLOCK,
    HEAD,
    MAGIC,
    SERVED,
    STATE,
    TracksError,
    crc_of,
    head_of,
    items_of,
    record_of,
    records_in,
    tracks_path,
)

log = structlog.get_logger(__name__)
_NEW = os.O_RDWR | os.O_CREAT
_encode_head = msgspec.json.Encoder().encode
_encode = msgspec.msgpack.Encoder().encode
Stored = StoredFrame | StateChange


class TracksBusyError(LookoutError):
    """Somebody else has a file of tracks, for a moment."""


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
        self._head = b"" if found else MAGIC + record_of(HEAD, _encode_head(head), 0)[0]
        self._size, self._crc, self._numbers, self.last, self._activity, self._is_ended = found or _Written(
            0, crc_of(HEAD, _encode_head(head), 0), set(), {}, ActivityCount(), False
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
            if not is_left(file) or not os.fstat(file).st_nlink:  # taken for an empty one that was left behind
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
                records += [(STATE, _encode(row)) for row in rows]
                continue
            frames = [row for row in rows if isinstance(row, StoredFrame)]
            served = frames[0].served
            if served not in self._numbers | told:
                told.add(served)
                records.append((SERVED, _encode((served, labels[served]))))
            records.append((BLOCK, encode(frames)))
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

    def recover(self) -> None:
        """Cut what a process that was killed has left half written, and `finish`.

        Raises:
            StoreError: it cannot be written.
        """
        try:
            self._cut()
        except OSError as error:
            raise store_error(self.path, error) from error
        self.finish()

    def close(self) -> None:
        """Let go of it as it is. A second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _cut(self) -> None:
        if os.fstat(self._file).st_size != self._size:
            os.ftruncate(self._file, self._size)

    def _write(self, records: Sequence[tuple[int, bytes]]) -> None:
        parts, crc = [b"" if self._size else self._head], self._crc
        for kind, data in records:
            part, crc = record_of(kind, data, crc)
            parts.append(part)
        rest, at = memoryview(b"".join(parts)), self._size
        try:
            self._cut()
            while rest:
                done = os.pwrite(self._file, rest, at)
                rest, at = rest[done:], at + done
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise store_error(self.path, error) from error
        self._size, self._crc = at, crc


def recover_tracks(store: Store, video: str) -> Activity | None:
    """Cut what was left half written beside a recording, and say that it ends there. A file with no whole record goes.
    One that has its end is not read, so that it costs little to try all of a store.

    Returns:
        Their activity; None if there are no tracks, or they were damaged.

    Raises:
        TracksBusyError: somebody writes it.
        StoreError: it cannot be written.
    """
    path = tracks_path(video)
    try:
        with store.opened(path, os.O_RDWR) as file:
            found = activity_at_end(file)
            return found if found is not None else _recovered(store, path, file)
    except FileNotFoundError:
        return None
    except (TracksError, NoFileError):  # `verify` tells of it
        return None
    except OSError as error:
        raise store_error(path, error) from error


def _recovered(store: Store, path: str, file: int) -> Activity | None:
    if not is_left(file):
        raise TracksBusyError(f"{path}: is being written")
    first = next(records_in(file), None)
    if first is None:
        *folders, name = path.split("/")
        with store.folder(*folders) as folder:
            os.unlink(name, dir_fd=folder)
        return None
    own = TrackFile(path, file, head_of(first))  # whoever has opened it closes it
    own.recover()
    return own.activity


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
    for record in records_in(file):
        try:
            for item in items_of(record, labels):
                if isinstance(item, SeenFrame):
                    last[item.frame.account] = item.index
                    activity.add(item.frame.captured_at, item.objects)
        except (BlockError, msgspec.DecodeError) as error:
            raise TracksError(str(error)) from error
        numbers |= labels.keys()
        found = _Written(record.end, record.crc, numbers, last, activity, record.kind == END)
    return found
