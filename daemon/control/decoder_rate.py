"""Learns the GPU decoder's rate from its utilisation: the built-in figures are of one card and of some videos."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lookout.messages import Metrics, SourceMetrics

_MIN_READINGS = 3  # readings that must agree
_INTERVAL_S = 9.5  # between readings
_MIN_LOAD = 0.1  # utilisation; below, whole percents are too coarse
_TOLERANCE = 0.05
_FULL_LOAD = 0.9
_MAX_LATE = 0.01
_MAX_FACTOR = 10.0


class DecoderRate:
    """Compares the decoder's utilisation with the estimate for the pictures that it has decoded.

    On one H200 the driver's figure is within one point of the estimate from 3 to 84 % utilisation.

    Args:
        device: the GPU's index in `Metrics.gpus`.

    Attributes:
        cost_factor: actual cost of a picture over its estimate.
    """

    def __init__(self, device: int = 0) -> None:
        self.cost_factor = 1.0
        self._device = device
        self._estimates: dict[str, tuple[float, float]] = {}
        self._before: Metrics | None = None
        self._readings: list[float] = []

    def learn(self, metrics: Metrics, estimates: Mapping[str, tuple[float, float]]) -> bool:
        """Take the figures of an interval.

        Args:
            estimates: for each source on the decoder: the estimated share for all of its pictures, and its skip ratio.

        Returns:
            Whether `cost_factor` has changed.
        """
        steady, before = estimates == self._estimates, self._before
        if steady and before and metrics.uptime_s - before.uptime_s < _INTERVAL_S:
            return False
        self._estimates, self._before = dict(estimates), metrics
        reading = self._read(before, metrics) if steady and before else None
        self._readings = [*self._readings, reading][-_MIN_READINGS:] if reading else []
        off = [reading / self.cost_factor - 1 for reading in self._readings]
        if len(off) < _MIN_READINGS or not (min(off) > _TOLERANCE or max(off) < -_TOLERANCE):
            return False
        self.cost_factor = sum(self._readings) / _MIN_READINGS
        self._readings = []
        return True

    def _read(self, before: Metrics, now: Metrics) -> float | None:
        """The factor in an interval; None if it cannot be told."""
        gpus = now.gpus or []
        busy = (gpus[self._device].decoder_utilisation or 0) / 100 if self._device < len(gpus) else 0.0
        estimate, late, captured = 0.0, 0, 0
        for source, (share, skip_ratio) in self._estimates.items():
            flow = _Flow.of(before.sources.get(source), now.sources.get(source))
            if flow.captured:
                # Not all pictures with cause rate_limit were skipped: `max_fps` drops decoded ones.
                left_out = flow.late + min(flow.limited, skip_ratio * flow.captured)
                estimate += share * (1 - left_out / flow.captured)
                late, captured = late + flow.late, captured + flow.captured
        if not busy or not estimate or max(busy, estimate) < _MIN_LOAD:  # another GPU, or too little load
            return None
        if late > _MAX_LATE * captured and busy < _FULL_LOAD:  # late for another reason than the decoder
            return None
        return min(max(busy / estimate, 1 / _MAX_FACTOR), _MAX_FACTOR)


class _Flow(NamedTuple):
    """Pictures of a source in an interval."""

    captured: int
    late: int
    limited: int

    @classmethod
    def of(cls, before: SourceMetrics | None, now: SourceMetrics | None) -> _Flow:
        if not before or not now:
            return cls(0, 0, 0)
        return cls(
            now.captured - before.captured,
            now.dropped.late - before.dropped.late,
            now.dropped.rate_limit - before.dropped.rate_limit,
        )
