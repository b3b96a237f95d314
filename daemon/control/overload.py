"""Whether a daemon can carry what it has, by the frames that it loses; a fleet moves sources away by that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.clock import Clock
    from lookout.messages import Metrics

log = structlog.get_logger(__name__)
_LOST_SHARE, _CALM_SHARE = 0.05, 0.01
_SUSTAINED_NS = 30_000_000_000
_LOGGED_AGAIN_NS = 600_000_000_000
_REMEMBERED_NS = 600_000_000_000  # the lower capacity stays for so long after the last loss
_BY_DECODING = ("late",)
_BY_DETECTION = ("superseded", "stale", "outbox_full")


@dataclass(frozen=True)
class _Sums:
    """Frames of all sources since the start."""

    captured: int
    late: int
    detection: int


class Overload:
    """Learns from the daemon's own figures. Frames that `admission` leaves out do not count.

    Args:
        weights: by model, what a picture costs in pictures of the first; 1 for those that are not there.

    Attributes:
        reason: why this daemon cannot carry what it has; None if it can. The log has it every ten minutes.
        shown_fps: pictures a second, of several models in those of the first, that it did when they were too many; None
            before.
        decoded_share: share of pictures that decoding was in time for.
    """

    def __init__(self, clock: Clock, weights: Mapping[str, float] | None = None) -> None:
        self._clock, self._weights = clock, weights or {}
        self.reason: str | None = None
        self._before: dict[str, _Sums] = {}  # by source
        self._since_ns: int | None = None  # of the present losses
        self._lost_ns = 0
        self._logged_ns = 0
        self.shown_fps: float | None = None
        self.decoded_share = 1.0

    def learn(self, metrics: Metrics) -> None:
        """Take the figures of an interval."""
        now, sums = self._clock.monotonic_ns(), _sums_of(metrics)
        grown = [_difference(self._before[id], row) for id, row in sums.items() if id in self._before]
        self._before = sums
        captured = sum(row.captured for row in grown)
        late, detection = (sum(getattr(row, kind) for row in grown) for kind in ("late", "detection"))
        share = (late + detection) / captured if captured > 0 else 0.0
        if share > _LOST_SHARE:
            self._since_ns = self._since_ns or now
            self._lost_ns = now
            if now - self._since_ns >= _SUSTAINED_NS:
                self._note(self._done(metrics), share, late / captured, by_decoding=late > detection)
                self._log(now, metrics.fps)
            return
        self._since_ns = None
        if share < _CALM_SHARE:
            if self.reason is not None:
                log.info("no longer too much", was=self.reason)
            self.reason = None
            if now - self._lost_ns > _REMEMBERED_NS:
                self.shown_fps, self.decoded_share = None, 1.0

    def _done(self, metrics: Metrics) -> float:
        """Pictures a second."""
        if not metrics.models:
            return metrics.fps
        return sum(self._weights.get(name, 1) * row.published_fps for name, row in metrics.models.items())

    def _log(self, now: int, fps: float) -> None:
        if not self._logged_ns or now - self._logged_ns >= _LOGGED_AGAIN_NS:
            self._logged_ns = now
            hint = "lookout check says what is full; fewer sources, a lower max_fps or a smaller model help"
            log.warning("too much for this machine", reason=self.reason, fps=fps, hint=hint)

    def _note(self, fps: float, share: float, late_share: float, *, by_decoding: bool) -> None:
        if self.reason is not None:
            return  # others are on their way out already
        self._logged_ns = 0
        part = "decoding" if by_decoding else "detection"
        self.reason = f"{part} does not keep up: {share:.0%} of all frames are lost"
        if by_decoding:
            self.decoded_share *= 1 - late_share
        else:
            self.shown_fps = round(fps, 1)


def _sums_of(metrics: Metrics) -> dict[str, _Sums]:
    return {
        id: _Sums(
            row.captured,
            sum(getattr(row.dropped, cause) for cause in _BY_DECODING),
            sum(getattr(row.dropped, cause) for cause in _BY_DETECTION),
        )
        for id, row in metrics.sources.items()
    }


def _difference(before: _Sums, now: _Sums) -> _Sums:
    return _Sums(now.captured - before.captured, now.late - before.late, now.detection - before.detection)
