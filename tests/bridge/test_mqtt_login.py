"""How a broker is reached: TLS, certificates, passwords, WebSockets, older brokers; mistakes in the keys."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import structlog

from daemon.bridge.bridge import Bridge
from daemon.bridge.port import AwayError
from daemon.bridge.targets.opening import open_target
from daemon.clock import Awaited, SystemClock
from daemon.config.bridge import BridgeConfig
from daemon.config.load import parse
from daemon.config.targets import MqttTarget
from daemon.errors import ConfigError
from daemon.redact import Secret
from tests.bridge.told import context, deliveries
from tests.fleet.etcd_server import Certificates
from tests.support.daemon import wait_until
from tests.support.mosquitto import Mosquitto
from tests.support.ports import free_port

_LEAST = {"model": {"path": "model.onnx"}, "sources": [{"id": "street", "type": "synthetic"}]}


def target(url: str, **keys: Any) -> MqttTarget:
    return MqttTarget(name="home", url=Secret(url), **keys)


def tells(target: MqttTarget) -> None:
    with closing(open_target(target, context())) as connection:
        assert connection.deliver(deliveries(1, 3)) == [None] * 3


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Mosquitto]:
    certificate, key = certificates.server
    listener = [f"cafile {certificates.ca}", f"certfile {certificate}", f"keyfile {key}", "require_certificate true"]
    with Mosquitto(tmp_path_factory.mktemp("secure"), ["allow_anonymous true"], listener) as broker:
        yield broker


@pytest.mark.needs("mosquitto", "openssl")
class TestTls:
    def test_the_right_certificates_work(self, secure: Mosquitto, certificates: Certificates) -> None:
        certificate, key = certificates.client
        url = f"mqtts://localhost:{secure.port}"
        tells(target(url, ca_file=certificates.ca, certificate_file=certificate, key_file=key))

    def test_a_stranger_is_refused(self, secure: Mosquitto) -> None:
        with pytest.raises(AwayError, match=rf"localhost:{secure.port}: its certificate is refused: .*certificate"):
            open_target(target(f"mqtts://localhost:{secure.port}"), context())

    def test_a_broker_that_wants_a_certificate_says_so(self, secure: Mosquitto, certificates: Certificates) -> None:
        with pytest.raises(AwayError, match=rf"localhost:{secure.port}"):
            open_target(target(f"mqtts://localhost:{secure.port}", ca_file=certificates.ca), context())

    def test_a_file_that_is_missing_is_named(self, secure: Mosquitto, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"target home: .*nothing\.pem cannot be used: No such file"):
            open_target(target(f"mqtts://localhost:{secure.port}", ca_file=tmp_path / "nothing.pem"), context())


@pytest.mark.needs("mosquitto")
def test_a_password_file_is_read_at_each_connection(tmp_path: Path) -> None:
    passwords, mine = tmp_path / "passwords", tmp_path / "mine"
    subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, "lookout", "n3w-s3cret"], check=True, timeout=30)
    with Mosquitto(tmp_path / "mosquitto", [f"password_file {passwords}", "allow_anonymous false"]) as broker:
        given = target(f"mqtt://127.0.0.1:{broker.port}", user=Secret("lookout"), password_file=mine)
        with pytest.raises(ConfigError, match=r"target home: password_file: .*mine cannot be read: No such file"):
            open_target(given, context())
        mine.write_text("0ld-s3cret\n")
        with pytest.raises(AwayError, match=r"refuses: Not authorized") as caught:
            open_target(given, context())
        assert "s3cret" not in str(caught.value)
        mine.write_text("n3w-s3cret\n")
        tells(given)


class _Hasty(SystemClock):
    """Waits are short; `pauses` has the long ones, as they would have been."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def wait(self, event: Awaited, seconds: float) -> bool:  # type: ignore[override]
        if threading.current_thread().name == "target-home" and seconds > 0.5:
            self.pauses.append(seconds)
        return event.wait(min(seconds, 0.01))


def test_a_broker_that_is_away_is_tried_each_few_seconds_however_long(tmp_path: Path) -> None:
    """So states are right again soon after it is back."""
    clock, away = _Hasty(), target(f"mqtt://127.0.0.1:{free_port()}")
    bridge = Bridge(BridgeConfig(spool=str(tmp_path / "spool"), targets=[away]), [], clock)
    bridge.start()
    wait_until(lambda: len(clock.pauses) >= 9, "it was tried nine times")
    bridge.stop()
    assert clock.pauses[0] <= 1  # one that is back at once is found at once
    assert clock.pauses[2] > 2
    assert max(clock.pauses) <= 4


