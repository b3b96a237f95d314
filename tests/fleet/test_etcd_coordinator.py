"""Promises of the coordinator over etcd where etcd, or the way to it, fails."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from daemon.etcd.client import EtcdClient
from daemon.etcd.settings import Endpoint, EtcdSettings
from daemon.fleet.etcd_coordinator import EtcdCoordinator
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError, LeaseLostError
from daemon.fleet.records import FleetView, SourceRecord
from daemon.system.stop_token import StopToken
from tests.fleet.etcd_server import EtcdCluster, EtcdServer
from tests.fleet.test_coordinator_contract import RECORD, SOURCE, A, B, add, join, place
from tests.support.proxy import Proxy

pytestmark = pytest.mark.needs("etcd-server", "etcd-client")
LONG_S = 300.0
T = TypeVar("T")


@pytest.fixture
def proxied(etcd_alone: EtcdServer) -> Iterator[Proxy]:
    with closing(Proxy(etcd_alone.port)) as proxy:
        yield proxy


@pytest.fixture
def opened() -> Iterator[Callable[..., EtcdCoordinator]]:
    """Opens a coordinator, which the fixture closes."""
    with ExitStack() as stack:
        yield lambda settings, fleet="faults": stack.enter_context(closing(EtcdCoordinator(settings, fleet)))


def _through(proxy: Proxy, silence_s: float = 5.0, limit_s: float = 5.0) -> EtcdSettings:
    return EtcdSettings((Endpoint("127.0.0.1", proxy.port),), limit_s=limit_s, silence_s=silence_s)


Opened = Callable[..., EtcdCoordinator]


def test_a_lease_that_is_not_renewed_ends(etcd: EtcdServer, opened: Opened) -> None:
    coordinator = opened(etcd.settings(), "expiry")
    add(coordinator, "a")
    member = coordinator.join(A, RECORD, 2.0)
    place(coordinator, member, {"a": A})
    member.claim(["a"])
    views = coordinator.follow(StopToken())
    assert next(views).owned
    gone = next(view for view in views if not view.members)
    assert not gone.owned
    assert gone.wants
    with pytest.raises(LeaseLostError):
        member.renewal.renew()
    member.renewal.close()


def test_a_release_that_arrives_a_second_time_ends_no_later_claim(proxied: Proxy, opened: Opened) -> None:
    """It was repeated at another etcd because the first one hung. That one goes on when the source is claimed again."""
    coordinator = opened(_through(proxied))
    add(coordinator, "a", "b")
    member = coordinator.join(A, RECORD, LONG_S)
    place(coordinator, member, {"a": A, "b": A})
    member.claim(["a", "b"])
    proxied.asked = bytearray()
    member.release(["a"])
    late = bytes(proxied.asked)
    epochs = member.claim(["a"])
    proxied.ask_again(late)
    assert coordinator.view().owned["a"].epoch == epochs["a"]
    member.release(["a"])
    assert coordinator.view().owned.keys() == {"b"}


def test_a_renewal_goes_to_another_process(etcd: EtcdServer, opened: Opened) -> None:
    renewal = join(opened(etcd.settings(), "pickle")).renewal
    renewal.renew()
    with closing(renewal), closing(pickle.loads(pickle.dumps(renewal))) as other:  # noqa: S301
        assert other.renew() >= 30


def test_records_of_other_releases_are_left_alone(etcd: EtcdServer, opened: Opened) -> None:
    coordinator = opened(etcd.settings(), "versions")
    add(coordinator, "good", "bad")
    prefix = "/lookout/versions/v1/"
    with closing(EtcdClient(etcd.settings())) as client:
        client.put(f"{prefix}members/old".encode(), _OLD_MEMBER)
        client.put(f"{prefix}sources/bad".encode(), b'{"config": 7}')
        client.put(f"{prefix}sources/a/b".encode(), b"{}")
        client.put(f"{prefix}wants/text".encode(), b"\xff\xfe")
        client.put(f"{prefix}dreams/good".encode(), b"of a newer release")
        client.put(b"/lookout/versions/v0/sources/ancient", b"{}")
        view = coordinator.view()
        assert view.sources.keys() == {"good"}
        assert view.members["old"].release == "0.9"
        assert view.problems.keys() == {
            "/lookout/versions/",
            f"{prefix}sources/bad",
            f"{prefix}sources/a/b",
            f"{prefix}wants/text",
        }
        assert view.problems[f"{prefix}sources/bad"] == "cannot be read: Expected `object`, got `int` - at `$.config`"
        assert view.problems["/lookout/versions/"].startswith("1 records are of another schema, and are left alone")
        views = coordinator.follow(StopToken())
        assert next(views) == view
        coordinator.put_sources({"bad": SOURCE}, replace=True)
        repaired = next(views)
        assert repaired.sources.keys() == {"good", "bad"}
        assert f"{prefix}sources/bad" not in repaired.problems
        assert client.get(b"/lookout/versions/v0/sources/ancient")[0] is not None


_OLD_MEMBER = (
    b'{"release": "0.9", "state": "ready", "capacity": {"detector": 1.5, "cards": 2}, '
    b'"endpoints": {"messages": "tcp://old:5556"}, "mood": "good"}'
)


def test_a_compacted_watch_lists_anew(etcd_alone: EtcdServer, proxied: Proxy, opened: Opened) -> None:
    """Changes are swallowed on the way, and compacted before the silent watch is asked for anew."""
    direct, follower = opened(etcd_alone.settings()), opened(_through(proxied, silence_s=3.0))
    views = follower.follow(StopToken())
    assert not next(views).sources
    add(direct, "a")
    assert next(views).sources.keys() == {"a"}
    proxied.silent = True
    add(direct, "b")
    direct.remove_sources(["a"])
    etcd_alone.ctl("compact", str(direct.view().revision))
    proxied.silent = False
    assert next(views).sources.keys() == {"b"}


def test_a_silent_peer_is_noticed(proxied: Proxy, opened: Opened) -> None:
    views = _followed(opened(_through(proxied, silence_s=0.2, limit_s=2.0)))
    proxied.silent = True
    with pytest.raises(CoordinatorAwayError, match="no answer in time"):
        next(views)


def test_a_quiet_fleet_is_followed_on(etcd: EtcdServer, opened: Opened) -> None:
    """A watch that is asked for anew misses nothing."""
    follower = opened(replace(etcd.settings(), silence_s=0.01), "quiet")
    views = follower.follow(StopToken())
    next(views)
    for number in range(10):
        add(follower, f"camera-{number}")
        assert len(next(views).sources) == number + 1


def test_a_broken_connection_is_reported(proxied: Proxy, opened: Opened) -> None:
    coordinator = opened(_through(proxied))
    views = _followed(coordinator)
    proxied.cut()
    with pytest.raises(CoordinatorAwayError):
        next(views)
    assert next(coordinator.follow(StopToken())).problems == {}


def test_a_full_etcd_loses_nothing(tmp_path: Path, opened: Opened) -> None:
    server = EtcdServer(tmp_path, f"--quota-backend-bytes={4 << 20}")
    with closing(server):
        server.start()
        coordinator = opened(server.settings())
        add(coordinator, "a", "b")
        member = coordinator.join(A, RECORD, LONG_S)
        place(coordinator, member, {"a": A, "b": A})
        member.claim(["a"])
        with pytest.raises(
            CoordinatorError, match="its disk quota is used up, and it takes no writes: see `etcdctl al"
        ):
            _fill(coordinator)
        with pytest.raises(CoordinatorError, match="its disk quota is used up"):
            coordinator.join(B, RECORD, LONG_S)
        with closing(member.renewal) as renewal:
            assert renewal.renew() >= LONG_S
        view = coordinator.view()
        assert view.owned.keys() == {"a"}
        coordinator.remove_sources(["large"])
        member.release(["a"])
        assert not coordinator.view().owned
        server.ctl("compact", str(coordinator.view().revision))
        server.ctl("defrag")
        server.ctl("alarm", "disarm")
        coordinator.join(B, RECORD, LONG_S)
        assert member.claim(["a", "b"]).keys() == {"a", "b"}


def test_a_restored_etcd_ends_memberships_and_epochs_rise(
    etcd_alone: EtcdServer, tmp_path: Path, opened: Opened
) -> None:
    """The backup has the lease and the member's record, and not the claim that came later."""
    coordinator = opened(etcd_alone.settings())
    add(coordinator, "early", "late")
    member = coordinator.join(A, RECORD, LONG_S)
    place(coordinator, member, {"early": A, "late": A})
    epochs = member.claim(["early"])
    member.renewal.renew()
    etcd_alone.ctl("snapshot", "save", str(tmp_path / "backup"))
    epochs |= member.claim(["late"])
    for number in range(50):
        coordinator.drain(A, f"reason {number}")
    member.renewal.renew()
    etcd_alone.kill()
    etcd_alone.restore(tmp_path / "backup")
    etcd_alone.start()
    with closing(member.renewal), pytest.raises(LeaseLostError, match="no longer has this membership"):
        member.renewal.renew()
    assert coordinator.view().owned.keys() == {"early"}
    member.renewal.revoke()
    member.renewal.close()
    again = coordinator.join(A, RECORD, LONG_S)
    assert all(epoch > epochs[source] for source, epoch in again.claim(["early", "late"]).items())
    assert coordinator.view().owned.keys() == {"early", "late"}


