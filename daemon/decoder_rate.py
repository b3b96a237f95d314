"""How fast the GPU's decoder is, learned while it works: what is known before is of one card, and of some pictures."""

from __future__ import annotations

from collections.abc import Mapping

from daemon.messages import Metrics

_READINGS = 3  # that must agree
_APART_S = 9.5  # at least, from one to the next
_TELLING = 0.1  # share of the decoder below which whole percents tell little
_APART = 0.05
_BUSY = 0.9
_LATE = 0.01
_MOST = 10.0


class DecoderRate:
    """Compares how busy the decoder was with what its sources were estimated to make it.

    On one H200 what the driver says of that follows the estimate from 3 to 84 % of the decoder within a percent of it.

    Args:
        device: the GPU's number, by which `Metrics.gpus` is in order.

    Attributes:
        times: of its estimate that a picture takes.
    """

    def __init__(self, device: int = 0) -> None:
        self.times = 1.0
        self._device = device
        self._given: dict[str, float] = {}
        self._before: Metrics | None = None
        self._readings: list[float] = []

    def take(self, metrics: Metrics, given: Mapping[str, float]) -> bool:
        """The figures of a while, and what sources were given of the decoder in it, by estimate.

        Returns:
            Whether `times` has changed.
        """
        steady, before = given == self._given, self._before
        if steady and before and metrics.uptime_s - before.uptime_s < _APART_S:
            return False
        self._given, self._before = dict(given), metrics
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
        given, late = sum(self._given.values()), self._late(before, now)
        if not busy or max(busy, given) < _TELLING:  # another card is asked, or there is too little to tell
            return None
        if late > _LATE and busy < _BUSY:  # not for want of this decoder
            return None
        return min(max(busy / (1 - late) / given, 1 / _MOST), _MOST)

    def _late(self, before: Metrics, now: Metrics) -> float:
        """Share of the pictures to be decoded that were left out because they were late."""
        late = asked = 0
        for source in self._given:
            then, row = before.sources.get(source), now.sources.get(source)
            if then and row:
                late += row.dropped.late - then.dropped.late
                limited = row.dropped.rate_limit - then.dropped.rate_limit
                asked += row.captured - then.captured - limited
        return min(late / asked, 0.9) if asked > 0 else 0.0
