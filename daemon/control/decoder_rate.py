"""How fast the GPU's decoder is, learned while it works: what is known before is of one card, and of some pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from daemon.messages import Metrics, SourceMetrics

_READINGS = 3  # that must agree
_APART_S = 9.5  # at least, from one to the next
_TELLING = 0.1  # share of the decoder below which whole percents tell little
_APART = 0.05
_BUSY = 0.9
_LATE = 0.01
_MOST = 10.0


class DecoderRate:
    """Compares how busy the decoder was with what the pictures it has decoded were estimated to make it.

    On one H200 what the driver says of that is within a point of the estimate from 3 to 84 % of the decoder.

    Args:
        device: the GPU's number, by which `Metrics.gpus` is in order.

    Attributes:
        times: of its estimate that a picture takes.
    """

    def __init__(self, device: int = 0) -> None:
        self.times = 1.0
        self._device = device
        self._asked: dict[str, tuple[float, float]] = {}
        self._before: Metrics | None = None
        self._readings: list[float] = []

    def learn(self, metrics: Metrics, asked: Mapping[str, tuple[float, float]]) -> bool:
        """The figures of a while.

        Args:
            asked: of each source that is decoded, what all of its pictures take of the decoder, by estimate, and the
                share of them that is to be left out.

        Returns:
            Whether `times` has changed.
        """
        steady, before = asked == self._asked, self._before
        if steady and before and metrics.uptime_s - before.uptime_s < _APART_S:
            return False
        self._asked, self._before = dict(asked), metrics
        reading = self._read(before, metrics) if steady and before else None
        self._readings = [*self._readings, reading][-_READINGS:] if reading else []
        off = [reading / self.times - 1 for reading in self._readings]
        if len(off) < _READINGS or not (min(off) > _APART or max(off) < -_APART):
            return False
        self.times = sum(self._readings) / _READINGS
        self._readings = []
        return True

    def _read(self, before: Metrics, now: Metrics) -> float | None:
        """None if there is nothing to be learned."""
        gpus = now.gpus or []
        busy = (gpus[self._device].decoder_utilisation or 0) / 100 if self._device < len(gpus) else 0.0
        estimate, late, captured = 0.0, 0, 0
        for source, (share, undecoded) in self._asked.items():
            flow = _Flow.of(before.sources.get(source), now.sources.get(source))
            if flow.captured:
                # Some that are limited were decoded: those that `max_fps` leaves out.
                left_out = flow.late + min(flow.limited, undecoded * flow.captured)
                estimate += share * (1 - left_out / flow.captured)
                late, captured = late + flow.late, captured + flow.captured
        if not busy or not estimate or max(busy, estimate) < _TELLING:  # another card is asked, or too little is done
            return None
        if late > _LATE * captured and busy < _BUSY:  # not for want of this decoder
            return None
        return min(max(busy / estimate, 1 / _MOST), _MOST)


class _Flow(NamedTuple):
    """Pictures of a source in a while."""

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
