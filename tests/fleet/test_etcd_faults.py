"""Faults of etcd, of its files and of its users: one clear line each, in limited time."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from daemon.etcd.client import EtcdClient
from daemon.etcd.errors import EtcdAwayError, EtcdError, LeaseNotFoundError
from daemon.etcd.faults import connection_fault
from daemon.etcd.settings import Endpoint, EtcdSettings, Tls, User
from daemon.etcd.watch import open_watch
from daemon.redact import Secret
from tests.fleet.etcd_server import Certificates, EtcdServer, _openssl
from tests.support.ports import free_port

pytestmark = pytest.mark.needs("etcd-server", "etcd-client", "openssl")
ROOT_USER = User("root", Secret("geheim"))


def _line(settings: EtcdSettings) -> str:
    """The error of a read, and of a watch, which is the same."""
    lines = []
    with closing(EtcdClient(settings)) as client:
        with pytest.raises(EtcdError) as read:
            client.get(b"/a")
        with pytest.raises(EtcdError) as watched:
            open_watch(client, b"/a", 1)
    lines = [str(read.value), str(watched.value)]
    assert all("\n" not in line and "geheim" not in line for line in lines)
    assert (
        lines[0].removeprefix("etcd does not answer: ").removeprefix("etcd at ").partition(": ")[2]
        == (lines[1].removeprefix("etcd does not answer: ").removeprefix("etcd at ").partition(": ")[2])
    )
    return lines[0]


class TestAway:
    def test_no_server_is_one_line_with_all_endpoints(self) -> None:
        first, second = Endpoint("127.0.0.1", free_port()), Endpoint("127.0.0.1", free_port())
        with closing(EtcdClient(EtcdSettings((first, second)))) as client, pytest.raises(EtcdAwayError) as error:
            client.put(b"/a", b"b")
        words = f"etcd does not answer: {first}: Connection refused; {second}: Connection refused"
        assert str(error.value) == words

    def test_a_name_without_an_address(self) -> None:
        assert "nowhere.invalid:2379: " in _line(EtcdSettings((Endpoint("nowhere.invalid", 2379),)))

    def test_a_silent_server_costs_the_limit_and_no_more(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            settings = EtcdSettings((Endpoint("127.0.0.1", silent.getsockname()[1]),), limit_s=0.2)
            assert _line(settings).endswith("no answer in time")

    def test_the_next_endpoint_answers(self, etcd: EtcdServer) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            endpoints = (Endpoint("127.0.0.1", silent.getsockname()[1]), Endpoint("127.0.0.1", etcd.port))
            with closing(EtcdClient(EtcdSettings(endpoints, limit_s=6))) as client:
                client.put(b"/next", b"1")
                assert client.endpoints() == [*reversed(endpoints)], "the silent one is not asked again"

    def test_a_restarted_server_is_found_again(self, etcd_alone: EtcdServer) -> None:
        with closing(EtcdClient(etcd_alone.settings())) as client:
            client.put(b"/a", b"1")
            etcd_alone.kill()
            with pytest.raises(EtcdAwayError):
                client.get(b"/a")
            etcd_alone.start()
            found, _ = client.get(b"/a")
            assert found is not None
            assert found.value == b"1"

    def test_a_watch_without_a_server_ends(self, etcd_alone: EtcdServer) -> None:
        with closing(EtcdClient(etcd_alone.settings())) as client, closing(open_watch(client, b"/a", 1)) as watch:
            etcd_alone.kill()
            with pytest.raises(EtcdAwayError):
                watch.events(30)

    def test_a_server_that_is_no_etcd(self, foreign: int) -> None:
        line = _line(EtcdSettings((Endpoint("127.0.0.1", foreign),)))
        assert line.endswith("HTTP status 404: is this etcd 3.4 or later, and its client port?")


@pytest.fixture
def foreign() -> Iterator[int]:
    """The port of another HTTP server."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        yield int(server.server_address[1])
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("strangers"), "another test")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[EtcdServer]:
    """A server with TLS that asks for a certificate of the client."""
    server = EtcdServer(tmp_path_factory.mktemp("secure"), "--client-cert-auth", certificates=certificates)
    with closing(server):
        server.start()
        yield server


