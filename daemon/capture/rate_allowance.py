"""The limits of a source: the quota that admission gives it, its rate limit and its decode time."""

from __future__ import annotations

from daemon.capture.sinks import UNLIMITED, Quota
from daemon.capture.timing import RateLimit
from daemon.sources.port import DecodeBudget


class Allowance:
    """
    Args:
        max_fps: of the configuration; None for no limit.

    Attributes:
        budget: the decode time; readers obey it.
        quota: in use.
    """

    def __init__(self, max_fps: float | None) -> None:
        self.budget = DecodeBudget()
        self.quota = UNLIMITED
        self._max_fps = max_fps
        self._newest = UNLIMITED  # set by any thread
        self._rate_limit = RateLimit(max_fps) if max_fps else None

    def set(self, quota: Quota) -> None:
        """Set the quota, which `apply` puts into use; any thread may call it."""
        self._newest = quota

    def reset(self) -> None:
        """The connection is over: the next one has a quota of its own."""
        self._newest = UNLIMITED

    @property
    def has_changed(self) -> bool:
        """Whether there is a quota that `apply` has not seen."""
        return self._newest is not self.quota

    def apply(self) -> bool:
        """Put the newest quota into use; returns whether it differs from the one before."""
        newest = self._newest  # read once: another thread may set it now
        changed, self.quota = newest != self.quota, newest
        self.budget.set_skip_ratio(self.quota.skip_ratio)
        if changed:
            rate = self.limited(self.quota.fps)
            self._rate_limit = RateLimit(rate) if rate else None
        return changed

    def limited(self, fps: float | None) -> float | None:
        """A rate within that of the configuration; None if neither is known."""
        return min((rate for rate in (fps, self._max_fps) if rate), default=None)

    def passes(self, time_ns: int) -> bool:
        """Whether a picture of this time is within the rate."""
        return self._rate_limit is None or self._rate_limit.allows(time_ns)
