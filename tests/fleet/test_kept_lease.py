"""Leases of a real etcd, kept by real processes that are killed, paused and cut off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import count

import psutil
import pytest

from daemon.clock import SystemClock, boottime_ns
from daemon.fleet.etcd_coordinator import EtcdCoordinator
from daemon.fleet.etcd_membership import EtcdMembership
from daemon.fleet.kept_lease import KeptLease
from tests.fleet.etcd_server import EtcdServer
from tests.fleet.test_coordinator_contract import RECORD, A
from tests.support.daemon import PATIENCE_S, wait_until

pytestmark = [pytest.mark.needs("etcd-server", "etcd-client"), pytest.mark.slow(2)]
SHORT_S = 6.0  # a busy machine must come to renew it
LONG_S = 600.0  # longer than a test may take
_numbers = count()


class Kept:
    """A member of a fleet of its own, whose lease is kept, and which beats by itself.

    Attributes:
        beats: cleared: the member has no turn.
    """

    def __init__(self, server: EtcdServer, ttl_s: float) -> None:
        self.fleet = f"kept-{next(_numbers)}"
        self.coordinator = EtcdCoordinator(server.settings(), self.fleet)
        self.membership: EtcdMembership = self.coordinator.join(A, RECORD, ttl_s)
        self.lease = KeptLease(self.membership.renewal, ttl_s, SystemClock())
        self.beats, self._ending = threading.Event(), threading.Event()
        self.beats.set()
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    def start(self) -> Kept:
        self.lease.start()
        self.wait_renewed()
        return self

    def wait_renewed(self) -> None:
        """Wait for the next renewal."""
        before = self.lease.page.renewals
        wait_until(lambda: self.lease.page.renewals > before, "the lease is renewed")

    def wait_for(self, state: str) -> None:
        wait_until(lambda: self.lease.state == state, f"the lease is {state}")

    def is_member(self) -> bool:
        return A in self.coordinator.view().members

    def holds(self) -> bool:
        return boottime_ns() < self.lease.valid_until

    def pid(self) -> int:
        wait_until(lambda: self.lease.pid, "a keeper runs")
        return self.lease.pid or 0

    def close(self) -> None:
        self._ending.set()
        self._beating.join()
        self.lease.close()
        self.membership.renewal.close()
        self.coordinator.close()

    def _beat(self) -> None:
        while not self._ending.wait(0.05):
            if self.beats.is_set():
                self.lease.beat()


Keep = Callable[..., Kept]


@pytest.fixture
def keep() -> Iterator[Keep]:
    """Joins a fleet; the fixture closes what it has made."""
    with ExitStack() as stack:
        yield lambda server, ttl_s=SHORT_S: stack.enter_context(closing(Kept(server, ttl_s)))


def _is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid)


def test_a_lease_is_renewed(etcd: EtcdServer, keep: Keep) -> None:
    kept = keep(etcd).start()
    until = boottime_ns() + round(1.5 * SHORT_S * 1e9)
    wait_until(lambda: boottime_ns() > until, "more than the lease's time has passed")
    assert kept.lease.state == "renewed"
    assert kept.is_member()
    assert kept.lease.starts == 1


def test_nothing_is_sure_before_the_first_renewal(etcd: EtcdServer, keep: Keep) -> None:
    kept = keep(etcd)
    assert not kept.holds()
    assert kept.lease.state == "renewed"
    kept.start()
    assert kept.holds()


def test_a_member_that_does_not_beat_loses_its_lease(etcd: EtcdServer, keep: Keep) -> None:
    kept = keep(etcd).start()
    kept.beats.clear()
    wait_until(lambda: not kept.is_member(), "the lease ends")
    assert not kept.holds(), "the fence has closed before the lease has ended"
    kept.beats.set()
    kept.wait_for("lost")
    assert not kept.holds()


def test_a_killed_keeper_is_replaced(etcd: EtcdServer, keep: Keep) -> None:
    kept = keep(etcd, LONG_S).start()
    before, valid_until = kept.pid(), kept.lease.valid_until
    os.kill(before, signal.SIGKILL)
    assert kept.lease.valid_until == valid_until
    wait_until(lambda: kept.lease.pid not in (before, None), "another keeper")
    kept.wait_renewed()
    assert kept.lease.valid_until > valid_until
    assert kept.is_member()


def test_a_keeper_that_hangs_is_replaced(etcd: EtcdServer, keep: Keep) -> None:
    kept = keep(etcd).start()
    before = kept.pid()
    os.kill(before, signal.SIGSTOP)  # nobody renews, and the fence closes in time
    valid_until = kept.lease.valid_until
    wait_until(lambda: _is_gone(before), "the keeper is killed")
    wait_until(lambda: kept.lease.valid_until > valid_until or kept.lease.state == "lost", "another keeper asks")
    assert kept.lease.starts == 2


def test_an_etcd_that_is_away_and_comes_back(etcd_alone: EtcdServer, keep: Keep) -> None:
    kept = keep(etcd_alone).start()
    etcd_alone.kill()
    kept.wait_for("away")
    wait_until(lambda: not kept.holds(), "the lease is not sure any more")
    before = kept.lease.looked
    wait_until(lambda: kept.lease.looked > before + 1_000_000_000, "the keeper goes on to vouch")
    assert kept.lease.state == "away"
    assert "does not answer" in kept.lease.page.reason
    etcd_alone.start()  # which gives each lease its whole time again
    kept.wait_for("renewed")
    assert kept.is_member()


def test_an_etcd_that_says_nothing(etcd_alone: EtcdServer, keep: Keep) -> None:
    kept = keep(etcd_alone).start()
    etcd_alone.pause()
    kept.wait_for("away")
    wait_until(lambda: not kept.holds(), "the lease is not sure any more")
    before = kept.lease.looked
    wait_until(lambda: kept.lease.looked > before + 1_000_000_000, "the keeper goes on to vouch")
    etcd_alone.resume()
    wait_until(lambda: kept.lease.state in ("renewed", "lost"), "the keeper has spoken to etcd")


def test_a_lease_that_another_has_ended_is_lost(etcd: EtcdServer, keep: Keep) -> None:
    kept = keep(etcd).start()
    kept.membership.renewal.revoke()
    kept.wait_for("lost")
    pid = kept.pid()
    os.kill(pid, signal.SIGKILL)
    kept.lease._thread.join(PATIENCE_S)
    assert kept.lease.starts == 1, "there is nothing to keep"


def test_a_stop_leaves_the_lease(etcd: EtcdServer, keep: Keep) -> None:
    kept = keep(etcd, LONG_S).start()
    pid = kept.pid()
    kept.lease.stop()
    assert _is_gone(pid)
    assert kept.is_member()
    kept.membership.leave()
    assert not kept.is_member()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_to_the_group_do_not_end_a_keeper(etcd: EtcdServer, keep: Keep, number: signal.Signals) -> None:
    kept = keep(etcd)
    kept.lease.start()
    os.kill(kept.pid(), number)  # it may not even have begun
    kept.wait_renewed()
    os.kill(kept.pid(), number)
    kept.wait_renewed()
    assert kept.lease.starts == 1


def test_a_keeper_is_small() -> None:
    """It loads neither the daemon's libraries nor its log."""
    modules = "daemon.fleet.keeper, daemon.fleet.etcd_renewal, daemon.fleet.kubernetes_renewal"
    code = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert not {*done.stdout.split()} & {"numpy", "structlog", "yaml", "zmq", "asyncio", "daemon.config"}


