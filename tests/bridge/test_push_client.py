"""The client of pushes: whom it reaches, and what a server can do to it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic

import pytest

from daemon.bridge.port import AwayError
from daemon.bridge.push.client import MAX_BODY, PushClient, server_of
from daemon.bridge.push.names import Names
from daemon.bridge.push.port import RefusedError
from daemon.config.targets import PushBase
from daemon.errors import ConfigError
from daemon.system.http_client import HttpRequest, SocketAddress
from tests.fleet.etcd_server import Certificates
from tests.support.pushes import HERE, PushServer, Reply, raw_server

LONG_S = 300.0
ASK = HttpRequest("POST", "/hook", b"{}")


def target(**more: object) -> PushBase:
    return PushBase(name="hook", **more)  # type: ignore[arg-type]


def told(*addresses: str) -> Names:
    """Names that lead to these addresses, one each time it is asked, and then to the last."""
    rows = list(addresses)

    def lookup(_host: str, port: int, _left_s: float) -> Sequence[SocketAddress]:
        address = rows.pop(0) if len(rows) > 1 else rows[0]
        return [(socket.AF_INET6 if ":" in address else socket.AF_INET, (address, port))]

    return Names(lookup)


def refusal(url: str, names: Names | None = None, limit_s: float = LONG_S, **more: object) -> str:
    client = PushClient(target(**more), server_of(url), names or Names())
    with pytest.raises(AwayError) as caught:
        client.exchange(ASK, monotonic() + limit_s)
    client.close()
    return str(caught.value)


def test_a_request_has_its_name_and_is_answered() -> None:
    with PushServer(lambda _: Reply(202, b"fine")) as server:
        settings = target(allow=HERE, allow_plaintext=True)
        client = PushClient(settings, server_of(server.url(host="hook.example")), told("127.0.0.1"))
        answers = [client.exchange(ASK, monotonic() + LONG_S) for _ in range(3)]
        client.close()
    assert [(answer.status, answer.content) for answer in answers] == [(202, b"fine")] * 3
    assert {asked.headers["host"] for asked in server.asked} == {f"hook.example:{server.port}"}
    assert len({asked.peer for asked in server.asked}) == 1  # the connection is kept


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "169.254.169.254", "10.1.2.3", "0.0.0.0", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "fd00::1",  # noqa: S104
     "fe80::1", "ff02::1", "100.64.1.1"],
)  # fmt: skip
def test_a_name_that_leads_into_a_network_is_refused(address: str) -> None:
    assert "add its network to `allow`" in refusal("https://hook.example/x", told(address))


@pytest.mark.parametrize("host", ["127.1", "0x7f000001", "2130706433", "0177.0.0.1", "[::ffff:7f00:1]", "localhost"])
def test_odd_forms_of_an_address_are_judged_as_what_they_are(host: str) -> None:
    with PushServer() as server:
        assert "allow" in refusal(f"http://{host}:{server.port}/x", allow_plaintext=True)
        assert not server.asked


def test_one_bad_address_among_good_ones_is_enough() -> None:
    rows: list[SocketAddress] = [(socket.AF_INET, ("1.1.1.1", 443)), (socket.AF_INET, ("10.0.0.1", 443))]
    assert "10.0.0.1 is private" in refusal("https://hook.example/x", Names(lambda *_: rows))


def test_the_address_that_was_judged_is_the_one_that_is_reached() -> None:
    """A name that leads elsewhere a moment later is asked once for each connection."""
    lookups: list[str] = []

    def lookup(host: str, port: int, _left_s: float) -> Sequence[SocketAddress]:
        lookups.append(host)
        return [(socket.AF_INET, ("127.0.0.1" if len(lookups) == 1 else "127.0.0.2", port))]

    names = Names(lookup)
    with PushServer() as server:
        url = server.url(host="rebound.example")
        client = PushClient(target(allow=["127.0.0.1"], allow_plaintext=True), server_of(url), names)
        for _ in range(2):
            client.exchange(ASK, monotonic() + LONG_S)
        assert len(lookups) == 1
        client.close()
        later = refusal(url, names, allow=["127.0.0.1"], allow_plaintext=True)
        assert "127.0.0.2 is of this machine" in later
    assert len(server.asked) == 2


def test_plaintext_to_another_machine_is_refused() -> None:
    assert "can be read on the way" in refusal("http://hook.example/x", told("10.0.0.1"), allow=["10.0.0.0/8"])
    with PushServer() as server:
        client = PushClient(target(allow=HERE), server_of(server.url()))
        answer = client.exchange(ASK, monotonic() + LONG_S)
        client.close()
    assert answer.status == 200


def test_a_name_server_that_hangs_costs_the_limit_and_one_thread() -> None:
    begun, hanging, lookups = threading.Event(), threading.Event(), list[str]()

    def lookup(host: str, _port: int, _left_s: float) -> Sequence[SocketAddress]:
        lookups.append(host)
        begun.set()
        hanging.wait()
        return []

    names = Names(lookup)
    for _ in range(5):
        assert "in time" in refusal("https://slow.example/x", names, 0.05)
    assert begun.wait(LONG_S)
    assert lookups == ["slow.example"]
    hanging.set()


def test_a_name_that_is_not_known_is_said_without_the_path() -> None:
    def lookup(*_: object) -> Sequence[SocketAddress]:
        raise socket.gaierror(-2, "Name or service not known")

    assert refusal("https://typo.example/secret-path", Names(lookup)) == "typo.example: its name is not known"


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with PushServer() as proxy, PushServer() as server:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, proxy.url(""))
        client = PushClient(target(allow=HERE), server_of(server.url()))
        client.exchange(ASK, monotonic() + LONG_S)
        client.close()
        assert (len(server.asked), len(proxy.asked)) == (1, 0)


def test_a_body_is_bounded() -> None:
    client = PushClient(target(), server_of("https://hook.example"), told("127.0.0.1"))
    with pytest.raises(RefusedError, match="bytes; at most"):
        client.exchange(HttpRequest("POST", "/", bytes(MAX_BODY + 1)), monotonic() + LONG_S)


# --- servers that misbehave ------------------------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\n"
Serve = Callable[[socket.socket, threading.Event], None]


def _silent(end: socket.socket, ending: threading.Event) -> None:
    end.recv(65536)
    ending.wait()


def _head_without_end(end: socket.socket, ending: threading.Event) -> None:
    end.recv(65536)
    end.sendall(HEAD)
    while not ending.is_set():
        end.sendall(b"X-More: " + b"x" * 60_000 + b"\r\n")


def _no_http(end: socket.socket, ending: threading.Event) -> None:
    end.recv(65536)
    end.sendall(b"220 mail.example ESMTP s3cret\r\n" * 3)
    ending.wait()


def _closed(end: socket.socket, _: threading.Event) -> None:
    end.recv(65536)


@pytest.mark.parametrize(
    ("serve", "limit_s", "reason"),
    [
        (_silent, 1.0, "does not answer in time"),
        (_head_without_end, LONG_S, "no HTTP, or more than 64 KiB"),
        (_no_http, LONG_S, "no HTTP"),
        (_closed, LONG_S, "closed the connection"),
    ],
)
def test_servers_that_misbehave_cost_the_limit_at_most(serve: Serve, limit_s: float, reason: str) -> None:
    with raw_server(serve) as port:
        found = refusal(f"http://127.0.0.1:{port}/s3cret", limit_s=limit_s, allow=HERE)
    assert reason in found
    assert "s3cret" not in found


@pytest.mark.parametrize("content", [b"x", b"1\r\nx\r\n"])
def test_a_status_counts_whatever_follows_it(content: bytes) -> None:
    """Bytes that drip, or do not end: the record is there, and sending it again would not help."""
    frame = b"Transfer-Encoding: chunked" if b"\r" in content else b"Content-Length: 9999"

    def dripping(end: socket.socket, ending: threading.Event) -> None:
        end.recv(65536)
        end.sendall(HEAD + frame + b"\r\n\r\n")
        while not ending.wait(0.01):
            end.sendall(content)

    with raw_server(dripping) as port:
        client = PushClient(target(allow=HERE), server_of(f"http://127.0.0.1:{port}/x"))
        answer = client.exchange(ASK, monotonic() + 1.5)
        assert (answer.status, answer.is_whole) == (200, False)
        client.close()


def test_a_request_that_hangs_is_ended_from_another_thread() -> None:
    begun, errors = threading.Event(), list[AwayError]()

    def hanging(end: socket.socket, ending: threading.Event) -> None:
        end.recv(65536)
        begun.set()
        ending.wait()

    with raw_server(hanging) as port:
        client = PushClient(target(allow=HERE), server_of(f"http://127.0.0.1:{port}/x"))

        def ask() -> None:
            try:
                client.exchange(ASK, monotonic() + LONG_S)
            except AwayError as error:
                errors.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        assert begun.wait(LONG_S)
        client.close()
        thread.join(LONG_S)
        client.close()
    assert len(errors) == 1


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("push-tls"))


@pytest.fixture(scope="module")
def hook(certificates: Certificates) -> Iterator[PushServer]:
    with PushServer(certificate=certificates.signed("hook", "subjectAltName=DNS:hook.example")) as server:
        yield server


@pytest.mark.needs("openssl")
def test_the_certificate_is_checked_against_the_name(hook: PushServer, certificates: Certificates) -> None:
    settings = target(allow=HERE, ca_file=certificates.ca)
    client = PushClient(settings, server_of(hook.url(host="hook.example")), told("127.0.0.1"))
    answer = client.exchange(ASK, monotonic() + LONG_S)
    client.close()
    assert answer.status == 200
    before = len(hook.asked)
    for host in ("other.example", "127.0.0.1"):
        reason = refusal(hook.url(host=host), told("127.0.0.1"), allow=HERE, ca_file=certificates.ca)
        assert "its certificate is refused" in reason
    assert "its certificate is refused" in refusal(hook.url(host="hook.example"), told("127.0.0.1"), allow=HERE)
    assert len(hook.asked) == before


def test_a_handshake_that_hangs_costs_the_limit() -> None:
    with raw_server(_silent) as port:
        assert "in time" in refusal(f"https://127.0.0.1:{port}/x", limit_s=0.2, allow=HERE)


def test_a_server_without_tls_is_said() -> None:
    with PushServer() as server:
        assert "TLS fails" in refusal(f"https://127.0.0.1:{server.port}/x", allow=HERE)


@pytest.mark.parametrize(("name", "content"), [("missing.pem", None), ("empty.pem", "nothing")])
def test_a_file_without_certificates_is_a_mistake(tmp_path: Path, name: str, content: str | None) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=f"ca_file: .*{name}"):
        PushClient(target(ca_file=tmp_path / name), server_of("https://hook.example"))
