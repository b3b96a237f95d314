"""Boxes as JSON in plain loops, which numba compiles: the text that msgspec makes of `Detection`, to the last byte.

A decimal of up to 15 digits is the shortest text of the float64 next to it. So the digits of the rounded integer are
those that msgspec finds for the rounded number.
"""

from __future__ import annotations

import math

import numpy as np

from daemon.analytics.jit import compiled

_MOST = 1e10  # above, a float64 may be written in another way


def _constant(text):
    return np.frombuffer(text, np.uint8)


_ZERO, _ONE, _TWO, _TEN = np.uintp(0), np.uintp(1), np.uintp(2), np.uint64(10)
_OPEN, _CLOSE, _MINUS = _constant(b"["), _constant(b"]"), _constant(b"-")
_BOX, _COMMA, _UNTRACKED = _constant(b',"box":['), _constant(b","), _constant(b'],"track_id":null}')
_TRACK, _VELOCITY, _AGE = _constant(b'],"track_id":'), _constant(b',"velocity":['), _constant(b'],"age":')


@compiled
def write(
    ends, heads, head_starts, tails, tail_starts,
    class_id, confidence, xyxy, ids, track_class, velocity, age, text, places,
):  # fmt: skip
    """Write the list of boxes of each frame, one after the other, without spaces.

    Args:
        ends: (f,) int64, number of boxes up to the end of each frame.
        heads, head_starts: uint8, what a box of each class begins with, up to its confidence, one after the other; and
            (c + 1,) int64, where each begins, and the end.
        tails, tail_starts: likewise what a tracked box ends with, from its `track_label`.
        class_id, confidence, xyxy: as in `Detections`.
        ids, track_class, velocity, age: as in `Tracks`.
        text: uint8, with room for all.
        places: (f,) int64, gets the end of each frame's text.

    Returns:
        Whether it is written: not if a number is out of range.
    """
    if not _can_write(len(head_starts) - 1, class_id, confidence, xyxy, ids, track_class, velocity, age):
        return False
    at, begin = _ZERO, 0
    for frame in range(len(ends)):
        at = _copy(text, at, _OPEN)
        for box in range(begin, ends[frame]):
            if box > begin:
                at = _copy(text, at, _COMMA)
            at = _label(text, at, heads, head_starts, class_id[box])
            at = _decimal(text, at, confidence[box], 4, 10_000)
            at = _pair(text, _copy(text, at, _BOX), xyxy[box, 0], xyxy[box, 1])
            at = _pair(text, _copy(text, at, _COMMA), xyxy[box, 2], xyxy[box, 3])
            if ids[box] == 0:
                at = _copy(text, at, _UNTRACKED)
                continue
            at = _integer(text, _copy(text, at, _TRACK), ids[box])
            at = _pair(text, _copy(text, at, _VELOCITY), velocity[box, 0], velocity[box, 1])
            at = _integer(text, _copy(text, at, _AGE), age[box])
            at = _label(text, at, tails, tail_starts, track_class[box])
        begin = ends[frame]
        at = _copy(text, at, _CLOSE)
        places[frame] = at
    return True


@compiled
def _can_write(labels, class_id, confidence, xyxy, ids, track_class, velocity, age):
    """Whether all numbers are within the limits of this file."""
    good = True
    for box in range(len(class_id)):
        good &= 0 <= class_id[box] < labels and 0 <= track_class[box] < labels and ids[box] >= 0 and age[box] >= 0
        good &= abs(confidence[box]) < _MOST and abs(velocity[box, 0]) < _MOST and abs(velocity[box, 1]) < _MOST
        for corner in range(4):
            good &= abs(xyxy[box, corner]) < _MOST
    return good


@compiled
def _copy(text, at, part):
    for place in range(np.uintp(len(part))):
        text[at + place] = part[place]
    return at + np.uintp(len(part))


@compiled
def _label(text, at, parts, starts, class_id):
    return _copy(text, at, parts[starts[class_id] : starts[class_id + 1]])


@compiled
def _pair(text, at, first, second):
    return _decimal(text, _copy(text, _decimal(text, at, first, 2, 100), _COMMA), second, 2, 100)


@compiled
def _decimal(text, at, value, digits, scale):
    scaled = np.rint(np.float64(value) * scale)
    if math.copysign(1.0, scaled) < 0:  # -0.0, too
        at = _copy(text, at, _MINUS)
    number = np.uint64(abs(scaled))
    at = _integer(text, at, number // np.uint64(scale))
    text[at] = 46  # .
    rest = np.uint32(number % np.uint64(scale))
    for place in range(np.uintp(digits), np.uintp(0), -1):
        text[at + np.uintp(place)] = 48 + rest % np.uint32(10)
        rest //= np.uint32(10)
    at += np.uintp(digits + 1)
    while text[at - _ONE] == 48 and text[at - _TWO] != 46:  # 1.50, but 1.0
        at -= _ONE
    return at


@compiled
def _integer(text, at, number):
    rest = np.uint64(number)
    end, limit = at + _ONE, _TEN
    while rest >= limit:  # an int64 is below 1e19, which a uint64 can hold
        limit *= _TEN
        end += _ONE
    place = end
    while place > at:
        place -= _ONE
        text[place] = np.uint8(48 + rest % _TEN)
        rest //= _TEN
    return end
