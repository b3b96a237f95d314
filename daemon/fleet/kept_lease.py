"""The lease of this daemon, which a process of its own renews, as the fence and the member see it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import structlog

from daemon.clock import Clock, boottime_ns
from daemon.fleet.keeper import written
from daemon.fleet.lease_page import SIZE, LeasePage, LeaseState
from daemon.fleet.port import Renewal
from daemon.system.children import reap
from daemon.system.signals import signals_blocked
from daemon.system.stop_token import StopToken

log = structlog.get_logger(__name__)
_TURN_S = 0.25
_START_S = 15.0  # for the first turn of a process, on a machine that is busy
_MIN_SILENCE_S, _MAX_SILENCE_S = 1.0, 5.0
_PAUSE_S, _MAX_PAUSE_S = 0.1, 2.0  # before another process is started; doubles
_LIVED_S = 10.0
_END_S = 1.0


class KeptLease:
    """Keeps a process that renews a lease, and replaces it where it dies or hangs. Reads never wait.

    The lease outlives its keepers: until a new one has renewed it, it holds as long as was confirmed before. Where this
    whole process dies, the keeper ends the lease at once.

    Args:
        ttl_s: of the lease, which was taken just now.

    Attributes:
        pid: of the keeper that runs now.
        starts: number of keepers so far.
    """

    def __init__(self, renewal: Renewal, ttl_s: float, clock: Clock, now: Callable[[], int] = boottime_ns) -> None:
        self._renewal, self._ttl_s, self._clock, self._now = renewal, ttl_s, clock, now
        self._silence_s = min(_MAX_SILENCE_S, max(_MIN_SILENCE_S, ttl_s / 3))
        self._fd = os.memfd_create("lease")
        os.ftruncate(self._fd, SIZE)
        self.page = LeasePage(self._fd)
        self.page.set_beat(now())
        self.pid: int | None = None
        self.starts = 0
        self._state: LeaseState = "renewed"
        self._ending = StopToken()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    @property
    def valid_until(self) -> int:
        return self.page.valid_until

    @property
    def looked(self) -> int:
        return self.page.looked

    @property
    def state(self) -> LeaseState:
        return self.page.state

    def start(self) -> None:
        """Start the keeper, which takes about 0.2 s to renew."""
        self._thread.start()

    def beat(self) -> None:
        """The member lives: without beats for half of the lease's time the keeper does not renew it."""
        self.page.set_beat(self._now())

    def stop(self) -> None:
        """Kill the keeper. The lease is left as it is. A second call does nothing."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(_END_S)
        else:
            self._forget_page()

    close = stop

    def _run(self) -> None:
        """Keep a process running."""
        pause = _PAUSE_S
        try:
            while not self._ending.is_set and self.state != "lost":
                begun = self._now()
                self._run_once()
                pause = _PAUSE_S if self._now() - begun > _LIVED_S * 1e9 else pause
                self._clock.wait(self._ending, pause)
                pause = min(_MAX_PAUSE_S, pause * 2)
        except Exception:
            log.exception("the lease is renewed no more")
        finally:
            self._forget_page()

    def _run_once(self) -> None:
        """Run one process until it ends, hangs, or is to end."""
        try:
            process, its_input = self._spawn()
        except OSError as error:
            log.warning("the keeper of the lease cannot be started", reason=str(error))
            return
        self.pid, self.starts = process.pid, self.starts + 1
        try:
            self._watch(process)
        finally:
            self.pid = None
            process.kill()  # before its input ends, which would make it end the lease
            reap(process, _END_S)
            os.close(its_input)

    def _spawn(self) -> tuple[subprocess.Popen[bytes], int]:
        """A process, and its input, which has the renewal: less than a pipe holds, so that nobody waits."""
        reading, writing = os.pipe()
        try:
            os.write(writing, written(self._renewal))
            command = [sys.executable, "-m", "daemon.fleet.keeper", str(self._fd), str(self._ttl_s)]
            with signals_blocked():
                return subprocess.Popen(command, stdin=reading, pass_fds=[self._fd]), writing
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Until it ends, hangs, or is to end. Time in which this process itself had no turn does not count."""
        heard, silent, limit = self.page.turned, 0.0, _START_S
        while not self._clock.wait(self._ending, _TURN_S):
            self._report()
            if (code := process.poll()) is not None:
                log.warning("the keeper of the lease ended: it is started again", exit_code=code)
                return
            if self.page.turned != heard:
                heard, silent, limit = self.page.turned, 0.0, self._silence_s
                continue
            silent += _TURN_S
            if silent > limit:
                log.warning("the keeper of the lease does not answer: it is replaced", silent_s=round(silent, 1))
                return

    def _report(self) -> None:
        state = self.page.state
        if state == self._state:
            return
        if state in ("away", "refused") and self._state == "renewed":
            log.warning("the lease cannot be renewed", reason=self.page.reason)
        elif state == "renewed":
            log.info("the lease is renewed again")
        self._state = state

    def _forget_page(self) -> None:
        """Close the memory file, once. The page stays mapped for those who read it."""
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
