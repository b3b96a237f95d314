"""One step of the tracker, a frame of each of several sources: its input and output, and the numbers of both versions.

`numpy_step` is the reference. `compiled_step` gives the same results, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from daemon.analytics import motion
from daemon.analytics.grouping import Grouping

MAX_TRACKS = 1000  # of a source, with those that are lost
VOTES = motion.ROWS + 6
ID, HITS, BORN, SEEN, GROUP, MISSED = range(motion.ROWS, VOTES)
MIN_IOU = (0.2, 0.5, 0.2)  # by stage: confirmed with a strong box, with a weak one, unconfirmed
SHORT_NS, MIN_SHARE = 100_000_000, 0.25  # a track unseen for longer than that may overlap less, down to this share
MARGIN_PER_S, MARGIN_S = 0.5, 1.0  # and both boxes are wider, by this share of the smaller side a second, for so long
LAST_PLACE = 0.8  # of the overlap with the place where a track was last seen: the object may have stopped there
GAP_NS, SHAPE_SHARE = 150_000_000, 0.7  # after such a time the shape counts for so much, against the overlap
MAX_MISSED = 2  # analysed frames in a row without a box, after which a weak box is not enough
LOST = 1 << 40  # frames without a box, of a track that is lost
SAME_OBJECT = 0.7  # IoU of two boxes of one group

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class StepInput(msgspec.Struct, frozen=True, eq=False):
    """Tracks and boxes, those of a source side by side.

    Attributes:
        tracks: (n, 26 + width) float64, a row each: see `motion`; six numbers whose bits are int64: id (until it is
            confirmed a number below 0, which no other track of the source has had), hits, times of the first and the
            last box, group, and analysed frames since its last box; the votes for each label of the track's group.
        sources: (s, 8) int64, of each source: tracks, the highest id so far, tracks begun so far, ns of source time, ns
            since the last frame, ns after which a track that is not seen is lost, and forgotten, and boxes.
        confirm: (s,) int64, boxes in a row that confirm a track.
        thresholds: (s, 3) float32, the confidence of boxes that are looked at, of those that begin a track, and of
            those that stay without a confirmed track.
        xyxy, confidence, class_id: of the boxes, as in `Detections`.
    """

    tracks: Floats
    sources: Integers
    confirm: Integers
    thresholds: npt.NDArray[np.float32]
    xyxy: npt.NDArray[np.float32]
    confidence: npt.NDArray[np.float32]
    class_id: npt.NDArray[np.int32]
    grouping: Grouping


class StepOutput(msgspec.Struct, frozen=True, eq=False):
    """Attributes:
    tracks: as in `StepInput`.
    sources: (s, 9) int64, of each source: tracks, the highest id so far, tracks begun so far, boxes that stay, whether
        one of the following is not 0, and the rows of `named`, `young`, `lost` and `forgotten`.
    rows: (k,) int64, the places of the boxes that stay among all.
    boxes: xyxy, confidence and class ids of the boxes that stay.
    columns: of `Tracks`, for the boxes that stay.
    named: (c, 2) int64, of tracks that are confirmed now: the id, and the number before.
    young: numbers (y,) int64 and filtered corners (y, 4) float32 of unconfirmed tracks.
    lost, forgotten: ids of confirmed tracks that are from now on. A track that is forgotten may not have been lost.
    left_out: boxes that began no track because the source had too many.
    """

    tracks: Floats
    sources: Integers
    rows: Integers
    boxes: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int32]]
    columns: tuple[npt.NDArray[Any], ...]
    named: Integers
    young: tuple[Integers, npt.NDArray[np.float32]]
    lost: Integers
    forgotten: Integers
    left_out: int


Step = Callable[[StepInput], StepOutput]
