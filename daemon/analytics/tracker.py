"""The tracker: ByteTrack's two stages on motion alone, in the source's own time, all sources of a batch in one call.

The time of a frame is its `pts`, or `captured_ns` where it has none. A track's numbers depend on the frames of its
source alone, so results are equal for any batches, lanes and repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daemon.analytics import motion
from daemon.analytics.grouping import Grouping
from daemon.analytics.source_time import elapsed_ns
from daemon.analytics.track_step import GROUP, INTEGERS, Step, StepInput
from daemon.pipeline.frames import FrameInfo
from detectors.detections import NO_TRACKS, Detections, Tracks
from detectors.joining import joined


@dataclass(frozen=True)
class TrackSettings:
    """How the objects of a source are tracked.

    Attributes:
        floor: boxes with less confidence are not looked at.
        start: boxes with less confidence do not begin a track.
        timeout_ns: a track ends that is not seen for longer, in source time.
        confirm_hits: a track is confirmed after so many boxes in a row.
    """

    floor: float
    start: float
    timeout_ns: int
    confirm_hits: int


class SourceTracks:
    """The tracks of one source, a row each. One thread at a time uses it.

    Attributes:
        floats: (n, 20 + width): see `motion`, and the votes for each label of the track's group.
        integers: (n, 6): id (0 until it is confirmed), hits, times of the first and the last box, group, and analysed
            frames since its last box.
        count: n.
        last_id: the highest id so far.
    """

    __slots__ = ("_last", "_now", "count", "floats", "grouping", "integers", "last_id")

    def __init__(self, last_id: int = 0) -> None:
        self.last_id = last_id
        self.grouping: Grouping | None = None
        self._last: FrameInfo | None = None
        self._now = 0  # ns of source time since the first frame

    def advance(self, frame: FrameInfo, timeout_ns: int, grouping: Grouping) -> tuple[int, int]:
        """Go to the next frame: the time now, and since the last frame. All tracks end where time jumps."""
        step = elapsed_ns(self._last, frame) if self._last else 0
        self._last = frame
        if self.grouping is None or not 0 <= step <= timeout_ns:
            self.floats, self.integers = np.empty((0, motion.ROWS + grouping.width)), np.empty((0, INTEGERS), np.int64)
            self.count = step = 0
        elif self.grouping is not grouping:
            self._regroup(self.grouping, grouping)
        self.grouping = grouping
        self._now += step
        return self._now, step

    def _regroup(self, old: Grouping, new: Grouping) -> None:
        groups, votes = old.moved(self.integers[:, GROUP], self.floats[:, motion.ROWS :].T, new)
        kept = groups >= 0
        self.integers[:, GROUP] = groups
        self.integers = self.integers[kept]
        self.floats = np.concatenate((self.floats[:, : motion.ROWS], votes.T), axis=1)[kept]
        self.count = len(self.integers)


def track(
    step: Step,
    frames: Sequence[FrameInfo],
    found: Sequence[Detections],
    states: Sequence[SourceTracks],
    settings: Sequence[TrackSettings],
    grouping: Grouping,
) -> tuple[list[Tracks], int]:
    """Track the boxes of one frame of each of several sources, whose tracks are changed.

    Returns:
        The tracks of each frame's boxes, and the number of boxes that began no track because their source has
        `MAX_TRACKS`.
    """
    tracks = [NO_TRACKS] * len(frames)
    times = [state.advance(frame, own.timeout_ns, grouping) for state, frame, own in zip(states, frames, settings)]
    busy = [place for place, one in enumerate(found) if len(one.confidence) or states[place].count]
    if not busy:
        return tracks, 0
    if len(busy) < len(frames):  # nothing happens to the others
        times, found = [times[place] for place in busy], [found[place] for place in busy]
        states, settings = [states[place] for place in busy], [settings[place] for place in busy]
    done = step(_input(times, found, states, settings, grouping))
    begin = 0
    for state, count, last_id in zip(states, done.track_counts.tolist(), done.last_ids.tolist()):
        end = begin + count
        # Not copied: the next frame makes new arrays, and nobody changes the rows of another source.
        state.floats, state.integers, state.last_id = done.floats[begin:end], done.integers[begin:end], last_id
        state.count = count
        begin = end
    begin = 0
    ids, class_id, xyxy, velocity, age = done.columns
    for place, one in zip(busy, found):
        if count := len(one.confidence):
            rows = slice(begin, begin + count)
            tracks[place] = Tracks(ids[rows], class_id[rows], xyxy[rows], velocity[rows], age[rows])
            begin += count
    return tracks, done.left_out


def _input(
    times: Sequence[tuple[int, int]],
    found: Sequence[Detections],
    states: Sequence[SourceTracks],
    settings: Sequence[TrackSettings],
    grouping: Grouping,
) -> StepInput:
    return StepInput(
        floats=joined([state.floats for state in states]),
        integers=joined([state.integers for state in states]),
        track_counts=np.array([state.count for state in states], np.int64),
        last_ids=np.array([state.last_id for state in states], np.int64),
        now=np.array([now for now, _ in times], np.int64),
        seconds=np.array([since for _, since in times], np.float64) / 1e9,
        timeout=np.array([own.timeout_ns for own in settings], np.int64),
        confirm=np.array([own.confirm_hits for own in settings], np.int64),
        floor=np.array([own.floor for own in settings], np.float32),
        start=np.array([own.start for own in settings], np.float32),
        box_counts=np.array([len(one.confidence) for one in found], np.int64),
        xyxy=joined([one.xyxy for one in found]),
        confidence=joined([one.confidence for one in found]),
        class_id=joined([one.class_id for one in found]),
        grouping=grouping,
    )
