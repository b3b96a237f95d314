"""The records of a file of tracks, and what is read from them.

A file begins with eight bytes that say what it is. Then come records: a length, a CRC-32 that goes on from the record
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

import json
import os
import zlib
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from daemon.pipeline.outbox import Served
from daemon.recording.store import TRACKS, VIDEO, Store
from daemon.recording.tracks.codec import BlockError, decode
from daemon.recording.tracks.records import Labels, SeenFrame, StateChange, TracksHead

if TYPE_CHECKING:
    from daemon.recording.records import FileFacts

MAGIC: Final = b"lookTRK\1"
HEAD, SERVED, BLOCK, STATE = range(1, 5)
_RECORD = Struct("<IIB")  # bytes of what it holds; CRC; kind
_MAX_RECORD: Final = 64 << 20
_MAX_HEAD: Final = 16 << 10
_decode_head = msgspec.json.Decoder(TracksHead).decode
_decode_served = msgspec.msgpack.Decoder(tuple[int, Served]).decode
_decode_state = msgspec.msgpack.Decoder(StateChange).decode


class TracksError(ValueError):
    """A file of tracks is not as it was written; the message says how."""


class TrackRecord(NamedTuple):
    """Attributes:
    crc: up to its end.
    end: offset.
    """

    kind: int
    data: bytes
    crc: int
    end: int


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
    for record in records_in(file):
        try:
            yield from items_of(record, labels)
        except (BlockError, msgspec.DecodeError) as error:
            raise TracksError(f"{path}: {error}") from error


def tracks_head(store: Store, facts: FileFacts) -> TracksHead:
    """The head of the tracks of a recording; raises as `read_tracks` does."""
    with store.opened(tracks_path(facts.path)) as file:
        return head_in(file)


def head_in(file: int) -> TracksHead:
    """`tracks_head` of an open file."""
    return head_of(next(records_in(file), None))


def served_in(file: int) -> tuple[list[Served], int]:
    """The models whose boxes are in an open file, and the bytes of its whole records.

    Raises:
        TracksError: it was changed, or is none.
        OSError: it cannot be read.
    """
    found, size = list[Served](), 0
    for record in records_in(file):
        size = record.end
        if record.kind == SERVED:
            try:
                found.append(_decode_served(record.data)[1])
            except msgspec.DecodeError as error:
                raise TracksError(str(error)) from error
    return found, size


def record_of(kind: int, data: bytes, crc: int) -> tuple[bytes, int]:
    """A record, and its CRC."""
    crc = crc_of(kind, data, crc)
    return _RECORD.pack(len(data), crc, kind) + data, crc


def crc_of(kind: int, data: bytes, crc: int) -> int:
    return zlib.crc32(data, zlib.crc32(bytes((kind,)), crc))


def records_in(file: int) -> Iterator[TrackRecord]:
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
            if at == len(MAGIC) and (kind != HEAD or not _is_cut_head(file, at + _RECORD.size)):
                raise TracksError("the head of the tracks is not as it was written")
            return
        data = os.pread(file, length, at + _RECORD.size)
        crc = crc_of(kind, data, crc)
        if crc != told:
            raise TracksError(f"the tracks at byte {at} are not as they were written")
        yield TrackRecord(kind, data, crc, end)
        at = end


def _is_cut_head(file: int, at: int) -> bool:
    """Whether a file ends within its head, as one whose process was killed does; a length may lie."""
    begin = os.pread(file, _MAX_HEAD, at)
    try:
        json.JSONDecoder().raw_decode(begin.decode("latin-1"))
    except ValueError:
        return len(begin) < _MAX_HEAD
    return False


def head_of(record: TrackRecord | None) -> TracksHead:
    """
    Raises:
        TracksError: it is no head, or that of another version.
    """
    if record is None or record.kind != HEAD:
        raise TracksError("it has no head")
    try:
        head = _decode_head(record.data)
    except msgspec.DecodeError as error:
        raise TracksError(f"its head cannot be read: {error}") from error
    if head.version != 1:
        raise TracksError(f"it is of version {head.version}; this Lookout knows 1")
    return head


def items_of(record: TrackRecord, labels: Labels) -> Iterator[SeenFrame | StateChange]:
    if record.kind == HEAD:
        head_of(record)
    elif record.kind == SERVED:
        number, served = _decode_served(record.data)
        labels[number] = served
    elif record.kind == BLOCK:
        yield from decode(record.data, labels)
    elif record.kind == STATE:
        yield _decode_state(record.data)
