"""Every store of claims keeps the same promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from daemon.batch.etcd_store import BatchKey, EtcdClipStore
from daemon.batch.local_store import LocalClipStore
from daemon.batch.store import ClaimsLostError, ClipStore, ModelFacts, Outcome, StoreError
from tests.batch.memory_store import MemoryBatch, MemoryClipStore
from tests.fleet.etcd_server import EtcdServer
from tests.support.clock import ManualClock

NAMES = [f"clip{number}.mp4" for number in range(60)]
DONE = Outcome(state="done", folder="f", where="here:/out")
_numbers = count()


class Rig:
    """A kind of store.

    Attributes:
        join: another worker of the batch, or, where there is but one, the next run of it.
        expire: lets the lease of a worker end.
    """

    def __init__(self, join: Callable[[], ClipStore], expire: Callable[[ClipStore], None] | None) -> None:
        self._join, self.expire = join, expire
        self.stores: list[ClipStore] = []

    def join(self) -> ClipStore:
        self.stores.append(self._join())
        return self.stores[-1]


def _memory() -> Rig:
    clock = ManualClock()
    batch = MemoryBatch(clock)

    def expire(store: ClipStore) -> None:
        clock.advance(20)
        for other in batch.workers:
            if other is not store:
                other.renew()

    return Rig(lambda: MemoryClipStore(batch), expire)


def _etcd(server: EtcdServer) -> Rig:
    key = BatchKey("one", f"batch {next(_numbers)}", "digest", len(NAMES))

    def expire(store: ClipStore) -> None:
        assert isinstance(store, EtcdClipStore)
        assert store._lease is not None
        store._client.revoke(store._lease.id)

    return Rig(lambda: EtcdClipStore(server.settings(), key, 60.0), expire)


_ETCD = pytest.param("etcd", marks=pytest.mark.needs("etcd-server", "etcd-client"))


def _made(request: pytest.FixtureRequest, folder: Path) -> Rig:
    if request.param == "memory":
        return _memory()
    if request.param == "etcd":
        return _etcd(request.getfixturevalue("etcd"))
    return Rig(lambda: LocalClipStore(folder / "journal.jsonl", "batch", NAMES), None)


@pytest.fixture(params=["memory", _ETCD, "local"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    made = _made(request, tmp_path)
    yield made
    for store in made.stores:
        store.close()


@pytest.fixture(params=["memory", _ETCD])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """A store that several workers may use."""
    made = _made(request, tmp_path)
    yield made
    for store in made.stores:
        store.close()


def test_a_clip_has_one_claim_and_one_outcome(rig: Rig) -> None:
    store = rig.join()
    assert store.view().workers == 1
    assert store.claim([0, 1, 59]) == {0: 1, 1: 1, 59: 1}
    assert store.claim([1, 2]) == {2: 1}
    assert set(store.view().claimed) == {0, 1, 2, 59}
    assert [store.holds(clip) for clip in (0, 3)] == [True, False]
    store.finish(0, DONE)
    assert not store.holds(0)
    assert store.view().outcomes == {0: DONE}
    assert store.claim([0]) == {}


def test_many_clips_at_a_time(rig: Rig) -> None:
    """More than one transaction of etcd has room for."""
    store = rig.join()
    assert store.claim(range(60)) == dict.fromkeys(range(60), 1)
    store.release(range(30))
    store.reopen(range(30))
    assert set(store.view().claimed) == set(range(30, 60))
    assert store.claim(range(60)) == dict.fromkeys(range(30), 1)


def test_attempts_are_counted_but_not_those_that_were_given_up(rig: Rig) -> None:
    store = rig.join()
    store.claim([4])
    store.release([4, 5])
    assert store.view().attempts.get(4, 0) == 0
    assert store.claim([4]) == {4: 1}
    store.retry(4)
    assert store.view().attempts[4] == 1
    assert store.claim([4]) == {4: 2}
    store.finish(4, Outcome(state="failed", reason="no picture"))
    assert store.view().outcomes[4].reason == "no picture"
    store.reopen([4])
    assert store.view().outcomes == {}
    assert store.claim([4]) == {4: 1}


def test_a_failure_is_known_to_the_next_run(rig: Rig) -> None:
    first = rig.join()
    first.claim([1, 2, 3])
    first.retry(2)
    first.finish(1, Outcome(state="failed", reason="no picture"))
    first.close()
    second = rig.join()
    assert second.view().outcomes[1] == Outcome(state="failed", reason="no picture")
    assert second.claim([1, 2, 3]) == {2: 2, 3: 2 if rig.expire else 1}
    first.close()  # a second time


def test_others_clips_are_not_free(shared: Rig) -> None:
    one, other = shared.join(), shared.join()
    assert one.view().workers == 2
    one.claim([0, 1])
    assert other.claim([0, 1, 2]) == {2: 1}
    assert set(other.view().claimed) == {0, 1, 2}
    one.close()
    assert other.claim([0, 1]) == {0: 2, 1: 2}
    assert other.view().workers == 1


def test_a_worker_that_is_silent_has_lost_its_clips(shared: Rig) -> None:
    one, other = shared.join(), shared.join()
    one.claim([0, 1])
    assert shared.expire is not None
    shared.expire(one)
    other.view()
    assert other.claim([0]) == {0: 2}
    with pytest.raises(ClaimsLostError):
        one.finish(0, DONE)
    with pytest.raises(ClaimsLostError):
        one.finish(1, DONE)
    one.retry(1)
    one.release([0, 1])
    assert other.holds(0)
    other.finish(0, DONE)
    assert one.view().outcomes == {0: DONE}


def test_all_workers_compute_in_the_same_way(shared: Rig) -> None:
    one, other = shared.join(), shared.join()
    one.agree({"": ModelFacts(digest="d", precision="fp32", backend="cpu")})
    other.agree({"": ModelFacts(digest="d", precision="fp32", backend="cpu")})
    with pytest.raises(StoreError, match="fp32"):
        other.agree({"": ModelFacts(digest="d", precision="fp16", backend="trt")})


def test_a_journal_of_another_batch_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = LocalClipStore(path, "one", NAMES)
    first.claim([0])
    first.finish(0, Outcome(state="failed", reason="no picture"))
    first.close()
    other = LocalClipStore(path, "another", NAMES)
    assert (other.view().outcomes, other.view().attempts) == ({}, {})
    other.close()


def test_a_journal_whose_last_line_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = LocalClipStore(path, "one", NAMES)
    first.claim([0])
    first.claim([1])
    path.write_bytes(path.read_bytes()[:-5])
    second = LocalClipStore(path, "one", NAMES)
    second.claim([2])
    third = LocalClipStore(path, "one", NAMES)
    assert third.view().attempts == {0: 1, 2: 1}
    for store in (first, second, third):
        store.close()


@pytest.mark.needs("etcd-server", "etcd-client")
def test_a_name_has_one_batch(etcd: EtcdServer) -> None:
    name = f"batch {next(_numbers)}"
    EtcdClipStore(etcd.settings(), BatchKey("one", name, "digest", 60), 60.0).close()
    with pytest.raises(StoreError, match=f"batch {name} has other clips.*--batch"):
        EtcdClipStore(etcd.settings(), BatchKey("one", name, "another", 60), 60.0)
