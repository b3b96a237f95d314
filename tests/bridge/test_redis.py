"""Streams of Redis: what the contract of targets leaves to each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from daemon.bridge.port import AwayError
from daemon.bridge.records import Delivery
from daemon.bridge.targets.opening import open_target
from daemon.redact import Secret
from tests.bridge.brokers.harness import context, deliveries, delivery, opened, secret_file
from tests.bridge.brokers.redis import PASSWORD, RedisHarness
from tests.support.clock import ManualClock

pytestmark = pytest.mark.needs("redis-server")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisHarness]:
    with closing(RedisHarness(tmp_path / "broker")) as found:
        found.start()
        yield found


def _again(rows: Sequence[Delivery]) -> list[Delivery]:
    return [Delivery(row.record, is_repeated=True) for row in rows]


def _ids(redis: RedisHarness) -> list[str]:
    return [row.id for row in redis.read()]


def test_what_is_there_already_is_not_added_again(redis: RedisHarness) -> None:
    with closing(opened(redis.target())) as connection:
        connection.deliver(deliveries(60))
        assert list(connection.deliver(_again(deliveries(100)))) == [None] * 100
    assert _ids(redis) == [row.record.id for row in deliveries(100)]


class _FlyingClock(ManualClock):
    """The time for a batch is over at each look."""

    def monotonic_ns(self) -> int:
        self.advance(7)
        return super().monotonic_ns()


def test_a_link_that_is_too_slow_for_many_streams_gets_on_all_the_same(redis: RedisHarness) -> None:
    """Each batch settles what could be looked for in time."""
    rows = [delivery(number, source=f"s{number % 4}") for number in range(1, 21)]
    older = [delivery(number, source=f"s{number % 4}") for number in range(1000, 1800)]
    target, batches = redis.target(stream="lookout:event:{source}"), 0
    with closing(open_target(target, replace(context(), clock=_FlyingClock()))) as connection:
        connection.deliver(older)
        assert list(connection.deliver(rows[:12])) == [None] * 12
        waiting = _again(rows)
        while waiting:
            settled = connection.deliver(waiting)
            assert settled
            assert not any(settled)
            waiting, batches = waiting[len(settled) :], batches + 1
        assert batches > 1
    with redis.client() as client:
        for number in range(4):
            found = [fields[b"id"].decode() for _, fields in client.xrange(f"lookout:event:s{number}")]
            assert found == [row.record.id for row in [*older, *rows] if row.record.source == f"s{number}"]


def test_a_spool_that_was_lost_begins_again_and_nothing_is_refused(redis: RedisHarness) -> None:
    """Its records have the positions of earlier ones; another bridge's have, too."""
    with closing(opened(redis.target())) as connection:
        connection.deliver(deliveries(10, first=1000))
        assert list(connection.deliver(deliveries(10))) == [None] * 10
        assert list(connection.deliver(_again(deliveries(10)))) == [None] * 10
    assert _ids(redis) == [row.record.id for row in [*deliveries(10, first=1000), *deliveries(10)]]


def test_somebody_elses_entries_are_no_hindrance(redis: RedisHarness) -> None:
    with closing(opened(redis.target())) as connection, redis.client() as other:
        connection.deliver(deliveries(3))
        other.xadd("lookout:event", {"hello": "there"})
        assert list(connection.deliver(_again(deliveries(5)))) == [None] * 5
        assert other.xlen("lookout:event") == 6


def test_without_memory_it_is_slow_and_nothing_overtakes(redis: RedisHarness) -> None:
    with closing(opened(redis.target())) as connection, redis.client() as admin:
        admin.config_set("maxmemory", "1")
        with pytest.raises(AwayError, match="no memory left") as raised:
            connection.deliver(deliveries(10))
        assert list(raised.value.settled) == []
        admin.config_set("maxmemory", "0")
        assert list(connection.deliver(deliveries(10))) == [None] * 10
    assert _ids(redis) == [row.record.id for row in deliveries(10)]


def test_a_key_that_is_no_stream_is_said(redis: RedisHarness) -> None:
    with closing(opened(redis.target(stream="lookout:{source}"))) as connection, redis.client() as admin:
        admin.set("lookout:door", "mine")
        refused, taken = connection.deliver([delivery(1), delivery(2, source="yard")])
        assert refused is not None
        assert "lookout:door holds something else than a stream" in refused
        assert taken is None
        assert admin.xlen("lookout:yard") == 1


def test_a_replica_is_away(redis: RedisHarness) -> None:
    with closing(opened(redis.target())) as connection, redis.client() as admin:
        admin.replicaof("127.0.0.1", "1")
        with pytest.raises(AwayError, match=r"(?i)read only"):
            connection.deliver(deliveries(1))


def test_the_password_of_a_file_is_read_at_each_connection(redis: RedisHarness, tmp_path: Path) -> None:
    file = secret_file(tmp_path, "an old one")
    target = redis.target(password=None, password_file=file)
    with pytest.raises(AwayError, match=r"(?i)password"):
        opened(target)
    secret_file(tmp_path, PASSWORD)
    opened(target).close()
    file.unlink()
    with pytest.raises(AwayError, match=r"password_file: .* cannot be read: No such file"):
        opened(target)


def test_a_unix_socket(tmp_path: Path) -> None:
    harness = RedisHarness(tmp_path / "broker")
    path = tmp_path / "r.sock"
    harness.server.arguments += ("--unixsocket", str(path))
    with closing(harness):
        harness.start()
        with closing(opened(harness.target(url=Secret(f"unix://{path}")))) as connection:
            assert list(connection.deliver(deliveries(2))) == [None] * 2
        assert len(harness.read()) == 2


def test_a_stream_keeps_about_so_many_entries(redis: RedisHarness) -> None:
    with closing(opened(redis.target(max_length=100))) as connection:
        for begin in range(1, 600, 100):
            connection.deliver(deliveries(100, first=begin))
    assert 100 <= len(_ids(redis)) < 400
