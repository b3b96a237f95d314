"""The lease of a worker in etcd, renewed by a thread of its own."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import structlog

from daemon.clock import Clock
from daemon.etcd.client import EtcdClient
from daemon.etcd.errors import EtcdAwayError, EtcdError, LeaseNotFoundError
from daemon.system.stop_token import StopToken

log = structlog.get_logger(__name__)
_MARGIN = 0.1  # share of the lease's time by which a claim ends here before it ends in etcd
_RETRY_S = 0.5


def boottime_ns() -> int:
    """Monotonic, and goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class WorkerLease(threading.Thread):
    """A lease, from its grant on.

    Args:
        client: with a time limit well below the lease's time; closed by the caller after `end`.
        now: ns of a clock that counts suspension.

    Attributes:
        id: of the lease.

    Raises:
        EtcdError: it is not granted.
    """

    def __init__(self, client: EtcdClient, seconds: float, clock: Clock, now: Callable[[], int] = boottime_ns) -> None:
        super().__init__(name="batch-lease", daemon=True)
        self._client, self._clock, self._now = client, clock, now
        self._ending = StopToken()
        self._is_lost = False
        asked = now()
        grant = client.grant(math.ceil(seconds))
        self.id, self._ttl_s = grant.lease, grant.ttl
        self._valid_until = self._end_of(asked)

    @property
    def is_valid(self) -> bool:
        """Whether what was claimed under it is certainly still claimed. Once it is not, it never is again."""
        if self._now() >= self._valid_until:
            self._is_lost = True
        return not self._is_lost

    def run(self) -> None:
        wait_s = self._ttl_s / 3
        while not self._clock.wait(self._ending, wait_s) and not self._is_lost:
            wait_s = self._ttl_s / 3 if self._renew() else min(_RETRY_S, self._ttl_s / 6)

    def end(self) -> None:
        """Give up all that was claimed under it. Does not raise; a second call does nothing."""
        if self._ending.is_set:
            return
        self._ending.set()
        self._is_lost = True
        if self.ident is not None:
            self.join(self._client.settings.limit_s + 1.0)
        try:
            self._client.revoke(self.id)
        except EtcdError as error:
            log.warning("the lease was not given back, and ends by itself", reason=str(error))

    def _renew(self) -> bool:
        asked = self._now()
        try:
            self._ttl_s = self._client.keep_alive(self.id).ttl
        except LeaseNotFoundError:
            self._is_lost = True
            return False
        except EtcdAwayError:
            return False
        except EtcdError as error:
            log.warning("the lease is not renewed", reason=str(error))
            return False
        self._valid_until = self._end_of(asked)
        return True

    def _end_of(self, asked: int) -> int:
        return asked + round(self._ttl_s * (1 - _MARGIN) * 1e9)
