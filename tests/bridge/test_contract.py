"""The contract of targets that are brokers, against real ones."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from daemon.bridge.port import AwayError, Connection
from daemon.bridge.records import Delivery, Figure
from daemon.bridge.states import StateBoard
from lookout.messages import Detection
from tests.bridge.brokers.harness import WRONG_PASSWORD, BrokerHarness, deliveries, delivery, opened
from tests.bridge.brokers.table import BROKERS
from tests.bridge.publisher import EventSource

pytestmark = pytest.mark.needs("mosquitto", "nats-server", "redis-server")
WINDOW = 100


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerHarness]:
    with closing(BROKERS[request.param](tmp_path / "broker")) as found:
        found.start()
        yield found


def _ids(batch: Sequence[Delivery]) -> list[str]:
    return [row.record.id for row in batch]


def _first_times(ids: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(ids))


def _told(error: BaseException) -> str:
    """All that a log could show of an error."""
    return "".join(traceback.format_exception(error)) + repr(error)


def test_records_arrive_in_order_and_whole(broker: BrokerHarness) -> None:
    rows = deliveries(2 * WINDOW + 7, sources=["door", "yard"])
    with closing(opened(broker.target())) as connection:
        for begin in range(0, len(rows), WINDOW):
            batch = rows[begin : begin + WINDOW]
            assert list(connection.deliver(batch)) == [None] * len(batch)
            connection.tend(StateBoard())
        assert list(connection.deliver([])) == []
    arrived = broker.read()
    assert [(row.id, row.body, row.source) for row in arrived] == [
        (row.record.id, row.record.body, row.record.source) for row in rows
    ]


def test_a_broker_that_is_killed_has_what_it_confirmed_and_gets_the_rest(broker: BrokerHarness) -> None:
    rows = deliveries(30 * WINDOW, padding=500)
    confirmed, failure, is_under_way = 0, list[AwayError](), threading.Event()

    def deliver(connection: Connection) -> None:
        nonlocal confirmed
        try:
            for begin in range(0, len(rows), WINDOW):
                confirmed += len(connection.deliver(rows[begin : begin + WINDOW]))
                if confirmed >= 2 * WINDOW:
                    is_under_way.set()
        except AwayError as error:
            confirmed += len(error.settled)
            failure.append(error)

    with closing(opened(broker.target())) as connection:
        thread = threading.Thread(target=deliver, args=(connection,))
        thread.start()
        is_under_way.wait(60)
        broker.kill()
        thread.join(60)
    assert not thread.is_alive()
    assert failure, "it was killed in time"
    assert confirmed < len(rows)
    broker.start()
    before = [row.id for row in broker.read()]
    assert before[:confirmed] == _ids(rows[:confirmed])
    rest = [Delivery(row.record, is_repeated=place < WINDOW) for place, row in enumerate(rows[confirmed:])]
    with closing(opened(broker.target())) as connection:
        for begin in range(0, len(rest), WINDOW):
            assert set(connection.deliver(rest[begin : begin + WINDOW])) == {None}
    arrived = [row.id for row in broker.read()]
    assert _first_times(arrived) == _ids(rows)
    assert len(arrived) - len(rows) <= WINDOW


def test_what_the_broker_never_takes_is_refused_alone(broker: BrokerHarness) -> None:
    limit = broker.too_large()
    if limit is None:
        return
    rows = [delivery(1), delivery(2, padding=limit + 1), delivery(3)]
    with closing(opened(broker.target())) as connection:
        first, second, third = connection.deliver(rows)
    assert (first, third) == (None, None)
    assert second is not None
    assert "bytes" in second
    assert [row.id for row in broker.read()] == _ids([rows[0], rows[2]])


def test_close_interrupts_what_a_broker_that_hangs_holds_up(broker: BrokerHarness) -> None:
    connection = opened(broker.target())
    connection.deliver(deliveries(1))
    broker.pause()
    closer = threading.Timer(0.3, connection.close)
    closer.start()
    with pytest.raises(AwayError) as raised:
        connection.deliver(deliveries(WINDOW, first=2))
    assert list(raised.value.settled) == []
    closer.join(60)
    connection.close()
    broker.resume()


@pytest.mark.long
def test_a_broker_that_hangs_is_away_within_its_limit(broker: BrokerHarness) -> None:
    connection = opened(broker.target())
    connection.deliver(deliveries(1))
    broker.pause()
    with pytest.raises(AwayError):
        connection.deliver(deliveries(WINDOW, first=2))
    with pytest.raises(AwayError):
        opened(broker.target())
    connection.close()
    broker.resume()
    with closing(opened(broker.target())) as connection:
        rows = deliveries(WINDOW, first=2)
        connection.deliver([Delivery(row.record, is_repeated=True) for row in rows])
    assert _first_times([row.id for row in broker.read()]) == _ids(deliveries(WINDOW + 1))


def test_a_wrong_password_is_said_and_not_shown(broker: BrokerHarness) -> None:
    target = broker.with_wrong_password()
    with pytest.raises(AwayError, match=r"(?i)auth|password|credential|login") as raised:
        opened(target)
    assert WRONG_PASSWORD not in _told(raised.value) + repr(target)


def test_nobody_listens(broker: BrokerHarness) -> None:
    target = broker.unreachable()
    with pytest.raises(AwayError, match=r"127\.0\.0\.1.*refused"):
        opened(target)


def test_a_frame_of_several_messages_is_one_figure(broker: BrokerHarness) -> None:
    boxes = [Detection("person", 0, 0.9, (1.0, 2.0, 3.0, 4.0)), Detection("car", 2, 0.8, (5.0, 6.0, 7.0, 8.0))]
    with EventSource() as source:
        figures = [Figure("here", "door", source.detections("door", rows), b"{}") for rows in (boxes, [])]
    with closing(opened(structs.replace(broker.target(), format="deepstream-full"))) as connection:
        assert connection.show(figures) == 2


def test_figures_go_and_closing_twice_does_nothing(broker: BrokerHarness) -> None:
    with EventSource() as source:
        message = source.detections("door")
    figure = Figure("here", "door", message, b'{"schema": "lookout.detections/1"}')
    connection = opened(broker.target())
    assert connection.show([figure, figure]) == 2
    connection.deliver(deliveries(3))
    connection.close()
    connection.close()
    assert len(broker.read()) == 3, "figures are beside records"
