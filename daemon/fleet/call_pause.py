"""The time between two calls to the coordinator, after one that had no answer or was refused."""

from __future__ import annotations

from daemon.clock import Clock
from daemon.errors import LookoutError
from daemon.fleet.port import CoordinatorAwayError

_AWAY_NS, _REFUSED_NS = 500_000_000, 2_000_000_000  # after a call without an answer, or a refusal


class CallPause:
    """
    Attributes:
        failure: why the last call failed; None after a success.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._until_ns = clock, clock.monotonic_ns()
        self.failure: str | None = None
        self._failed_as: type[LookoutError] = LookoutError

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic_ns() >= self._until_ns

    def succeed(self) -> None:
        self.failure = None

    def fail(self, error: LookoutError) -> bool:
        """Pause; returns whether it is another failure than that of the call before."""
        is_new = self.failure is None or type(error) is not self._failed_as
        self.failure, self._failed_as = str(error), type(error)
        self.extend(_AWAY_NS if isinstance(error, CoordinatorAwayError) else _REFUSED_NS)
        return is_new

    def extend(self, pause_ns: int) -> None:
        """Pause for so long from now on."""
        self._until_ns = self._clock.monotonic_ns() + pause_ns