class TestCertificates:
    def test_the_right_ones_work(self, secure: EtcdServer, certificates: Certificates) -> None:
        with closing(EtcdClient(secure.settings(tls=certificates.tls))) as client:
            header = client.put(b"/tls", b"1")
            with closing(open_watch(client, b"/tls", header.revision)) as watch:
                client.put(b"/tls", b"x" * 100_000)
                sizes: list[int] = []
                while len(sizes) < 2:
                    sizes += [len(event.kv.value) for event in watch.events(10)]
                assert sizes == [1, 100_000]

    def test_the_server_has_one_of_another_ca(
        self, secure: EtcdServer, certificates: Certificates, strangers: Certificates
    ) -> None:
        line = _line(secure.settings(tls=replace(certificates.tls, ca=strangers.ca)))
        assert "its certificate is refused here: " in line
        assert f"it must be signed by {strangers.ca}, for the name in the address" in line

    def test_the_system_does_not_know_the_ca(self, secure: EtcdServer, certificates: Certificates) -> None:
        assert _line(secure.settings(tls=replace(certificates.tls, ca=None))).endswith("set the CA that has signed it")

    def test_the_client_has_none(self, secure: EtcdServer, certificates: Certificates) -> None:
        line = _line(secure.settings(tls=Tls(certificates.ca)))
        assert "a certificate of this client" in line  # asked for, or perhaps: the server's reason may come too late

    def test_the_client_has_one_of_another_ca(
        self, secure: EtcdServer, certificates: Certificates, strangers: Certificates
    ) -> None:
        line = _line(secure.settings(tls=replace(strangers.tls, ca=certificates.ca)))
        assert f"the certificate of this client, {strangers.tls.certificate}" in line  # refused, or perhaps not trusted

    def test_tls_is_missing(self, secure: EtcdServer) -> None:
        assert _line(secure.settings()).endswith("if it speaks TLS, write etcds:// for its address")

    def test_tls_is_too_much(self, etcd: EtcdServer, certificates: Certificates) -> None:
        line = _line(etcd.settings(tls=certificates.tls))
        assert "does it speak TLS (else write etcd://), and does it trust" in line

    @pytest.mark.parametrize("kind", [ssl.SSLZeroReturnError, ssl.SSLEOFError, ConnectionResetError])
    def test_a_connection_may_be_closed_in_several_ways(self, kind: type[OSError], certificates: Certificates) -> None:
        settings = EtcdSettings((Endpoint("127.0.0.1", 1),), certificates.tls)
        assert "does it speak TLS (else write etcd://), and does it trust" in str(connection_fault(kind(), settings))

    def test_files_are_named(self, tmp_path: Path, certificates: Certificates, strangers: Certificates) -> None:
        own = certificates.tls
        assert own.key is not None
        encrypted, text = tmp_path / "encrypted.key", tmp_path / "text.pem"
        _openssl("ec", "-in", own.key, "-aes128", "-passout", "pass:geheim", "-out", encrypted)
        text.write_text("no certificate")
        mismatch = f"{own.certificate} and {strangers.tls.key}: the key belongs to another certificate"
        assert _file_fault(Tls(tmp_path / "none.pem")) == f"{tmp_path / 'none.pem'}: No such file or directory"
        assert _file_fault(Tls(text)) == f"{text}: holds no certificate in PEM"
        assert _file_fault(replace(own, key=strangers.tls.key)) == mismatch
        assert _file_fault(replace(own, key=tmp_path / "none.key")).endswith("none.key: No such file or directory")
        assert "or the key is encrypted" in _file_fault(replace(own, key=encrypted))
        assert "are no certificate and its key in PEM" in _file_fault(replace(own, certificate=text))


