"""The tracker's step as plain loops, which numba compiles: the results of `numpy_step`, to the last bit.

Each number is computed by the same operations in the same order. Numba does not reorder them, and does not fuse a
multiplication with an addition, unless `fastmath` is asked for.
"""

from __future__ import annotations

import numpy as np

from daemon.analytics import motion
from daemon.analytics.grouping import Grouping
from daemon.analytics.jit import compiled, inlined
from daemon.analytics.track_step import (
    BORN,
    GROUP,
    HITS,
    ID,
    MAX_MISSED,
    MAX_TRACKS,
    MIN_IOU,
    MIN_SHARE,
    MISSED,
    SAME_OBJECT,
    SEEN,
    SHORT_NS,
    VOTES,
    StepInput,
    StepOutput,
)


def step(work: StepInput) -> StepOutput:
    """Implements `Step`."""
    grouping = work.grouping
    tracks, sources, rows, xyxy, confidence, class_id, *columns, left_out = _step(
        work.tracks, work.sources, work.limits, work.thresholds, work.xyxy, work.confidence, work.class_id,
        grouping.group_of, grouping.slot_of, grouping.class_of,
    )  # fmt: skip
    return StepOutput(tracks, sources, rows, (xyxy, confidence, class_id), tuple(columns), left_out)


def compile_now() -> None:
    """Compile, or load what another process has compiled."""
    nothing = StepInput(
        tracks=np.zeros((0, VOTES + 1)),
        sources=np.zeros((0, 5), np.int64),
        limits=np.zeros((0, 2), np.int64),
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
    old_tracks, sources, limits, thresholds, xyxy, confidence, class_id, group_of, slot_of, class_of
):  # fmt: skip
    boxes = len(class_id)
    table = np.empty((len(old_tracks) + boxes, old_tracks.shape[1]))
    tracks, numbers, old_numbers = table.T, table.view(np.int64).T, old_tracks.view(np.int64)  # a column each
    ends = np.empty((len(sources), 3), np.int64)
    rows, ids, ages = np.empty(boxes, np.int64), np.zeros(boxes, np.int64), np.zeros(boxes, np.int64)
    xyxy_, confidence_, class_id_ = np.empty_like(xyxy), np.empty_like(confidence), np.empty_like(class_id)
    labels, corners, velocity = class_id.copy(), xyxy.copy(), np.zeros((boxes, 2), np.float32)
    edges, measured, groups = np.ascontiguousarray(xyxy.T), _measured(xyxy), np.empty(boxes, np.int64)
    usable, free, taken = np.empty(boxes, np.bool_), np.empty(boxes, np.bool_), np.zeros(boxes, np.bool_)
    strong, meets = np.empty(boxes, np.bool_), np.empty(boxes, np.bool_)
    most_rows, most_pairs = _room(sources)
    box_of, keys, pairs = np.empty(most_rows, np.int64), np.empty(most_pairs), np.empty((most_pairs, 2), np.int64)
    begin = first_track = first_box = left_out = kept = 0
    for source in range(len(sources)):
        last_track, last_box = first_track + sources[source, 0], first_box + sources[source, 4]
        last_id, now, seconds = sources[source, 1], sources[source, 2], np.float64(sources[source, 3]) / 1e9
        timeout, confirm = limits[source, 0], limits[source, 1]
        floor, start, threshold = thresholds[source, 0], thresholds[source, 1], thresholds[source, 2]
        end, first_kept = begin, kept
        for old in range(first_track, last_track):
            if now - old_numbers[old, SEEN] <= timeout:
                _copy(old_tracks, old, table, end)
                _predict(tracks, end, seconds, numbers[MISSED, end] > 0)
                end += 1
        for box in range(first_box, last_box):
            usable[box], groups[box] = confidence[box] >= floor, group_of[class_id[box]]
            strong[box] = free[box] = usable[box] and confidence[box] >= start
        box_of[: end - begin + last_box - first_box] = -1
        _match(
            tracks, numbers, begin, end, now, edges, measured, groups, usable, strong, first_box, last_box,
            meets, keys, pairs, taken, box_of, free,
        )  # fmt: skip
        end = _corrected(tracks, numbers, begin, end, now, box_of, measured, confidence, class_id, slot_of)
        if class_of.shape[1] > 1:
            _drop_doubles(free, xyxy, class_id, groups, strong, first_box, last_box)
        for box in range(first_box, last_box):
            if free[box] and end - begin < MAX_TRACKS:
                _begin(tracks, numbers, end, now, measured, confidence, class_id, groups, slot_of, box)
                box_of[end - begin], free[box] = box, False
                end += 1
            left_out += free[box]
        last_id = _confirm(
            tracks, numbers, begin, end, now, confirm, last_id, box_of, class_of, ids, labels, corners, velocity, ages
        )
        for box in range(first_box, last_box):
            rows[kept] = box
            kept += confidence[box] >= threshold or ids[box] > 0
        ends[source, 0], ends[source, 1], ends[source, 2] = end - begin, last_id, kept - first_kept
        begin, first_track, first_box = end, last_track, last_box
    _gather(rows[:kept], xyxy, confidence, class_id, xyxy_, confidence_, class_id_)
    _compact(rows[:kept], ids, labels, corners, velocity, ages)
    return (
        table[:begin], ends, rows[:kept], xyxy_[:kept], confidence_[:kept], class_id_[:kept], ids[:kept],
        labels[:kept], corners[:kept], velocity[:kept], ages[:kept], left_out,
    )  # fmt: skip


