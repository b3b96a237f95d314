"""A large fleet on a real etcd, with members that are no daemons: `python -m tests.fleet.simulation`.

Members join, renew their leases, watch all records, and claim what the placer gives them, each over connections of its
own. Their watches are read and thrown away, but for that of the placer, so that this process does not measure itself:
its figures are etcd's and the placer's.
"""

from __future__ import annotations

import argparse
import base64
import json
import selectors
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from pathlib import Path
from time import perf_counter

import psutil

from daemon.clock import SystemClock
from daemon.fleet.etcd_coordinator import EtcdCoordinator
from daemon.fleet.placer import Placer
from daemon.fleet.port import CoordinatorError, Membership
from daemon.fleet.records import FleetView
from daemon.system.stop_token import StopToken
from tests.bench.fleet import FleetOptions, drawn_fleet
from tests.fleet.etcd_server import EtcdServer

_FLEET = "simulation"
_STEADY_S = 20.0
_PATIENCE_S = 300.0
_WORKERS = 16
_RETRY_S = 0.2  # of a renewal without an answer


@dataclass(frozen=True)
class Phase:
    """What etcd did in a part of the simulation.

    Attributes:
        seconds: of the part.
        transactions_per_s: requests for one; a member reads before it claims.
        changes_per_s: of records.
        cores: of the CPU, on average.
        memory_mib: resident, at the end.
        database_mib: at the end.
        watch_mib: that one member's watch received.
        note: figures of the placer.
    """

    name: str
    seconds: float
    transactions_per_s: float
    changes_per_s: float
    cores: float
    memory_mib: float
    database_mib: float
    watch_mib: float
    note: str = ""


class Watches(threading.Thread):
    """Watches of all members, whose content is thrown away.

    Attributes:
        received: bytes of all.
    """

    def __init__(self, server: EtcdServer, count: int) -> None:
        super().__init__(name="watches", daemon=True)
        self.received, self.count = 0, count
        self._ending = StopToken()
        self._selector = selectors.DefaultSelector()
        self._sockets = [_watch(server.port) for _ in range(count)]
        for each in self._sockets:
            self._selector.register(each, selectors.EVENT_READ)

    def run(self) -> None:
        while not self._ending.is_set:
            for key, _ in self._selector.select(0.2):
                assert isinstance(key.fileobj, socket.socket)
                self.received += len(key.fileobj.recv(1 << 20))

    def close(self) -> None:
        self._ending.set()
        self.join(5.0)
        for each in self._sockets:
            each.close()


