"""Expected latencies of a queue in front of a detector, from the times at which the detector worked."""

from __future__ import annotations

from collections import deque

DEPTH = 8  # of the daemon's own, in benchmarks that lose no frame
Served = list[tuple[int, int]]
"""Start and end of the work on each frame, ns."""


def closed_loop(served: Served, depth: int = DEPTH) -> list[tuple[int, int]]:
    """Capture and end of each frame, ns.

    The queue is refilled when a frame is taken and half of it is empty. One more frame is in hand, captured when the
    previous one found room.
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
    """Number, due time and end of each frame that was detected: the newest one due when the detector was free.

    Args:
        first: due time of frame 0, ns.
    """
    frames = []
    for begin, end in served:
        number = int((begin - first) * fps // 1_000_000_000)
        frames.append((number, first + round(number * 1e9 / fps), end))
    return frames