@compiled
def _confirm(
    tracks, numbers, begin, end, now, confirm, last_id, box_of, class_of, ids, labels, corners, velocity, ages
):  # fmt: skip
    """Give ids to tracks with enough hits, and write the columns of boxes with a confirmed track; the last id."""
    for track in range(begin, end):
        if numbers[ID, track] == 0 and numbers[HITS, track] >= confirm:
            last_id += 1
            numbers[ID, track] = last_id
        box = box_of[track - begin]
        if box >= 0 and numbers[ID, track] > 0:
            ids[box], ages[box] = numbers[ID, track], now - numbers[BORN, track]
            labels[box] = class_of[numbers[GROUP, track], _elected(tracks, track)]
            corners[box, 0], corners[box, 1], corners[box, 2], corners[box, 3] = _corners(tracks, track)
            velocity[box, 0], velocity[box, 1] = tracks[4, track], tracks[5, track]
    return last_id


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
    """The most tracks that a source can have after the step, and the most pairs of a track and a box."""
    rows = pairs = 0
    for source in range(len(sources)):
        rows = max(rows, sources[source, 0] + sources[source, 4])
        pairs = max(pairs, sources[source, 0] * sources[source, 4])
    return rows, pairs


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
def _squared_size(tracks, track, axis):
    size = max(tracks[2 + axis, track], motion.MIN_SIZE)
    return size * size


@compiled
def _corners(tracks, track):
    across, down = max(tracks[2, track], 0.0) * 0.5, max(tracks[3, track], 0.0) * 0.5
    x, y = tracks[0, track], tracks[1, track]
    return x - across, y - down, x + across, y + down


@inlined
def _predict(tracks, track, seconds, lost):
    if lost:
        tracks[6, track] *= 0.0
        tracks[7, track] *= 0.0
    squared = _squared_size(tracks, track, 0), _squared_size(tracks, track, 1)
    for row in range(4):
        square = squared[row % 2]
        noise = motion.VELOCITY_NOISE * square * seconds
        p01, p11 = tracks[12 + row, track], tracks[16 + row, track]
        tracks[row, track] += tracks[4 + row, track] * seconds
        tracks[8 + row, track] += seconds * (2.0 * p01 + seconds * (p11 + noise * (1 / 3)))
        tracks[8 + row, track] += motion.POSITION_NOISE * square * seconds
        tracks[12 + row, track] += seconds * (p11 + noise * 0.5)
        tracks[16 + row, track] += noise


