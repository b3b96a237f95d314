"""A subscriber that follows a fleet: sources move from member to member, and it hears what it could have heard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from daemon.commands.groups.options import fleet_from
from daemon.config.publisher import PublisherConfig
from daemon.errors import ConfigError
from daemon.fleet.endpoints import MemberEndpoints
from daemon.fleet_config import FleetConfig, fleet_of
from daemon.pipeline.outbox import Report
from lookout.client import Subscriber
from lookout.messages import Detections, Message, Owner, Status, topic
from tests.daemon.test_publisher import Bench
from tests.fleet.daemons import Fleet, fleet_in, wait_runs
from tests.support.daemon import receive_until, wait_until


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path) as found:
        yield found


def _following(fleet: Fleet, **more: object) -> Subscriber:
    return Subscriber(fleet=MemberEndpoints(FleetConfig(), fleet.connect()), **more)  # type: ignore[arg-type]


def _is_of(source: str, node: str) -> Callable[[Message], bool]:
    def wanted(message: Message) -> bool:
        if not isinstance(message, Detections) or message.source != source:
            return False
        return message.owner is not None and message.owner.node == node

    return wanted


def test_it_follows_sources_and_members(fleet: Fleet) -> None:
    """Members come and go, and a message of each owner is heard, in the order of their epochs."""
    one = fleet.start("one")
    fleet.want("one", "a", "b")
    with _following(fleet, kinds=("detections", "status")) as subscriber:
        heard = receive_until(subscriber, _is_of("a", "one"))
        two = fleet.start("two")
        fleet.want("two", "a")
        heard += receive_until(subscriber, _is_of("a", "two"))
        fleet.want("two", "b")
        fleet.wait_owned("two", "b")
        assert one.stop() == 0
        fleet.start("one")
        fleet.want("one", "a")
        heard += receive_until(subscriber, _is_of("a", "one"))
        wait_runs(two, "b")
        assert (subscriber.lost, dict(subscriber.fenced)) == ({}, {})
        assert subscriber.failure is None
    for source in ("a", "b"):
        epochs = [
            row.owner.epoch
            for row in heard
            if isinstance(row, (Detections, Status)) and row.source == source and row.owner
        ]
        assert epochs == sorted(epochs)
        seqs = [(row.instance, row.seq) for row in heard if isinstance(row, Detections) and row.source == source]
        assert len(seqs) == len({*seqs})


def test_it_goes_on_while_the_coordinator_is_away(fleet: Fleet) -> None:
    fleet.start("one")
    fleet.want("one", "a")
    with _following(fleet) as subscriber:
        receive_until(subscriber, _is_of("a", "one"))
        fleet.engine.away = True
        wait_until(lambda: subscriber.receive(0.05) and subscriber.failure, "it is away")
        receive_until(subscriber, _is_of("a", "one"))
        fleet.engine.away = False
        wait_until(lambda: subscriber.receive(0.05) and subscriber.failure is None, "it is back")


def _status(source: str, node: str, epoch: int, reason: str, fleet: str = "north") -> Report:
    owner = Owner(node, epoch, fleet)
    status = Status(instance=node, source=source, session=None, index=0, at=0, state="up", reason=reason, owner=owner)
    return Report(topic("status", source), status)


def _two_heard(stack: ExitStack) -> tuple[list[Bench], Subscriber]:
    """Two publishers, and a reader of both states, which they know."""
    benches = [Bench(PublisherConfig(endpoint="tcp://127.0.0.1:*")) for _ in range(2)]
    for bench in benches:
        bench.publisher.start()
        stack.callback(bench.publisher.stop, 5.0)
    subscriber = stack.enter_context(Subscriber([bench.sink.endpoint for bench in benches], kinds=("status",)))
    for bench in benches:
        assert bench.publisher.has_subscribers.wait(30)
    return benches, subscriber


def test_a_reader_that_is_late_hears_the_former_owner_first() -> None:
    """Its messages came first: they are left out only if they come later than the new owner's."""
    with ExitStack() as stack:
        (old, new), subscriber = _two_heard(stack)
        old.outbox.report(_status("cam", "old", 5, "first"))
        receive_until(subscriber, lambda message: isinstance(message, Status))
        old.outbox.report(_status("cam", "old", 5, "second"))
        new.outbox.report(_status("cam", "new", 6, "third"))
        sockets = [row.socket for row in subscriber._connections.values()]
        wait_until(lambda: all(socket.poll(0) for socket in sockets), "both have come")
        told = [receive_until(subscriber, lambda message: isinstance(message, Status))[0] for _ in range(2)]
        assert [row.reason for row in told if isinstance(row, Status)] == ["second", "third"]
        old.outbox.report(_status("cam", "old", 5, "late"))
        new.outbox.report(_status("cam", "new", 6, "fifth"))
        receive_until(subscriber, lambda row: isinstance(row, Status) and row.reason == "fifth")
        wait_until(lambda: subscriber.receive(0.05) is None and subscriber.fenced, "the late one is left out")
        assert (subscriber.fenced, subscriber.lost) == ({"cam": 1}, {})


def test_fleets_with_sources_of_the_same_id_do_not_disturb_each_other() -> None:
    with ExitStack() as stack:
        (north, south), subscriber = _two_heard(stack)
        for turn in range(3):  # the fleets were born at different times, so their epochs are far apart
            north.outbox.report(_status("gate", "n", 2000, f"north {turn}", "north"))
            south.outbox.report(_status("gate", "s", 1000, f"south {turn}", "south"))
            told = [receive_until(subscriber, lambda row: isinstance(row, Status))[-1] for _ in range(2)]
            assert {row.reason for row in told if isinstance(row, Status)} == {f"north {turn}", f"south {turn}"}
        assert (subscriber.fenced, subscriber.lost) == ({}, {})


@pytest.mark.parametrize("address", ["etcd://192.0.2.1:2379", "http://192.0.2.1/x", "etcd://192.0.2.1/x", "lookout"])
def test_an_address_that_is_none_is_refused_in_one_line(address: str) -> None:
    with pytest.raises(ConfigError, match="fleet"):
        Subscriber(fleet=address)


def test_an_address_of_a_fleet() -> None:
    assert fleet_of("etcd://a:1,b:2/north") == FleetConfig(coordinator="etcd://a:1,b:2", name="north")


def test_a_fleet_on_the_command_line_is_an_address_or_a_file(tmp_path: Path) -> None:
    assert fleet_from(None) is None
    assert fleet_from("etcd://a:1/north") == FleetConfig(coordinator="etcd://a:1", name="north")
    file = tmp_path / "config.yaml"
    model = "model: {path: model.onnx}\n"
    file.write_text(f"{model}sources: []\nfleet: {{coordinator: etcd://a:1, name: south}}\n")
    assert fleet_from(str(file)) == FleetConfig(coordinator="etcd://a:1", name="south")
    file.write_text(f"{model}sources: [{{id: a, type: synthetic}}]\n")
    with pytest.raises(ConfigError, match=r"has no fleet\.coordinator"):
        fleet_from(str(file))
