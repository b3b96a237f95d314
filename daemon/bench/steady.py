"""Detection of a steady state, from the rows that the monitor drains about once a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import monotonic

import numpy as np
import numpy.typing as npt

from daemon.pipeline.ledger import ROW, Rows

WINDOWS = 3
_SPREAD = 0.10
_SLACK_MS = 1.0  # allowed difference of a p99, however small it is
_MIN_FRAMES = 100  # for a p99

Milliseconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pace:
    """Figures of one window of time.

    Attributes:
        fps: published frames per second.
        p99_ms: None with too few frames.
    """

    fps: float
    p99_ms: float | None


class RowLog:
    """Collects the daemon's rows.

    Args:
        paced: latency counts from when a frame was due.
    """

    def __init__(self, *, paced: bool) -> None:
        self._paced = paced
        self._taken: list[tuple[float, Rows]] = []

    def __call__(self, rows: Rows) -> None:
        self._taken.append((monotonic(), rows))

    def all(self) -> Rows:
        return np.concatenate([np.empty(0, ROW), *(rows for _, rows in self._taken)])

    def clear(self) -> None:
        self._taken = []

    def paces(self, since: float) -> list[Pace]:
        """One for each arrival of rows since a monotonic time, over the time since the previous arrival."""
        taken = [(at, rows) for at, rows in self._taken if at >= since]
        return [
            pace_of(latencies_ms(rows[rows["dropped"] == 0], paced=self._paced), at - before)
            for (before, _), (at, rows) in pairwise(taken)
        ]


def latencies_ms(published: Rows, *, paced: bool) -> Milliseconds:
    """Due to sent for paced frames, else captured to sent."""
    total: Milliseconds = (published["total"] + (published["behind"] if paced else 0)) / 1e6
    return total


def pace_of(latencies: Milliseconds, seconds: float) -> Pace:
    """Figures of the frames published in a time."""
    p99 = float(np.percentile(latencies, 99)) if len(latencies) >= _MIN_FRAMES else None
    return Pace(len(latencies) / seconds, p99)


def is_steady(paces: Sequence[Pace], grain: float) -> bool:
    """Whether throughput and p99 are within 10 % of their means over at least three windows.

    Args:
        grain: allowed difference of a rate in frames per second, because frames are whole.
    """
    known = [pace.p99_ms for pace in paces if pace.p99_ms is not None]
    return (
        len(paces) >= WINDOWS
        and any(pace.fps for pace in paces)
        and _is_level([pace.fps for pace in paces], grain)
        and (len(known) < len(paces) or _is_level(known, _SLACK_MS))
    )


def _is_level(values: Sequence[float], slack: float) -> bool:
    mean = sum(values) / len(values)
    return all(abs(value - mean) <= max(_SPREAD * mean, slack) for value in values)
