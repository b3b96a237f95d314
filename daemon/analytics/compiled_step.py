"""The tracker's step as plain loops, which numba compiles: the results of `numpy_step`, to the last bit.

Each number is computed by the same operations in the same order. Numba does not reorder them, and does not fuse a
multiplication with an addition, unless `fastmath` is asked for.
"""

from __future__ import annotations

import numpy as np

from daemon.analytics import motion
from daemon.analytics.compiled_matching import ZERO, corners_of, iou, match
from daemon.analytics.grouping import Grouping
from daemon.analytics.jit import compiled, inlined
from daemon.analytics.track_step import (
    BORN,
    GROUP,
    HITS,
    ID,
    LOST,
    MAX_TRACKS,
    MISSED,
    SAME_OBJECT,
    SEEN,
    VOTES,
    StepInput,
    StepOutput,
)


def step(work: StepInput) -> StepOutput:
    """Implements `Step`."""
    grouping = work.grouping
    tracks, sources, rows, xyxy, confidence, class_id, *columns, named, young, corners, lost, forgotten, left = _step(
        work.tracks, work.sources, work.confirm, work.thresholds, work.xyxy, work.confidence, work.class_id,
        grouping.group_of, grouping.slot_of, grouping.class_of,
    )  # fmt: skip
    boxes = xyxy, confidence, class_id
    return StepOutput(tracks, sources, rows, boxes, tuple(columns), named, (young, corners), lost, forgotten, left)


def compile_now() -> None:
    """Compile, or load what another process has compiled."""
    nothing = StepInput(
        tracks=np.zeros((0, VOTES + 1)),
        sources=np.zeros((0, 8), np.int64),
        confirm=np.zeros(0, np.int64),
        thresholds=np.zeros((0, 3), np.float32),
        xyxy=np.zeros((0, 4), np.float32),
        confidence=np.zeros(0, np.float32),
        class_id=np.zeros(0, np.int32),
        grouping=Grouping(("none",)),
    )
    step(nothing)


def signatures() -> int:
    """For how many combinations of types the step is compiled."""
    return len(_step.signatures)


