"""A keeper of a lease in a thread of the tests' own process, with a clock that can be advanced."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from daemon.clock import Clock, boottime_ns
from daemon.fleet.lease_page import MARGIN_S, LeaseState
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError, LeaseLostError, Renewal
from daemon.system.stop_token import StopToken

log = structlog.get_logger(__name__)
_PAUSE_NS = 1_000_000_000  # between two beats


class LeaseThread:
    """Keeps a lease from a thread of this process. Implements `LeaseKeeper`.

    A renewal may wait long for an answer. Beats then say that this process was not paused; after a pause, no beat
    counts before the next answer.

    Args:
        ttl_s: of the lease, which was taken just now.
    """

    def __init__(self, renewal: Renewal, ttl_s: float, clock: Clock, now: Callable[[], int] = boottime_ns) -> None:
        self._renewal, self._ttl_s, self._clock, self._now = renewal, ttl_s, clock, now
        self.valid_until = 0  # nothing is sure before the first renewal
        self._beaten = self._turned = now()
        self._paused = 0  # end of the last pause of this process
        self.state: LeaseState = "renewed"
        self._ending = StopToken()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def looked(self) -> int:
        return max(self._turned, self._beaten) if self._turned > self._paused else 0

    def beat(self) -> None:
        now = self._now()
        if now - self._beaten > _PAUSE_NS:
            self._paused = now
        self._beaten = now

    def stop(self) -> None:
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(1.0)

    def turn(self) -> None:
        """Renew the lease, if the member lives."""
        asked = self._now()
        if self.state == "lost" or asked - self._beaten > self._ttl_s * 0.5e9:
            return
        try:
            seconds = self._renewal.renew()
        except LeaseLostError:
            self.state = "lost"
        except CoordinatorAwayError:
            self.state = "away"
        except CoordinatorError as error:
            if self.state != "away":
                log.warning("the lease cannot be renewed", reason=str(error))
            self.state = "away"
        else:
            self.valid_until, self.state = asked + round((seconds - MARGIN_S) * 1e9), "renewed"
        self._turned = self._now()

    def _run(self) -> None:
        try:
            self.turn()
            while not self._clock.wait(self._ending, self._ttl_s / 3 if self.state == "renewed" else 0.2):
                self.turn()
        except Exception:
            log.exception("the lease is renewed no more")
