"""What may be sent, and what a reader takes, when sources change their owner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from daemon.clock import SystemClock
from daemon.config.publisher import PublisherConfig
from daemon.fleet.grants import GrantedSources
from daemon.fleet.lease_page import LeaseState
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError, LeaseLostError
from daemon.fleet_config import OnCoordinatorLoss
from daemon.pipeline.outbox import Report
from daemon.publish.ownership_fence import Grants
from lookout.client import Subscriber
from lookout.epochs import Epochs
from lookout.messages import Detections, Message, Owner, Status, topic
from tests.daemon.test_publisher import Bench
from tests.fleet.lease_thread import LeaseThread
from tests.support.clock import ManualClock
from tests.support.daemon import receive_until, wait_until
from tests.support.events import Rig, crossing

S = 1_000_000_000


@dataclass
class LeaseAt:
    """A lease that a test moves."""

    valid_until: int = 10 * S
    looked: int = 0
    state: LeaseState = "renewed"


@dataclass
class Timed:
    """A fence at a time that a test sets."""

    on_loss: OnCoordinatorLoss = "keep"
    now: int = 0
    lease: LeaseAt = field(default_factory=LeaseAt)

    def __post_init__(self) -> None:
        self.fence = GrantedSources("hall/gpu0", "north", self.on_loss, ManualClock(), lambda: self.now)
        self.fence.add({"cam": 7})
        self.fence.set_lease(self.lease)


def test_what_is_claimed_may_be_sent_while_the_lease_holds() -> None:
    timed = Timed()
    assert timed.fence.grants()["cam"].owner == Owner("hall/gpu0", 7, "north")
    timed.now = 10 * S - 1
    assert timed.fence.is_open
    timed.now = 10 * S
    assert not timed.fence.is_open
    assert timed.fence.grants() == {}
    assert timed.fence.owner("cam") == Owner("hall/gpu0", 7, "north")  # messages are still made, and then dropped


@pytest.mark.parametrize(("on_loss", "is_open"), [("keep", True), ("stop", False)])
def test_a_coordinator_that_is_away_is_waited_for_if_so_configured(on_loss: OnCoordinatorLoss, is_open: bool) -> None:
    timed = Timed(on_loss, now=60 * S, lease=LeaseAt(state="away", looked=60 * S - S // 2))
    assert timed.fence.is_open is is_open
    timed.now = 61 * S  # the keeper is paused, or dead: others may have the sources
    assert not timed.fence.is_open


def test_a_lost_lease_closes_the_fence_at_once() -> None:
    timed = Timed(lease=LeaseAt(state="lost"))
    assert not timed.fence.is_open
    timed.lease.state = "renewed"
    timed.fence.set_lease(None)
    assert not timed.fence.is_open


# --- the publisher ---------------------------------------------------------------------------------------------------


class _Pausing(GrantedSources):
    """May let everything through, as a daemon does that is paused between its check and the network."""

    is_paused = False

    def grants(self) -> Grants | None:  # type: ignore[override]
        return None if self.is_paused else super().grants()


class Shared(Bench):
    """A publisher of a daemon that shares its sources; `cam` is its own."""

    def __init__(self, config: PublisherConfig) -> None:
        self.lease = LeaseAt(valid_until=1 << 62)
        self.fence = _Pausing("hall/gpu0", "north", "keep", SystemClock())
        super().__init__(config, self.fence)
        self.fence.set_lease(self.lease)
        self.fence.add({"cam": 7})


@pytest.fixture
def shared() -> Iterator[Shared]:
    bench = Shared(PublisherConfig(endpoint="tcp://127.0.0.1:*"))
    yield bench
    bench.publisher.stop(5)
    assert bench.failures == []


def _settled(shared: Shared) -> None:
    """After everything was sent or dropped."""
    assert shared.outbox.flush(30)


def test_messages_name_their_owner(shared: Shared) -> None:
    shared.publisher.start()
    with Subscriber(shared.sink.endpoint, kinds=("detections", "status")) as subscriber:
        assert shared.publisher.has_subscribers.wait(30)
        shared.publisher.announcement("cam", "s", "up")()
        shared.outbox.put([shared.result(0)])
        told = receive_until(subscriber, lambda message: isinstance(message, Detections))
    assert [message.owner for message in told if isinstance(message, (Status, Detections))] == [
        Owner("hall/gpu0", 7, "north")
    ] * 2


def test_a_status_that_waits_is_of_when_it_was_made(shared: Shared) -> None:
    """It waits for the last events of rules; the source may have another owner by then."""
    announced = shared.publisher.announcement("cam", "s", "ended")
    made_ns = SystemClock().utc_ns()
    shared.fence.remove(["cam"])
    shared.fence.add({"cam": 9})
    announced()
    ((report,), more) = shared.outbox.get(10, 0.0), shared.outbox.get(10, 0.0)
    assert isinstance(report, Report)
    assert isinstance(report.message, Status)
    assert (report.message.owner, more) == (Owner("hall/gpu0", 7, "north"), [])
    assert report.message.at <= made_ns


def test_what_may_not_be_sent_is_counted_and_not_numbered(shared: Shared) -> None:
    """Frames of sources of others, frames from before this ownership, and all while the lease does not hold."""
    shared.publisher.start()
    with Subscriber(shared.sink.endpoint) as subscriber:
        assert shared.publisher.has_subscribers.wait(30)
        early = shared.result(0)
        shared.fence.remove(["cam"])
        shared.outbox.put([shared.result(1)])
        _settled(shared)
        shared.fence.add({"cam": 9})
        shared.outbox.put([early])
        _settled(shared)
        shared.lease.state = "lost"
        shared.outbox.put([shared.result(2), shared.result(0, "cam1")])
        _settled(shared)
        shared.lease.state = "renewed"
        shared.outbox.put([shared.result(3)])
        message = subscriber.receive(30)
        assert isinstance(message, Detections)
        assert (message.seq, message.index, message.owner) == (3, 0, Owner("hall/gpu0", 9, "north"))
        assert (message.dropped.fenced, subscriber.lost) == (3, {})
    counts = shared.ledger.counts()
    assert [(row.captured, row.published, row.dropped.fenced, row.in_flight) for row in counts.values()] == [
        (4, 1, 3, 0),
        (1, 0, 1, 0),
    ]


def test_a_status_that_was_held_back_follows(shared: Shared) -> None:
    """And one of an earlier ownership does not."""
    shared.publisher.start()
    with Subscriber(shared.sink.endpoint, kinds=("status",)) as subscriber:
        assert shared.publisher.has_subscribers.wait(30)
        shared.lease.state = "lost"
        shared.publisher.announcement("cam", "s", "down", "no route")()
        _settled(shared)
        assert shared.publisher.metrics().fenced == 1
        shared.lease.state = "renewed"
        message = subscriber.receive(30)
        assert isinstance(message, Status)
        assert (message.state, message.owner) == ("down", Owner("hall/gpu0", 7, "north"))
        shared.lease.state = "lost"
        shared.publisher.announcement("cam", "s", "up")()
        _settled(shared)
        shared.fence.remove(["cam"])
        shared.fence.add({"cam": 9})
        shared.lease.state = "renewed"
        shared.publisher.announcement("cam", "t", "connecting")()
        message = subscriber.receive(30)
    assert isinstance(message, Status)
    assert (message.state, message.owner) == ("connecting", Owner("hall/gpu0", 9, "north"))


def test_a_late_subscriber_is_told_of_own_sources_alone(shared: Shared) -> None:
    shared.publisher.start()
    shared.publisher.announcement("cam", "s", "up")()
    _settled(shared)
    shared.fence.remove(["cam"])
    with Subscriber(shared.sink.endpoint, kinds=("status",)) as subscriber:
        assert shared.publisher.has_subscribers.wait(30)
        shared.fence.add({"cam": 9})
        shared.publisher.announcement("cam", "t", "down", "later")()
        message = subscriber.receive(30)
    assert isinstance(message, Status)
    assert message.session == "t"


# --- readers ---------------------------------------------------------------------------------------------------------


def test_epochs_are_of_each_source() -> None:
    epochs = Epochs()
    assert epochs.admits("a", Owner("one", 5))
    assert epochs.admits("b", Owner("one", 3))
    assert epochs.admits("a", None)
    assert epochs.admits("a", Owner("two", 6))
    assert not epochs.admits("a", Owner("one", 5))
    assert epochs.admits("b", Owner("one", 3))
    assert epochs.admits("a", Owner("one", 2, "south"))  # of another fleet, which has a source of this name
    assert not epochs.admits("a", Owner("two", 1, "south"))
    assert epochs.fenced == {"a": 2}


def test_a_subscriber_leaves_out_lower_epochs_of_all_kinds(shared: Shared) -> None:
    shared.publisher.start()
    with Subscriber(shared.sink.endpoint, kinds=("detections", "status", "events")) as subscriber:
        assert shared.publisher.has_subscribers.wait(30)
        shared.publisher.announcement("cam", "s", "up")()
        receive_until(subscriber, lambda message: isinstance(message, Status))
        late: list[Message] = [_status("cam", 6), _status("cam", 5)]  # by a daemon that was paused behind its check
        shared.fence.is_paused = True
        for message in [*late, _status("cam", 8)]:
            assert isinstance(message, Status)
            shared.outbox.report(Report(topic("status", "cam"), message))
        (found,) = receive_until(subscriber, lambda message: isinstance(message, Status))
    assert isinstance(found, Status)
    assert found.owner == Owner("x", 8, "north")
    assert subscriber.fenced == {"cam": 2}
    assert subscriber.lost == {}


def _status(source: str, epoch: int) -> Status:
    return Status(
        instance="r", source=source, session=None, index=0, at=0, state="up", owner=Owner("x", epoch, "north")
    )


# --- events and counts -----------------------------------------------------------------------------------------------


def test_a_new_owner_counts_anew(tmp_path: Path) -> None:
    """Others may have counted meanwhile: nothing is restored from the journal, or from an ownership before."""
    clock, path = ManualClock(), tmp_path / "events.sqlite"
    with Rig(path, clock) as alone:
        alone.events.on_event(crossing(3))
        alone.write()
    owners = {"street": Owner("hall/gpu0", 7, "north")}
    with Rig(path, clock, "run-2", owner=owners.get) as rig:
        rig.events.begin("street")
        begun = clock.utc_ns()
        rig.events.on_event(crossing(5))
        (event,) = rig.reports()
        (counts,) = rig.events.counts()
        assert (event.owner, counts.owner) == (owners["street"], owners["street"])
        assert (counts.since, [row.count for row in counts.totals]) == (begun, [1])
        rig.events.forget("street")
        assert rig.events.counts() == []
        clock.advance(60)
        owners["street"] = Owner("hall/gpu0", 9, "north")
        rig.events.begin("street")
        rig.events.on_event(crossing(9))
        rig.write()
        (counts,) = rig.events.counts()
        assert (counts.since, [row.count for row in counts.totals]) == (clock.utc_ns(), [1])
        assert counts.owner == Owner("hall/gpu0", 9, "north")
    with Rig(path, clock, "run-3") as alone:
        (counts,) = alone.events.counts()
        assert [row.count for row in counts.totals] == [1]  # those of a fleet are not in it


# --- the lease -------------------------------------------------------------------------------------------------------


@dataclass
class Answers:
    """A renewal that gives the next of these answers."""

    rows: list[float | CoordinatorError]

    def renew(self) -> float:
        row = self.rows.pop(0)
        if isinstance(row, CoordinatorError):
            raise row
        return row

    def revoke(self) -> None: ...
    def close(self) -> None: ...


def test_a_lease_counts_from_when_it_was_asked_for() -> None:
    now = [100 * S]
    answers = Answers([5.0, CoordinatorAwayError("gone"), CoordinatorError("full"), 5.0, LeaseLostError("over")])
    lease = LeaseThread(answers, 5.0, ManualClock(), lambda: now[0])
    states = []
    for _ in range(5):
        lease.beat()
        lease.turn()
        states.append((lease.state, lease.valid_until))
        now[0] += S
    first, second = 104_750_000_000, 107_750_000_000
    assert states == [("renewed", first), ("away", first), ("away", first), ("renewed", second), ("lost", second)]


def test_a_member_that_does_not_live_loses_its_lease() -> None:
    now = [100 * S]
    lease = LeaseThread(Answers([5.0, 5.0]), 5.0, ManualClock(), lambda: now[0])
    lease.turn()
    now[0] += 3 * S
    lease.turn()
    assert lease.valid_until == 104_750_000_000
    lease.beat()
    lease.turn()
    assert lease.valid_until == 107_750_000_000


def test_after_a_pause_a_lease_is_not_known_to_be_away_before_the_next_answer() -> None:
    """The coordinator may hold a renewal for long: beats say that nothing was paused meanwhile."""
    now = [100 * S]
    lease = LeaseThread(Answers([CoordinatorAwayError("gone")] * 2), 5.0, ManualClock(), lambda: now[0])
    now[0] += S // 2
    lease.turn()
    for _ in range(5):
        now[0] += S // 2
        lease.beat()
    assert now[0] == lease.looked
    now[0] += 10 * S
    assert now[0] - lease.looked == 10 * S
    lease.beat()
    assert lease.looked == 0
    now[0] += 1
    lease.turn()
    assert lease.looked == now[0]


def test_a_lease_is_renewed_until_its_end() -> None:
    lease = LeaseThread(Answers([60.0] * 1000), 0.3, SystemClock())
    lease.start()
    wait_until(lambda: lease.valid_until, "it is renewed")
    first = lease.valid_until

    def is_renewed() -> bool:
        lease.beat()
        return lease.valid_until > first

    wait_until(is_renewed, "it is renewed")
    lease.stop()
