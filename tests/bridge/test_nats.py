"""NATS JetStream: what the contract of targets leaves to each."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.js.api import DiscardPolicy, StreamConfig

from daemon.bridge.messages import Loss
from daemon.bridge.port import AwayError
from daemon.bridge.records import Delivery, Record
from daemon.bridge.targets import nats as nats_target
from daemon.bridge.targets.nats_login import credentials_of
from daemon.config.targets import NatsTarget
from daemon.redact import Secret
from tests.bridge.brokers.harness import deliveries, delivery, opened, secret_file
from tests.bridge.brokers.nats import PASSWORD, NatsHarness

pytestmark = pytest.mark.needs("nats-server")


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsHarness]:
    with closing(NatsHarness(tmp_path / "broker")) as found:
        found.start()
        yield found


def test_what_is_there_already_is_not_added_again(nats: NatsHarness) -> None:
    rows = [Delivery(row.record, is_repeated=True) for row in deliveries(100)]
    with closing(opened(nats.target())) as connection:
        connection.deliver(deliveries(60))
        assert list(connection.deliver(rows)) == [None] * 100
    assert [row.id for row in nats.read()] == [row.record.id for row in rows]


def test_no_stream_is_said_and_one_that_is_made_meanwhile_is_used(nats: NatsHarness) -> None:
    target = nats.target(subject="elsewhere.{kind}.{source}")
    with closing(opened(target)) as connection:
        with pytest.raises(AwayError, match=r"no stream takes elsewhere\.event\.door: make one"):
            connection.deliver(deliveries(3))
        nats.ask(lambda js: js.add_stream(StreamConfig("later", subjects=["elsewhere.>"])))
        assert list(connection.deliver(deliveries(3))) == [None] * 3


def test_a_full_stream_is_slow_and_nothing_overtakes(tmp_path: Path) -> None:
    """Smaller messages would still fit: they wait for the larger one before them."""
    limits = {"max_bytes": 20_000, "discard": DiscardPolicy.NEW}
    rows = [*deliveries(8, padding=1500), delivery(9, padding=9000), *deliveries(20, first=10)]
    with closing(NatsHarness(tmp_path / "broker", **limits)) as nats:
        nats.start()
        with closing(opened(nats.target())) as connection:
            connection.deliver(rows[:1])  # which stream takes the subject is known from here on
            with pytest.raises(AwayError, match="the stream takes nothing now: maximum bytes") as raised:
                connection.deliver(rows[1:])
            assert list(raised.value.settled) == [None] * 7
        nats.ask(lambda js: js.update_stream(StreamConfig("lookout", subjects=["lookout.>"], max_bytes=1 << 20)))
        with closing(opened(nats.target())) as connection:
            rest = [Delivery(row.record, is_repeated=True) for row in rows[8:]]
            assert list(connection.deliver(rest)) == [None] * len(rest)
        assert [row.id for row in nats.read()] == [row.record.id for row in rows]


def test_others_may_write_to_the_stream(nats: NatsHarness) -> None:
    ending = threading.Event()

    async def write(js: Any) -> None:
        while not ending.is_set():
            await js.publish("lookout.other.x", b"hello")

    writer = threading.Thread(target=lambda: nats.ask(write))
    writer.start()
    try:
        with closing(opened(nats.target())) as connection:
            for begin in range(1, 60, 20):
                assert list(connection.deliver(deliveries(20, first=begin))) == [None] * 20
    finally:
        ending.set()
        writer.join(60)
    assert [row.id for row in nats.read()] == [row.record.id for row in deliveries(60)]


def test_dots_of_a_source_make_no_further_token(nats: NatsHarness) -> None:
    with closing(opened(nats.target())) as connection:
        assert list(connection.deliver([delivery(1, source="hall.2")])) == [None]
    assert [row.source for row in nats.read()] == ["hall%2E2"]


def test_a_loss_of_no_daemon_has_a_subject_all_the_same(nats: NatsHarness) -> None:
    message = Loss(id="loss-1", daemon="", count=1, first=1, last=1, at=1, cause="spool_full")
    loss = Record(1, 5, "loss", "", "", "loss-1", 1, msgspec.json.encode(message))
    with closing(opened(nats.target(subject="lookout.{daemon}.{kind}"))) as connection:
        assert list(connection.deliver([Delivery(loss)])) == [None]
    assert nats.ask(lambda js: js.get_last_msg("lookout", "lookout._.loss")).data == loss.body


def test_the_password_of_a_file_is_read_at_each_connection(nats: NatsHarness, tmp_path: Path) -> None:
    target = nats.target(password=None, password_file=secret_file(tmp_path, "an old one"))
    with pytest.raises(AwayError, match=r"(?i)authorization"):
        opened(target)
    secret_file(tmp_path, PASSWORD)
    opened(target).close()


def test_the_second_server_is_used_while_the_first_is_away(nats: NatsHarness) -> None:
    target = nats.target()
    both = nats.target(servers=[*nats.unreachable().servers, *target.servers])
    with closing(opened(both)) as connection:
        assert list(connection.deliver(deliveries(1))) == [None]


def test_no_server_is_left_out_where_those_before_it_hang(nats: NatsHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of one connection is over before the fourth has its turn: the next one goes on behind them."""
    monkeypatch.setattr(nats_target, "_CONNECT_S", 0.5)
    monkeypatch.setattr(nats_target, "_CONNECTS_S", 1.2)
    with ExitStack() as stack:
        mute = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        servers = [Secret(f"nats://127.0.0.1:{row.getsockname()[1]}") for row in mute]
        target = nats.target(name="mostly-mute", servers=[*servers, *nats.target().servers])
        for _ in range(30):
            with suppress(AwayError), closing(opened(target)) as connection:
                assert list(connection.deliver(deliveries(1))) == [None]
                break
        else:
            pytest.fail("the fourth server is never asked")


def test_a_server_without_tls_is_told_no_password() -> None:
    """Somebody on the way may pretend that the server has none."""
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(30)
                connection.sendall(b'INFO {"server_id":"X","version":"2.9.10","max_payload":1048576}\r\n')
                while data := connection.recv(4096):
                    heard.extend(data)

        thread = threading.Thread(target=serve)
        thread.start()
        url = Secret(f"tls://127.0.0.1:{server.getsockname()[1]}")
        target = NatsTarget(name="bus", servers=[url], user=Secret("lookout"), password=Secret(PASSWORD))
        with pytest.raises(AwayError, match="offers no TLS"):
            opened(target)
        thread.join(60)
    assert not heard


_CREDENTIALS = """-----BEGIN NATS USER JWT-----
eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.e30.c2ln
------END NATS USER JWT------

************************* IMPORTANT *************************
-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------
"""


def test_a_creds_file_signs_with_its_seed(tmp_path: Path) -> None:
    raw = bytes(range(32))
    # nkeys: the kinds seed and user in ten bits, the seed, and a checksum, which the server does not see.
    head = bytes([(18 << 3) | (20 << 3 >> 5), (20 << 3 & 31) << 3])
    seed = base64.b32encode(head + raw + b"\0\0").decode().rstrip("=")
    file = tmp_path / "lookout.creds"
    file.write_text(_CREDENTIALS.replace("{seed}", seed))
    found = credentials_of(file)
    signature = base64.b64decode(found.sign("nonce"))
    Ed25519PrivateKey.from_private_bytes(raw).public_key().verify(signature, b"nonce")
    assert seed not in repr(found)
    file.write_text("no credentials")
    with pytest.raises(AwayError, match=r"is no \.creds file"):
        credentials_of(file)