class TestCluster:
    def test_the_leader_is_killed(self, etcd_cluster: EtcdCluster, opened: Opened) -> None:
        coordinator = opened(etcd_cluster.settings())
        add(coordinator, "a", "b")
        member = coordinator.join(A, RECORD, LONG_S)
        place(coordinator, member, {"a": A, "b": A})
        epoch = member.claim(["a"])["a"]
        etcd_cluster.leader().kill()
        with closing(member.renewal) as renewal:
            _until_answered(renewal.renew)
        assert _until_answered(lambda: member.claim(["b"]))["b"] > epoch
        views = coordinator.follow(StopToken())
        assert next(views).owned.keys() == {"a", "b"}

    def test_a_server_alone_says_that_it_is(self, etcd_cluster: EtcdCluster, opened: Opened) -> None:
        """Its watches are silent, and would be for ever."""
        alone, *others = etcd_cluster.servers
        coordinator = opened(alone.settings(limit_s=2.0))
        views = _followed(coordinator)
        for server in others:
            server.pause()
        with pytest.raises(CoordinatorAwayError):
            next(views)
        with pytest.raises(CoordinatorAwayError):
            coordinator.drain(A, "x")
        for server in others:
            server.resume()
        _until_answered(lambda: coordinator.drain(A, "x"))


def _fill(coordinator: EtcdCoordinator) -> None:
    for number in range(1000):
        large = SourceRecord(config={"note": str(number) * 50_000})
        coordinator.put_sources({"large": large}, replace=True)


def _followed(coordinator: EtcdCoordinator) -> Iterator[FleetView]:
    """Views after the first change: they come by a watch."""
    views = coordinator.follow(StopToken())
    next(views)
    add(coordinator, "followed")
    next(views)
    return views


def _until_answered(call: Callable[[], T]) -> T:
    for _ in range(100):
        try:
            return call()
        except CoordinatorAwayError:
            continue
    return call()
