"""The result of every detector: boxes of one picture, validated on construction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

_FLOAT, _INT = np.dtype(np.float32), np.dtype(np.int32)
_set = msgspec.structs.force_setattr
Scalar = TypeVar("Scalar", bound=np.generic)


class TrackNews(msgspec.Struct, frozen=True, eq=False):
    """Changes of a source's tracks in a frame, beside their boxes.

    Attributes:
        earlier: of each track that is confirmed in this frame its filtered boxes in the analysed frames before, the
            oldest first: (k, 4) float32 by id.
        lost: ids that were not seen for so long that their objects count as gone. One may come back.
        forgotten: ids that never come back, whether they were lost before or not.
    """

    earlier: dict[int, npt.NDArray[np.float32]] = {}
    lost: list[int] = []
    forgotten: list[int] = []


class Tracks(msgspec.Struct, frozen=True, eq=False):
    """The tracks of a picture's boxes, one row a box.

    Attributes:
        id: (n,) int64, from 1 for each source; 0 for a box without a confirmed track.
        class_id: (n,) int32, the track's own class, by the votes of its boxes.
        xyxy: (n, 4) float32, the filtered box in source pixels.
        velocity: (n, 2) float32, of the box's centre, source pixels a second.
        age: (n,) int64, ns of source time since the track began.
        news: of all tracks of the source; None for none.
    """

    id: npt.NDArray[np.int64]
    class_id: npt.NDArray[np.int32]
    xyxy: npt.NDArray[np.float32]
    velocity: npt.NDArray[np.float32]
    age: npt.NDArray[np.int64]
    news: TrackNews | None = None

    def __getitem__(self, keep: npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice) -> Tracks:
        """The rows selected by a boolean mask (n,), by indices, or by a slice."""
        return Tracks(
            self.id[keep], self.class_id[keep], self.xyxy[keep], self.velocity[keep], self.age[keep], self.news
        )  # fmt: skip

    def of_rows(self, rows: slice, picture: Tracks | None) -> Tracks:
        """Some rows of the joined tracks of several pictures, which are one picture's."""
        own = self[rows]
        return own if picture is None or picture.news is None else msgspec.structs.replace(own, news=picture.news)

    def select(self, rows: npt.NDArray[np.intp]) -> Tracks:
        """Rows by their numbers, faster than by an index."""
        return Tracks(
            self.id.take(rows), self.class_id.take(rows), self.xyxy.take(rows, 0), self.velocity.take(rows, 0),
            self.age.take(rows), self.news,
        )  # fmt: skip


class Masks(msgspec.Struct, frozen=True, eq=False):
    """Masks of instances, packed to bits, one of each box.

    Attributes:
        bits: (n, height, ceil(width / 8)) uint8, the first column in the highest bit; see `numpy.packbits`.
        width: columns.
        origin: x and y in source pixels of the upper left corner of the first bit.
        scale: source pixels for a bit, horizontally and vertically.
    """

    bits: npt.NDArray[np.uint8]
    width: int
    origin: tuple[float, float]
    scale: tuple[float, float]

    def __getitem__(self, keep: npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice) -> Masks:
        """The rows selected by a boolean mask (n,), by indices, or by a slice."""
        return Masks(self.bits[keep], self.width, self.origin, self.scale)

    def unpacked(self) -> npt.NDArray[np.bool_]:
        """(n, height, width)."""
        return np.unpackbits(self.bits, axis=2, count=self.width).astype(np.bool_)


