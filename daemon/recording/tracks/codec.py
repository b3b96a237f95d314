"""Frames with their boxes as a block of bytes, and back.

Numbers become columns. A track's box is told by how far it is from where the two boxes before it lead, and the
detector's box by how far it is from the track's: so most numbers are small. The bytes of a column lie side by side, the
lowest first, and all is deflated. A block needs no other one.

Nothing is lost of what rules look at: where the corners of tracks lie on a grid of 1/64 px they are told as such
numbers, and otherwise by the bits of their float32.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from operator import sub
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.outbox import Served
from daemon.recording.tracks.records import PackedNews, SeenFrame, SeenTracks
from daemon.recording.tracks.stored_frames import (
    BOX_UNITS,
    CLASS,
    COLUMNS,
    CONFIDENCE,
    CONFIDENCE_UNITS,
    CORNERS,
    ID,
    TRACK,
    TRACK_CLASS,
    Integers,
    OwnAttributes,
    StoredFrame,
)
from lookout.messages import Attribute, FrameClock

assert sys.byteorder == "little"  # noqa: S101 - arrays are written as they are in memory

GRID_UNITS: Final = 64.0
_DEFLATE: Final = (1, zlib.DEFLATED, -15, 8, zlib.Z_RLE)  # the others take longer, and give no less
_MAX_BYTES: Final = 64 << 20
_MAX_ROWS: Final = 1 << 22
_FRAME_COLUMNS: Final = 7  # boxes; seq; index; pts; captured_ns; captured_at less that; flags
_CORRUPT, _TRACKED = 1, 2


class _Context(msgspec.Struct, frozen=True, array_like=True, gc=False):
    served: int
    session: str
    account: str
    width: int
    height: int
    pixel_aspect: float
    clock: FrameClock
    has_pts: bool


class _Block(msgspec.Struct, frozen=True, array_like=True):
    """
    Attributes:
        counts: frames and boxes.
        on_grid: the corners of tracks are multiples of 1/64 px.
        ids: of tracks, each less the one before.
        widths: bytes of each column, of frames and then of boxes.
        columns: their bytes.
        news: by place of the frame.
        attributes: of boxes whose attributes are other ones than those of their track's last box.
    """

    source: str
    context: _Context
    counts: tuple[int, int]
    on_grid: bool
    ids: list[int]
    widths: bytes
    columns: bytes
    news: dict[int, PackedNews]
    attributes: list[tuple[int, dict[str, Attribute] | None]]


class BlockError(ValueError):
    """Bytes are no block."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Block).decode


def encode(frames: Sequence[StoredFrame]) -> bytes:
    """A block of frames of one source that have one context."""
    first = frames[0]
    rows = np.concatenate([frame.rows for frame in frames])
    heads = _heads_of(frames)
    order = np.argsort(rows[:, ID], kind="stable")
    sorted_rows = rows[order]
    sorted_id = sorted_rows[:, ID]
    is_other = np.ones(len(rows), np.bool_)  # than the track before
    np.not_equal(sorted_id[1:], sorted_id[:-1], out=is_other[1:])
    starts, ids = is_other | (sorted_id == 0), sorted_id[is_other].tolist()
    early = _early(starts)
    corners = _floats(sorted_rows[:, TRACK])
    tracks, on_grid = _track_units(sorted_rows[:, TRACK], corners)
    columns = np.empty((len(rows), COLUMNS), np.int64)
    columns[order, 0] = np.cumsum(is_other) - 1
    columns[:, 1:5] = _stepped(_stepped(tracks, starts), early)
    columns[:, 5:9] = sorted_rows[:, CORNERS] - _box_units(corners)
    columns[:, 9] = _stepped(sorted_rows[:, CONFIDENCE], starts)
    columns[:, 10] = sorted_rows[:, CLASS]
    columns[:, 11] = sorted_rows[:, TRACK_CLASS] - sorted_rows[:, CLASS] * (sorted_id > 0)
    head_starts = np.zeros(len(heads), np.bool_)
    head_starts[0] = True
    head_widths, head_bytes = _planes(_bent(heads, head_starts))
    widths, row_bytes = _planes(columns)
    block = _Block(
        first.info.source,
        _Context(*first.context),  # type: ignore[arg-type]
        (len(heads), len(rows)),
        on_grid,
        [*map(sub, ids, [0, *ids])],
        head_widths + widths,
        head_bytes + row_bytes,
        {place: frame.news for place, frame in enumerate(frames) if frame.news is not None},
        _changed(frames, rows[:, ID]),
    )
    deflate = zlib.compressobj(*_DEFLATE)
    return deflate.compress(_encode(block)) + deflate.flush()


