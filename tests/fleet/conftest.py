"""Servers of tests of a fleet, and every coordinator that the contract is tried on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from daemon.fleet.etcd_coordinator import EtcdCoordinator
from daemon.fleet.kubernetes_coordinator import KubernetesCoordinator
from daemon.fleet.port import Coordinator, Membership
from tests.fleet.etcd_server import EtcdCluster, EtcdServer
from tests.fleet.kubernetes_server import KubernetesServer
from tests.fleet.memory_coordinator import MemoryCoordinator, MemoryEngine

_numbers = count()


class Harness(Protocol):
    """A kind of coordinator under test; each test has a fleet of its own."""

    def connect(self, fleet: str = "one") -> Coordinator:
        """Another connection; closed by the harness."""

    def expire(self, membership: Membership) -> None:
        """Let the lease end as if it had not been renewed."""

    def close(self) -> None: ...


class EtcdHarness:
    def __init__(self, server: EtcdServer) -> None:
        self._server, self._number = server, next(_numbers)
        self._open: list[EtcdCoordinator] = []

    def connect(self, fleet: str = "one") -> EtcdCoordinator:
        self._open.append(EtcdCoordinator(self._server.settings(), f"{fleet}-{self._number}"))
        return self._open[-1]

    def expire(self, membership: Membership) -> None:
        """A lease that is revoked ends as one does that was not renewed, and a test need not wait."""
        membership.renewal.revoke()
        membership.renewal.close()

    def close(self) -> None:
        for coordinator in self._open:
            coordinator.close()


class KubernetesHarness:
    """Over a fake of the API."""

    def __init__(self) -> None:
        self._server = KubernetesServer()
        self._open: list[KubernetesCoordinator] = []

    def connect(self, fleet: str = "one") -> KubernetesCoordinator:
        self._open.append(KubernetesCoordinator(self._server.settings("cameras"), fleet))
        return self._open[-1]

    def expire(self, membership: Membership) -> None:
        """Delete the Lease, as an observer does that has not seen it renewed."""
        membership.renewal.revoke()
        membership.renewal.close()

    def close(self) -> None:
        for coordinator in self._open:
            coordinator.close()
        self._server.close()


class MemoryHarness:
    def __init__(self) -> None:
        self._engines: dict[str, MemoryEngine] = {}

    def connect(self, fleet: str = "one") -> MemoryCoordinator:
        return MemoryCoordinator(self._engines.setdefault(fleet, MemoryEngine()))

    def expire(self, membership: Membership) -> None:
        for engine in self._engines.values():
            others = [lease for record, lease in engine.content.members.values() if lease.member != membership.member]
            for lease in others:
                lease.ends_ns += 1_000_000_000_000
            engine.advance(999)

    def close(self) -> None:
        pass


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A server that many tests share."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def etcd_alone(tmp_path: Path) -> Iterator[EtcdServer]:
    """A server that this test may stop."""
    server = EtcdServer(tmp_path / "etcd")
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def etcd_cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    cluster = EtcdCluster(tmp_path / "cluster")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def _memory(_: pytest.FixtureRequest) -> Harness:
    return MemoryHarness()


def _kubernetes(_: pytest.FixtureRequest) -> Harness:
    return KubernetesHarness()


def _etcd(request: pytest.FixtureRequest) -> Harness:
    return EtcdHarness(request.getfixturevalue("etcd"))


KINDS: dict[str, Callable[[pytest.FixtureRequest], Harness]] = {
    "memory": _memory,
    "etcd": _etcd,
    "kubernetes": _kubernetes,
}
_NEEDS = {"etcd": [pytest.mark.needs("etcd-server", "etcd-client")]}


@pytest.fixture(params=[pytest.param(kind, marks=_NEEDS.get(kind, ())) for kind in KINDS])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    made = KINDS[request.param](request)
    yield made
    made.close()


@pytest.fixture
def coordinator(harness: Harness) -> Coordinator:
    return harness.connect()