def _watch(port: int) -> socket.socket:
    """A connection that receives every change of the fleet."""
    prefix = f"/lookout/{_FLEET}/".encode()
    end = prefix[:-1] + bytes([prefix[-1] + 1])
    wanted = {"key": base64.b64encode(prefix).decode(), "range_end": base64.b64encode(end).decode()}
    body = json.dumps({"create_request": wanted}).encode()
    opened = socket.create_connection(("127.0.0.1", port), 10.0)
    opened.sendall(b"POST /v3/watch HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    return opened


class Keeper(threading.Thread):
    """Renews a lease at a third of its time, and again at once where there was no answer, as keepers do.

    Attributes:
        slowest_s: time of the slowest renewal since the last `reset`.
        failed: renewals without an answer since then.
    """

    def __init__(self, membership: Membership, ttl_s: float) -> None:
        super().__init__(name=f"keeper-{membership.member}", daemon=True)
        self._membership, self._ttl_s, self._ending = membership, ttl_s, StopToken()
        self.slowest_s, self.failed = 0.0, 0

    def reset(self) -> None:
        self.slowest_s, self.failed = 0.0, 0

    def run(self) -> None:
        wait_s = 0.0
        while not self._ending.wait(wait_s):
            begun = perf_counter()
            wait_s = self._ttl_s / 3 if self._renew() else _RETRY_S
            self.slowest_s = max(self.slowest_s, perf_counter() - begun)

    def _renew(self) -> bool:
        try:
            self._membership.renewal.renew()
        except CoordinatorError as error:
            if not self._ending.is_set:
                self.failed += 1
                print(f"{self._membership.member}: {error}", file=sys.stderr)  # noqa: T201
            return False
        return True

    def close(self) -> None:
        self._ending.set()
        self.join(_PATIENCE_S)


class Fleet:
    """Attributes:
    memberships: of members that live.
    moved: sources that got another owner than they had, since the last `reset`.
    """

    def __init__(self, server: EtcdServer, options: FleetOptions, ttl_s: float, stack: ExitStack) -> None:
        self._server, self._ttl_s, self._stack = server, ttl_s, stack
        self._drawn = drawn_fleet(options)
        self._admin = self._connect()
        self.memberships: dict[str, Membership] = {}
        self._keepers: dict[str, Keeper] = {}
        self.placer = Placer(SystemClock(), 0.0)
        self._pool = stack.enter_context(ThreadPoolExecutor(_WORKERS))
        self._stop = StopToken()

    def _connect(self) -> EtcdCoordinator:
        return self._stack.enter_context(closing(EtcdCoordinator(self._server.settings(), _FLEET)))

    def add_sources(self) -> None:
        self._admin.put_sources(self._drawn.sources, replace=False)

    def join(self) -> None:
        for name, record in self._drawn.members.items():
            membership = self.memberships[name] = self._connect().join(name, record, self._ttl_s)
            keeper = self._keepers[name] = Keeper(membership, self._ttl_s)
            keeper.start()
            self._stack.callback(keeper.close)

    def renewals(self) -> str:
        """The slowest renewal, and those that failed, since the last call."""
        keepers = self._keepers.values()
        slowest, failed = max(each.slowest_s for each in keepers), sum(each.failed for each in keepers)
        for each in keepers:
            each.reset()
        return f"slowest renewal {slowest * 1e3:.0f} ms, {failed} failed"

    def lose(self, count: int) -> None:
        """End leases, those that are not the placer's."""
        placer = self._admin.view().placer
        for name in [name for name in self.memberships if name != placer][:count]:
            self._keepers.pop(name).close()
            self.memberships.pop(name).renewal.revoke()

    def settle(self) -> FleetView:
        """Place and claim until every source that has a place has its owner."""
        until = perf_counter() + _PATIENCE_S
        for view in self._admin.follow(self._stop):
            if perf_counter() > until:
                raise SystemExit("the fleet does not come to rest")
            leader = self.memberships[view.placer or next(iter(self.memberships))]
            self.placer.run_once(view, leader)
            claims = self._claimable(view)
            list(self._pool.map(lambda row: self.memberships[row[0]].claim(row[1]), claims.items()))
            if not claims and self._is_settled(view):
                return view
        raise AssertionError("the records have no end")

    def _claimable(self, view: FleetView) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for id, want in view.wants.items():
            if want.member in self.memberships and id not in view.owned:
                found.setdefault(str(want.member), []).append(id)
        return found

    def _is_settled(self, view: FleetView) -> bool:
        return len(view.wants) == len(view.sources) and all(
            want.member is None or want.member in view.members for want in view.wants.values()
        )


class Meter:
    """Measures etcd in parts of the simulation."""

    def __init__(self, server: EtcdServer, watches: Watches | None = None) -> None:
        self._server, self.watches = server, watches
        self._process = _process_of(server)
        self.phases: list[Phase] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[list[str]]:
        """A part; the list is for notes."""
        notes: list[str] = []
        received = self.watches.received if self.watches else 0
        transactions, changes, begun, cpu = self._transactions(), self._changes(), perf_counter(), self._cpu()
        yield notes
        seconds = perf_counter() - begun
        self.phases.append(
            Phase(
                name,
                seconds,
                (self._transactions() - transactions) / seconds,
                (self._changes() - changes) / seconds,
                (self._cpu() - cpu) / seconds,
                self._process.memory_info().rss / (1 << 20),
                self._metric("etcd_mvcc_db_total_size_in_bytes") / (1 << 20),
                (self.watches.received - received) / (1 << 20) / self.watches.count if self.watches else 0.0,
                ", ".join(notes),
            )
        )

    def _cpu(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def _transactions(self) -> float:
        return self._metric("grpc_server_handled_total", 'grpc_method="Txn"')

    def _changes(self) -> float:
        return self._metric("etcd_mvcc_put_total") + self._metric("etcd_mvcc_delete_total")

    def _metric(self, name: str, label: str = "") -> float:
        connection = HTTPConnection("127.0.0.1", self._server.port, timeout=30)
        with closing(connection):
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        found = [line for line in lines if line.split(" ")[0].split("{")[0] == name and label in line]
        return sum(float(line.split()[-1]) for line in found)


def _process_of(server: EtcdServer) -> psutil.Process:
    for process in psutil.Process().children():
        if str(server.data) in process.cmdline():
            return process
    raise AssertionError("etcd does not run")


def _moved(before: FleetView, after: FleetView, lost: set[str]) -> str:
    """What a loss has changed."""
    owners = {id: row.member for id, row in before.owned.items()}
    now = {id: row.member for id, row in after.owned.items()}
    its_own = {id for id, owner in owners.items() if owner in lost}
    others = sum(now.get(id) != owner for id, owner in owners.items() if owner not in lost)
    waiting = sum(id not in now for id in its_own)
    return f"{len(its_own) - waiting} moved, {waiting} without room, {others} others moved"


def simulate(options: FleetOptions, ttl_s: float, folder: Path) -> list[Phase]:
    """Run all parts."""
    with ExitStack() as stack:
        server = EtcdServer(folder / "etcd", "--auto-compaction-mode=revision", "--auto-compaction-retention=10000")
        stack.callback(server.close)
        server.start()
        fleet, meter = Fleet(server, options, ttl_s, stack), Meter(server)
        with meter.phase(f"{options.sources} sources are added"):
            fleet.add_sources()
        watches = meter.watches = Watches(server, options.members)
        watches.start()
        stack.callback(watches.close)
        with meter.phase(f"{options.members} members join"):
            fleet.join()
        with meter.phase("all sources are placed and claimed") as notes:
            before = fleet.settle()
            notes += [f"placement {fleet.placer.counts.slowest_s * 1e3:.0f} ms", fleet.renewals()]
        with meter.phase("nothing changes") as notes:
            StopToken().wait(_STEADY_S)
            notes.append(fleet.renewals())
        names = set(fleet.memberships)
        with meter.phase(f"{options.lost} members are lost at once") as notes:
            fleet.lose(options.lost)
            after = fleet.settle()
            notes += [f"placement {fleet.placer.counts.slowest_s * 1e3:.0f} ms", fleet.renewals()]
            notes.append(_moved(before, after, names - set(fleet.memberships)))
    return meter.phases


def show(phases: Sequence[Phase]) -> None:
    head = ("part", "s", "transactions/s", "changes/s", "cores", "memory, MiB", "database, MiB", "watch, MiB", "")
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))  # noqa: T201
    for row in phases:
        cells = [row.name, f"{row.seconds:.1f}", f"{row.transactions_per_s:.0f}", f"{row.changes_per_s:.0f}"]
        cells += [
            f"{row.cores:.2f}",
            f"{row.memory_mib:.0f}",
            f"{row.database_mib:.0f}",
            f"{row.watch_mib:.1f}",
            row.note,
        ]
        print("| " + " | ".join(cells) + " |")  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", type=int, default=10_000)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--lost", type=int, default=10)
    parser.add_argument("--ttl", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        phases = simulate(FleetOptions(given.sources, given.members, given.lost), given.ttl, Path(folder))
    show(phases)
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in phases], indent=1))


if __name__ == "__main__":
    main()
