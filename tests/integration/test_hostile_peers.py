"""Peers of the publisher's socket who mean no good, and those whose key is not on the list."""

from __future__ import annotations

import random
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic

import httpx
import pytest
import zmq
import zmq.auth

from daemon.errors import ConfigError
from daemon.publish.curve_keys import new_pair
from lookout.client import Subscriber
from lookout.messages import Detections
from tests.support import hostile
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, Lookout, has_seen, receive_until, wait_until
from tests.support.ports import free_port


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The daemon's pair, a friend's and a stranger's; the friend's public key is in `clients`."""
    folder = tmp_path_factory.mktemp("keys")
    (folder / "clients").mkdir()
    for name in ("lookout", "friend", "stranger"):
        new_pair(folder, name)
    (folder / "clients" / "friend.key").write_bytes((folder / "friend.key").read_bytes())
    return folder


@pytest.fixture(scope="module")
def guarded(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lookout]:
    curve = {"secret_key_file": str(keys / "lookout.key_secret"), "clients": str(keys / "clients")}
    config: dict[str, object] = {
        "sources": [{"id": "street", "type": "synthetic", "width": 160, "height": 96, "fps": 20}],
        "model": {"path": str(DEMO_MODEL), "backend": "fake"},
        "publisher": {"curve": curve},
    }
    with Lookout(tmp_path_factory.mktemp("guarded"), config) as lookout:
        yield lookout
        assert lookout.stop() == 0
        assert "Traceback" not in lookout.log()


def _subscribe(lookout: Lookout, keys: Path, who: str | None) -> Subscriber:
    own = keys / f"{who}.key_secret" if who else None
    return Subscriber(lookout.endpoint, server_key=keys / "lookout.key", secret_key=own)


def test_only_those_on_the_list_are_let_in(guarded: Lookout, keys: Path) -> None:
    with _subscribe(guarded, keys, "friend") as friend:
        receive_until(friend, lambda message: isinstance(message, Detections))
        for who in ("stranger", None):
            with _subscribe(guarded, keys, who) as other:
                receive_until(friend, has_seen(20, "street"))
                assert other.receive(0) is None


def test_an_empty_list_and_a_wrong_key_are_said(keys: Path, tmp_path: Path) -> None:
    from daemon.clock import SystemClock
    from daemon.config.publisher import CurveConfig, PublisherConfig
    from daemon.publish.zeromq import ZeroMqSink

    for clients, words in ((tmp_path, "holds no .key file"), (tmp_path / "none", "is not a folder")):
        curve = CurveConfig(secret_key_file=keys / "lookout.key_secret", clients=clients)
        config = PublisherConfig(endpoint="tcp://127.0.0.1:*", curve=curve)
        with pytest.raises(ConfigError, match=words):
            ZeroMqSink(config, SystemClock())
    with pytest.raises(ConfigError, match="holds no secret"):
        Subscriber("tcp://127.0.0.1:1", server_key=keys / "lookout.key", secret_key=keys / "friend.key")


@pytest.mark.slow
def test_malformed_peers_change_nothing(guarded: Lookout, keys: Path) -> None:
    """Garbage, half a greeting, another mechanism, commands of no length or of far too much; a flood of handshakes.
    LOOKOUT_HOSTILE=10000 sends as many."""
    port = int(guarded.endpoint.rpartition(":")[2])
    chance = random.Random(11)
    with _subscribe(guarded, keys, "friend") as friend:
        receive_until(friend, lambda message: isinstance(message, Detections))
        files, memory = guarded.inspect.num_fds(), guarded.inspect.memory_info().rss
        for _ in range(hostile.COUNT):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
                try:
                    peer.sendall(_malformed(chance))
                except OSError:
                    continue
        context = zmq.Context()
        strangers = []
        for _ in range(50):
            peer_socket = context.socket(zmq.SUB)
            peer_socket.curve_publickey, peer_socket.curve_secretkey = zmq.curve_keypair()
            peer_socket.curve_serverkey = zmq.auth.load_certificate(keys / "stranger.key")[0]  # of somebody else
            peer_socket.setsockopt(zmq.SUBSCRIBE, b"")
            peer_socket.connect(guarded.endpoint)
            strangers.append(peer_socket)
        receive_until(friend, has_seen(40, "street"))
        for peer_socket in strangers:
            assert not peer_socket.poll(0)
            peer_socket.close(linger=0)
        context.term()
        wait_until(lambda: guarded.inspect.num_fds() <= files + 2, "connections that were left go home")
        assert guarded.inspect.memory_info().rss < memory + (16 << 20)
        receive_until(friend, has_seen(1, "street"))
        assert friend.lost == {}


def _malformed(chance: random.Random) -> bytes:
    kind = chance.randrange(5)
    if kind == 0:
        return chance.randbytes(chance.randrange(200))
    if kind == 1:
        return hostile.GREETING[: chance.randrange(len(hostile.GREETING))]
    mechanism = chance.choice([b"NULL", b"PLAIN", b"CURVE", b"GSSAPI", b"\xff" * 20]).ljust(20, b"\x00")
    greeting = hostile.GREETING + mechanism + b"\x00" * 32
    if kind == 2:
        return greeting
    size = chance.choice([0, 1, 200, 255])
    command = bytes([4, size]) + chance.randbytes(chance.randrange(200))
    if kind == 3:
        return greeting + command
    return greeting + b"\x06" + (1 << 62).to_bytes(8, "big") + chance.randbytes(64)


def test_idle_connections_beyond_the_descriptors_keep_nobody_out(tmp_path: Path) -> None:
    """They take every descriptor before they can be cut off. HTTP answers all the same, a subscriber gets in, and no
    thread tries in vain, again and again, to accept one more."""
    port = free_port()
    config: dict[str, object] = {
        "sources": [{"id": "street", "type": "synthetic", "width": 160, "height": 96, "fps": 20}],
        "model": {"path": str(DEMO_MODEL), "backend": "fake"},
        "http": {"enabled": True, "port": port},
    }
    with ExitStack() as stack:
        lookout = stack.enter_context(Lookout(tmp_path, config, files=64))
        friend = stack.enter_context(lookout.subscribe())
        receive_until(friend, has_seen(20, "street"))
        usual, _ = _processor_time(lookout, friend)
        for _ in range(200):
            peer = stack.enter_context(socket.socket())
            peer.setblocking(False)
            peer.connect_ex(("127.0.0.1", int(lookout.endpoint.rpartition(":")[2])))
        with lookout.subscribe() as late:
            receive_until(late, has_seen(1, "street"))
        assert httpx.get(f"http://127.0.0.1:{port}/live", timeout=PATIENCE_S).status_code == 200
        spent, passed = _processor_time(lookout, friend)
        assert spent < 3 * usual + passed / 4  # it was more than a core
        assert "subscribers were cut off" in lookout.log()


def _processor_time(lookout: Lookout, friend: Subscriber) -> tuple[float, float]:
    """That the daemon takes for 40 frames, and how long they take, seconds."""
    begin, began = lookout.inspect.cpu_times(), monotonic()
    receive_until(friend, has_seen(40, "street"))
    end = lookout.inspect.cpu_times()
    return end.user + end.system - begin.user - begin.system, monotonic() - began


@contextmanager
def _connected(lookout: Lookout, keys: Path, who: str) -> Iterator[tuple[zmq.Socket[bytes], zmq.Socket[bytes]]]:
    """A peer whose key is known by now and that has subscribed to nothing, and what tells of its disconnection."""
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.curve_publickey, secret = zmq.auth.load_certificate(keys / f"{who}.key_secret")
        socket.curve_secretkey = secret or b""
        socket.curve_serverkey = zmq.auth.load_certificate(keys / "lookout.key")[0]
        with socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED) as monitor:
            socket.connect(lookout.endpoint)
            assert monitor.poll(round(PATIENCE_S * 1000))
            monitor.recv_multipart()
            yield socket, monitor
            socket.disable_monitor()


def test_a_key_that_is_taken_away_lets_nobody_in_after_a_reload(keys: Path, tmp_path: Path) -> None:
    """Neither by a new connection nor by the one that it has."""
    clients = tmp_path / "clients"
    clients.mkdir()
    for name in ("friend", "stranger"):
        (clients / f"{name}.key").write_bytes((keys / f"{name}.key").read_bytes())
    config: dict[str, object] = {
        "sources": [{"id": "street", "type": "synthetic", "width": 160, "height": 96, "fps": 20}],
        "model": {"path": str(DEMO_MODEL), "backend": "fake"},
        "publisher": {"curve": {"secret_key_file": str(keys / "lookout.key_secret"), "clients": str(clients)}},
    }
    with (
        Lookout(tmp_path, config) as lookout,
        _subscribe(lookout, keys, "friend") as friend,
        _subscribe(lookout, keys, "stranger") as other,
        _connected(lookout, keys, "stranger") as (silent, events_of_silent),
    ):
        receive_until(other, lambda message: isinstance(message, Detections))
        (clients / "stranger.key").unlink()
        lookout.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "subscribers were cut off" in lookout.log(), "the connection is cut off")
        while other.receive(0):
            pass  # what it had
        # Nobody knows the key of one that has not subscribed: it is cut off, too.
        assert events_of_silent.poll(round(PATIENCE_S * 1000))
        silent.subscribe(b"")
        receive_until(friend, has_seen(20, "street"))
        with _subscribe(lookout, keys, "stranger") as again:
            receive_until(friend, has_seen(20, "street"))
            assert (other.receive(0), again.receive(0), silent.poll(0)) == (None, None, 0)
        assert friend.lost == {}
        (clients / "friend.key").unlink()
        lookout.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "holds no .key file" in lookout.log(), "it is said that nobody is let in")
        wait_until(lambda: friend.receive(1) is None, "the last of them is cut off")
        with _subscribe(lookout, keys, "friend") as again:
            assert (friend.receive(1), again.receive(0)) == (None, None)
