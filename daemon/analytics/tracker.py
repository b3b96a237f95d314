"""The tracker: ByteTrack's two stages on motion alone, in the source's own time, all sources of a batch in one call.

The time of a frame is its `pts`, or `captured_ns` where it has none. A track's numbers depend on the frames of its
source alone, so results are equal for any batches, lanes and repeats.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from daemon.analytics.grouping import Grouping
from daemon.analytics.source_time import elapsed_ns
from daemon.analytics.track_step import GROUP, VOTES, Integers, Step, StepInput, StepOutput
from daemon.pipeline.frames import FrameInfo
from detectors.detections import Detections, Tracks
from detectors.joining import joined


@dataclass(frozen=True)
class TrackSettings:
    """How the objects of a source are tracked.

    Attributes:
        floor: boxes with less confidence are not looked at.
        start: boxes with less confidence do not begin a track.
        threshold: boxes with less confidence are removed, but for those of confirmed tracks.
        timeout_ns: a track ends that is not seen for longer, in source time.
        confirm_hits: a track is confirmed after so many boxes in a row.
    """

    floor: float
    start: float
    threshold: float
    timeout_ns: int
    confirm_hits: int


class SourceTracks:
    """The tracks of one source, a row each. One thread at a time uses it.

    Attributes:
        rows: see `StepInput.tracks`.
        count: n.
        last_id: the highest id so far.
    """

    __slots__ = ("_last", "_now", "count", "grouping", "last_id", "rows")

    def __init__(self, last_id: int = 0) -> None:
        self.last_id = last_id
        self.grouping: Grouping | None = None
        self._last: FrameInfo | None = None
        self._now = 0  # ns of source time since the first frame

    def advance(self, frame: FrameInfo, timeout_ns: int, grouping: Grouping) -> tuple[int, int]:
        """Go to the next frame: the time now, and since the last frame. All tracks end where time jumps."""
        last, self._last = self._last, frame
        step = 0 if last is None else elapsed_ns(last, frame)
        if self.grouping is grouping and 0 <= step <= timeout_ns:  # as a rule
            self._now += step
            return self._now, step
        if self.grouping is None or not 0 <= step <= timeout_ns:
            self.rows = np.empty((0, VOTES + grouping.width))
            self.count = step = 0
        else:
            self._regroup(self.grouping, grouping)
        self.grouping = grouping
        self._now += step
        return self._now, step

    def _regroup(self, old: Grouping, new: Grouping) -> None:
        groups, votes = old.moved(self.rows.view(np.int64)[:, GROUP], self.rows[:, VOTES:].T, new)
        self.rows = np.concatenate((self.rows[:, :VOTES], votes.T), axis=1)
        self.rows.view(np.int64)[:, GROUP] = groups
        self.rows = self.rows[groups >= 0]
        self.count = len(self.rows)


def track(
    step: Step,
    frames: Sequence[FrameInfo],
    found: Sequence[Detections],
    states: Sequence[SourceTracks],
    settings: Sequence[TrackSettings],
    grouping: Grouping,
) -> tuple[list[Detections], int]:
    """Track the boxes of one frame of each of several sources, whose tracks are changed.

    Returns:
        The boxes of each frame that stay, with their tracks, and the number of boxes that began no track because their
        source has `MAX_TRACKS`.
    """
    numbers: list[int] = []
    for state, frame, own, one in zip(states, frames, settings, found):
        now, since = state.advance(frame, own.timeout_ns, grouping)
        numbers += (state.count, state.last_id, now, since, len(one.confidence))
    limits, thresholds = _settings_of(settings)
    done = step(
        StepInput(
            joined([state.rows for state in states]),
            np.frombuffer(array("q", numbers), np.int64).reshape(-1, 5),
            limits,
            thresholds,
            joined([one.xyxy for one in found]),
            joined([one.confidence for one in found]),
            joined([one.class_id for one in found]),
            grouping,
        )
    )
    return _given_back(done, found, states, settings), done.left_out


def _given_back(
    done: StepOutput, found: Sequence[Detections], states: Sequence[SourceTracks], settings: Sequence[TrackSettings]
) -> list[Detections]:
    """Give each source its tracks, and each frame its boxes.

    Nothing is copied: the next frame makes new arrays, and nobody changes the rows of another source.
    """
    tracks, (xyxy, confidence, class_id), (id, label, corners, velocity, age) = done.tracks, done.boxes, done.columns
    begin = first = before = 0
    result = []
    for one, state, own, (count, last_id, kept) in zip(found, states, settings, done.sources.tolist()):
        end, last = begin + count, first + kept
        state.rows, state.count, state.last_id = tracks[begin:end], count, last_id
        now = slice(first, last)
        of_boxes = Tracks(id[now], label[now], corners[now], velocity[now], age[now])
        if one.is_plain:
            boxes = one.with_rows(xyxy[now], confidence[now], class_id[now], of_boxes, own.threshold)
        else:
            kept_rows = one.select(done.rows[now] - before)
            boxes = kept_rows.with_rows(
                kept_rows.xyxy, kept_rows.confidence, kept_rows.class_id, of_boxes, own.threshold
            )
        result.append(boxes)
        begin, first, before = end, last, before + len(one.confidence)
    return result


def _settings_of(settings: Sequence[TrackSettings]) -> tuple[Integers, npt.NDArray[np.float32]]:
    """`StepInput.limits` and `StepInput.thresholds`."""
    first = settings[0]
    if settings.count(first) == len(settings):  # the same object as a rule, which is quick to see
        return _equal_settings(first, len(settings))
    return (
        np.array([(own.timeout_ns, own.confirm_hits) for own in settings], np.int64),
        np.array([(own.floor, own.start, own.threshold) for own in settings], np.float32),
    )


@lru_cache(maxsize=256)
def _equal_settings(own: TrackSettings, count: int) -> tuple[Integers, npt.NDArray[np.float32]]:
    return (
        np.array([(own.timeout_ns, own.confirm_hits)] * count, np.int64),
        np.array([(own.floor, own.start, own.threshold)] * count, np.float32),
    )
