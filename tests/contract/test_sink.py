"""What every sink promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from daemon.clock import SystemClock
from daemon.config.publisher import PublisherConfig
from daemon.publish.port import Sink
from daemon.publish.zeromq import ZeroMqSink
from lookout.client import Subscriber
from lookout.messages import Status, topic
from tests.support.daemon import wait_until

Subscribe = Callable[[str], Subscriber]  # to one source's states


@pytest.fixture
def zeromq() -> tuple[Sink, Subscribe]:
    sink = ZeroMqSink(PublisherConfig(endpoint="tcp://127.0.0.1:*"), SystemClock())
    return sink, lambda source: Subscriber(sink.endpoint, kinds=["status"], sources=[source])


@pytest.fixture(params=["zeromq"])
def made(request: pytest.FixtureRequest) -> Iterator[tuple[Sink, Subscribe]]:
    sink, subscribe = request.getfixturevalue(request.param)
    with closing(sink):
        yield sink, subscribe


def _status(source: str, index: int) -> Status:
    return Status(instance="run", source=source, session=None, index=index, at=1, state="up")


def _wait_for_newcomer(sink: Sink, source: str) -> None:
    """Its prefix is told once."""
    told = list[bytes]()

    def is_told() -> bool:
        told.extend(sink.newcomers())
        return bool(told)

    wait_until(is_told, "the subscription is seen")
    assert topic("status", source).startswith(told[0])
    assert not sink.newcomers()


def test_messages_arrive_in_order_and_as_they_were_sent(made: tuple[Sink, Subscribe]) -> None:
    sink, subscribe = made
    with subscribe("cam") as subscriber:
        _wait_for_newcomer(sink, "cam")
        assert sink.subscriptions == 1
        sent = [_status("cam", index) for index in range(200)]
        for message in sent:
            sink.send(topic("status", "cam"), message)
        sink.flush()
        assert [subscriber.receive(30) for _ in sent] == sent
        assert subscriber.lost == {}


def test_who_asked_for_another_source_hears_nothing_of_this_one(made: tuple[Sink, Subscribe]) -> None:
    sink, subscribe = made
    with subscribe("yard") as subscriber:
        _wait_for_newcomer(sink, "yard")
        for source in ("cam", "yard"):
            sink.send(topic("status", source), _status(source, 0))
        sink.flush()
        assert subscriber.receive(30) == _status("yard", 0)
        assert subscriber.receive(0) is None


def test_where_nobody_listens_sending_is_fine(made: tuple[Sink, Subscribe]) -> None:
    sink, _ = made
    sink.send(topic("status", "cam"), _status("cam", 0))
    sink.flush()
    sink.flush()
    assert (sink.subscriptions, list(sink.newcomers())) == (0, [])


def test_a_receiver_that_reads_nothing_holds_up_nobody(made: tuple[Sink, Subscribe]) -> None:
    """It loses messages, which its own counters show; the sink goes on at once."""
    sink, subscribe = made
    with subscribe("cam") as silent:
        _wait_for_newcomer(sink, "cam")
        for index in range(200_000):
            sink.send(topic("status", "cam"), _status("cam", index))
        sink.flush()
        first = silent.receive(30)
        assert isinstance(first, Status)
        assert first.index == 0


def test_what_was_sent_before_the_end_arrives(made: tuple[Sink, Subscribe]) -> None:
    sink, subscribe = made
    with subscribe("cam") as subscriber:
        _wait_for_newcomer(sink, "cam")
        sink.send(topic("status", "cam"), _status("cam", 0))
        sink.flush()
        sink.close()
        sink.close()
        assert subscriber.receive(30) == _status("cam", 0)
