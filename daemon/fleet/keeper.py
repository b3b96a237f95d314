"""The keeper of a lease: a small process that renews it, `python -m daemon.fleet.keeper PAGE TTL`.

The daemon's own threads may wait long for a turn; this process does not. It gets the renewal, pickled, over its
standard input, because it may hold a password. The end of the input says that the daemon is dead: the keeper then ends
the lease at once, and other members need not wait for it. It ignores signals to the process group: the daemon handles
them.

Args:
    PAGE: file descriptor of a `LeasePage`.
    TTL: of the lease, in seconds.
"""

from __future__ import annotations

import os
import pickle
import select
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from daemon.clock import boottime_ns
from daemon.fleet.lease_page import MARGIN_S, LeasePage, LeaseState
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError, LeaseLostError, Renewal
from daemon.system.signals import ignore_stop_signals
from daemon.system.stop_token import StopToken

_TURN_S = 0.2
_RETRY_S = 0.25
_PAUSE_NS = 1_000_000_000  # after so long without a turn, what was known before does not count
_LENGTH = 4  # bytes before the renewal
_DAEMON = 0  # standard input


class Keeper:
    """One thread calls `renew`, which may wait for an answer, and another one `check`, which never waits.

    Attributes:
        is_lost: the coordinator has ended the lease; there is nothing more to renew.
    """

    def __init__(self, page: LeasePage, renewal: Renewal, ttl_s: float, now: Callable[[], int] = boottime_ns) -> None:
        self._page, self._renewal, self._ttl_s, self._now = page, renewal, ttl_s, now
        self._half_ns = round(ttl_s * 0.5e9)
        self.is_lost = False
        self._lock = threading.Lock()
        self._asked = self._answered = 0  # begin of the try that goes on now, and of the last one that has ended
        self._turned = self._paused = now()

    def renew(self) -> float:
        """Renew the lease, if the daemon lives; returns the seconds until the next try."""
        asked = self._now()
        if asked - self._page.beat > self._half_ns:
            return _TURN_S
        self._asked = asked
        try:
            seconds = self._renewal.renew()
        except LeaseLostError as error:
            self.is_lost = True
            self._failed("lost", error)
        except CoordinatorAwayError as error:
            self._failed("away", error)
        except CoordinatorError as error:
            self._failed("refused", error)
        else:
            with self._lock:
                self._asked, self._answered = 0, asked
                self._page.set_renewed(asked + round((seconds - MARGIN_S) * 1e9), self._now())
            return max(0.0, self._ttl_s / 3 - (self._now() - asked) / 1e9)
        return _RETRY_S

    def check(self) -> None:
        """Say that this process lives, and whether it knows the state."""
        now, page = self._now(), self._page
        if now - self._turned > _PAUSE_NS or now - page.beat > self._half_ns:
            self._paused = now  # others may have the lease's sources: only a try that begins after this counts
        self._turned = now
        with self._lock:
            is_unanswered = self._asked >= self._paused and now - self._asked > self._half_ns
            if is_unanswered and not self.is_lost:  # name resolution, for one, has no time limit
                page.set_failed("away", "the coordinator does not answer in time")
                self._answered = self._asked
        if self._answered >= self._paused:
            page.set_looked(now)
        page.set_turned(now)

    def _failed(self, state: LeaseState, error: CoordinatorError) -> None:
        with self._lock:
            self._page.set_failed(state, str(error))
            self._answered, self._asked = self._asked, 0


def _keep(keeper: Keeper, ending: StopToken) -> None:
    while not keeper.is_lost and not ending.wait(keeper.renew()):
        pass


def _watch(keeper: Keeper, renewing: threading.Thread) -> bool:
    """Returns whether the daemon is dead, and not this process's own thread."""
    parent = os.getppid()
    poller = select.poll()
    poller.register(_DAEMON, select.POLLIN)
    keeper.check()
    while not poller.poll(_TURN_S * 1000) and os.getppid() == parent:
        if not (renewing.is_alive() or keeper.is_lost):
            return False
        keeper.check()
    return True


def _received() -> Renewal:
    content = _exactly(int.from_bytes(_exactly(_LENGTH), "big"))
    renewal: Renewal = pickle.loads(content)  # noqa: S301 - of this process's parent
    return renewal


def _exactly(size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = os.read(_DAEMON, size - len(found))
        if not part:
            os._exit(0)  # the daemon died before it had written all
        found += part
    return found


def written(renewal: Renewal) -> bytes:
    """A renewal as the keeper reads it."""
    content = pickle.dumps(renewal)
    return len(content).to_bytes(_LENGTH, "big") + content


def main(page_fd: int, ttl_s: float) -> NoReturn:
    ignore_stop_signals()
    page = LeasePage(page_fd)
    os.close(page_fd)
    renewal = _received()
    keeper, ending = Keeper(page, renewal, ttl_s), StopToken()
    renewing = threading.Thread(target=_keep, args=(keeper, ending), name="renewal", daemon=True)
    renewing.start()
    if not _watch(keeper, renewing):
        os._exit(1)  # the daemon starts another keeper
    ending.set()
    renewal.revoke()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