@compiled
def _step(
    old_tracks, sources, confirm, thresholds, xyxy, confidence, class_id, group_of, slot_of, class_of
):  # fmt: skip
    boxes = len(class_id)
    table = np.empty((len(old_tracks) + boxes, old_tracks.shape[1]))
    tracks, numbers, old_numbers = table.T, table.view(np.int64).T, old_tracks.view(np.int64)  # a column each
    ends = np.empty((len(sources), 9), np.int64)
    rows, ids, ages = np.empty(boxes, np.int64), np.zeros(boxes, np.int64), np.zeros(boxes, np.int64)
    xyxy_, confidence_, class_id_ = np.empty_like(xyxy), np.empty_like(confidence), np.empty_like(class_id)
    labels, corners, velocity = class_id.copy(), xyxy.copy(), np.zeros((boxes, 2), np.float32)
    named, young, young_corners = np.empty((boxes, 2), np.int64), np.empty(boxes, np.int64), np.empty_like(xyxy)
    lost, forgotten = np.empty(len(old_tracks), np.int64), np.empty(len(old_tracks), np.int64)
    edges, measured, groups = np.ascontiguousarray(xyxy.T), _measured(xyxy), np.empty(boxes, np.int64)
    usable, free, taken = np.empty(boxes, np.bool_), np.empty(boxes, np.bool_), np.zeros(boxes, np.bool_)
    strong, meets = np.empty(boxes, np.bool_), np.empty(boxes, np.bool_)
    box_of, most_pairs = _room(sources)
    keys, pairs, order = np.empty(most_pairs), np.empty((most_pairs, 2), np.int64), np.empty((2, most_pairs), np.int64)
    begin = first_track = first_box = left_out = kept = names = youngs = losses = ends_ = ZERO
    for source in range(len(sources)):
        last_track, last_box = first_track + sources[source, 0], first_box + sources[source, 7]
        last_id, births, now = sources[source, 1], sources[source, 2], sources[source, 3]
        seconds = np.float64(sources[source, 4]) / 1e9
        lost_after, forgotten_after = sources[source, 5], sources[source, 6]
        floor, start, threshold = thresholds[source, 0], thresholds[source, 1], thresholds[source, 2]
        end, first_kept = begin, kept
        first_name, first_young, first_lost, first_end = names, youngs, losses, ends_
        for old in range(first_track, last_track):
            if now - old_numbers[old, SEEN] <= forgotten_after:
                _copy(old_tracks, old, table, end)
                _predict(tracks, end, seconds, numbers[MISSED, end] > 0)
                end += 1
            elif old_numbers[old, ID] > 0:
                forgotten[ends_] = old_numbers[old, ID]
                ends_ += 1
        for box in range(first_box, last_box):
            usable[box], groups[box] = confidence[box] >= floor, group_of[class_id[box]]
            strong[box] = free[box] = usable[box] and confidence[box] >= start
        box_of[: end - begin + last_box - first_box] = -1
        match(
            tracks, numbers, begin, end, now, edges, measured, groups, usable, strong, first_box, last_box,
            meets, keys, pairs, order, taken, box_of, free,
        )  # fmt: skip
        end = _corrected(tracks, numbers, begin, end, now, box_of, measured, confidence, class_id, slot_of)
        losses = _lose(numbers, begin, end, now - lost_after, lost, losses)
        if class_of.shape[1] > 1:
            _drop_doubles(free, xyxy, class_id, groups, strong, first_box, last_box)
        for box in range(first_box, last_box):
            if free[box] and end - begin < MAX_TRACKS:
                births += 1
                _begin(tracks, numbers, end, now, measured, confidence, class_id, groups, slot_of, box, -births)
                box_of[end - begin], free[box] = box, False
                end += 1
            left_out += free[box]
        last_id, names, youngs = _confirm(
            tracks, numbers, begin, end, now, confirm[source], last_id, box_of, class_of, ids, labels, corners,
            velocity, ages, named, names, young, young_corners, youngs,
        )  # fmt: skip
        for box in range(first_box, last_box):
            rows[kept] = box
            kept += confidence[box] >= threshold or ids[box] > 0
        _write(
            ends, source,
            (end - begin, last_id, births, kept - first_kept),
            (names - first_name, youngs - first_young, losses - first_lost, ends_ - first_end),
        )  # fmt: skip
        begin, first_track, first_box = end, last_track, last_box
    _gather(rows[:kept], xyxy, confidence, class_id, xyxy_, confidence_, class_id_)
    _compact(rows[:kept], ids, labels, corners, velocity, ages)
    return (
        table[:begin], ends, rows[:kept], xyxy_[:kept], confidence_[:kept], class_id_[:kept], ids[:kept],
        labels[:kept], corners[:kept], velocity[:kept], ages[:kept], named[:names], young[:youngs],
        young_corners[:youngs], lost[:losses], forgotten[:ends_], left_out,
    )  # fmt: skip


@inlined
def _write(ends, source, counts, changes):
    ends[source, 4] = 0
    for place in range(4):
        ends[source, place], ends[source, 5 + place] = counts[place], changes[place]
        ends[source, 4] |= changes[place] > 0