# --- two things at once ----------------------------------------------------------------------------------------------


def _kill(kept: Kept) -> None:
    with suppress(ProcessLookupError):
        os.kill(kept.pid(), signal.SIGKILL)


def _twice(kept: Kept) -> None:
    stops = [threading.Thread(target=kept.lease.stop) for _ in range(2)]
    for thread in stops:
        thread.start()
    for thread in stops:
        thread.join()


def _killed(kept: Kept) -> None:
    _kill(kept)
    kept.lease.stop()


STOPS: dict[str, Callable[[Kept], None]] = {
    "a stop": lambda kept: kept.lease.stop(),
    "two stops": _twice,
    "a death and a stop": _killed,
}


@pytest.mark.parametrize("how", STOPS)
@pytest.mark.parametrize("when", ["starting", "renewing"])
def test_a_stop_at_any_moment(etcd_alone: EtcdServer, keep: Keep, when: str, how: str) -> None:
    kept = keep(etcd_alone, LONG_S)
    kept.lease.start()
    if when == "renewing":
        kept.wait_renewed()
        etcd_alone.pause()
        _kill(kept)
        wait_until(lambda: kept.lease.starts == 2, "another keeper waits for an answer")
    pid = kept.pid()
    STOPS[how](kept)
    wait_until(lambda: _is_gone(pid), "the keeper has ended")
    kept.lease._thread.join(PATIENCE_S)
    assert kept.lease.pid is None
    if when == "renewing":
        etcd_alone.resume()
    assert kept.is_member(), "the lease is left as it is"