def decode(data: bytes | memoryview, labels: Mapping[int, Served]) -> Iterator[SeenFrame]:
    """The frames of a block.

    Raises:
        BlockError: it is none.
    """
    try:
        inflate = zlib.decompressobj(-15)
        block = _decode(inflate.decompress(data, _MAX_BYTES))
        served = labels[block.context.served]
        heads, columns = _columns_of(block)
        yield from _seen(block, served, heads, columns)
    except (zlib.error, msgspec.DecodeError, KeyError, ValueError, IndexError, OverflowError) as error:
        raise BlockError(f"it is no block of boxes: {error}") from error


def _heads_of(frames: Sequence[StoredFrame]) -> Integers:
    infos = [frame.info for frame in frames]
    captured_ns = np.array([info.captured_ns for info in infos], np.int64)
    columns = (
        [len(frame.rows) for frame in frames],
        [info.seq for info in infos],
        [frame.number for frame in frames],
        [info.pts or 0 for info in infos],
        captured_ns,
        np.array([info.captured_at for info in infos], np.int64) - captured_ns,
        [_CORRUPT * info.corrupt + _TRACKED * frame.tracked for frame, info in zip(frames, infos)],
    )
    heads: Integers = np.array(columns, np.int64).T
    return heads


def _columns_of(block: _Block) -> tuple[Integers, Integers]:
    """Of frames, and of boxes by track."""
    frames, boxes = block.counts
    if not (0 <= frames <= _MAX_ROWS and 0 <= boxes <= _MAX_ROWS):
        raise ValueError("it has more rows than are written")
    if len(block.widths) != _FRAME_COLUMNS + COLUMNS:
        raise ValueError("it has other columns")
    split = frames * sum(block.widths[:_FRAME_COLUMNS])
    heads = _from_planes(block.columns[:split], block.widths[:_FRAME_COLUMNS], frames)
    columns = _from_planes(block.columns[split:], block.widths[_FRAME_COLUMNS:], boxes)
    starts = np.zeros(frames, np.bool_)
    starts[:1] = True
    return _straight(heads, starts), columns


def _seen(block: _Block, served: Served, heads: Integers, columns: Integers) -> Iterator[SeenFrame]:
    context, ids = block.context, np.cumsum(np.array(block.ids, np.int64))
    who = columns[:, 0].copy()
    id = ids[who] if len(who) else np.empty(0, np.int64)
    order, starts = _by_track(who, id)
    sorted_id, tracks = id[order], _straight(columns[:, 1:5], starts)
    bits = _bits(tracks, on_grid=block.on_grid)
    corners = columns[:, 5:9] + _box_units(_floats(bits))
    confidence = _summed(columns[:, 9:10], starts)[:, 0]
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))
    xyxy = (corners / BOX_UNITS)[place]
    class_id = columns[place, 10].astype(np.int32)
    track_class = (columns[:, 11] + columns[:, 10])[place].astype(np.int32)
    track_xyxy = np.where(sorted_id[:, None] > 0, _floats(bits), corners / BOX_UNITS).astype(np.float32)[place]
    sure = (confidence / CONFIDENCE_UNITS)[place]
    known = _known(block.attributes, id)
    begin = 0
    for number, (count, seq, index, pts, captured_ns, further, flags) in enumerate(heads.tolist()):
        end, news = begin + count, block.news.get(number)
        rows = slice(begin, end)
        info = FrameInfo(
            block.source, context.session, seq, pts if context.has_pts else None, captured_ns, captured_ns + further,
            context.clock, 0, context.width, context.height, 0, context.pixel_aspect, bool(flags & _CORRUPT),
            context.account,
        )  # fmt: skip
        tracked = None
        if flags & _TRACKED:
            tracked = SeenTracks(id[rows], track_class[rows], track_xyxy[rows], news.unpacked() if news else None)
        own = known[begin:end] if known is not None and any(known[begin:end]) else None
        yield SeenFrame(info, index, served, xyxy[rows], sure[rows], class_id[rows], tracked, own)
        begin = end


# --- columns ---------------------------------------------------------------------------------------------------------


def _by_track(who: npt.NDArray[Any], id: Integers) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """The order in which the boxes of a track follow each other, and where in it another one begins."""
    order = np.argsort(who, kind="stable")
    starts = np.ones(len(order), np.bool_)
    starts[1:] = (who[order][1:] != who[order][:-1]) | (id[order][1:] == 0)
    return order, starts


def _stepped(values: Integers, starts: npt.NDArray[np.bool_]) -> Integers:
    """Each value less the one before, but for the first ones."""
    steps: Integers = values.copy()
    steps[1:] -= values[:-1]
    steps[starts] = values[starts]
    return steps