@compiled
def _confirm(
    tracks, numbers, begin, end, now, confirm, last_id, box_of, class_of, ids, labels, corners, velocity, ages,
    named, names, young, young_corners, youngs,
):  # fmt: skip
    """Give ids to tracks with enough hits, and write the columns of boxes with a confirmed track, and what the other
    tracks are; the last id, and the ends of `named` and `young`."""
    for track in range(begin, end):
        if numbers[ID, track] < 0 and numbers[HITS, track] >= confirm:
            last_id += 1
            named[names, 0], named[names, 1] = last_id, numbers[ID, track]
            numbers[ID, track] = last_id
            names += 1
        box = box_of[track - begin]
        if numbers[ID, track] < 0:
            young[youngs] = numbers[ID, track]
            left, top, right, bottom = corners_of(tracks, track)
            young_corners[youngs, 0], young_corners[youngs, 1] = left, top
            young_corners[youngs, 2], young_corners[youngs, 3] = right, bottom
            youngs += 1
        elif box >= 0:
            ids[box], ages[box] = numbers[ID, track], now - numbers[BORN, track]
            labels[box] = class_of[numbers[GROUP, track], _elected(tracks, track)]
            corners[box, 0], corners[box, 1], corners[box, 2], corners[box, 3] = corners_of(tracks, track)
            velocity[box, 0], velocity[box, 1] = tracks[4, track], tracks[5, track]
    return last_id, names, youngs


@compiled
def _lose(numbers, begin, end, oldest, lost, losses):
    """Note the confirmed tracks without a box that were last seen before a time; the end of `lost`."""
    for track in range(begin, end):
        if 0 < numbers[MISSED, track] < LOST and numbers[SEEN, track] < oldest:
            numbers[MISSED, track] = LOST
            lost[losses] = numbers[ID, track]
            losses += 1
    return losses


@inlined
def _elected(tracks, track):
    """The first slot with the most votes."""
    slot, votes = 0, tracks[VOTES, track]
    for other in range(1, len(tracks) - VOTES):
        if tracks[VOTES + other, track] > votes:
            slot, votes = other, tracks[VOTES + other, track]
    return slot


@inlined
def _copy(source, row, target, place):
    """Copy a row, without parts of arrays: numba counts the references of each."""
    for column in range(source.shape[1]):
        target[place, column] = source[row, column]


@compiled
def _gather(rows, xyxy, confidence, class_id, xyxy_, confidence_, class_id_):
    for place in range(len(rows)):
        row = rows[place]
        confidence_[place], class_id_[place] = confidence[row], class_id[row]
        _copy(xyxy, row, xyxy_, place)


@compiled
def _compact(rows, ids, labels, corners, velocity, ages):
    """Move these rows to the front."""
    for place in range(len(rows)):
        row = rows[place]
        ids[place], labels[place], ages[place] = ids[row], labels[row], ages[row]
        _copy(corners, row, corners, place)
        _copy(velocity, row, velocity, place)


@compiled
def _room(sources):
    """Room for the box of each track that a source can have after the step, and the most pairs of a track and a box."""
    rows = pairs = 0
    for source in range(len(sources)):
        rows = max(rows, sources[source, 0] + sources[source, 7])
        pairs = max(pairs, sources[source, 0] * sources[source, 7])
    return np.empty(rows, np.int64), pairs


@compiled
def _measured(xyxy):
    measured = np.empty((4, len(xyxy)))
    for box in range(len(xyxy)):
        left, top = np.float64(xyxy[box, 0]), np.float64(xyxy[box, 1])
        right, bottom = np.float64(xyxy[box, 2]), np.float64(xyxy[box, 3])
        measured[0, box], measured[1, box] = (left + right) * 0.5, (top + bottom) * 0.5
        measured[2, box], measured[3, box] = right - left, bottom - top
    return measured


@compiled
def _squared(size):
    size = max(size, motion.MIN_SIZE)
    return size * size


@inlined
def _predict(tracks, track, seconds, lost):
    if lost:
        tracks[6, track] *= 0.0
        tracks[7, track] *= 0.0
    squared = _squared(tracks[2, track]), _squared(tracks[3, track])
    for row in range(4):
        square = squared[row % 2]
        noise = motion.VELOCITY_NOISE * square * seconds
        p01, p11 = tracks[12 + row, track], tracks[16 + row, track]
        tracks[row, track] += tracks[4 + row, track] * (seconds if row < 2 else min(seconds, motion.MAX_RESIZE_S))
        tracks[8 + row, track] += seconds * (2.0 * p01 + seconds * (p11 + noise * (1 / 3)))
        tracks[8 + row, track] += motion.POSITION_NOISE * square * seconds
        tracks[12 + row, track] += seconds * (p11 + noise * 0.5)
        tracks[16 + row, track] += noise


