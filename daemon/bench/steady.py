"""Whether a daemon is in steady state, by the rows that its monitor hands on about once a second."""

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
_SLACK_MS = 1.0  # by which a p99 may differ however small it is
_FEWEST = 100  # frames, of which one is the p99

Milliseconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pace:
    """One window of time.

    Attributes:
        fps: published frames a second.
        p99_ms: None where there are too few frames to tell.
    """

    fps: float
    p99_ms: float | None


class RowLog:
    """A sink of the daemon that keeps the rows.

    Args:
        paced: latency is counted from when a frame was due.
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
        """One for each arrival of rows and the time since the arrival before, from some monotonic time on."""
        taken = [(at, rows) for at, rows in self._taken if at >= since]
        return [
            pace_of(latencies_ms(rows[rows["dropped"] == 0], paced=self._paced), at - before)
            for (before, _), (at, rows) in pairwise(taken)
        ]


def latencies_ms(published: Rows, *, paced: bool) -> Milliseconds:
    """Due to sent where frames are paced, else captured to sent."""
    total: Milliseconds = (published["total"] + (published["behind"] if paced else 0)) / 1e6
    return total


def pace_of(latencies: Milliseconds, seconds: float) -> Pace:
    """Of the frames published in some time."""
    p99 = float(np.percentile(latencies, 99)) if len(latencies) >= _FEWEST else None
    return Pace(len(latencies) / seconds, p99)


def is_steady(paces: Sequence[Pace], grain: float) -> bool:
    """Whether throughput and p99 are within 10 % of their means, over three windows at least.

    Args:
        grain: frames a second by which a rate may differ because frames are whole.
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
