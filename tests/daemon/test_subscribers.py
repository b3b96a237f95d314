"""Peers of the publisher's socket: those who ask for too much are cut off, and nobody else notices."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from daemon.config.publisher import PublisherConfig
from daemon.errors import ConfigError
from lookout.client import Subscriber
from lookout.messages import Detections
from tests.daemon.test_publisher import Bench
from tests.support.daemon import wait_until
from tests.support.descriptors import no_descriptors
from tests.support.hostile import GREETING, is_cut_off, is_turned_away, shaken_hands, subscription

_MOST = 5


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench(PublisherConfig(endpoint="tcp://127.0.0.1:*", max_subscribers=_MOST))
    bench.publisher.start()
    yield bench
    bench.publisher.stop(5)
    assert not bench.publisher.is_alive()
    assert bench.failures == []


@pytest.fixture
def friend(bench: Bench) -> Iterator[Subscriber]:
    """Has subscribed before anybody else comes, and has its place."""
    with Subscriber(bench.sink.endpoint) as subscriber:
        assert bench.publisher.has_subscribers.wait(30)
        yield subscriber


def _is_served(bench: Bench, friend: Subscriber) -> bool:
    bench.outbox.put([bench.result(0)])
    return isinstance(friend.receive(30), Detections)


def _held(bench: Bench) -> int:
    return bench.publisher.metrics().subscriptions


def test_who_subscribes_and_unsubscribes_without_end_is_cut_off(bench: Bench, friend: Subscriber) -> None:
    peer = shaken_hands(bench.sink.endpoint)
    flood = (subscription(b"a") + subscription(b"a", ends=True)) * 8192

    def send() -> None:
        with suppress(OSError):
            while True:
                peer.sendall(flood)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    sender.join(60)
    assert not sender.is_alive(), "it may send for ever"
    assert is_cut_off(peer)
    assert _is_served(bench, friend)
    wait_until(lambda: _held(bench) == 1, "the friend's subscription alone is left")


def test_who_holds_more_subscriptions_than_anybody_needs_is_cut_off(bench: Bench, friend: Subscriber) -> None:
    peer = shaken_hands(bench.sink.endpoint)
    with suppress(OSError):
        peer.sendall(b"".join(subscription(b"%d" % number) for number in range(10_000)))
    assert is_cut_off(peer)
    assert _is_served(bench, friend)
    wait_until(lambda: _held(bench) == 1, "the friend's subscription alone is left")


def test_cutting_off_takes_no_descriptor(bench: Bench, friend: Subscriber) -> None:
    """Connections that have taken all are cut off when there is none left."""
    peer = shaken_hands(bench.sink.endpoint)
    with no_descriptors(), suppress(OSError):
        peer.sendall(b"".join(subscription(b"%d" % number) for number in range(10_000)))
        assert is_cut_off(peer)
    assert _is_served(bench, friend)
    wait_until(lambda: _held(bench) == 1, "the friend's subscription alone is left")


def test_whoever_comes_again_and_again_is_cut_off_by_the_address(bench: Bench, friend: Subscriber) -> None:
    """Each connection asks for less than one may; together they ask for more than an address may."""
    cut = False
    for _ in range(200):
        peer = shaken_hands(bench.sink.endpoint)
        peer.settimeout(0.3)
        with suppress(OSError):
            peer.sendall(b"".join(subscription(b"%d" % number) for number in range(1900)))
        if cut := is_cut_off(peer):
            break
    assert cut
    assert _is_served(bench, friend)


def test_as_many_as_a_large_daemon_has_topics_are_let_in(bench: Bench) -> None:
    """Three kinds of 256 sources, one by one."""
    with shaken_hands(bench.sink.endpoint) as peer:
        peer.sendall(b"".join(subscription(b"%d/" % number) for number in range(768)))
        wait_until(lambda: _held(bench) == 768, "all are held")
    wait_until(lambda: _held(bench) == 0, "none is left when it goes")


def test_idle_connections_make_room_for_subscribers(bench: Bench, friend: Subscriber) -> None:
    """Those that are longest there go first; whoever has subscribed stays."""
    idle = [shaken_hands(bench.sink.endpoint) for _ in range(3 * _MOST)]
    assert all(is_cut_off(peer) for peer in idle[: 2 * _MOST])
    with Subscriber(bench.sink.endpoint) as late:
        wait_until(lambda: _held(bench) == 2, "who comes then is let in")
        assert _is_served(bench, friend)
        assert isinstance(late.receive(30), Detections)
    for peer in idle[2 * _MOST :]:
        peer.close()


def test_there_are_only_so_many_subscribers(bench: Bench, friend: Subscriber) -> None:
    peers: list[socket.socket] = []
    for number in range(_MOST - 1):
        peers.append(shaken_hands(bench.sink.endpoint))
        peers[-1].sendall(subscription(b"detections/"))
        wait_until(lambda most=number + 2: _held(bench) == most, "it has subscribed")  # type: ignore[misc]
    assert is_turned_away(bench.sink.endpoint)
    assert _is_served(bench, friend)
    for peer in peers:
        peer.close()


def test_no_memory_is_taken_for_what_a_peer_announces(bench: Bench, friend: Subscriber) -> None:
    """A message of a gigabyte, before and after the handshake."""
    gigabyte = (1 << 30).to_bytes(8, "big")
    after = shaken_hands(bench.sink.endpoint)
    after.sendall(b"\x02" + gigabyte + b"\x01")
    assert is_cut_off(after)
    before = socket.create_connection(("127.0.0.1", int(bench.sink.endpoint.rpartition(":")[2])), timeout=30)
    before.sendall(GREETING + b"NULL".ljust(20, b"\x00") + bytes(32) + b"\x06" + gigabyte)
    assert is_cut_off(before)
    assert _is_served(bench, friend)


def test_a_path_in_use_is_told(tmp_path: Path) -> None:
    """Whoever is there stays there; a path that a dead process left behind is taken over."""
    config = PublisherConfig(endpoint=f"ipc://{tmp_path}/lookout.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(f"{tmp_path}/lookout.sock")
    bench = Bench(config)
    bench.publisher.start()
    with pytest.raises(ConfigError, match=r"is in use; is another Lookout running\? Stop it"):
        Bench(config)
    with Subscriber(config.endpoint) as subscriber:
        assert bench.publisher.has_subscribers.wait(30)
        assert _is_served(bench, subscriber)
    bench.publisher.stop(5)
