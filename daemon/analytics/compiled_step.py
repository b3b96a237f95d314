"""The tracker's step as plain loops, which numba compiles: the results of `numpy_step`, to the last bit.

Each number is computed by the same operations in the same order. Numba does not reorder them, and does not fuse a
multiplication with an addition, unless `fastmath` is asked for.
"""

from __future__ import annotations

import numpy as np

from daemon.analytics import motion
from daemon.analytics.grouping import Grouping
from daemon.analytics.jit import compiled
from daemon.analytics.track_step import (
    BORN,
    GROUP,
    HITS,
    ID,
    INTEGERS,
    MAX_MISSED,
    MAX_TRACKS,
    MIN_IOU,
    MIN_SHARE,
    MISSED,
    SAME_OBJECT,
    SEEN,
    SHORT_NS,
    StepInput,
    StepOutput,
)

_ROWS = motion.ROWS


def step(work: StepInput) -> StepOutput:
    """Implements `Step`."""
    grouping = work.grouping
    floats, integers, counts, last_ids, *columns, left_out = _step(
        work.floats, work.integers, work.track_counts, work.last_ids, work.now, work.seconds, work.timeout,
        work.confirm, work.floor, work.start, work.box_counts, work.xyxy, work.confidence, work.class_id,
        grouping.group_of, grouping.slot_of, grouping.class_of,
    )  # fmt: skip
    return StepOutput(floats, integers, counts, last_ids, tuple(columns), left_out)


def compile_now() -> None:
    """Compile, or load what another process has compiled."""
    none = np.zeros(0, np.int64)
    nothing = StepInput(
        floats=np.zeros((0, _ROWS + 1)),
        integers=np.zeros((0, INTEGERS), np.int64),
        track_counts=none,
        last_ids=none,
        now=none,
        seconds=np.zeros(0),
        timeout=none,
        confirm=none,
        floor=np.zeros(0, np.float32),
        start=np.zeros(0, np.float32),
        box_counts=none,
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
    floats, integers, track_counts, last_ids, now, seconds, timeout, confirm, floor, start, box_counts, xyxy,
    confidence, class_id, group_of, slot_of, class_of,
):  # fmt: skip
    boxes = len(class_id)
    room = len(floats) + boxes
    rows, integer_rows = np.empty((room, floats.shape[1])), np.empty((room, INTEGERS), np.int64)
    tracks, numbers = rows.T, integer_rows.T  # a column each
    counts, new_ids = np.empty_like(track_counts), last_ids.copy()
    ids, ages = np.zeros(boxes, np.int64), np.zeros(boxes, np.int64)
    labels, corners, velocity = class_id.copy(), xyxy.copy(), np.zeros((boxes, 2), np.float32)
    edges, measured = np.ascontiguousarray(xyxy.T), _measured(xyxy)
    usable, strong = np.empty(boxes, np.bool_), np.empty(boxes, np.bool_)
    begin = first_track = first_box = left_out = 0
    for source in range(len(track_counts)):
        last_track, last_box = first_track + track_counts[source], first_box + box_counts[source]
        end = begin
        for old in range(first_track, last_track):
            if now[source] - integers[old, SEEN] <= timeout[source]:
                rows[end], integer_rows[end] = floats[old], integers[old]
                _predict(tracks, end, seconds[source], numbers[MISSED, end] > 0)
                end += 1
        for box in range(first_box, last_box):
            usable[box] = confidence[box] >= floor[source]
            strong[box] = usable[box] and confidence[box] >= start[source]

        box_of, free = _matched(
            tracks, numbers, begin, end, now[source], edges[:, first_box:last_box], measured[:, first_box:last_box],
            group_of[class_id[first_box:last_box]], usable[first_box:last_box], strong[first_box:last_box],
        )  # fmt: skip
        box_of[: end - begin] += first_box * (box_of[: end - begin] >= 0)
        end = _corrected(tracks, numbers, begin, end, now[source], box_of, measured, confidence, class_id, slot_of)
        if class_of.shape[1] > 1:
            _drop_doubles(free, xyxy, class_id, group_of, strong, first_box, last_box)
        for box in range(first_box, last_box):
            if not free[box - first_box]:
                continue
            if end - begin >= MAX_TRACKS:
                left_out += 1
                continue
            _begin(tracks, numbers, end, now[source], measured, confidence, class_id, group_of, slot_of, box)
            box_of[end - begin] = box
            end += 1
        for track in range(begin, end):
            if numbers[ID, track] == 0 and numbers[HITS, track] >= confirm[source]:
                new_ids[source] += 1
                numbers[ID, track] = new_ids[source]
            box = box_of[track - begin]
            if box >= 0 and numbers[ID, track] > 0:
                ids[box], ages[box] = numbers[ID, track], now[source] - numbers[BORN, track]
                labels[box] = class_of[numbers[GROUP, track], np.argmax(tracks[_ROWS:, track])]
                corners[box, 0], corners[box, 1], corners[box, 2], corners[box, 3] = _corners(tracks, track)
                velocity[box, 0], velocity[box, 1] = tracks[4, track], tracks[5, track]
        counts[source] = end - begin
        begin, first_track, first_box = end, last_track, last_box
    return rows[:begin], integer_rows[:begin], counts, new_ids, ids, labels, corners, velocity, ages, left_out


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


