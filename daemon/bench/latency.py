"""Latency out of the rows of frames that were captured in a window.

Captured to sent where recordings go as fast as they can: there is no moment at which a frame was due. Where they go at
their own pace it is counted from when a frame was due, so that a stall of the source's thread is in the figure of each
frame it held up, and not hidden because they were captured late (coordinated omission).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daemon.bench.harness import Window
from daemon.bench.usage import Sample
from daemon.metrics import STAGES, Rows

RANKS = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}
_EDGES_PER_DECADE = 50
_LEAST_MS, _DECADES = 0.1, 6

Milliseconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Histogram:
    """Counts between edges that grow by the same factor; the first and last take what lies beyond.

    Attributes:
        edges_ms: one more than counts.
    """

    edges_ms: list[float]
    counts: list[int]


@dataclass(frozen=True)
class SourceFigures:
    """Of one source in the window; latencies None if nothing of it was published."""

    fps: float
    dropped: int
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True)
class Second:
    """One second of the window; None for what nobody tells, and for latencies if nothing was published.

    Attributes:
        at_s: its beginning.
        dropped: after they had been captured; what was left out before has no moment.
    """

    at_s: float
    fps: float
    p50_ms: float | None
    p99_ms: float | None
    dropped: int
    gpu_percent: float | None
    decoder_percent: float | None
    memory_mib: float | None
    power_w: float | None


class Rowset:
    """The rows of one window.

    Args:
        sources: whose ids the rows' numbers are.
        paced: latency is counted from when a frame was due.
    """

    def __init__(self, rows: Rows, window: Window, sources: Sequence[str], *, paced: bool) -> None:
        captured_at = rows["captured_at"]
        inside = rows[(captured_at >= window.begin) & (captured_at < window.end)]
        self._window, self._sources = window, sources
        self._published = inside[inside["dropped"] == 0]
        self._lost = inside[inside["dropped"] != 0]
        self._total: Milliseconds = (self._published["total"] + (self._published["behind"] if paced else 0)) / 1e6
        self._second = (self._published["captured_at"] - window.begin) // 1_000_000_000

    def latency(self) -> dict[str, float]:
        """Mean and ranks, ms; empty if nothing was published."""
        return summary(self._total)

    def stages(self) -> dict[str, dict[str, float]]:
        """The same of what a frame was behind when it was captured, of each stage, and of all from then until it was
        sent; decode comes before."""
        if not len(self._total):
            return {}
        names = ("behind", *(stage for stage in STAGES if stage != "total"))
        rows = {name: summary(self._published[name] / 1e6) for name in names}
        return {**rows, "captured to sent": summary(self._published["total"] / 1e6)}

    def worst_second(self) -> float:
        """The highest p99 of any second."""
        return max(
            (float(np.percentile(self._total[self._second == n], 99)) for n in np.unique(self._second)), default=0
        )

    def histogram(self) -> Histogram:
        edges = _LEAST_MS * 10 ** (np.arange(_DECADES * _EDGES_PER_DECADE + 1) / _EDGES_PER_DECADE)
        counts, _ = np.histogram(np.clip(self._total, edges[0], edges[-1]), edges)
        return Histogram([float(f"{edge:.5g}") for edge in edges], counts.tolist())

    def sources(self) -> dict[str, SourceFigures]:
        """By id."""
        window = self._window
        found = {}
        for number, id in enumerate(self._sources):
            before, after = window.before[id], window.after[id]
            total = self._total[self._published["source"] == number]
            lost = sum(getattr(after.dropped, n) - getattr(before.dropped, n) for n in after.dropped.__struct_fields__)
            p50, p99 = (round(float(np.percentile(total, rank)), 3) if len(total) else None for rank in (50, 99))
            fps = (after.published - before.published) / window.seconds
            found[id] = SourceFigures(round(fps, 3), lost, p50, p99)
        return found

    def timeline(self) -> list[Second]:
        """The whole seconds of the window."""
        lost_in = (self._lost["captured_at"] - self._window.begin) // 1_000_000_000
        rows = []
        for second in range(int(self._window.seconds)):
            total = self._total[self._second == second]
            p50, p99 = (round(float(np.percentile(total, rank)), 3) if len(total) else None for rank in (50, 99))
            samples = [sample for sample in self._window.samples if second <= sample.at_s < second + 1]
            gpu = (_mean(samples, name) for name in ("gpu_percent", "decoder_percent", "memory_mib", "power_w"))
            rows.append(Second(second, len(total), p50, p99, int((lost_in == second).sum()), *gpu))
        return rows


def summary(values: Milliseconds) -> dict[str, float]:
    """Mean and ranks; empty of nothing."""
    if not len(values):
        return {}
    ranks = np.percentile(values, list(RANKS.values()))
    return {"mean": round(float(values.mean()), 3), **{k: round(float(v), 3) for k, v in zip(RANKS, ranks)}}


def _mean(samples: list[Sample], name: str) -> float | None:
    known = [value for value in (getattr(sample, name) for sample in samples) if value is not None]
    return round(sum(known) / len(known), 1) if known else None