@compiled
def _match(
    tracks, numbers, begin, end, now, edges, measured, groups, usable, strong, first_box, last_box,
    meets, keys, pairs, taken, box_of, free,
):  # fmt: skip
    """Write the box of each track, and which strong boxes have none. `meets`, `keys` and `pairs` are room for it."""
    found = 0
    lefts, tops = edges[0, first_box:last_box], edges[1, first_box:last_box]
    rights, bottoms = edges[2, first_box:last_box], edges[3, first_box:last_box]
    for track in range(begin, end):
        left, top, right, bottom = _corners(tracks, track)
        _overlapping(
            lefts, tops, rights, bottoms,
            np.float32(left), np.float32(top), np.float32(right), np.float32(bottom), meets,
        )  # fmt: skip
        confirmed, group = numbers[ID, track] > 0, numbers[GROUP, track]
        recent = confirmed and numbers[MISSED, track] <= MAX_MISSED
        width, height = tracks[2, track], tracks[3, track]
        unseen = max(now - numbers[SEEN, track], 1)
        expected = max(min(SHORT_NS / unseen, 1.0), MIN_SHARE)
        for place in range(last_box - first_box):
            box = first_box + place
            if not meets[place] or group != groups[box] or not usable[box] or not (strong[box] or recent):
                continue
            overlap = _iou(left, top, right, bottom, *_as_doubles(edges, box))
            stage = (0 if confirmed else 2) if strong[box] else 1
            if overlap >= MIN_IOU[stage] * expected:
                common = min(width, measured[2, box]) * min(height, measured[3, box])
                shape = common / (width * height + measured[2, box] * measured[3, box] - common)
                keys[found] = 2.0 * stage - overlap * shape
                pairs[found, 0], pairs[found, 1] = track - begin, box
                found += 1
    for place in np.argsort(keys[:found], kind="mergesort"):
        track, box = pairs[place, 0], pairs[place, 1]
        if box_of[track] < 0 and not taken[box]:
            box_of[track], taken[box], free[box] = box, True, False


@inlined
def _overlapping(lefts, tops, rights, bottoms, left, top, right, bottom, meets):
    """A loop without branches, and from 0 on, which the compiler turns into vector instructions."""
    for place in range(len(lefts)):
        meets[place] = (left < rights[place]) & (lefts[place] < right) & (top < bottoms[place]) & (tops[place] < bottom)


@compiled
def _as_doubles(edges, box):
    return np.float64(edges[0, box]), np.float64(edges[1, box]), np.float64(edges[2, box]), np.float64(edges[3, box])


@compiled
def _iou(left, top, right, bottom, left_, top_, right_, bottom_):
    across = max(min(right, right_) - max(left, left_), 0.0)
    down = max(min(bottom, bottom_) - max(top, top_), 0.0)
    common = across * down
    union = (right - left) * (bottom - top) + (right_ - left_) * (bottom_ - top_) - common
    return common / max(union, 1e-9)


@compiled
def _corrected(tracks, numbers, begin, end, now, box_of, measured, confidence, class_id, slot_of):
    """Correct tracks by their boxes, and drop unconfirmed ones without a box; returns where they end now."""
    kept = begin
    for track in range(begin, end):
        box = box_of[track - begin]
        if box < 0 and numbers[ID, track] == 0:
            continue
        if kept < track:
            tracks[:, kept], box_of[kept - begin] = tracks[:, track], box
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
    squared = _squared_size(tracks, track, 0), _squared_size(tracks, track, 1)
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
    a, b = xyxy[one], xyxy[other]
    return _iou(
        np.float64(a[0]), np.float64(a[1]), np.float64(a[2]), np.float64(a[3]),
        np.float64(b[0]), np.float64(b[1]), np.float64(b[2]), np.float64(b[3]),
    )  # fmt: skip


@compiled
def _begin(tracks, numbers, track, now, measured, confidence, class_id, groups, slot_of, box):
    tracks[:, track] = 0.0  # also the bits of 0
    tracks[:4, track] = measured[:, box]
    for row in range(4):
        square = _squared_size(tracks, track, row % 2)
        tracks[8 + row, track] = motion.FIRST_POSITION * square
        tracks[16 + row, track] = motion.FIRST_VELOCITY * square
    tracks[VOTES + slot_of[class_id[box]], track] = confidence[box]
    numbers[HITS, track], numbers[GROUP, track] = 1, groups[box]
    numbers[BORN, track], numbers[SEEN, track] = now, now
