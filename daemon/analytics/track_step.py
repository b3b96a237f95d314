"""One step of the tracker, a frame of each of several sources: its input and output, and the numbers of both versions.

`numpy_step` is the reference. `compiled_step` gives the same results, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daemon.analytics.grouping import Grouping

MAX_TRACKS = 1000  # of a source, with those that are lost
ID, HITS, BORN, SEEN, GROUP, MISSED = range(6)
INTEGERS = 6
MIN_IOU = (0.2, 0.5, 0.2)  # by stage: confirmed with a strong box, with a weak one, unconfirmed
SHORT_NS, MIN_SHARE = 100_000_000, 0.25  # a track unseen for longer than that may overlap less, down to this share
MAX_MISSED = 2  # analysed frames in a row without a box, after which a weak box is not enough
SAME_OBJECT = 0.7  # IoU of two boxes of one group

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class StepInput:
    """Tracks and boxes, those of a source side by side. All arrays of (s,) have a place for each source.

    Attributes:
        floats: (n, 20 + width): see `motion`, and the votes for each label of the track's group.
        integers: (n, 6): id (0 until it is confirmed), hits, times of the first and the last box, group, and analysed
            frames since its last box.
        track_counts: (s,) tracks of each source.
        last_ids: (s,) the highest id so far.
        now: (s,) ns of source time.
        seconds: (s,) since the last frame.
        timeout: (s,) ns; a track that is not seen for longer ends.
        confirm: (s,) boxes in a row that confirm a track.
        floor, start: (s,) float32, the confidence of boxes that are looked at, and of those that begin a track.
        box_counts: (s,) boxes of each source.
        xyxy, confidence, class_id: of the boxes, as in `Detections`.
    """

    floats: Floats
    integers: Integers
    track_counts: Integers
    last_ids: Integers
    now: Integers
    seconds: Floats
    timeout: Integers
    confirm: Integers
    floor: npt.NDArray[np.float32]
    start: npt.NDArray[np.float32]
    box_counts: Integers
    xyxy: npt.NDArray[np.float32]
    confidence: npt.NDArray[np.float32]
    class_id: npt.NDArray[np.int32]
    grouping: Grouping


@dataclass(frozen=True)
class StepOutput:
    """Attributes:
    floats, integers, track_counts, last_ids: as in `StepInput`.
    columns: of `Tracks`, for all boxes.
    left_out: boxes that began no track because the source had too many.
    """

    floats: Floats
    integers: Integers
    track_counts: Integers
    last_ids: Integers
    columns: tuple[npt.NDArray[Any], ...]
    left_out: int


Step = Callable[[StepInput], StepOutput]