class Detections(msgspec.Struct, frozen=True, eq=False):
    """Boxes of one picture, strongest first.

    Attributes:
        xyxy: (n, 4) float32, corners in source pixels.
        confidence: (n,) float32, 0-1.
        class_id: (n,) int32, index into the model's labels.
        left_out: number of candidates above the limit of NMS; the weakest are left out.
        checked: all boxes are known to be `plausible`.
        tracks: of the boxes, if the source is tracked.
        keypoints: (n, k, 3) float32, x and y in source pixels and confidence, of models that find them.
        obb: (n, 5) float32, of models that find boxes at an angle: centre x and y, width and height in source pixels,
            angle in radians, clockwise from the x axis to the width. `xyxy` is the hull in the picture.
        masks: of models that find them.
        attributes: (n,) object, what classifiers say about each box, by name; None where nothing is known.
        threshold: weaker boxes are already removed, but for those of confirmed tracks.

    Raises:
        ValueError: wrong shape or dtype.
    """

    xyxy: npt.NDArray[np.float32]
    confidence: npt.NDArray[np.float32]
    class_id: npt.NDArray[np.int32]
    left_out: int = 0
    checked: bool = False
    tracks: Tracks | None = None
    keypoints: npt.NDArray[np.float32] | None = None
    obb: npt.NDArray[np.float32] | None = None
    masks: Masks | None = None
    attributes: npt.NDArray[np.object_] | None = None
    threshold: float = 0.0

    def __post_init__(self) -> None:
        xyxy, confidence, class_id, shape = self.xyxy, self.confidence, self.class_id, self.confidence.shape
        are_rows = len(shape) == 1 and class_id.shape == shape and xyxy.shape == (*shape, 4)
        if are_rows and xyxy.dtype == _FLOAT == confidence.dtype and class_id.dtype == _INT:
            return  # checked for every frame, so cheaply
        count = len(confidence)
        for name, array, shape, dtype in (
            ("xyxy", xyxy, (count, 4), _FLOAT),
            ("confidence", confidence, (count,), _FLOAT),
            ("class_id", class_id, (count,), _INT),
        ):
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(f"{name} must be {dtype} of shape {shape}, got {array.dtype} of shape {array.shape}")

    def __len__(self) -> int:
        return len(self.confidence)

    @property
    def is_plain(self) -> bool:
        """Whether the boxes have nothing beside their tracks."""
        return self.keypoints is None and self.obb is None and self.masks is None and self.attributes is None

    def with_tracks(self, tracks: Tracks, threshold: float = 0.0) -> Detections:
        """The same boxes with their tracks, and another threshold."""
        changed = self._with("tracks", tracks)
        _set(changed, "threshold", threshold)
        return changed

    def with_rows(
        self,
        xyxy: npt.NDArray[np.float32],
        confidence: npt.NDArray[np.float32],
        class_id: npt.NDArray[np.int32],
        tracks: Tracks | None,
        threshold: float,
    ) -> Detections:
        """With these columns, and the others as they are. The columns are known to be right, and not checked again."""
        changed: Detections = self.__copy__()  # type: ignore[attr-defined]
        _set(changed, "xyxy", xyxy)
        _set(changed, "confidence", confidence)
        _set(changed, "class_id", class_id)
        _set(changed, "tracks", tracks)
        _set(changed, "threshold", threshold)
        return changed

    def with_attributes(self, attributes: npt.NDArray[np.object_]) -> Detections:
        """The same boxes with what classifiers say about them."""
        return self._with("attributes", attributes)

    def _with(self, name: str, value: object) -> Detections:
        """A copy with another value. It is not checked again: that costs more than the copy."""
        changed: Detections = self.__copy__()  # type: ignore[attr-defined] # copy() takes twice as long
        _set(changed, name, value)
        return changed

    def select(self, rows: npt.NDArray[np.intp]) -> Detections:
        """Rows by their numbers, faster than by an index."""
        tracks = None if self.tracks is None else self.tracks.select(rows)
        return Detections(
            self.xyxy.take(rows, 0), self.confidence.take(rows), self.class_id.take(rows), self.left_out, self.checked,
            tracks,
            None if self.keypoints is None else self.keypoints.take(rows, 0),
            None if self.obb is None else self.obb.take(rows, 0),
            None if self.masks is None else self.masks[rows],
            None if self.attributes is None else self.attributes.take(rows),
            self.threshold,
        )  # fmt: skip

    def __getitem__(self, keep: npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice) -> Detections:
        """The rows selected by a boolean mask (n,), by indices, or by a slice."""
        tracks = None if self.tracks is None else self.tracks[keep]
        return Detections(
            self.xyxy[keep],
            self.confidence[keep],
            self.class_id[keep],
            self.left_out,
            self.checked,
            tracks,
            None if self.keypoints is None else self.keypoints[keep],
            None if self.obb is None else self.obb[keep],
            None if self.masks is None else self.masks[keep],
            None if self.attributes is None else self.attributes[keep],
            self.threshold,
        )


