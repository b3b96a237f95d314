"""What a queue in front of a detector must show, reckoned from the times at which the detector worked."""

from __future__ import annotations

from collections import deque

DEPTH = 8  # of the daemon's own, in benchmarks that lose no frame
Served = list[tuple[int, int]]
"""When each frame's work began and ended, ns."""


def closed_loop(served: Served, depth: int = DEPTH) -> list[tuple[int, int]]:
    """When each frame was captured and when it was done, ns.

    The queue is filled up whenever a frame is taken and half of it is empty. There is one more in hand, captured when
    the one before had found room.
    """
    start = served[0][0]
    waiting = deque([start] * depth)
    in_hand = start
    frames = []
    for begin, end in served:
        frames.append((waiting.popleft(), end))
        if len(waiting) <= depth // 2:
            while len(waiting) < depth:
                waiting.append(in_hand)
                in_hand = begin
    return frames


def open_loop(served: Served, first: int, fps: float) -> list[tuple[int, int, int]]:
    """Number of each frame that was looked at, when it was due, and when it was done: the newest that was due when the
    detector was free.

    Args:
        first: when frame 0 was due, ns.
    """
    frames = []
    for begin, end in served:
        number = int((begin - first) * fps // 1_000_000_000)
        frames.append((number, first + round(number * 1e9 / fps), end))
    return frames