def _file_fault(tls: Tls) -> str:
    with pytest.raises(EtcdError) as error:
        EtcdClient(EtcdSettings((Endpoint("127.0.0.1", 1),), tls))
    return str(error.value)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A server with users: root, and one that may only write below /lookout/."""
    server = EtcdServer(tmp_path_factory.mktemp("guarded"), "--auth-token-ttl=1", "--bcrypt-cost=4")
    with closing(server):
        server.start()
        for command in (
            "user add root:geheim",
            "user add camera:geheim",
            "user grant-role root root",
            "role add fleet",
            "role grant-permission fleet readwrite /lookout/ --prefix",
            "user grant-role camera fleet",
            "auth enable",
        ):
            server.ctl(*command.split())
        yield server


class TestUsers:
    def test_a_user_works_where_it_may(self, guarded: EtcdServer) -> None:
        with closing(EtcdClient(guarded.settings(user=User("camera", Secret("geheim"))))) as client:
            header = client.put(b"/lookout/a", b"1")
            with closing(open_watch(client, b"/lookout/", header.revision)) as watch:
                assert watch.events(10)
        line = _line(guarded.settings(user=User("camera", Secret("geheim"))))
        assert line.endswith("permission denied: 'camera' has no role for these keys")

    def test_a_wrong_password_and_a_wrong_name_are_one_error(self, guarded: EtcdServer) -> None:
        for user in (User("root", Secret("falsch")), User("nobody", Secret("geheim"))):
            assert _line(guarded.settings(user=user)).endswith(f"wrong user or password for '{user.name}'")

    def test_no_user(self, guarded: EtcdServer) -> None:
        assert "it wants a user and a password, and none is set" in _read_fault(guarded.settings())

    def test_a_user_where_there_are_none(self, etcd: EtcdServer) -> None:
        line = _line(etcd.settings(user=ROOT_USER))
        assert "its authentication is not enabled, but a user is set ('root')" in line

    def test_an_expired_token_is_renewed(self, guarded: EtcdServer) -> None:
        """etcd forgets all tokens when it is started again."""
        with closing(EtcdClient(guarded.settings(user=ROOT_USER))) as client:
            lease = client.grant(60).lease
            guarded.kill()
            guarded.start()
            client.put(b"/a", b"1", lease)
            guarded.kill()
            guarded.start()
            client.keep_alive(lease)
            guarded.kill()
            guarded.start()
            with closing(open_watch(client, b"/a", 1)) as watch:
                assert watch.events(10)


def _read_fault(settings: EtcdSettings) -> str:
    with closing(EtcdClient(settings)) as client, pytest.raises(EtcdError) as error:
        client.get(b"/a")
    return str(error.value)


def test_a_full_etcd_says_how_to_empty_it(tmp_path: Path) -> None:
    server = EtcdServer(tmp_path, f"--quota-backend-bytes={2 << 20}")
    with closing(server):
        server.start()
        with closing(EtcdClient(server.settings())) as client:
            lease = client.grant(300).lease
            client.put(b"/lease", b"1", lease)
            with pytest.raises(EtcdError, match="its disk quota is used up, and it takes no writes: see") as error:
                _fill(client)
            assert not isinstance(error.value, EtcdAwayError)
            with pytest.raises(EtcdError, match="`etcdctl defrag`"):
                client.grant(60)
            client.keep_alive(lease)
            client.delete(b"/large")
            _, header = client.get(b"/lease")
            server.ctl("compact", str(header.revision))
            server.ctl("defrag")
            server.ctl("alarm", "disarm")
            client.put(b"/large", b"x")
            client.revoke(lease)
            with pytest.raises(LeaseNotFoundError):
                client.keep_alive(lease)
            assert client.get(b"/lease")[0] is None


def _fill(client: EtcdClient) -> None:
    for _ in range(100):
        client.put(b"/large", b"x" * 100_000)


def test_too_large_a_record_is_refused(etcd: EtcdServer) -> None:
    with closing(EtcdClient(etcd.settings())) as client, pytest.raises(EtcdError, match="a record is too large"):
        client.put(b"/large", b"x" * 2_000_000)
