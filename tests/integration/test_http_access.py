"""Who is let in over HTTP, what is told without a token, and what connections may take."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from daemon.config.http import HttpConfig
from daemon.config.load import parse
from daemon.errors import ConfigError
from daemon.http import connections
from daemon.http.server import HttpServer
from tests.support.daemon import PATIENCE_S, wait_until
from tests.support.hostile import is_cut_off
from tests.support.ports import free_port
from tests.support.served import Served, street

_VIEW, _OPERATE = "the-token-of-the-wall-screen", "the-token-of-the-operator"
_TOKENS = [
    {"name": "screen", "role": "view", "token": _VIEW},
    {"name": "operator", "role": "operate", "token": _OPERATE},
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("access"), {"tokens": _TOKENS}) as served:
        yield served
        assert served.lookout.stop() == 0
        assert "Traceback" not in served.lookout.log()


def _lines(served: Served, event: str) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in served.lookout.log().splitlines()]
    return [row for row in rows if row["event"] == event]


def test_a_role_says_what_its_holder_may_do(served: Served) -> None:
    with served.client_with(_VIEW) as screen:
        assert screen.get("/api/v1/sources").status_code == 200
        assert screen.get("/api/v1/sources/street-0/snapshot.jpg").status_code == 200
        for method, path in (("POST", "sources"), ("PUT", "sources/street-0"), ("PATCH", "sources/street-0"),
                             ("DELETE", "sources/street-0"), ("POST", "reload")):  # fmt: skip
            answer = screen.request(method, f"/api/v1/{path}", json={})
            assert (answer.status_code, "its role must be operate" in answer.text) == (403, True)


def test_it_is_logged_who_changes_a_source(served: Served) -> None:
    with served.client_with(_OPERATE) as operator:
        assert operator.post("/api/v1/sources", json=street("audited")).status_code == 201
        for rate in range(1, 31):
            assert operator.patch("/api/v1/sources/audited", json={"max_fps": rate}).status_code == 200
        assert operator.delete("/api/v1/sources/audited").status_code == 204
    for event, count in (("source added", 1), ("source changed", 30), ("source removed", 1)):
        rows = [row for row in _lines(served, event) if row["source"] == "audited"]
        assert len(rows) == count
        for row in rows:
            assert (row["by"], row["peer"], row["persisted"]) == ("operator", "127.0.0.1", False)
            assert row.get("keys") == (["max_fps"] if event == "source changed" else None)


def test_wrong_tokens_are_counted_and_told_once_a_minute(served: Served) -> None:
    with served.client_with("a-token-that-is-not-right") as guesser:
        assert {guesser.get("/api/v1/config").status_code for _ in range(50)} == {401}
    (line,) = [
        line
        for line in served.client.get("/metrics").text.splitlines()
        if line.startswith("lookout_http_refused_total ")
    ]
    assert float(line.split()[1]) >= 50
    (row,) = _lines(served, "http: requests without a valid token")
    assert row["last_peer"] == "127.0.0.1"
    assert _VIEW not in served.lookout.log()


def test_a_reload_takes_other_tokens(tmp_path: Path) -> None:
    """The new one counts, the old one does not; what is too short to be one changes nothing."""
    with Served(tmp_path, {"tokens": _TOKENS}) as served:
        file = tmp_path / "config.yaml"
        whole = yaml.safe_load(file.read_text())

        def reload_with(token: str) -> None:
            whole["http"]["tokens"] = [{"name": "screen", "token": token}]
            file.write_text(yaml.safe_dump(whole))
            served.lookout.process.send_signal(signal.SIGHUP)

        with served.client_with(_VIEW) as old, served.client_with("another-token-for-the-screen") as new:
            assert (old.get("/api/v1/config").status_code, new.get("/api/v1/config").status_code) == (200, 401)
            reload_with("another-token-for-the-screen")
            wait_until(lambda: new.get("/api/v1/config").status_code == 200, "the new one counts")
            assert old.get("/api/v1/config").status_code == 401
            reload_with("short")
            wait_until(lambda: "is shorter than 16 characters" in served.lookout.log(), "it is refused")
            assert new.get("/api/v1/config").status_code == 200


def test_whoever_is_on_this_machine_sees_figures(served: Served) -> None:
    """With a token configured, too; a page of another name that points here does not."""
    with served.client_with(None) as anybody:
        assert anybody.get("/metrics").status_code == 200
        assert anybody.get("/openapi.json").status_code == 200
        assert anybody.get("/metrics", headers={"Host": f"localhost:{served.port}"}).status_code == 200
        for host in ("evil.example", f"evil.example:{served.port}", "[::2]", ""):
            assert anybody.get("/metrics", headers={"Host": host}).status_code in (400, 401)
            assert anybody.get("/ready", headers={"Host": host}).status_code in (200, 400)


def test_elsewhere_only_whether_it_works_is_free(tmp_path: Path) -> None:
    """What does not work names parts and sources."""
    gone = {"id": "gone", "type": "av", "url": f"rtsp://127.0.0.1:{free_port()}/none"}
    sources = [street("street-0"), street("street-1"), gone]
    with Served(tmp_path, {"host": "0.0.0.0"}, sources=sources) as served, served.client_with(None) as anybody:  # noqa: S104
        wait_until(lambda: anybody.get("/ready").json() == {"ok": True, "reasons": []}, "a street is up")
        assert anybody.get("/metrics").status_code == 401
        assert anybody.get("/openapi.json").status_code == 401
        for id in ("street-0", "street-1"):
            assert served.client.delete(f"/api/v1/sources/{id}").status_code == 204
        wait_until(lambda: served.client.get("/ready").status_code == 503, "no source is up")
        assert "gone" in served.client.get("/ready").text
        assert anybody.get("/ready").json() == {"ok": False, "reasons": []}


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_a_foreign_page_could_send_is_not_taken(served: Served, kind: str) -> None:
    body = json.dumps(street("foreign")).encode()
    answer = served.client.post("/api/v1/sources", content=body, headers={"Content-Type": kind})
    assert (answer.status_code, "application/json" in answer.json()["error"]) == (415, True)


def test_a_request_of_two_lengths_is_refused_and_the_connection_closed(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as peer:
        peer.sendall(
            b"POST /api/v1/sources HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\n\r\nGET /live HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        found = b""
        while part := peer.recv(4096):
            found += part
    assert found.startswith(b"HTTP/1.1 400 ")
    assert found.count(b"HTTP/1.1") == 1


_HALF_A_HEADER = b"GET /live HTTP/1.1\r\nHost: "
_HALF_A_BODY = (
    b"POST /api/v1/sources HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Authorization: Bearer " + _OPERATE.encode() + b"\r\nContent-Length: 60000\r\n\r\n{"
)


@pytest.mark.parametrize("half", [_HALF_A_HEADER, _HALF_A_BODY])
def test_half_requests_do_not_keep_others_out(served: Served, half: bytes) -> None:
    """More connections than there may be, each with half a request: those that are longest there go."""
    peers = []
    for _ in range(600):
        peer = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S)
        peer.sendall(half)
        peers.append(peer)
    try:
        with served.client_with(None) as probe:
            assert {probe.get("/live").status_code for _ in range(5)} == {200}
    finally:
        for peer in peers:
            peer.close()


def test_a_snapshot_of_a_source_that_is_not_up_is_refused_at_once(served: Served) -> None:
    camera = {"id": "gone", "type": "av", "url": f"rtsp://127.0.0.1:{free_port()}/none"}
    assert served.client.post("/api/v1/sources", json=camera).status_code == 201
    answer = served.client.get("/api/v1/sources/gone/snapshot.jpg")
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("the source 'gone' is ")
    assert served.client.delete("/api/v1/sources/gone").status_code == 204


class _Server:
    """The server alone, with one page and one that has no end."""

    def __init__(self) -> None:
        self.nodelay: list[int] = []
        self.server = HttpServer(HttpConfig(enabled=True, port=free_port()))
        self.server.mount(Starlette(routes=[Route("/", self._page), Route("/endless", self._endless)]))
        self.server.start()

    async def _page(self, _: Request) -> Response:
        assert self.server._server is not None
        for connection in self.server._server.server_state.connections:
            found: socket.socket = connection.transport.get_extra_info("socket")
            self.nodelay.append(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        return PlainTextResponse("here")

    async def _endless(self, _: Request) -> Response:
        async def zeros() -> AsyncIterator[bytes]:
            while True:
                yield bytes(1 << 20)
                await asyncio.sleep(0)  # a send to a closed connection gives nobody a turn

        return StreamingResponse(zeros())

    def connect(self, *lines: bytes) -> socket.socket:
        peer = socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE_S)
        peer.sendall(b"\r\n".join(lines))
        return peer

    def __enter__(self) -> _Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop(PATIENCE_S)


def test_an_answer_does_not_wait_for_more_to_send() -> None:
    """Nagle's algorithm holds an answer's second part back until the first is acknowledged, which takes 40 ms."""
    with _Server() as server, server.connect(b"GET / HTTP/1.1", b"Host: x", b"", b"") as peer:
        assert peer.recv(4096).startswith(b"HTTP/1.1 200")
        assert server.nodelay == [1]


@pytest.mark.parametrize("lines", [(), (b"GET / HTTP/1.1",), (b"GET / HTTP/1.1", b"Host: x", b"", b"GET / HT")])
def test_a_request_has_only_so_long_to_come(lines: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of a connection, and any other."""
    monkeypatch.setattr(connections, "REQUEST_S", 0.1)
    with _Server() as server:
        assert is_cut_off(server.connect(*lines))


def test_an_answer_has_only_so_long_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ANSWER_S", 0.1)
    with _Server() as server:
        peer = server.connect(b"GET /endless HTTP/1.1", b"Host: x", b"", b"")
        assert peer.recv(1)
        state = server.server._server
        wait_until(lambda: state is not None and not state.server_state.connections, "it is cut off")
        peer.close()


@pytest.mark.parametrize(
    ("http", "words"),
    [
        ("tokens: [{name: a}]", r"http.tokens\[0\]: set one of token and token_file"),
        ("tokens: [{name: a, token: b, token_file: c}]", r"http.tokens\[0\]: set one of"),
        ("tokens: [{name: a, token: b}, {name: a, token: c}]", "'a' is used twice"),
        ("tokens: [{name: a, role: admin, token: b}]", "one of operate, view, not 'admin'"),
    ],
)
def test_bad_tokens(http: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(f"model: {{path: m}}\nsources: [{{id: a, type: synthetic}}]\nhttp: {{enabled: true, {http}}}\n")
