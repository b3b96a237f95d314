"""Kafka: what the contract of targets leaves to each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_structured_event
from cloudevents.core.formats.json import JSONFormat

from daemon.bridge.port import AwayError
from daemon.errors import ConfigError
from daemon.redact import Secret
from tests.bridge.brokers.harness import deliveries, delivery, opened, secret_file
from tests.bridge.brokers.kafka import KafkaHarness

_PRODUCE = 0  # of Kafka's requests
_TOO_LARGE, _NOT_LEADER, _FENCED = 10, 6, 47  # of Kafka's errors


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaHarness]:
    with closing(KafkaHarness(tmp_path / "broker")) as found:
        found.start()
        yield found


def _options(**options: str) -> dict[str, Any]:
    return {"options": {name.replace("_", "."): Secret(value) for name, value in options.items()}}


def test_a_topic_that_is_not_there_is_said(kafka: KafkaHarness) -> None:
    target = kafka.target(topic="elsewhere.{kind}", **_options(allow_auto_create_topics="false"))
    said = pytest.raises(AwayError, match=r"a topic of elsewhere\.\{kind\} is not there: create it")
    with closing(opened(target)) as connection, said:
        connection.deliver(deliveries(3))


def test_a_small_queue_of_the_library_is_waited_for(kafka: KafkaHarness) -> None:
    with closing(opened(kafka.target(**_options(queue_buffering_max_messages="10")))) as connection:
        assert list(connection.deliver(deliveries(100))) == [None] * 100
    assert [row.id for row in kafka.read()] == [row.record.id for row in deliveries(100)]


def test_messages_that_are_too_large_together_go_alone(kafka: KafkaHarness) -> None:
    with closing(opened(kafka.target())) as connection:
        kafka.broker.ask(f"error {_PRODUCE} {_TOO_LARGE}")
        assert list(connection.deliver(deliveries(20))) == [None] * 20
    assert {row.id for row in kafka.read()} == {row.record.id for row in deliveries(20)}


def test_a_new_leader_is_found_within_the_batch(kafka: KafkaHarness) -> None:
    with closing(opened(kafka.target())) as connection:
        kafka.broker.ask(f"error {_PRODUCE} {_NOT_LEADER}")
        assert list(connection.deliver(deliveries(20))) == [None] * 20
    assert [row.id for row in kafka.read()] == [row.record.id for row in deliveries(20)]


def test_a_producer_that_the_broker_wants_no_more_is_replaced(kafka: KafkaHarness) -> None:
    rows = deliveries(20)
    with closing(opened(kafka.target())) as connection:
        kafka.broker.ask(f"error {_PRODUCE} {_FENCED}")
        with pytest.raises(AwayError, match=r"127\.0\.0\.1") as raised:
            connection.deliver(rows)
    with closing(opened(kafka.target())) as connection:
        rest = rows[len(raised.value.settled) :]
        assert list(connection.deliver(rest)) == [None] * len(rest)
    assert list(dict.fromkeys(row.id for row in kafka.read())) == [row.record.id for row in rows]


def test_an_option_that_is_none_shows_no_secret(kafka: KafkaHarness) -> None:
    target = kafka.target(**_options(sasl_mechanism="hunter2-is-no-mechanism", compression_type="hunter2"))
    with pytest.raises(ConfigError, match="target log: options: ") as raised:
        opened(target)
    assert "hunter2" not in str(raised.value)


def test_a_password_file_that_is_gone_is_said(kafka: KafkaHarness, tmp_path: Path) -> None:
    file = secret_file(tmp_path, "x")
    target = kafka.target(password_file=file, **_options(sasl_mechanism="PLAIN", sasl_username="lookout"))
    opened(target).close()  # nobody asks for a login
    file.unlink()
    with pytest.raises(AwayError, match=r"password_file: .*/secret cannot be read: No such file"):
        opened(target)


def test_a_cloudevent_is_read_by_its_library(kafka: KafkaHarness) -> None:
    with closing(opened(kafka.target(format="cloudevents"))) as connection:
        connection.deliver([delivery(1)])
    ((headers, key, value),) = kafka.messages()
    event = from_structured_event(KafkaMessage(headers, key, value), JSONFormat())
    assert event.get_id() == delivery(1).record.id
    assert event.get_type() == "lookout.event.zone.entered"
    assert headers["ce_id"].decode() == event.get_id()
    assert key == b"door"
