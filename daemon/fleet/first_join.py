"""The first attempt to join a fleet, for which the start of a daemon waits."""

from __future__ import annotations

from daemon.clock import Clock
from daemon.errors import LookoutError
from daemon.fleet.port import CoordinatorAwayError, NameTakenError
from daemon.system.stop_token import StopToken

_NAME_TAKEN_NS = 3_000_000_000  # a name is waited for as long as a lease lasts, and so long


class FirstJoin:
    """
    Attributes:
        settled: set when the attempt has come to an end: joined, or the coordinator is away.
        refusal: why this daemon cannot be a member; it stays None after the first success.
    """

    def __init__(self, ttl_s: float, clock: Clock) -> None:
        self._clock, self._begun_ns = clock, clock.monotonic_ns()
        self._limit_ns = round(ttl_s * 1e9) + _NAME_TAKEN_NS
        self.settled = StopToken()
        self.refusal: LookoutError | None = None

    def succeed(self) -> None:
        self.settled.set()

    def fail(self, error: LookoutError) -> None:
        is_away = isinstance(error, CoordinatorAwayError)
        is_early = self._clock.monotonic_ns() - self._begun_ns < self._limit_ns
        is_patient = isinstance(error, NameTakenError) and is_early
        if not (is_away or is_patient or self.settled.is_set):
            self.refusal = error
        if is_away or self.refusal:
            self.settled.set()