@pytest.mark.needs("mosquitto")
def test_websockets(tmp_path: Path) -> None:
    port = free_port()
    with Mosquitto(tmp_path / "mosquitto", [f"listener {port}", "protocol websockets"]):
        tells(target(f"ws://127.0.0.1:{port}/mqtt"))
    with pytest.raises(AwayError, match="Connection refused"):
        open_target(target(f"ws://127.0.0.1:{port}/mqtt"), context())


def _answers(answer: bytes) -> tuple[int, threading.Thread, list[bytes]]:
    """A server that takes one packet of each of two connections, and answers so; the second time it takes it."""
    server, asked = socket.create_server(("127.0.0.1", free_port())), list[bytes]()

    def run() -> None:
        with server:
            server.settimeout(30)
            for reply in (answer, b"\x20\x02\x00\x05"):
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(30)
                    asked.append(connection.recv(4096))
                    if not reply:
                        return
                    connection.sendall(reply)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return server.getsockname()[1], thread, asked


@pytest.mark.parametrize("answer", [b"\x20\x02\x00\x01", b"\x20\x03\x00\x84\x00"])
def test_an_older_broker_that_refuses_mqtt_5_is_asked_in_3_1_1_and_that_is_said(answer: bytes) -> None:
    port, thread, asked = _answers(answer)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(20))
    with structlog.testing.capture_logs() as logs, pytest.raises(AwayError, match="refuses: Not authorized"):
        open_target(target(f"mqtt://127.0.0.1:{port}"), context())
    thread.join(30)
    assert [packet[8] for packet in asked] == [5, 4], "the level of the protocol"
    assert [row["event"] for row in logs] == ["MQTT 3.1.1 is spoken, so messages have no ids and refusals no reasons"]


def test_what_only_hangs_up_is_not_asked_in_3_1_1() -> None:
    port, thread, asked = _answers(b"")
    with pytest.raises(AwayError, match="closes the connection before it answers"):
        open_target(target(f"mqtt://127.0.0.1:{port}"), context())
    thread.join(30)
    assert len(asked) == 1


def parsed(**more: Any) -> None:
    row = {"name": "home", "type": "mqtt", "url": "mqtts://broker.example", **more}
    parse(json.dumps({**_LEAST, "bridge": {"targets": [row]}}))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"url": "mqtt://127.0.0.1:1883"},
        {"url": "mqtt://[::1]"},
        {"url": "mqtt://broker.example", "allow_plaintext": True},
        {"url": "wss://broker.example/mqtt", "ca_file": "ca.pem"},
        {"user": "lookout", "password_file": "secret", "prefix": "site/hall 1"},
        {"certificate_file": "c.pem", "key_file": "k.pem"},
    ],
)
def test_targets_that_can_be(more: dict[str, Any]) -> None:
    parsed(**more)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"url": "http://x"}, "url: is no address of a broker, such as mqtts://192.0.2.5:8883"),
        ({"url": "mqtts://"}, "url: is no address of a broker"),
        ({"url": "mqtts://x:0"}, "url: is no address of a broker"),
        ({"url": "mqtts://x:99999"}, "url: is no address of a broker"),
        ({"url": "mqtts://me:s3cret@x"}, "url: holds a user or a password: set user and password_file"),
        ({"url": "mqtts://x/s3cret"}, "url: holds more than the address"),
        ({"url": "wss://x/mqtt?s3cret"}, "url: holds more than the address"),
        ({"url": "mqtt://broker.example"}, "in plaintext: write mqtts://, or set allow_plaintext: true"),
        ({"url": "ws://192.0.2.5"}, "in plaintext: write wss://"),
        ({"url": "mqtt://localhost.example"}, "in plaintext"),
        ({"user": "a", "password": "s3cret", "password_file": "x"}, "password: set one of password and password_file"),
        ({"password": "s3cret"}, "user: is missing beside the password"),
        ({"certificate_file": "c.pem"}, "certificate_file: set both certificate_file and key_file"),
        ({"url": "mqtt://127.0.0.1", "ca_file": "c.pem"}, "ca_file: is of mqtts:// and wss:// alone"),
        ({"prefix": "a/+"}, "prefix: + and # stand for any topic"),
        ({"prefix": "$SYS/a"}, "prefix: topics that begin with $ belong to the broker"),
        ({"prefix": "/a"}, "prefix: a level is empty"),
        ({"prefix": "a/"}, "prefix: a level is empty"),
        ({"prefix": "a\u0007"}, "prefix: it holds a character that MQTT forbids"),
        ({"discovery_prefix": "#"}, "discovery_prefix: + and # stand for any topic"),
        ({"qos": 3}, "qos"),
    ],
)
def test_mistakes_are_said(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(**more)
    text = str(caught.value)
    assert text.startswith("bridge.targets[0].")
    assert said in text
    assert "\n" not in text
    assert "s3cret" not in text
