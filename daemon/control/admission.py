"""Divides the detector and the GPU's decoder among the sources, each time a source comes or goes.

Without admission, frames that no lane has time for are dropped after they were decoded and converted, and pictures that
the decoder has no time for are skipped when they are late.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import ceil

import structlog

from daemon.capture.sinks import ADMITTED, UNLIMITED, OnQuota, Quota
from daemon.config.root import AdmissionMode
from daemon.control.decoder_rate import DecoderRate
from daemon.errors import SourceError
from detectors.port import Size
from lookout.messages import Metrics, VideoFormat

log = structlog.get_logger(__name__)

_CAPACITY_SHARE = 0.9  # of the measured rate: pictures differ, and the machine has other work
_DECODER_SHARE = 0.94  # while lanes detect; 150 H.264 sources of 1080p30, which work, take 0.9375
UNKNOWN_FPS = 30.0


@dataclass
class _Demand:
    """Demand of a connected source.

    Attributes:
        fps: frames a second of the source.
        wanted: frames a second to be detected.
        pictures: pictures that the detector sees for a frame, in pictures of the model's own input size.
        decoder: estimated share of the GPU's decoder.
        skip_ratio: share of its pictures that the decoder has no time for.
    """

    fps: float
    wanted: float
    decoder: float
    on_quota: OnQuota
    pictures: float = 1
    skip_ratio: float = 0.0


class Admission:
    """Divides `capacity` pictures a second among the connected sources; safe to use from every thread. A frame is one
    picture, or several for a source with tiles.

    Args:
        mode: `off` admits every source at full rate. `degrade` admits every source and lowers the highest rates, first
            of decoding, then of detection. `refuse` admits a source only if all of its demand fits.
        capacity: measured rate of the detector, pictures a second.
        decoder: estimated share of the GPU's decoder for a format.
        rate: corrects the estimate.
        cost: of a source's picture at an input size, None for the model's own, in pictures of that.
    """

    def __init__(
        self,
        mode: AdmissionMode = "off",
        capacity: float = float("inf"),
        decoder: Callable[[VideoFormat], float] | None = None,
        rate: DecoderRate | None = None,
        cost: Callable[[str, Size | None], float] = lambda *_: 1.0,
    ) -> None:
        self._cost = cost
        self._mode, self._measured, self._decoder = mode, capacity, decoder
        self._rate = rate or DecoderRate()
        self._capacity = capacity * _CAPACITY_SHARE
        self._sources: dict[str, _Demand] = {}
        self._pictures: Mapping[str, int] = {}
        self._sizes: Mapping[str, Size] = {}
        self._lock = threading.Lock()

    def admit(
        self, source: str, fps: float | None, on_quota: OnQuota, format: VideoFormat | None = None
    ) -> Future[None]:
        """Admit a source that is connected, or is admitted and has another format now.

        Args:
            fps: frames a second to be detected.

        Returns:
            A future that is done; with a SourceError if there is no room, to be retried later.
        """
        if self._mode == "off":
            return ADMITTED
        wanted = fps or UNKNOWN_FPS
        demand = _Demand(
            fps=(format.fps if format else None) or wanted,
            wanted=wanted,
            decoder=self._decoder(format) if self._decoder and format else 0.0,
            on_quota=on_quota,
        )
        with self._lock:
            demand.pictures = self._pictures_of(source)
            refusal = self._refusal(source, demand) if self._mode == "refuse" else None
            if refusal is None:
                self._sources[source] = demand
                self._set_quotas()
                return ADMITTED
        refused: Future[None] = Future()
        refused.set_exception(SourceError(refusal))
        return refused

    def release(self, source: str) -> None:
        """A source has disconnected; the others share what it had."""
        with self._lock:
            if self._sources.pop(source, None):
                self._set_quotas()

    def set_pictures(self, pictures: Mapping[str, int]) -> None:
        """Set the pictures for a frame of each source, where they are several. Connected sources stay connected."""
        with self._lock:
            self._pictures = pictures
            self._count_again()

    def set_sizes(self, sizes: Mapping[str, Size]) -> None:
        """Set the input size of each source, where it is not the model's own. Connected sources stay connected."""
        with self._lock:
            self._sizes = sizes
            self._count_again()

    def _count_again(self) -> None:
        for source, demand in self._sources.items():
            demand.pictures = self._pictures_of(source)
        if self._sources:
            self._set_quotas()

    def _pictures_of(self, source: str) -> float:
        return self._pictures.get(source, 1) * self._cost(source, self._sizes.get(source))

    @property
    def decoder_cost(self) -> float:
        """Cost of a picture for the GPU's decoder, over the estimate."""
        return self._rate.cost_factor

    def learn(self, metrics: Metrics) -> None:
        """Correct the estimate of the decoder's rate by the latest metrics."""
        with self._lock:
            asked = {name: (row.decoder, row.skip_ratio) for name, row in self._sources.items() if row.decoder}
            if asked and self._rate.learn(metrics, asked):
                log.info("the GPU's decoder is not as estimated", times_as_fast=round(1 / self._rate.cost_factor, 2))
                self._set_quotas()

    def _refusal(self, source: str, demand: _Demand) -> str | None:
        """Why there is no room; None if there is."""
        wanted = demand.wanted * demand.pictures
        others = [other for name, other in self._sources.items() if name != source]
        taken = sum(other.wanted * other.pictures for other in others)
        if taken + wanted > self._capacity:
            unit = "frames/s" if demand.pictures == 1 else f"pictures/s ({demand.pictures:.3g} for a frame)"
            return (
                f"not admitted: it asks for {wanted:.0f} {unit}, the sources that are up for {taken:.0f}, "
                f"and the detector does {self._measured:.0f}; see admission"
            )
        asked = demand.decoder * self._rate.cost_factor
        decoding = sum(other.decoder for other in others) * self._rate.cost_factor
        if asked and decoding + asked > _DECODER_SHARE:
            return (
                f"not admitted: it asks for {asked:.1%} of the GPU's decoder, of which the sources that are "
                f"up take {decoding:.0%}; see admission, or set decode: cpu"
            )
        return None

    def _set_quotas(self) -> None:
        """Set all quotas. Skip ratios are whole percents, so that not every new source changes all of them."""
        rows = [*self._sources.values()]
        max_rate = max_min_rate([row.decoder for row in rows], _DECODER_SHARE / self._rate.cost_factor)
        for row in rows:
            if max_rate is None or row.decoder <= max_rate:
                row.skip_ratio = 0.0
            else:
                row.skip_ratio = ceil(100 * (1 - max_rate / row.decoder)) / 100
        wanted = [min(row.wanted, row.fps * (1 - row.skip_ratio)) for row in rows]
        level = max_min_rate(wanted, self._capacity, [row.pictures for row in rows])
        for row, rate in zip(rows, wanted):
            row.on_quota(self._quota(level if level is not None and level < rate else None, row.skip_ratio))

    def _quota(self, fps: float | None, skip_ratio: float) -> Quota:
        reasons = []
        if skip_ratio:
            reasons.append(f"the GPU's decoder has time for {1 - skip_ratio:.0%} of its pictures")
        if fps is not None:
            reasons.append(f"limited to {fps:.1f} frames/s: the detector does {self._measured:.0f} in all")
        return Quota(fps, skip_ratio, "; ".join(reasons)) if reasons else UNLIMITED


def max_min_rate(demands: Sequence[float], capacity: float, costs: Sequence[float] | None = None) -> float | None:
    """The max-min fair rate: sources below it get their demand, sources above it share the rest equally. None if all
    demands fit.

    Args:
        costs: capacity that one of each source's demand takes; None for 1.
    """
    waiting = sorted(zip(demands, costs or [1] * len(demands)))
    left, weight = capacity, sum(cost for _, cost in waiting)
    while waiting and waiting[0][0] <= left / weight:
        demand, cost = waiting.pop(0)
        left -= demand * cost
        weight -= cost
    return left / weight if waiting else None
