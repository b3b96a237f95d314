"""The picture that was shown at a moment: decoded from the key picture before it, in memory."""

from __future__ import annotations

import io
from contextlib import closing
from typing import Any, Final, NamedTuple

import av
import av.error
import cv2
import numpy as np

from daemon.errors import LookoutError
from daemon.pipeline.drawing import jpeg
from daemon.playback.opened import OpenedStore
from daemon.recording.footage import wanted
from daemon.recording.records import FileHead, FragmentRow, Gap

_SECOND: Final = 1_000_000_000
_MAX_BYTES: Final = 48 << 20  # from the key picture on
_TURNS: Final = {1: cv2.ROTATE_90_CLOCKWISE, 2: cv2.ROTATE_180, 3: cv2.ROTATE_90_COUNTERCLOCKWISE}


class Encoded(NamedTuple):
    """The input of a decoder for one picture.

    Attributes:
        mp4: the beginning of a file, and fragments.
        pts: ns of the session, of the moment.
        row: the fragment that the moment is in.
    """

    mp4: bytes
    head: FileHead
    pts: int
    row: FragmentRow


class Still(NamedTuple):
    """
    Attributes:
        pts: ns of the session.
        shown_at: UTC ns.
    """

    jpeg: bytes
    session: str
    pts: int
    shown_at: int


def encoded_at(source: str, at: int, opened: OpenedStore) -> Encoded | None:
    """The fragments that show a moment, UTC ns; None if none does.

    Raises:
        BoxError, StoreError, OSError: it cannot be read.
        LookoutError: the key picture is too far away.
    """
    for facts in reversed(opened.files(source, at, at + 1)):
        with closing(opened.open(facts)) as file:
            found = file.scan()
            rows = found.fragments
            chosen = wanted(rows, at, at + 1)
            if not chosen:
                continue
            row = chosen[-1]
            pts = row.pts + min(at - row.begin, max(0, row.duration - 1))
            # A picture may be stored in the fragment behind the one in whose time it is shown.
            last = rows.index(row)
            while last + 1 < len(rows) and rows[last + 1].pts <= pts and not rows[last + 1].key:
                last += 1
            first = chosen[0]
            behind = rows[last].offset + rows[last].size
            if behind - first.offset > _MAX_BYTES:
                raise LookoutError(f"the key picture before is more than {_MAX_BYTES >> 20} MiB away")
            mp4 = file.read(0, found.beginning) + file.read(first.offset, behind - first.offset)
            return Encoded(mp4, found.head, pts, row)
    return None


def gaps_at(source: str, at: int, opened: OpenedStore) -> list[Gap]:
    """Why nothing shows the moment, UTC ns."""
    return [row for row in opened.index.timeline(source, at, at + 1) if isinstance(row, Gap)]


def decode(encoded: Encoded, width: int | None) -> Still:
    """
    Args:
        width: pixels, of the upright picture; None for its own. It is never enlarged.

    Raises:
        LookoutError: it cannot be decoded.
    """
    try:
        with av.open(io.BytesIO(encoded.mp4), format="mp4") as video:
            stream: Any = video.streams.video[0]
            found = _frame(video, stream, encoded)
            unit = stream.time_base
    except (av.error.FFmpegError, ValueError, ArithmeticError, IndexError) as error:
        raise LookoutError(f"the picture cannot be decoded: {error}") from error
    if found is None:
        raise LookoutError("the picture cannot be decoded: no key picture stands before it")
    pts = encoded.head.base_dts + int(found.pts * unit * _SECOND)
    shown_at = encoded.row.begin + pts - encoded.row.pts
    return Still(jpeg(_upright(found, encoded.head.stream.turns, width)), encoded.head.session, pts, shown_at)


def _frame(video: Any, stream: Any, encoded: Encoded) -> Any:
    """The last frame that is not later than the moment; pictures that no other needs are passed over."""
    unit = stream.time_base
    if stream.codec_context is None or not unit:
        raise ValueError("its codec is not said")
    limit = int((encoded.pts - encoded.head.base_dts) / (_SECOND * unit)) + 1
    packets = [packet for packet in video.demux(stream) if packet.size]
    shown = max((packet.pts for packet in packets if packet.pts <= limit), default=None)
    best = None
    for packet in [*packets, None]:
        stream.codec_context.skip_frame = "DEFAULT" if packet is None or packet.pts == shown else "NONREF"
        for frame in stream.codec_context.decode(packet):
            if frame.pts is not None and frame.pts <= limit and (best is None or frame.pts > best.pts):
                best = frame
        if best is not None and best.pts == shown:
            break
    return best


def _upright(frame: Any, turns: int, width: int | None) -> Any:
    size = frame.width, frame.height
    across = size[turns % 2]  # of the upright picture
    if width is not None and width < across:
        size = tuple(max(2, round(side * width / across)) for side in size)
    picture = frame.to_ndarray(width=size[0], height=size[1], format="bgr24")
    return np.ascontiguousarray(cv2.rotate(picture, _TURNS[turns % 4])) if turns % 4 else picture
