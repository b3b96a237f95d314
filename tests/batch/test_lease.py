"""A worker's lease in etcd: when it holds, and when it does not any more."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing

import pytest

from daemon.batch.etcd_lease import WorkerLease
from daemon.batch.etcd_store import BatchKey, EtcdClipStore
from daemon.batch.store import ClaimsLostError, Outcome, StoreAwayError
from daemon.clock import SystemClock
from daemon.etcd.client import EtcdClient
from daemon.etcd.errors import LeaseNotFoundError
from daemon.etcd.settings import Endpoint, EtcdSettings
from tests.fleet.etcd_server import EtcdServer
from tests.support.clock import ManualClock
from tests.support.daemon import wait_until
from tests.support.proxy import Proxy

pytestmark = pytest.mark.needs("etcd-server", "etcd-client")
KEY = BatchKey("one", "lease", "digest", 9)


@pytest.fixture
def client(etcd: EtcdServer) -> Iterator[EtcdClient]:
    made = EtcdClient(etcd.settings())
    yield made
    made.close()


def test_it_is_renewed_until_its_end(client: EtcdClient) -> None:
    lease = WorkerLease(client, 2, SystemClock())
    first = lease._valid_until
    lease.start()
    wait_until(lambda: lease._valid_until > first, "the lease is renewed")
    assert lease.is_valid
    lease.end()
    lease.end()
    assert not lease.is_valid
    assert not lease.is_alive()
    with pytest.raises(LeaseNotFoundError):
        client.keep_alive(lease.id)


def test_it_ends_here_before_it_ends_in_etcd(client: EtcdClient, clock: ManualClock) -> None:
    """Time in which the machine sleeps counts; and once it has ended it stays so, whatever etcd says."""
    lease = WorkerLease(client, 60, clock, clock.monotonic_ns)
    clock.advance(53)
    assert lease.is_valid
    clock.advance(2)
    assert not lease.is_valid
    assert lease._renew()
    assert not lease.is_valid
    lease.end()


def test_it_has_ended_where_etcd_says_so(client: EtcdClient, clock: ManualClock) -> None:
    lease = WorkerLease(client, 60, clock, clock.monotonic_ns)
    client.revoke(lease.id)
    assert lease.is_valid
    assert not lease._renew()
    assert not lease.is_valid
    lease.end()


def test_a_worker_whose_lease_has_ended_claims_under_another(etcd: EtcdServer, clock: ManualClock) -> None:
    """Its old claims are free at once, and were no attempts."""
    store = EtcdClipStore(etcd.settings(), KEY, 60.0, SystemClock(), clock.monotonic_ns)
    store.claim([0, 1])
    clock.advance(60)
    assert not store.holds(0)
    store.view()
    assert store.claim([2]) == {2: 1}
    assert store.view().attempts == {0: 0, 1: 0, 2: 1}
    assert store.claim([1]) == {1: 1}
    assert set(store.view().claimed) == {1, 2}
    assert store.view().workers == 1
    with pytest.raises(ClaimsLostError):
        store.finish(0, Outcome(state="done"))
    store.close()


def test_an_etcd_that_is_away_and_one_that_lost_its_data(etcd_alone: EtcdServer) -> None:
    store = EtcdClipStore(etcd_alone.settings(limit_s=1.0), KEY, 3.0)
    store.claim([0, 1])
    store.finish(0, Outcome(state="done"))
    assert store.view().outcomes.keys() == {0}
    etcd_alone.kill()
    with pytest.raises(StoreAwayError, match="etcd does not answer"):
        store.view()
    wait_until(lambda: not store.holds(1), "the lease ends here")
    shutil.rmtree(etcd_alone.data)
    etcd_alone.start()
    assert store.view().outcomes == {}
    assert store.claim([0, 1]) == {0: 1, 1: 1}
    store.close()


def test_what_is_given_up_twice_ends_no_later_claim(etcd_alone: EtcdServer) -> None:
    """The request was repeated at another etcd because the first one hung, which goes on later."""
    with closing(Proxy(etcd_alone.port)) as proxy:
        settings = EtcdSettings((Endpoint("127.0.0.1", proxy.port),))
        with closing(EtcdClipStore(settings, BatchKey("one", "twice", "digest", 9), 60.0)) as store:
            store.claim([4])
            proxy.asked = bytearray()
            store.release([4])
            late = bytes(proxy.asked)
            store.view()
            assert store.claim([4]) == {4: 1}
            proxy.ask_again(late)
            assert store.view().claimed == {4: store.worker}
            store.finish(4, Outcome(state="done", folder="f", where="here:/out"))