def test_a_death_while_starting(etcd: EtcdServer, keep: Keep) -> None:
    kept = keep(etcd, LONG_S)
    kept.lease.start()
    _kill(kept)
    kept.wait_renewed()
    assert kept.lease.starts == 2


def test_a_lease_that_is_stopped_before_its_start(etcd: EtcdServer, keep: Keep) -> None:
    kept = keep(etcd, LONG_S)
    kept.lease.stop()
    kept.lease.start()
    kept.lease.stop()
    kept.lease._thread.join(PATIENCE_S)
    assert kept.lease.starts == 0


# --- the daemon dies -------------------------------------------------------------------------------------------------


@contextmanager
def _daemon(server: EtcdServer, fleet: str, ttl_s: float) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that keeps a lease, and the pid of its keeper."""
    command = [sys.executable, "-m", "tests.fleet.keeping", str(server.port), fleet, A, str(ttl_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_a_daemon_that_is_killed_ends_its_lease_at_once(etcd: EtcdServer) -> None:
    fleet = f"killed-{next(_numbers)}"
    with closing(EtcdCoordinator(etcd.settings(), fleet)) as coordinator, _daemon(etcd, fleet, LONG_S) as daemon:
        assert A in coordinator.view().members
        daemon[0].kill()
        wait_until(lambda: A not in coordinator.view().members, "the lease has ended before its time")
        wait_until(lambda: _is_gone(daemon[1]), "the keeper has ended")


def test_a_daemon_that_is_paused_loses_its_lease(etcd: EtcdServer) -> None:
    fleet = f"paused-{next(_numbers)}"
    with closing(EtcdCoordinator(etcd.settings(), fleet)) as coordinator, _daemon(etcd, fleet, SHORT_S) as daemon:
        daemon[0].send_signal(signal.SIGSTOP)
        wait_until(lambda: A not in coordinator.view().members, "the lease has ended")
        daemon[0].send_signal(signal.SIGCONT)
        daemon[0].kill()
        wait_until(lambda: _is_gone(daemon[1]), "the keeper has ended")


def test_a_whole_group_that_is_told_to_end_leaves_by_the_daemon(etcd: EtcdServer) -> None:
    """As systemd does: the signal goes to the keeper as well."""
    fleet = f"left-{next(_numbers)}"
    with closing(EtcdCoordinator(etcd.settings(), fleet)) as coordinator, _daemon(etcd, fleet, LONG_S) as daemon:
        os.kill(daemon[1], signal.SIGTERM)
        joined = coordinator.view().joined[A]
        assert daemon[0].stdin
        daemon[0].stdin.write("end\n")
        daemon[0].stdin.flush()
        assert daemon[0].wait(PATIENCE_S) == 0
        assert coordinator.view().left == {A: joined}, "that is no loss"
