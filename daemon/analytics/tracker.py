"""The tracker: ByteTrack's two stages on motion alone, in the source's own time, all sources of a batch in one call.

A confirmed track first takes a box that is strong enough to begin a track. Tracks that were seen in one of the last
analysed frames may then take a weak one, and unconfirmed tracks come last (Zhang et al., "ByteTrack", ECCV 2022). Pairs
are made from the best to the worst instead of by the Hungarian method. The best pair overlaps most and has most alike
shapes: after a gap a track knows its size better than its place.

The time of a frame is its `pts`, or `captured_ns` where it has none. A track's numbers depend on the frames of its
source alone, so results are equal for any batches, lanes and repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daemon.analytics import motion
from daemon.analytics.association import Indices, Rows, iou, mutual_best, overlapping, shape_iou
from daemon.analytics.grouping import Grouping
from daemon.analytics.source_time import elapsed_ns
from daemon.pipeline.frames import FrameInfo
from detectors.detections import Detections, Tracks

MAX_TRACKS = 1000  # of a source, with those that are lost
_ID, _HITS, _BORN, _SEEN, _GROUP, _MISSED = range(6)
_INTEGERS = 6
_MIN_IOU = np.array([0.2, 0.5, 0.2])  # by stage: confirmed with a strong box, with a weak one, unconfirmed
_SHORT_NS, _MIN_SHARE = 100_000_000, 0.25  # a track unseen for longer than that may overlap less, down to this share
_MAX_MISSED = 2  # analysed frames in a row without a box, after which a weak box is not enough
_SAME_OBJECT = 0.7  # IoU of two boxes of one group


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
    """The tracks of one source, a column each. One thread at a time uses it.

    Attributes:
        floats: (20 + width, n): see `motion`, and the votes for each label of the track's group.
        integers: (6, n): id (0 until it is confirmed), hits, times of the first and the last box, group, and analysed
            frames since its last box.
        last_id: the highest id so far.
    """

    __slots__ = ("_last", "_now", "floats", "grouping", "integers", "last_id")

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
            self.floats, self.integers = np.empty((motion.ROWS + grouping.width, 0)), np.empty((_INTEGERS, 0), np.int64)
            step = 0
        elif self.grouping is not grouping:
            self._regroup(self.grouping, grouping)
        self.grouping = grouping
        self._now += step
        return self._now, step

    def _regroup(self, old: Grouping, new: Grouping) -> None:
        groups, votes = old.moved(self.integers[_GROUP], self.floats[motion.ROWS :], new)
        kept = groups >= 0
        self.integers[_GROUP] = groups
        self.integers = self.integers[:, kept]
        self.floats = np.concatenate((self.floats[: motion.ROWS], votes))[:, kept]


@dataclass
class _Tracks:
    """The tracks of several sources side by side.

    Attributes:
        source: (n,) place of the source, in order.
        box: (n,) place of the track's box; -1 for a track without one in this frame.
    """

    floats: npt.NDArray[np.float64]
    integers: npt.NDArray[np.int64]
    source: Indices
    box: Indices

    def __getitem__(self, columns: npt.NDArray[np.bool_] | Indices) -> _Tracks:
        if columns.dtype == np.bool_:
            columns = np.flatnonzero(columns)
        return _Tracks(
            self.floats.take(columns, axis=1),  # twice as fast as an index
            self.integers.take(columns, axis=1),
            self.source.take(columns),
            self.box.take(columns),
        )

    def beside(self, other: _Tracks) -> _Tracks:
        """With other tracks, which come after those of the same source."""
        both = _Tracks(
            np.concatenate((self.floats, other.floats), axis=1),
            np.concatenate((self.integers, other.integers), axis=1),
            np.concatenate((self.source, other.source)),
            np.concatenate((self.box, other.box)),
        )
        return both[np.argsort(both.source, kind="stable")]


class _Step:
    """One frame of each of several sources.

    Attributes:
        left_out: boxes that began no track because the source had too many.
    """

    def __init__(
        self,
        frames: Sequence[FrameInfo],
        found: Sequence[Detections],
        states: Sequence[SourceTracks],
        settings: Sequence[TrackSettings],
        grouping: Grouping,
    ) -> None:
        self._states, self._grouping, self.left_out = states, grouping, 0
        times = [state.advance(frame, own.timeout_ns, grouping) for state, frame, own in zip(states, frames, settings)]
        self._now = np.array([now for now, _ in times], np.int64)
        self._seconds = np.array([step for _, step in times], np.float64) / 1e9
        self._timeout = np.array([own.timeout_ns for own in settings], np.int64)
        self._confirm = np.array([own.confirm_hits for own in settings], np.int64)

        self._counts = np.array([len(one) for one in found], np.intp)
        self._source = np.repeat(np.arange(len(found)), self._counts)  # of each box
        self._xyxy = np.concatenate([one.xyxy for one in found])
        self._confidence = np.concatenate([one.confidence for one in found])
        self._class_id = np.concatenate([one.class_id for one in found])
        self._usable = self._confidence >= np.array([own.floor for own in settings], np.float32)[self._source]
        self._strong = self._confidence >= np.array([own.start for own in settings], np.float32)[self._source]
        self._strong &= self._usable
        self._group, self._slot = grouping.group_of[self._class_id], grouping.slot_of[self._class_id]
        self._rows = Rows(self._xyxy.T.astype(np.float64), self._counts)
        self._measured = motion.measured(self._xyxy)

    def run(self) -> list[Tracks]:
        """Move, match, begin and end tracks; the tracks of each frame's boxes."""
        tracks = self._predicted()
        tracks.box = self._matched(tracks)
        self._correct(tracks)
        seen = tracks.box >= 0
        tracks.integers[_MISSED] = np.where(seen, 0, tracks.integers[_MISSED] + 1)
        kept = seen | (tracks.integers[_ID] > 0)  # an unconfirmed track ends when it is not seen
        if not kept.all():
            tracks = tracks[kept]
        born = self._born(tracks)
        if len(born):
            tracks = tracks.beside(self._begun(born))
        self._give_ids(tracks)
        self._store(tracks)
        return self._columns(tracks)

    def _predicted(self) -> _Tracks:
        states = self._states
        counts = [state.integers.shape[1] for state in states]
        source = np.repeat(np.arange(len(states)), counts)
        tracks = _Tracks(
            np.concatenate([state.floats for state in states], axis=1),
            np.concatenate([state.integers for state in states], axis=1),
            source,
            np.empty(len(source), np.intp),
        )
        alive = self._now[source] - tracks.integers[_SEEN] <= self._timeout[source]
        if not alive.all():
            tracks = tracks[alive]
        motion.predict(tracks.floats, self._seconds[tracks.source], tracks.integers[_MISSED] > 0)
        return tracks

    def _matched(self, tracks: _Tracks) -> Indices:
        """The box of each track, or -1."""
        corners = motion.corners(tracks.floats)
        counts = np.bincount(tracks.source, minlength=len(self._counts))
        track, box = overlapping(Rows(corners, counts), self._rows)
        confirmed = tracks.integers[_ID] > 0
        recent = (tracks.integers[_MISSED] <= _MAX_MISSED) & confirmed
        strong = self._strong[box]
        possible = (tracks.integers[_GROUP][track] == self._group[box]) & self._usable[box]
        possible &= strong | recent[track]
        track, box, strong = track[possible], box[possible], strong[possible]
        overlap = iou(corners.take(track, axis=1), self._rows.corners.take(box, axis=1))
        stage = np.where(strong, np.where(confirmed[track], 0, 2), 1)
        unseen_ns = self._now[tracks.source] - tracks.integers[_SEEN]
        expected = np.maximum(np.minimum(_SHORT_NS / np.maximum(unseen_ns, 1), 1.0), _MIN_SHARE)
        near = overlap >= _MIN_IOU[stage] * expected[track]
        track, box = track[near], box[near]
        shape = shape_iou(tracks.floats[2:4].take(track, axis=1), self._measured[2:4].take(box, axis=1))
        order = np.argsort(2.0 * stage[near] - overlap[near] * shape, kind="stable")
        return mutual_best(track[order], box[order], len(tracks.source), len(self._class_id))

    def _correct(self, tracks: _Tracks) -> None:
        columns = np.flatnonzero(tracks.box >= 0)
        box = tracks.box[columns]
        seen = tracks.floats[: motion.ROWS].take(columns, axis=1)
        tracks.floats[: motion.ROWS, columns] = motion.correct(seen, self._measured.take(box, axis=1))
        tracks.floats[motion.ROWS + self._slot[box], columns] += self._confidence[box]
        tracks.integers[_HITS, columns] += 1
        tracks.integers[_SEEN, columns] = self._now[tracks.source[columns]]

    def _born(self, tracks: _Tracks) -> Indices:
        """The boxes that begin tracks."""
        free = self._strong.copy()
        free[tracks.box[tracks.box >= 0]] = False
        if self._grouping.width > 1 and free.any():
            free &= ~self._doubles(free)
        born = np.flatnonzero(free)
        room = MAX_TRACKS - np.bincount(tracks.source, minlength=len(self._counts))
        source = self._source[born]
        fits = np.arange(len(born)) - np.searchsorted(source, source) < room[source]  # strongest first
        self.left_out = int(len(born) - fits.sum())
        return born[fits]

    def _doubles(self, free: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Free boxes that are the second box of an object: two labels of a group in one place, as car and truck."""
        one, other = overlapping(self._rows, self._rows)
        same = free[one] & self._strong[other] & (self._group[one] == self._group[other])
        same &= self._class_id[one] != self._class_id[other]
        same &= ~free[other] | (other < one)  # the other is of a track, or stronger
        one, other = one[same], other[same]
        close = iou(self._rows.corners[:, one], self._rows.corners[:, other]) >= _SAME_OBJECT
        doubles = np.zeros(len(free), np.bool_)
        doubles[one[close]] = True
        return doubles

    def _begun(self, born: Indices) -> _Tracks:
        votes = np.zeros((self._grouping.width, len(born)))
        votes[self._slot[born], np.arange(len(born))] = self._confidence[born]
        integers = np.zeros((_INTEGERS, len(born)), np.int64)
        source = self._source[born]
        integers[_HITS] = 1
        integers[_BORN] = integers[_SEEN] = self._now[source]
        integers[_GROUP] = self._group[born]
        return _Tracks(np.concatenate((motion.begin(self._measured[:, born]), votes)), integers, source, born)

    def _give_ids(self, tracks: _Tracks) -> None:
        integers = tracks.integers
        ready = np.flatnonzero((integers[_ID] == 0) & (integers[_HITS] >= self._confirm[tracks.source]))
        if not len(ready):
            return
        source = tracks.source[ready]
        last = np.array([state.last_id for state in self._states], np.int64)
        integers[_ID, ready] = last[source] + 1 + np.arange(len(ready)) - np.searchsorted(source, source)
        for place, count in zip(*np.unique(source, return_counts=True)):
            self._states[place].last_id += int(count)

    def _store(self, tracks: _Tracks) -> None:
        ends = np.searchsorted(tracks.source, np.arange(len(self._states) + 1)).tolist()
        for state, begin, end in zip(self._states, ends, ends[1:]):
            # Not copied: the next frame makes new arrays, and nobody changes the columns of another source.
            state.floats, state.integers = tracks.floats[:, begin:end], tracks.integers[:, begin:end]

    def _columns(self, tracks: _Tracks) -> list[Tracks]:
        count = len(self._class_id)
        columns = np.flatnonzero((tracks.box >= 0) & (tracks.integers[_ID] > 0))
        box, integers = tracks.box[columns], tracks.integers.take(columns, axis=1)
        floats = tracks.floats.take(columns, axis=1)
        ids, ages = np.zeros(count, np.int64), np.zeros(count, np.int64)
        class_id, xyxy = self._class_id.copy(), self._xyxy.copy()
        velocity = np.zeros((count, 2), np.float32)
        ids[box] = integers[_ID]
        ages[box] = self._now[tracks.source[columns]] - integers[_BORN]
        class_id[box] = self._grouping.class_of[integers[_GROUP], floats[motion.ROWS :].argmax(axis=0)]
        xyxy[box] = motion.corners(floats).T
        velocity[box] = floats[4:6].T
        ends = np.cumsum(self._counts).tolist()
        return [Tracks(ids[a:b], class_id[a:b], xyxy[a:b], velocity[a:b], ages[a:b]) for a, b in zip([0, *ends], ends)]


def track(
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
    step = _Step(frames, found, states, settings, grouping)
    return step.run(), step.left_out