def _bent(values: Integers, starts: npt.NDArray[np.bool_]) -> Integers:
    """Each step less the one before, but for the first ones."""
    return _stepped(_stepped(values, starts), _early(starts))


def _early(starts: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The first and second ones."""
    early: npt.NDArray[np.bool_] = starts.copy()
    early[1:] |= starts[:-1]
    return early


def _summed(steps: Integers, starts: npt.NDArray[np.bool_]) -> Integers:
    """The reverse of `_stepped`."""
    if not len(steps):
        return steps
    sums: Integers = np.cumsum(steps, axis=0)
    first = np.flatnonzero(starts)
    sums -= (sums[first] - steps[first])[np.cumsum(starts) - 1]
    return sums


def _straight(values: Integers, starts: npt.NDArray[np.bool_]) -> Integers:
    """The reverse of `_bent`."""
    return _summed(_summed(values, _early(starts)), starts)


def _planes(values: Integers) -> tuple[bytes, bytes]:
    """Bytes of each value by column, and all bytes, the lowest of a column first; small negative numbers are small."""
    folded = ((values << 1) ^ (values >> 63)).view(np.uint64)
    count, columns = folded.shape
    most = folded.max(axis=0, initial=0).tolist()
    widths = bytes((value.bit_length() + 7) // 8 for value in most)
    single = np.ascontiguousarray(folded.T).view(np.uint8).reshape(columns, count, 8)
    return widths, b"".join([single[column, :, :width].T.tobytes() for column, width in enumerate(widths) if width])


def _from_planes(data: bytes, widths: bytes, count: int) -> Integers:
    if len(data) != count * sum(widths) or max(widths, default=0) > 8:
        raise ValueError("its columns have another length")
    single, at = np.zeros((len(widths), count, 8), np.uint8), 0
    for column, width in enumerate(widths):
        if width:
            part = np.frombuffer(data, np.uint8, width * count, at).reshape(width, count)
            single[column, :, :width] = part.T
            at += width * count
    folded = single.view(np.uint64)[:, :, 0].T
    return np.ascontiguousarray((folded >> np.uint64(1)).view(np.int64) ^ -(folded & np.uint64(1)).view(np.int64))


def _floats(bits: Integers) -> npt.NDArray[np.float32]:
    return bits.astype(np.int32).view(np.float32)


def _box_units(corners: npt.NDArray[np.float32]) -> Integers:
    return np.rint(corners.astype(np.float64) * BOX_UNITS).astype(np.int64)


def _track_units(bits: Integers, corners: npt.NDArray[np.float32]) -> tuple[Integers, bool]:
    """Numbers that grow with the corners, and whether these lie on the grid.

    Args:
        bits, corners: the same numbers.
    """
    with np.errstate(invalid="ignore"):  # of corners that are no numbers, or far away
        units = np.rint(corners.astype(np.float64) * GRID_UNITS).astype(np.int64)
    if ((units / GRID_UNITS).astype(np.float32).view(np.int32) == corners.view(np.int32)).all():
        return units, True
    return _ordered(bits), False


def _bits(units: Integers, *, on_grid: bool) -> Integers:
    """The reverse of `_track_units`."""
    if on_grid:
        return (units / GRID_UNITS).astype(np.float32).view(np.int32).astype(np.int64)
    return _ordered(units)


def _ordered(bits: Integers) -> Integers:
    """The bits of a float32 as a number that grows with it; the same again gives the bits."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


# --- attributes ------------------------------------------------------------------------------------------------------


def _changed(frames: Sequence[StoredFrame], id: Integers) -> list[tuple[int, OwnAttributes]]:
    if all([frame.attributes is None for frame in frames]):  # noqa: C419 - a list costs less
        return []
    rows: list[OwnAttributes] = []
    for frame in frames:
        rows += [None] * len(frame.rows) if frame.attributes is None else frame.attributes
    last: dict[int, OwnAttributes] = {}
    found = []
    for row, (track, own) in enumerate(zip(id.tolist(), rows)):
        if own != last.get(track):
            found.append((row, own))
        if track:
            last[track] = own
    return found


def _known(changed: Sequence[tuple[int, OwnAttributes]], id: Integers) -> list[OwnAttributes] | None:
    """The attributes of each box; None if no box has some."""
    if not changed:
        return None
    told, last = dict(changed), dict[int, OwnAttributes]()
    found: list[OwnAttributes] = []
    for row, track in enumerate(id.tolist()):
        own = told[row] if row in told else last.get(track)
        if track:
            last[track] = own
        found.append(own)
    return found