def no_tracks(found: Detections) -> Tracks:
    """For boxes without confirmed tracks."""
    count = len(found)
    return Tracks(
        np.zeros(count, np.int64),
        found.class_id,
        found.xyxy,
        np.zeros((count, 2), np.float32),
        np.zeros(count, np.int64),
    )


def selected(found: Sequence[Detections], kept: npt.NDArray[np.bool_]) -> list[Detections]:
    """Some boxes of each picture.

    Args:
        kept: (n,) of the boxes of all pictures.
    """
    ends = list(accumulate([len(one.confidence) for one in found]))
    if not _may_be_joined(found):
        return [one[rows] for one, rows in zip(found, np.split(kept, ends[:-1]))]
    rows = kept.nonzero()[0]
    together, places = _joined(found).select(rows), np.searchsorted(rows, ends).tolist()
    return [
        one.with_rows(
            together.xyxy[rows],
            together.confidence[rows],
            together.class_id[rows],
            None if together.tracks is None else together.tracks.of_rows(rows, one.tracks),
            one.threshold,
        )
        for one, rows in zip(found, map(slice, [0, *places], places))
    ]


def _may_be_joined(found: Sequence[Detections]) -> bool:
    """Whether the pictures have boxes alone, or boxes and tracks alone."""
    tracked = found[0].tracks is not None
    return all((one.tracks is not None) == tracked and one.is_plain for one in found)


def _joined(found: Sequence[Detections]) -> Detections:
    tracks = [one.tracks for one in found if one.tracks is not None]
    return Detections(
        joined([one.xyxy for one in found]),
        joined([one.confidence for one in found]),
        joined([one.class_id for one in found]),
        tracks=Tracks(
            joined([one.id for one in tracks]),
            joined([one.class_id for one in tracks]),
            joined([one.xyxy for one in tracks]),
            joined([one.velocity for one in tracks]),
            joined([one.age for one in tracks]),
        )
        if tracks
        else None,
    )


def nothing() -> Detections:
    """No boxes."""
    return Detections(np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.int32))


def plausible(found: Sequence[Detections], classes: int) -> tuple[Sequence[Detections], int]:
    """Pictures' boxes without the impossible ones, and how many were removed.

    A damaged model, an overflow or a model of another task gives NaN corners or confidences, confidences outside 0 to
    1, inverted corners, or class ids without a label. The GPU checks its boxes itself: numpy releases the GIL for
    arrays of this size, and a lane waits to get it back.

    Args:
        classes: number of the model's labels.
    """
    if all([one.checked for one in found]):  # noqa: C419 - a list costs less
        return found, 0
    left, top, right, bottom = joined([one.xyxy for one in found]).T
    confidence = joined([one.confidence for one in found])
    class_id = joined([one.class_id for one in found])
    # Comparisons with NaN are false.
    good = (left <= right) & (top <= bottom) & (right - left + bottom - top < np.inf)
    good &= (confidence >= 0) & (confidence <= 1) & (class_id >= 0) & (class_id < classes)
    if good.all():
        return found, 0
    ends = np.cumsum([len(one) for one in found])
    kept = [one[rows] for one, rows in zip(found, np.split(good, ends[:-1]))]
    return kept, int(len(good) - good.sum())


def joined(parts: Sequence[npt.NDArray[Scalar]]) -> npt.NDArray[Scalar]:
    """Rows of one type and width, as `np.concatenate` joins them.

    numpy gives the lock up for each part, however small, and a busy thread waits to get it back. This takes a third of
    the time, too. At least one part.
    """
    first: npt.NDArray[Any] = parts[0]
    return np.frombuffer(joined_bytes(parts), first.dtype).reshape(-1, *first.shape[1:])


def joined_bytes(parts: Sequence[npt.NDArray[Any]]) -> bytearray:
    """The memory of `joined`."""
    try:
        return bytearray().join(parts)  # type: ignore[arg-type]
    except (BufferError, TypeError):  # a part is not in one piece, row by row
        return bytearray().join([part.tobytes() for part in parts])
