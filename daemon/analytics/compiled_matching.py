"""The match of tracks with boxes as plain loops, which numba compiles; a part of `compiled_step`."""

from __future__ import annotations

import numpy as np

from daemon.analytics.jit import compiled, inlined
from daemon.analytics.track_step import (
    GAP_NS,
    GROUP,
    ID,
    LAST_PLACE,
    MARGIN_PER_S,
    MARGIN_S,
    MAX_MISSED,
    MIN_IOU,
    MIN_SHARE,
    MISSED,
    SEEN,
    SHAPE_SHARE,
    SHORT_NS,
)

ZERO = np.int64(0)  # a plain 0 is a type of its own, for which numba compiles every function once more
_RUN = 16  # places that are sorted one by one


@compiled
def corners_of(tracks, track):
    across, down = max(tracks[2, track], 0.0) * 0.5, max(tracks[3, track], 0.0) * 0.5
    x, y = tracks[0, track], tracks[1, track]
    return x - across, y - down, x + across, y + down


@compiled
def match(
    tracks, numbers, begin, end, now, edges, measured, groups, usable, strong, first_box, last_box,
    meets, keys, pairs, order, taken, box_of, free,
):  # fmt: skip
    """Write the box of each track, and which strong boxes have none. `meets`, `keys`, `pairs` and `order` are room."""
    found = ZERO
    lefts, tops = edges[0, first_box:last_box], edges[1, first_box:last_box]
    rights, bottoms = edges[2, first_box:last_box], edges[3, first_box:last_box]
    for track in range(begin, end):
        left, top, right, bottom = corners_of(tracks, track)
        confirmed, group = numbers[ID, track] > 0, numbers[GROUP, track]
        missed = numbers[MISSED, track]
        recent = confirmed and missed <= MAX_MISSED
        width, height = tracks[2, track], tracks[3, track]
        unseen = max(now - numbers[SEEN, track], 1)
        share = SHAPE_SHARE if unseen > GAP_NS else 0.0
        expected, margin = _slack(unseen)
        margin *= max(min(width, height), 0.0)
        left, top, right, bottom = left - margin, top - margin, right + margin, bottom + margin
        seconds = np.float64(unseen) / 1e9 if missed > 0 else 0.0
        x, y = tracks[4, track] * seconds, tracks[5, track] * seconds  # since it was last seen
        _overlapping(
            lefts, tops, rights, bottoms,
            np.float32(min(left, left - x) - margin), np.float32(min(top, top - y) - margin),
            np.float32(max(right, right - x) + margin), np.float32(max(bottom, bottom - y) + margin), meets,
        )  # fmt: skip
        for place in range(last_box - first_box):
            box = first_box + place
            if not meets[place] or group != groups[box] or not usable[box] or not (strong[box] or recent):
                continue
            left_, top_, right_, bottom_ = _as_doubles(edges, box)
            left_, top_, right_, bottom_ = left_ - margin, top_ - margin, right_ + margin, bottom_ + margin
            overlap = iou(left, top, right, bottom, left_, top_, right_, bottom_)
            if missed > 0:
                last = iou(left - x, top - y, right - x, bottom - y, left_, top_, right_, bottom_)
                overlap = max(overlap, LAST_PLACE * last)
            stage = (0 if confirmed else 2) if strong[box] else 1
            if overlap >= MIN_IOU[stage] * expected:
                if share > 0:
                    common = min(width, measured[2, box]) * min(height, measured[3, box])
                    shape = common / (width * height + measured[2, box] * measured[3, box] - common)
                    overlap = overlap * (1.0 - share + share * shape)
                keys[found] = 2.0 * stage - overlap
                pairs[found, 0], pairs[found, 1] = track - begin, box
                found += 1
    side = _sort(keys, found, order)
    for rank in range(found):
        place = order[side, rank]
        track, box = pairs[place, 0], pairs[place, 1]
        if box_of[track] < 0 and not taken[box]:
            box_of[track], taken[box], free[box] = box, True, False


@compiled
def _sort(keys, count, order):
    """Order places by their keys, equal ones as they come, as `numpy.argsort(keys[:count], kind="stable")`: short runs
    one by one, then two runs at a time from one row of `order` to the other; the row with the result."""
    for begin in range(0, count, _RUN):
        for place in range(begin, min(begin + _RUN, count)):
            at = place
            while at > begin and keys[place] < keys[order[0, at - 1]]:
                order[0, at] = order[0, at - 1]
                at -= 1
            order[0, at] = place
    side, length = 0, _RUN
    while length < count:
        for begin in range(0, count, 2 * length):
            middle, end = min(begin + length, count), min(begin + 2 * length, count)
            left, right = begin, middle
            for place in range(begin, end):
                if right == end or (left < middle and keys[order[side, left]] <= keys[order[side, right]]):
                    order[1 - side, place] = order[side, left]
                    left += 1
                else:
                    order[1 - side, place] = order[side, right]
                    right += 1
        side, length = 1 - side, 2 * length
    return side


@inlined
def _slack(unseen):
    """The share of the usual overlap that is expected, and that of the margin in the smaller side; see `numpy_step`."""
    if unseen <= SHORT_NS:  # most tracks, so without a division
        return 1.0, 0.0
    seconds = np.float64(unseen - SHORT_NS) / 1e9
    return max(SHORT_NS / unseen, MIN_SHARE), MARGIN_PER_S * min(seconds, MARGIN_S)


@inlined
def _overlapping(lefts, tops, rights, bottoms, left, top, right, bottom, meets):
    """A loop without branches, and from 0 on, which the compiler turns into vector instructions."""
    for place in range(len(lefts)):
        meets[place] = (left < rights[place]) & (lefts[place] < right) & (top < bottoms[place]) & (tops[place] < bottom)


@compiled
def _as_doubles(edges, box):
    return np.float64(edges[0, box]), np.float64(edges[1, box]), np.float64(edges[2, box]), np.float64(edges[3, box])


@compiled
def iou(left, top, right, bottom, left_, top_, right_, bottom_):
    across = max(min(right, right_) - max(left, left_), 0.0)
    down = max(min(bottom, bottom_) - max(top, top_), 0.0)
    common = across * down
    union = (right - left) * (bottom - top) + (right_ - left_) * (bottom_ - top_) - common
    return common / max(union, 1e-9)
