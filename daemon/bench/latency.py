"""Latency of the frames captured in a window.

Without pace: captured to sent, because frames have no due time. With pace: from when a frame was due, so that a stalled
capture thread counts for each frame that it delays (no coordinated omission).

Windows use the monotonic clock; a step of the wall clock moves no frame in or out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daemon.bench.harness import Window
from daemon.bench.listener import STAMP, Stamps
from daemon.bench.steady import WINDOWS, Milliseconds, is_steady, latencies_ms, pace_of
from daemon.bench.usage import Sample
from daemon.pipeline.ledger import STAGES, Rows

RANKS = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}
NO_STAMPS: Stamps = np.empty(0, STAMP)
_EDGES_PER_DECADE = 50
_LEAST_MS, _DECADES = 0.1, 6
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class Histogram:
    """Counts between geometric edges; the first and last count include values beyond.

    Attributes:
        edges_ms: one more than counts.
    """

    edges_ms: list[float]
    counts: list[int]


@dataclass(frozen=True)
class SourceFigures:
    """Figures of one source in the window; latencies are None if nothing was published."""

    fps: float
    dropped: int
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True)
class Second:
    """Figures of one second of the window; None if unknown or if nothing was published.

    Attributes:
        at_s: its beginning.
        dropped: only after capture; frames skipped before have no time.
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
        sources: ids, in the order of the rows' numbers; a source has one number for each of its models.
        paced: latency counts from when a frame was due.
        stamps: receive times of frames at the subscriber.
        models: that look at each source.
    """

    def __init__(
        self,
        rows: Rows,
        window: Window,
        sources: Sequence[str],
        *,
        paced: bool,
        stamps: Stamps = NO_STAMPS,
        models: int = 1,
    ) -> None:
        inside = rows[(rows["captured_ns"] >= window.begin) & (rows["captured_ns"] < window.end)]
        self._window, self._sources, self._paced, self._models = window, sources, paced, models
        self._published = inside[inside["dropped"] == 0]
        self._lost = inside[inside["dropped"] != 0]
        self._total = latencies_ms(self._published, paced=paced)
        self._stamps = stamps
        self._second = (self._published["captured_ns"] - window.begin) // _SECOND

    def latency(self) -> dict[str, float]:
        """Mean and percentiles in ms; empty if nothing was published."""
        return summary(self._total)

    def latency_of(self, model: int) -> dict[str, float]:
        """The same of the frames of one model, by its number."""
        return summary(self._total[self._published["source"] % self._models == model])

    def stages(self) -> dict[str, dict[str, float]]:
        """Mean and percentiles of the lateness at capture, of each stage, of captured to sent, and until received.
        Decoding happens before capture."""
        if not len(self._total):
            return {}
        names = ("behind", *(stage for stage in STAGES if stage != "total"))
        rows = {name: summary(self._published[name] / 1e6) for name in names}
        rows["captured to sent"] = summary(self._published["total"] / 1e6)
        received = summary(self._received())
        return {**rows, f"{'due' if self._paced else 'captured'} to received": received} if received else rows

    def is_steady(self) -> bool:
        """Whether throughput and p99 are equal in each third of the window."""
        seconds = self._window.seconds / WINDOWS
        third = ((self._published["captured_ns"] - self._window.begin) / (seconds * _SECOND)).astype(int)
        paces = [pace_of(self._total[third == number], seconds) for number in range(WINDOWS)]
        return is_steady(paces, len(self._sources) / seconds)

    def worst_second(self) -> float:
        """The highest p99 of any second."""
        return max(
            (float(np.percentile(self._total[self._second == n], 99)) for n in np.unique(self._second)), default=0.0
        )

    def histogram(self) -> Histogram:
        edges = _LEAST_MS * 10 ** (np.arange(_DECADES * _EDGES_PER_DECADE + 1) / _EDGES_PER_DECADE)
        counts, _ = np.histogram(np.clip(self._total, edges[0], edges[-1]), edges)
        return Histogram([float(f"{edge:.5g}") for edge in edges], counts.tolist())

    def sources(self) -> dict[str, SourceFigures]:
        """Figures of each source, by id."""
        window = self._window
        found = {}
        for number, id in enumerate(self._sources):
            before, after = window.before[id], window.after[id]
            total = self._total[self._published["source"] // self._models == number]
            lost = sum(getattr(after.dropped, n) - getattr(before.dropped, n) for n in after.dropped.__struct_fields__)
            fps = (after.published - before.published) / window.seconds
            found[id] = SourceFigures(round(fps, 3), lost, *_p50_p99(total))
        return found

    def timeline(self) -> list[Second]:
        """Figures of the whole seconds of the window."""
        lost_in = (self._lost["captured_ns"] - self._window.begin) // _SECOND
        rows = []
        for second in range(int(self._window.seconds)):
            total = self._total[self._second == second]
            samples = [sample for sample in self._window.samples if second <= sample.at_s < second + 1]
            gpu = (_mean(samples, name) for name in ("gpu_percent", "decoder_percent", "memory_mib", "power_w"))
            rows.append(
                Second(float(second), float(len(total)), *_p50_p99(total), int((lost_in == second).sum()), *gpu)
            )
        return rows

    def _received(self) -> Milliseconds:
        """Due (or captured) to received, of received frames."""
        known = dict(zip(_keys(self._stamps), self._stamps["received_ns"].tolist()))
        at = np.array([known.get(key, 0) for key in _keys(self._published)], np.int64)
        frames = self._published[at != 0]
        begun = frames["captured_ns"] - (frames["behind"] if self._paced else 0)
        latencies: Milliseconds = (at[at != 0] - begun) / 1e6
        return latencies


def summary(values: Milliseconds) -> dict[str, float]:
    """Mean and percentiles; empty without values."""
    if not len(values):
        return {}
    ranks = np.percentile(values, list(RANKS.values()))
    return {"mean": round(float(values.mean()), 3), **{k: round(float(v), 3) for k, v in zip(RANKS, ranks)}}


def _keys(frames: Rows) -> list[int]:
    """One number per pair of account and seq."""
    keys: list[int] = ((frames["source"].astype(np.int64) << 40) | frames["seq"].astype(np.int64)).tolist()
    return keys


def _p50_p99(values: Milliseconds) -> tuple[float | None, float | None]:
    if not len(values):
        return None, None
    p50, p99 = np.percentile(values, [50, 99])
    return round(float(p50), 3), round(float(p99), 3)


def _mean(samples: list[Sample], name: str) -> float | None:
    known = [value for value in (getattr(sample, name) for sample in samples) if value is not None]
    return round(sum(known) / len(known), 1) if known else None
