"""Analysed frames of a batch, as a store takes them: their boxes are rows of whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from daemon.pipeline.frames import FrameInfo
from daemon.recording.tracks.records import Handed, PackedNews
from lookout.messages import Attribute

Integers = npt.NDArray[np.int64]
OwnAttributes = dict[str, Attribute] | None
BOX_UNITS: Final = 100.0  # in a pixel
CONFIDENCE_UNITS: Final = 10_000.0
# Columns of boxes: corners and confidence in units; of tracks the bits of the corners.
CORNERS, CONFIDENCE, CLASS, ID, TRACK_CLASS, TRACK = slice(0, 4), 4, 5, 6, 7, slice(8, 12)
COLUMNS: Final = 12
_common = attrgetter("session", "account", "width", "height", "pixel_aspect", "clock")


class StoredFrame(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A frame on its way into a block.

    Attributes:
        served: number of the model's labels.
        number: see `SeenFrame.index`.
        rows: (n, 12), see above.
        objects: as `SeenFrame.objects`.
    """

    info: FrameInfo
    served: int
    number: int
    tracked: bool
    rows: Integers
    objects: int
    news: PackedNews | None
    attributes: list[OwnAttributes] | None

    @property
    def context(self) -> tuple[object, ...]:
        """The same for all frames of a block."""
        return self.served, *_common(self.info), self.info.pts is not None


def frames_of(batches: Sequence[Handed]) -> list[list[StoredFrame]]:
    """The frames of each batch."""
    rows = _rows_of(batches)
    tracks_before = [0, *np.cumsum(rows[:, ID] != 0).tolist()]  # each row
    found, end = [], 0
    for handed in batches:
        frames = []
        news_of, attributes_of, served = handed.news.get, handed.attributes.get, handed.served
        for place, (info, index, tracked, count) in enumerate(
            zip(handed.frames, handed.indexes, handed.tracked, handed.counts)
        ):
            begin, end = end, end + count
            own = rows[begin:end].copy()  # a frame that waits must not keep the boxes of all
            objects = tracks_before[end] - tracks_before[begin] if tracked else count
            frames.append(StoredFrame(info, served, index, tracked, own, objects, news_of(place), attributes_of(place)))
        found.append(frames)
    return found


def _rows_of(batches: Sequence[Handed]) -> Integers:
    """The boxes of all batches, one after the other."""
    xyxy = np.frombuffer(b"".join([batch.xyxy for batch in batches]), np.float32).reshape(-1, 4)
    confidence = np.frombuffer(b"".join([batch.confidence for batch in batches]), np.float32)
    rows = np.empty((len(xyxy), COLUMNS), np.int64)
    rows[:, CORNERS] = np.rint(xyxy.astype(np.float64) * BOX_UNITS)
    rows[:, CONFIDENCE] = np.rint(confidence.astype(np.float64) * CONFIDENCE_UNITS)
    rows[:, CLASS] = np.frombuffer(b"".join([batch.class_id for batch in batches]), np.int32)
    own = [(batch.id, batch.track_class, batch.track_xyxy) if batch.id else _no_tracks(batch) for batch in batches]
    id, track_class, track_xyxy = (b"".join(parts) for parts in zip(*own))
    rows[:, ID] = np.frombuffer(id, np.int64)
    rows[:, TRACK_CLASS] = np.frombuffer(track_class, np.int32)
    rows[:, TRACK] = np.frombuffer(track_xyxy, np.int32).reshape(-1, 4)
    rows[rows[:, ID] == 0, TRACK_CLASS:] = 0
    return rows


def _no_tracks(batch: Handed) -> tuple[bytes, bytes, bytes]:
    """Of a batch that was not tracked."""
    count = sum(batch.counts)
    return bytes(8 * count), bytes(4 * count), bytes(16 * count)
