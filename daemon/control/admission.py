"""Shares of a detector, and of a GPU's decoder, that cannot do all that is asked of it: decided when sources come and
go.

Without it, frames that no lane has time for are dropped when newer ones come, after they were decoded and converted;
and pictures that the decoder has no time for are left out when they are late.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import ceil

import structlog

from daemon.capture.sinks import ADMITTED, UNLIMITED, OnQuota, Quota
from daemon.config import AdmissionMode
from daemon.control.decoder_rate import DecoderRate
from daemon.errors import SourceError
from daemon.messages import Metrics, VideoFormat

log = structlog.get_logger(__name__)

_ROOM = 0.9  # of the measured rate: pictures differ, and the machine does other things
_DECODER_ROOM = 0.94  # beside lanes that look at pictures; 150 H.264 sources of 1080p30, which hold, take 0.9375
UNKNOWN_FPS = 30.0


@dataclass
class _Asking:
    """What a source that is up asks for, and what of that it cannot have.

    Attributes:
        fps: frames a second that come in.
        wanted: of them, those to be looked at.
        decoder: share of the GPU's decoder, by estimate.
        skip_ratio: share of its pictures that it has no time for.
    """

    fps: float
    wanted: float
    decoder: float
    on_quota: OnQuota
    skip_ratio: float = 0.0


class Admission:
    """Shares `capacity` frames a second among the sources that are up; safe to use from every thread.

    Args:
        mode: off lets everybody in at full rate; degrade lets everybody in, and lowers the highest rates to one that
            fits, first that of decoding, then that of looking; refuse lets a source in only if there is room for all
            of it.
        capacity: of the detector, measured.
        decoder: share of the GPU's decoder that a format takes, by estimate.
        rate: what is learned of that.
    """

    def __init__(
        self,
        mode: AdmissionMode = "off",
        capacity: float = float("inf"),
        decoder: Callable[[VideoFormat], float] | None = None,
        rate: DecoderRate | None = None,
    ) -> None:
        self._mode, self._measured, self._decoder = mode, capacity, decoder
        self._rate = rate or DecoderRate()
        self._capacity = capacity * _ROOM
        self._sources: dict[str, _Asking] = {}
        self._lock = threading.Lock()

    def admit(
        self, source: str, fps: float | None, on_quota: OnQuota, format: VideoFormat | None = None
    ) -> Future[None]:
        """A source is connected, and will give frames of this format.

        Args:
            fps: frames a second to be looked at.

        Returns:
            A future that is done: with a SourceError if there is no room for it, to be tried again later.
        """
        if self._mode == "off":
            return ADMITTED
        wanted = fps or UNKNOWN_FPS
        asking = _Asking(
            fps=(format.fps if format else None) or wanted,
            wanted=wanted,
            decoder=self._decoder(format) if self._decoder and format else 0.0,
            on_quota=on_quota,
        )
        with self._lock:
            refusal = self._refusal(asking) if self._mode == "refuse" else None
            if refusal is None:
                self._sources[source] = asking
                self._share()
                return ADMITTED
        refused: Future[None] = Future()
        refused.set_exception(SourceError(refusal))
        return refused

    def release(self, source: str) -> None:
        """A source is not connected any more; what was its own is for the others."""
        with self._lock:
            if self._sources.pop(source, None):
                self._share()

    def learn(self, metrics: Metrics) -> None:
        """What the daemon has measured lately: whether the decoder is as fast as was estimated."""
        with self._lock:
            asked = {name: (row.decoder, row.skip_ratio) for name, row in self._sources.items() if row.decoder}
            if asked and self._rate.learn(metrics, asked):
                log.info("the GPU's decoder is not as estimated", times_as_fast=round(1 / self._rate.times, 2))
                self._share()

    def _refusal(self, asking: _Asking) -> str | None:
        """Why there is no room; None if there is."""
        wanted, taken = asking.wanted, sum(other.wanted for other in self._sources.values())
        if taken + wanted > self._capacity:
            return (
                f"not admitted: it asks for {wanted:.0f} frames/s, the sources that are up for {taken:.0f}, "
                f"and the detector does {self._measured:.0f}; see admission"
            )
        asked = asking.decoder * self._rate.times
        decoding = sum(other.decoder for other in self._sources.values()) * self._rate.times
        if asked and decoding + asked > _DECODER_ROOM:
            return (
                f"not admitted: it asks for {asked:.1%} of the GPU's decoder, of which the sources that are "
                f"up take {decoding:.0%}; see admission, or set decode: cpu"
            )
        return None

    def _share(self) -> None:
        """Tell everybody; in whole percents of decoding, so that not every newcomer changes what all have."""
        rows = [*self._sources.values()]
        most = max_min_rate([row.decoder for row in rows], _DECODER_ROOM / self._rate.times)
        for row in rows:
            if most is None or row.decoder <= most:
                row.skip_ratio = 0.0
            else:
                row.skip_ratio = ceil(100 * (1 - most / row.decoder)) / 100
        wanted = [min(row.wanted, row.fps * (1 - row.skip_ratio)) for row in rows]
        level = max_min_rate(wanted, self._capacity)
        for row, rate in zip(rows, wanted):
            row.on_quota(self._quota(level if level is not None and level < rate else None, row.skip_ratio))

    def _quota(self, fps: float | None, skip_ratio: float) -> Quota:
        reasons = []
        if skip_ratio:
            reasons.append(f"the GPU's decoder has time for {1 - skip_ratio:.0%} of its pictures")
        if fps is not None:
            reasons.append(f"limited to {fps:.1f} frames/s: the detector does {self._measured:.0f} in all")
        return Quota(fps, skip_ratio, "; ".join(reasons)) if reasons else UNLIMITED


def max_min_rate(demands: Sequence[float], capacity: float) -> float | None:
    """The rate that nobody may exceed so that all fit, and nobody who asks for less gives anything up; None if all fit.

    Max-min fairness: those below the level get what they ask for, those above share the rest equally.
    """
    left, waiting = capacity, sorted(demands)
    while waiting and waiting[0] <= left / len(waiting):
        left -= waiting.pop(0)
    return left / len(waiting) if waiting else None
