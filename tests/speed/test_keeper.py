"""The cost of a kept lease, and whether renewals are in time beside the load of 240 sources.

`make speed PYTEST_ARGS="-s -k keeper"` prints the figures.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from time import monotonic, process_time
from timeit import repeat

import psutil
import pytest

from daemon.clock import SystemClock, boottime_ns
from daemon.fleet.etcd_coordinator import EtcdCoordinator
from daemon.fleet.kept_lease import KeptLease
from daemon.fleet.records import SourceRecord
from daemon.system.stop_token import StopToken
from tests.bench.overhead import OverheadOptions, overhead
from tests.fleet.etcd_server import EtcdServer
from tests.fleet.test_coordinator_contract import RECORD, A
from tests.support.daemon import Lookout, wait_until

pytestmark = [pytest.mark.speed, pytest.mark.needs("etcd-server")]
TTL_S = 5.0
BEAT_S = 0.2  # as a member beats
IDLE_S = 60.0
_SLOW: dict[str, object] = {"id": "slow", "type": "synthetic", "fps": 1, "width": 64, "height": 48, "objects": 1}
LOAD = OverheadOptions(sources=240, frames=240 * 12_000)  # at full speed: a minute or more


class Beaten:
    """A lease that a thread beats for, as a member's does."""

    def __init__(self, server: EtcdServer) -> None:
        self.coordinator = EtcdCoordinator(server.settings(), "speed")
        self.membership = self.coordinator.join(A, RECORD, TTL_S)
        self.lease = KeptLease(self.membership.renewal, TTL_S, SystemClock())
        self.lease.start()
        self._ending = StopToken()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        while not self.lease.valid_until:
            self._ending.wait(0.01)

    def keeper(self) -> psutil.Process:
        assert self.lease.pid
        return psutil.Process(self.lease.pid)

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        self.lease.close()
        self.membership.leave()
        self.coordinator.close()

    def _beat(self) -> None:
        while not self._ending.wait(BEAT_S):
            self.lease.beat()


@pytest.fixture
def beaten(tmp_path: Path) -> Iterator[Beaten]:
    with closing(EtcdServer(tmp_path)) as server:
        server.start()
        with closing(Beaten(server)) as beaten:
            yield beaten


def _tell(text: str) -> None:
    sys.stdout.write(f"\n{text}")


def _daemon(stack: ExitStack, folder: Path, fleet: dict[str, object]) -> Lookout:
    folder.mkdir()
    config: dict[str, object] = {"model": {"path": "none.onnx", "backend": "fake"}, "monitor": {"interval_s": 60}}
    more: dict[str, object] = {"sources": [], "fleet": fleet} if fleet else {"sources": [_SLOW]}
    return stack.enter_context(Lookout(folder, {**config, **more}))


def _cpu_of_all(daemon: Lookout) -> float:
    return sum(map(_cpu, [daemon.inspect, *daemon.inspect.children(recursive=True)]))


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def test_what_a_lease_costs(beaten: Beaten) -> None:
    """Under 0.5 % of a core: the keeper, and this process's share."""
    keeper = beaten.keeper()
    begun, mine, its = monotonic(), process_time(), _cpu(keeper)
    StopToken().wait(IDLE_S)
    seconds, mine, its = monotonic() - begun, process_time() - mine, _cpu(keeper) - its
    memory = keeper.memory_full_info()
    lease, now = beaten.lease, boottime_ns
    read = min(repeat(lambda: lease.state != "lost" and now() < lease.valid_until, number=100_000)) / 100_000
    _tell(f"keeper {its / seconds:.3%} of a core, {its / seconds * 3600:.1f} s of CPU an hour")
    _tell(f"daemon {mine / seconds:.3%} of a core; a check of the lease {read * 1e9:.0f} ns")
    _tell(f"keeper's memory {memory.rss / 1e6:.1f} MB, of which {memory.uss / 1e6:.1f} MB its own")
    assert (mine + its) / seconds < 0.005
    assert read < 2e-6


def test_what_a_member_costs(tmp_path: Path) -> None:
    """Two daemons with one slow source, and one of them is a member: the difference, its keeper included."""
    with ExitStack() as stack:
        etcd = stack.enter_context(closing(EtcdServer(tmp_path / "etcd")))
        etcd.start()
        fleet = {"coordinator": f"etcd://127.0.0.1:{etcd.port}", "name": "speed", "member": A, "ttl_s": TTL_S}
        alone, member = (
            _daemon(stack, tmp_path / name, fleet if name == "member" else {}) for name in ("one", "member")
        )
        with closing(EtcdCoordinator(etcd.settings(), "speed")) as coordinator:
            coordinator.put_sources({"slow": SourceRecord(config=_SLOW)}, replace=False)
            wait_until(lambda: coordinator.view().owned, "it has its source")
        StopToken().wait(5.0)
        begun, before = monotonic(), (_cpu_of_all(alone), _cpu_of_all(member))
        StopToken().wait(2 * IDLE_S)
        seconds = monotonic() - begun
        without, within = (
            (now - then) / seconds for now, then in zip((_cpu_of_all(alone), _cpu_of_all(member)), before)
        )
    _tell(f"a daemon {without:.3%} of a core, as a member {within:.3%}: {within - without:.3%} more")
    assert within - without < 0.005


def test_no_renewal_is_late_beside_240_sources(beaten: Beaten) -> None:
    page = beaten.lease.page
    before, begun, its = page.renewals, monotonic(), _cpu(beaten.keeper())
    load = overhead(LOAD)
    seconds, renewals, its = monotonic() - begun, page.renewals - before, _cpu(beaten.keeper()) - its
    _tell(f"{load.fps:.0f} frames/s of {load.sources} sources for {seconds:.0f} s: {renewals} renewals")
    _tell(f"keeper {its / seconds:.3%} of a core; the lease had {page.least_left / 1e9:.2f} s left at worst")
    assert beaten.lease.starts == 1
    assert page.state == "renewed"
    assert renewals >= (seconds / (TTL_S / 3)) * 0.9
    assert page.least_left > TTL_S / 3 * 1e9
