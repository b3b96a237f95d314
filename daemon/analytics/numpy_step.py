"""The tracker's step in numpy: ByteTrack's two stages on motion alone.

A confirmed track first takes a box that is strong enough to begin a track. Tracks that were seen in one of the last
analysed frames may then take a weak one, and unconfirmed tracks come last (Zhang et al., "ByteTrack", ECCV 2022). Pairs
are made from the best to the worst instead of by the Hungarian method. The best pair overlaps most; after a gap it also
has alike shapes, because a track then knows its size better than its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daemon.analytics import motion
from daemon.analytics.association import Indices, Rows, iou, mutual_best, overlapping, shape_iou
from daemon.analytics.track_step import (
    BORN,
    GAP_NS,
    GROUP,
    HITS,
    ID,
    LAST_PLACE,
    LOST,
    MARGIN_PER_S,
    MARGIN_S,
    MAX_MISSED,
    MAX_TRACKS,
    MIN_IOU,
    MIN_SHARE,
    MISSED,
    SAME_OBJECT,
    SEEN,
    SHAPE_SHARE,
    SHORT_NS,
    VOTES,
    Floats,
    Integers,
    StepInput,
    StepOutput,
)

_MIN_IOU = np.array(MIN_IOU)


@dataclass
class _Tracks:
    """The tracks of several sources side by side, a column each.

    Attributes:
        floats: (26 + width, n): `StepInput.tracks`.
        source: (n,) place of the source, in order.
        box: (n,) place of the track's box; -1 for a track without one in this frame.
    """

    floats: Floats
    source: Indices
    box: Indices

    @property
    def integers(self) -> Integers:
        """The same memory as int64."""
        return self.floats.view(np.int64)

    def __getitem__(self, columns: npt.NDArray[np.bool_] | Indices) -> _Tracks:
        if columns.dtype == np.bool_:
            columns = np.flatnonzero(columns)
        return _Tracks(
            self.floats.take(columns, axis=1),  # twice as fast as an index
            self.source.take(columns),
            self.box.take(columns),
        )

    def match(self, box: Indices) -> None:
        """These are their boxes in this frame."""
        self.box = box

    def beside(self, other: _Tracks) -> _Tracks:
        """With other tracks, which come after those of the same source."""
        both = _Tracks(
            np.concatenate((self.floats, other.floats), axis=1),
            np.concatenate((self.source, other.source)),
            np.concatenate((self.box, other.box)),
        )
        return both[np.argsort(both.source, kind="stable")]


def step(work: StepInput) -> StepOutput:
    """Implements `Step`."""
    return _Step(work).run()


class _Step:
    def __init__(self, work: StepInput) -> None:
        self._in, self._left_out = work, 0
        grouping, class_id = work.grouping, work.class_id
        self._track_counts, self._last_ids, self._births = work.sources.T[:3]
        self._now, step, self._lost_after, self._forgotten_after, self._box_counts = work.sources.T[3:]
        self._seconds, self._confirm = step / 1e9, work.confirm
        self._source = np.repeat(np.arange(len(work.sources)), self._box_counts)  # of each box
        floor, start, self._threshold = work.thresholds.T
        self._usable = work.confidence >= floor[self._source]
        self._strong = work.confidence >= start[self._source]
        self._strong &= self._usable
        self._group, self._slot = grouping.group_of[class_id], grouping.slot_of[class_id]
        self._rows = Rows(work.xyxy.T.astype(np.float64), self._box_counts)
        self._measured = motion.measured(work.xyxy)

    def run(self) -> StepOutput:
        """Move, match, begin and end tracks."""
        tracks, forgotten = self._predicted()
        tracks.match(self._matched(tracks))
        self._correct(tracks)
        seen = tracks.box >= 0
        tracks.integers[MISSED] = np.where(seen, 0, tracks.integers[MISSED] + 1)
        kept = seen | (tracks.integers[ID] > 0)  # an unconfirmed track ends when it is not seen
        if not kept.all():
            tracks = tracks[kept]
        lost = self._lost(tracks)
        born = self._born(tracks)
        if len(born):
            tracks = tracks.beside(self._begun(born))
        last_ids, named = self._give_ids(tracks)
        columns = self._columns(tracks)
        young = tracks[tracks.integers[ID] < 0]
        threshold = self._threshold[self._source]
        rows = np.flatnonzero((self._in.confidence >= threshold) | (columns[0] > 0))
        births = self._births + self._counts(self._source[born])
        counts = map(self._counts, (tracks.source, self._source[rows], young.source, lost.source, forgotten.source))
        held, kept, *parts = counts
        parts.insert(0, last_ids - self._last_ids)
        return StepOutput(
            tracks.floats.T.copy(),
            np.stack((held, last_ids, births, kept, np.any(parts, axis=0), *parts), axis=1),
            rows,
            (self._in.xyxy[rows], self._in.confidence[rows], self._in.class_id[rows]),
            tuple(column[rows] for column in columns),
            named,
            (young.integers[ID], motion.corners(young.floats).T.astype(np.float32)),
            lost.integers[ID],
            forgotten.integers[ID],
            self._left_out,
        )

    def _counts(self, source: Indices) -> Integers:
        """How many there are of each source."""
        return np.bincount(source, minlength=len(self._now))

    def _predicted(self) -> tuple[_Tracks, _Tracks]:
        """The tracks in the present frame, and the confirmed ones that are forgotten."""
        source = np.repeat(np.arange(len(self._track_counts)), self._track_counts)
        tracks = _Tracks(self._in.tracks.T.copy(), source, np.empty(len(source), np.intp))
        alive = self._now[source] - tracks.integers[SEEN] <= self._forgotten_after[source]
        forgotten = tracks[~alive & (tracks.integers[ID] > 0)]
        if not alive.all():
            tracks = tracks[alive]
        motion.predict(tracks.floats, self._seconds[tracks.source], tracks.integers[MISSED] > 0)
        return tracks, forgotten

    def _matched(self, tracks: _Tracks) -> Indices:
        """The box of each track, or -1."""
        missed, confirmed = tracks.integers[MISSED], tracks.integers[ID] > 0
        unseen_ns = np.maximum(self._now[tracks.source] - tracks.integers[SEEN], 1)
        margin = _margins(unseen_ns) * np.maximum(np.minimum(*tracks.floats[2:4]), 0.0)
        corners = _widened(motion.corners(tracks.floats), margin)
        moved = tracks.floats[4:6] * np.where(missed > 0, unseen_ns / 1e9, 0.0)  # since it was last seen
        last = corners - np.concatenate((moved, moved))
        both = np.concatenate((np.minimum(corners[:2], last[:2]), np.maximum(corners[2:], last[2:])))
        track, box = overlapping(Rows(_widened(both, margin), self._counts(tracks.source)), self._rows)
        recent = (missed <= MAX_MISSED) & confirmed
        strong = self._strong[box]
        possible = (tracks.integers[GROUP][track] == self._group[box]) & self._usable[box]
        possible &= strong | recent[track]
        track, box, strong = track[possible], box[possible], strong[possible]
        boxes = _widened(self._rows.corners.take(box, axis=1), margin[track])
        overlap = iou(corners.take(track, axis=1), boxes)
        lost = np.flatnonzero(missed[track] > 0)
        there = LAST_PLACE * iou(last.take(track[lost], axis=1), boxes.take(lost, axis=1))
        overlap[lost] = np.maximum(overlap[lost], there)
        stage = np.where(strong, np.where(confirmed[track], 0, 2), 1)
        expected = np.maximum(np.minimum(SHORT_NS / unseen_ns, 1.0), MIN_SHARE)
        near = overlap >= _MIN_IOU[stage] * expected[track]
        track, box, overlap, stage = track[near], box[near], overlap[near], stage[near]
        long = np.flatnonzero(unseen_ns[track] > GAP_NS)
        shape = shape_iou(tracks.floats[2:4].take(track[long], axis=1), self._measured[2:4].take(box[long], axis=1))
        overlap[long] *= 1.0 - SHAPE_SHARE + SHAPE_SHARE * shape
        order = np.argsort(2.0 * stage - overlap, kind="stable")
        return mutual_best(track[order], box[order], len(tracks.source), len(self._in.class_id))

    def _correct(self, tracks: _Tracks) -> None:
        columns = np.flatnonzero(tracks.box >= 0)
        box = tracks.box[columns]
        seen = tracks.floats[: motion.ROWS].take(columns, axis=1)
        tracks.floats[: motion.ROWS, columns] = motion.correct(seen, self._measured.take(box, axis=1))
        tracks.floats[VOTES + self._slot[box], columns] += self._in.confidence[box]
        tracks.integers[HITS, columns] += 1
        tracks.integers[SEEN, columns] = self._now[tracks.source[columns]]

    def _lost(self, tracks: _Tracks) -> _Tracks:
        """Those that are lost from now on."""
        missed, integers = tracks.integers[MISSED], tracks.integers
        is_late = integers[SEEN] < (self._now - self._lost_after)[tracks.source]
        late = np.flatnonzero((missed > 0) & (missed < LOST) & is_late)
        integers[MISSED, late] = LOST
        return tracks[late]

    def _born(self, tracks: _Tracks) -> Indices:
        """The boxes that begin tracks."""
        free = self._strong.copy()
        free[tracks.box[tracks.box >= 0]] = False
        if self._in.grouping.width > 1 and free.any():
            free &= ~self._doubles(free)
        born = np.flatnonzero(free)
        room = MAX_TRACKS - np.bincount(tracks.source, minlength=len(self._box_counts))
        source = self._source[born]
        fits = np.arange(len(born)) - np.searchsorted(source, source) < room[source]  # strongest first
        self._left_out = int(len(born) - fits.sum())
        return born[fits]

    def _doubles(self, free: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Free boxes that are the second box of an object: two labels of a group in one place, as car and truck."""
        one, other = overlapping(self._rows, self._rows)
        same = free[one] & self._strong[other] & (self._group[one] == self._group[other])
        same &= self._in.class_id[one] != self._in.class_id[other]
        same &= ~free[other] | (other < one)  # the other is of a track, or stronger
        one, other = one[same], other[same]
        close = iou(self._rows.corners[:, one], self._rows.corners[:, other]) >= SAME_OBJECT
        doubles = np.zeros(len(free), np.bool_)
        doubles[one[close]] = True
        return doubles

    def _begun(self, born: Indices) -> _Tracks:
        floats, source = np.zeros((VOTES + self._in.grouping.width, len(born))), self._source[born]
        floats[: motion.ROWS] = motion.begin(self._measured[:, born])
        floats[VOTES + self._slot[born], np.arange(len(born))] = self._in.confidence[born]
        tracks = _Tracks(floats, source, born)
        integers = tracks.integers
        integers[ID] = -(self._births[source] + 1 + np.arange(len(born)) - np.searchsorted(source, source))
        integers[HITS] = 1
        integers[BORN] = integers[SEEN] = self._now[source]
        integers[GROUP] = self._group[born]
        return tracks

    def _give_ids(self, tracks: _Tracks) -> tuple[Integers, Integers]:
        """Confirm tracks: the highest id of each source after that, and `StepOutput.named`."""
        integers = tracks.integers
        ready = np.flatnonzero((integers[ID] < 0) & (integers[HITS] >= self._confirm[tracks.source]))
        source, numbers = tracks.source[ready], integers[ID, ready]
        integers[ID, ready] = self._last_ids[source] + 1 + np.arange(len(ready)) - np.searchsorted(source, source)
        return self._last_ids + self._counts(source), np.stack((integers[ID, ready], numbers), axis=1)

    def _columns(self, tracks: _Tracks) -> tuple[npt.NDArray[Any], ...]:
        count = len(self._in.class_id)
        columns = np.flatnonzero((tracks.box >= 0) & (tracks.integers[ID] > 0))
        box, floats = tracks.box[columns], tracks.floats.take(columns, axis=1)
        integers = floats.view(np.int64)
        ids, ages = np.zeros(count, np.int64), np.zeros(count, np.int64)
        class_id, xyxy = self._in.class_id.copy(), self._in.xyxy.copy()
        velocity = np.zeros((count, 2), np.float32)
        ids[box] = integers[ID]
        ages[box] = self._now[tracks.source[columns]] - integers[BORN]
        class_id[box] = self._in.grouping.class_of[integers[GROUP], floats[VOTES:].argmax(axis=0)]
        xyxy[box] = motion.corners(floats).T
        velocity[box] = floats[4:6].T
        return ids, class_id, xyxy, velocity, ages


def _margins(unseen_ns: Integers) -> Floats:
    """The share of its smaller side by which a track's box is wider on each side, and a box that it is compared with.

    An object that nobody saw may have turned or stopped. Where frames are far apart, a new track has no velocity yet.
    """
    return MARGIN_PER_S * np.minimum(np.maximum(unseen_ns - SHORT_NS, 0) / 1e9, MARGIN_S)


def _widened(corners: Floats, margin: Floats) -> Floats:
    """Boxes (4, n) with a margin (n,) on each side."""
    return np.concatenate((corners[:2] - margin, corners[2:] + margin))