@compiled
def _corrected(tracks, numbers, begin, end, now, box_of, measured, confidence, class_id, slot_of):
    """Correct tracks by their boxes, and drop unconfirmed ones without a box; returns where they end now."""
    kept = begin
    for track in range(begin, end):
        box = box_of[track - begin]
        if box < 0 and numbers[ID, track] < 0:
            continue
        if kept < track:
            box_of[kept - begin] = box
            for row in range(len(tracks)):  # parts of arrays in one assignment take numba seconds to compile
                tracks[row, kept] = tracks[row, track]
        if box < 0:
            numbers[MISSED, kept] += 1
        else:
            _correct(tracks, kept, measured, box)
            tracks[VOTES + slot_of[class_id[box]], kept] += confidence[box]
            numbers[HITS, kept] += 1
            numbers[SEEN, kept], numbers[MISSED, kept] = now, 0
        kept += 1
    box_of[kept - begin : end - begin] = -1
    return kept


@inlined
def _correct(tracks, track, measured, box):
    squared = _squared(tracks[2, track]), _squared(tracks[3, track])
    for row in range(4):
        p00, p01, p11 = tracks[8 + row, track], tracks[12 + row, track], tracks[16 + row, track]
        total = p00 + motion.MEASUREMENT_NOISE * squared[row % 2]
        gain, velocity_gain = p00 / total, p01 / total
        error = measured[row, box] - tracks[row, track]
        tracks[row, track] += gain * error
        tracks[4 + row, track] += velocity_gain * error
        tracks[8 + row, track] = p00 - gain * p00
        tracks[12 + row, track] = p01 - gain * p01
        tracks[16 + row, track] = p11 - velocity_gain * p01


@compiled
def _drop_doubles(free, xyxy, class_id, groups, strong, first_box, last_box):
    """Free boxes that are the second box of an object are no longer free."""
    before = free.copy()
    for one in range(first_box, last_box):
        if not before[one]:
            continue
        for other in range(first_box, last_box):
            if (
                strong[other]
                and groups[one] == groups[other]
                and class_id[one] != class_id[other]
                and (other < one or not before[other])
                and _iou_of_boxes(xyxy, one, other) >= SAME_OBJECT
            ):
                free[one] = False
                break


@compiled
def _iou_of_boxes(xyxy, one, other):
    return iou(
        np.float64(xyxy[one, 0]), np.float64(xyxy[one, 1]), np.float64(xyxy[one, 2]), np.float64(xyxy[one, 3]),
        np.float64(xyxy[other, 0]), np.float64(xyxy[other, 1]), np.float64(xyxy[other, 2]), np.float64(xyxy[other, 3]),
    )  # fmt: skip


@compiled
def _begin(tracks, numbers, track, now, measured, confidence, class_id, groups, slot_of, box, number):
    for row in range(len(tracks)):
        tracks[row, track] = measured[row, box] if row < 4 else 0.0  # also the bits of 0
    squared = _squared(tracks[2, track]), _squared(tracks[3, track])
    for row in range(4):
        square = squared[row % 2]
        tracks[8 + row, track] = motion.FIRST_POSITION * square
        tracks[16 + row, track] = motion.FIRST_VELOCITY * square
    tracks[VOTES + slot_of[class_id[box]], track] = confidence[box]
    numbers[ID, track], numbers[HITS, track], numbers[GROUP, track] = number, 1, groups[box]
    numbers[BORN, track], numbers[SEEN, track] = now, now