@compiled
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
def _matched(tracks, numbers, begin, end, now, edges, measured, groups, usable, strong):
    """The box of each track, with room for those that the boxes begin; and the strong boxes without a track."""
    count, boxes = end - begin, len(groups)
    box_of, free = np.full(count + boxes, -1, np.int64), strong.copy()
    keys, pairs = np.empty(count * boxes), np.empty((count * boxes, 2), np.int64)
    meets = np.empty(boxes, np.bool_)
    found = 0
    for track in range(count):
        left, top, right, bottom = _corners(tracks, begin + track)
        _overlapping(edges, np.float32(left), np.float32(top), np.float32(right), np.float32(bottom), meets)
        confirmed, group = numbers[ID, begin + track] > 0, numbers[GROUP, begin + track]
        recent = confirmed and numbers[MISSED, begin + track] <= MAX_MISSED
        width, height = tracks[2, begin + track], tracks[3, begin + track]
        unseen = max(now - numbers[SEEN, begin + track], 1)
        expected = max(min(SHORT_NS / unseen, 1.0), MIN_SHARE)
        for box in range(boxes):
            if not meets[box] or group != groups[box] or not usable[box] or not (strong[box] or recent):
                continue
            overlap = _iou(left, top, right, bottom, *_as_doubles(edges, box))
            stage = (0 if confirmed else 2) if strong[box] else 1
            if overlap >= MIN_IOU[stage] * expected:
                common = min(width, measured[2, box]) * min(height, measured[3, box])
                shape = common / (width * height + measured[2, box] * measured[3, box] - common)
                keys[found] = 2.0 * stage - overlap * shape
                pairs[found, 0], pairs[found, 1] = track, box
                found += 1
    taken = np.zeros(boxes, np.bool_)
    for place in np.argsort(keys[:found], kind="mergesort"):
        track, box = pairs[place, 0], pairs[place, 1]
        if box_of[track] < 0 and not taken[box]:
            box_of[track], taken[box], free[box] = box, True, False
    return box_of, free


@compiled
def _overlapping(edges, left, top, right, bottom, meets):
    """A loop without branches, which the compiler turns into vector instructions."""
    lefts, tops, rights, bottoms = edges[0], edges[1], edges[2], edges[3]
    for box in range(len(meets)):
        meets[box] = (left < rights[box]) & (lefts[box] < right) & (top < bottoms[box]) & (tops[box] < bottom)


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
            tracks[:, kept], numbers[:, kept], box_of[kept - begin] = tracks[:, track], numbers[:, track], box
        if box < 0:
            numbers[MISSED, kept] += 1
        else:
            _correct(tracks, kept, measured, box)
            tracks[_ROWS + slot_of[class_id[box]], kept] += confidence[box]
            numbers[HITS, kept] += 1
            numbers[SEEN, kept], numbers[MISSED, kept] = now, 0
        kept += 1
    box_of[kept - begin :] = -1
    return kept


@compiled
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
def _drop_doubles(free, xyxy, class_id, group_of, strong, first_box, last_box):
    """Free boxes that are the second box of an object are no longer free."""
    before = free.copy()
    for one in range(first_box, last_box):
        if not before[one - first_box]:
            continue
        for other in range(first_box, last_box):
            if (
                strong[other]
                and group_of[class_id[one]] == group_of[class_id[other]]
                and class_id[one] != class_id[other]
                and (other < one or not before[other - first_box])
                and _iou_of_boxes(xyxy, one, other) >= SAME_OBJECT
            ):
                free[one - first_box] = False
                break


@compiled
def _iou_of_boxes(xyxy, one, other):
    a, b = xyxy[one], xyxy[other]
    return _iou(
        np.float64(a[0]), np.float64(a[1]), np.float64(a[2]), np.float64(a[3]),
        np.float64(b[0]), np.float64(b[1]), np.float64(b[2]), np.float64(b[3]),
    )  # fmt: skip


@compiled
def _begin(tracks, numbers, track, now, measured, confidence, class_id, group_of, slot_of, box):
    tracks[:, track], numbers[:, track] = 0.0, 0
    tracks[:4, track] = measured[:, box]
    for row in range(4):
        square = _squared_size(tracks, track, row % 2)
        tracks[8 + row, track] = motion.FIRST_POSITION * square
        tracks[16 + row, track] = motion.FIRST_VELOCITY * square
    tracks[_ROWS + slot_of[class_id[box]], track] = confidence[box]
    numbers[HITS, track], numbers[GROUP, track] = 1, group_of[class_id[box]]
    numbers[BORN, track], numbers[SEEN, track] = now, now
