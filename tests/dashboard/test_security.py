"""What comes to the page's server from people who may not, or do not keep to the rules."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from daemon.config.http import DashboardConfig, HttpConfig, TokenConfig
from daemon.dashboard.muxer import Fragment, Init
from daemon.dashboard.sessions import Sessions
from daemon.dashboard.viewer_queue import ViewerQueue
from daemon.dashboard.viewers import Viewer
from daemon.http import connections
from daemon.http.server import HttpServer
from daemon.redact import Secret
from tests.support.clock import ManualClock
from tests.support.daemon import wait_until
from tests.support.page import Page, address_of
from tests.support.served import Served
from tests.support.websocket import ClosedError, WebSocketClient

_VIEW, _OPERATE = "view-" + "v" * 20, "operate-" + "o" * 20
_TOKENS = [TokenConfig("screen", "view", Secret(_VIEW)), TokenConfig("admin", "operate", Secret(_OPERATE))]
_HOSTILE = int(os.environ.get("LOOKOUT_HOSTILE_REQUESTS", "6000"))  # and two thirds as many frames
_SLOW = int(os.environ.get("LOOKOUT_SLOW_VIEWERS", "500"))
_PROTECTED = (
    "/api/daemons",
    "/api/sources",
    "/api/still/here/street-0",
    "/api/events",
    "/api/events/here/x/snapshot",
    "/api/health/here",
    "/api/sources/here/street-0/config",
    "/api/sources/here/street-0/recent",
)


_OPEN = ("/api/session", "/api/login", "/api/logout")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("security")) as found:
        yield found


@pytest.fixture(scope="module")
def page(served: Served) -> Iterator[Page]:
    config = DashboardConfig(tokens=_TOKENS, max_viewers=400, hosts=["cams.example"])
    with Page([address_of(served)], config) as found:
        yield found


def _cookie(page: Page, token: str) -> str:
    with httpx.Client(base_url=page.url, headers={"Origin": page.url}) as client:
        answer = client.post("/api/login", json={"token": token})
        assert answer.status_code == 204
        said = answer.headers["set-cookie"]
        assert "HttpOnly" in said
        assert "SameSite=strict" in said
        return said.partition(";")[0]


@pytest.fixture(scope="module")
def viewer(page: Page) -> str:
    return _cookie(page, _VIEW)


@pytest.fixture(scope="module")
def operator(page: Page) -> str:
    return _cookie(page, _OPERATE)


def test_without_a_login_there_is_the_page_and_nothing_in_it(page: Page) -> None:
    assert page.client.get("/").is_success
    assert page.get("/api/session")["role"] == "none"
    assert {page.client.get(path).status_code for path in _PROTECTED} == {401}
    assert page.client.post("/api/sources/here", json={}).status_code == 401
    for path in ("/api/feed", "/api/live/here/street-0"):
        for headers in ({}, {"cookie": f"lookout_{page.port}=" + "A" * 43}):
            with pytest.raises(ClosedError, match="403"):
                page.socket(path, **headers)


def test_each_route_of_the_api_needs_a_login(page: Page) -> None:
    rows = [row for row in page.dashboard._app.routes if isinstance(row, Route) and row.path.startswith("/api/")]
    asked = [(method, row.path) for row in rows for method in (row.methods or set()) - {"HEAD"}]
    for method, path in asked:
        named = path.format(d="here", s="street-0", id="x", command="drain")
        expected = {401} if path not in _OPEN else {200, 204, 400, 415}
        assert page.client.request(method, named).status_code in expected, (method, path)
    assert len(asked) > 15


def test_roles(page: Page, viewer: str, operator: str) -> None:
    seen, changed = {"Cookie": viewer}, {"Cookie": operator}
    assert page.client.get("/api/sources", headers=seen).is_success
    assert page.client.patch("/api/sources/here/street-0", json={"max_fps": 5}, headers=seen).status_code == 403
    assert page.client.delete("/api/sources/here/street-0", headers=seen).status_code == 403
    assert page.client.patch("/api/sources/here/street-0", json={"max_fps": 5}, headers=changed).is_success
    assert page.client.patch("/api/sources/here/street-0", json={"max_fps": None}, headers=changed).is_success
    with page.socket("/api/feed", cookie=viewer) as feed:
        assert feed.until("daemon")["name"] == "here"


def test_a_session_ends(page: Page) -> None:
    cookie = {"Cookie": _cookie(page, _VIEW)}
    assert page.client.get("/api/daemons", headers=cookie).is_success
    with (
        page.socket("/api/feed", cookie=cookie["Cookie"]) as feed,
        page.socket("/api/live/here/street-0", cookie=cookie["Cookie"]) as live,
    ):
        assert feed.until("daemon")["name"] == "here"
        assert page.client.post("/api/logout", headers=cookie).status_code == 204
        assert page.client.get("/api/daemons", headers=cookie).status_code == 401
        for socket in (feed, live):  # other tabs
            socket.send({"got": 1})
            with pytest.raises(ClosedError, match="1008"):
                socket.until("nothing that comes")


@pytest.mark.parametrize("origin", ["", "null", "http://evil.example", "http://127.0.0.1", "http://[", "file://"])
def test_a_change_of_another_origin_is_refused(page: Page, operator: str, origin: str) -> None:
    headers = {"Cookie": operator, "Origin": origin}
    kinds = ("application/json", "text/plain")
    for kind in kinds:
        answer = page.client.post("/api/sources/here", content=b"{}", headers={**headers, "Content-Type": kind})
        assert answer.status_code == 403
    assert page.client.delete("/api/sources/here/street-0", headers=headers).status_code == 403
    with pytest.raises(ClosedError, match="403"):
        page.socket("/api/feed", cookie=operator, origin=origin)


def test_what_a_form_can_send_is_refused_even_with_the_origin(page: Page, operator: str) -> None:
    headers = {"Cookie": operator, "Content-Type": "text/plain"}
    assert page.client.post("/api/sources/here", content=b"{}", headers=headers).status_code == 415
    site = {"Cookie": operator, "Sec-Fetch-Site": "cross-site"}
    assert page.client.post("/api/sources/here", json={}, headers=site).status_code == 403
    large = page.client.post(
        "/api/sources/here", content=b"[" * 70_000, headers={**headers, "Content-Type": "application/json"}
    )
    assert large.status_code == 413


def test_another_site_may_link_and_not_embed(page: Page, viewer: str) -> None:
    """An image in somebody else's page is not answered, even if the answer could not be read there."""
    for site, mode, status in (
        ("cross-site", "no-cors", 403), ("same-site", "cors", 403), ("cross-site", "navigate", 200),
        ("same-origin", "cors", 200), ("none", "navigate", 200),
    ):  # fmt: skip
        headers = {"Cookie": viewer, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
        assert page.client.get("/api/sources", headers=headers).status_code == status
        assert page.client.get("/", headers=headers).status_code == 200


def test_a_name_that_resolves_to_this_machine_is_not_the_page(page: Page, operator: str) -> None:
    """DNS rebinding: the browser sends the attacker's name, and Origin is the same."""
    for host, status in (("evil.example", 403), ("10.0.0.1", 403), ("cams.example", 200), ("localhost", 200)):
        headers = {"Host": f"{host}:{page.port}", "Origin": f"http://{host}:{page.port}", "Cookie": operator}
        assert page.client.get("/api/daemons", headers=headers).status_code == status
    with pytest.raises(ClosedError, match="403"):
        page.socket("/api/feed", cookie=operator, host=f"evil.example:{page.port}")


def test_attempts_are_limited_by_address_and_altogether() -> None:
    clock = ManualClock()
    sessions = Sessions(DashboardConfig(tokens=_TOKENS), clock)
    assert [sessions.wait_s("a") > 0 for _ in range(7)] == [False] * 5 + [True] * 2
    assert sessions.wait_s("b") == 0
    clock.advance(10)
    assert sessions.wait_s("a") == 0
    waits = [sessions.wait_s(f"10.0.{number // 256}.{number % 256}") for number in range(10_000)]
    assert sum(wait == 0 for wait in waits) <= 50
    assert len(sessions._addresses) <= 4096


def test_wrong_tokens_are_refused_then_slowed(page: Page) -> None:
    """The last test that logs in: this address has no attempt left."""
    with httpx.Client(base_url=page.url, headers={"Origin": page.url}) as client:
        codes = Counter(
            client.post("/api/login", json={"token": f"wrong-{number}"}).status_code for number in range(20)
        )
        late = client.post("/api/login", json={"token": _OPERATE})
    assert set(codes) <= {401, 429}
    assert codes[429] >= 14
    assert int(late.headers["retry-after"]) >= 1


def _hostile(random: random.Random, port: int) -> bytes:
    """A request that nobody should send."""
    path = random.choice([*_PROTECTED, "/api/login", "/api/feed", "/static/../x", "/" + "a" * random.choice([1, 9000])])
    method = random.choice(["GET", "POST", "PATCH", "DELETE", "PUT", "TRACE", "X" * 20])
    host = random.choice([f"127.0.0.1:{port}", "evil.example", "", "[::1", "127.0.0.1:port"])
    body = random.choice([b"", b"{}", b"[" * 5000, random.randbytes(300), b'{"token":"' + b"x" * 2000 + b'"}'])
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
    lines += random.sample(
        [
            f"Origin: http://127.0.0.1:{port}",
            "Origin: null",
            "Cookie: lookout=" + "=;,\\x" * 50,
            f"Cookie: lookout_{port}=" + "A" * 43,
            "Transfer-Encoding: chunked",
            "Content-Type: application/json",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
            "Authorization: Bearer x",
            "X: " + "y" * 3000,
        ],
        4,
    )
    lines += [f"Content-Length: {random.choice([len(body), len(body), 10**12, -1])}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def _flood(page: Page, seed: int, count: int, codes: Counter[str]) -> None:
    source = random.Random(seed)
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", page.port), 30) as connection:
            try:
                connection.sendall(_hostile(source, page.port))
                connection.shutdown(socket.SHUT_WR)
                codes[connection.recv(12)[9:12].decode(errors="replace")] += 1
            except OSError:
                codes["cut off"] += 1


def _frames(page: Page, cookie: str, seed: int, count: int, codes: Counter[str]) -> None:
    """Messages to a feed, and frames that are none."""
    source, left = random.Random(seed), count
    while left > 0:
        with page.socket("/api/feed", cookie=cookie) as feed:
            try:
                for _ in range(source.randint(1, 100)):
                    left -= 1
                    if source.random() < 0.1:
                        feed.socket.sendall(source.randbytes(source.choice([2, 20, 2000])))
                    else:
                        feed.send(
                            source.choice(['{"sources":[]}', "{}", "[", "null", '{"sources":[["here"]]}', "x" * 20_000])
                        )
            except OSError:
                codes["cut off"] += 1


def test_a_flood_changes_nothing_and_nobody_gets_in(page: Page, served: Served, viewer: str) -> None:
    before = served.client.get("/api/v1/sources").json()
    codes: Counter[str] = Counter()
    with page.socket("/api/feed", cookie=viewer) as honest:
        honest.send({"sources": [["here", "street-0"]]})
        threads = [threading.Thread(target=_flood, args=(page, seed, _HOSTILE // 4, codes)) for seed in range(4)]
        threads.append(threading.Thread(target=_frames, args=(page, viewer, 5, _HOSTILE * 2 // 3, codes)))
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):  # who does not read answers no ping, and is sent away
            honest.until("detections")
        assert honest.until("detections")["message"]["source"] == "street-0"
    assert {code for code in codes if code.startswith("2")} <= {"200"}  # the session's, and pages
    assert codes["101"] == 0
    after = served.client.get("/api/v1/sources").json()
    assert [row["config"] for row in after] == [row["config"] for row in before]
    wait_until(lambda: page.dashboard.hub.viewers == 0, "all viewers are gone")
    assert page.client.get("/api/sources", headers={"Cookie": viewer}).is_success


def test_slow_viewers_cost_their_own_pictures_alone(page: Page, viewer: str) -> None:
    """They do not read. Beyond the limit they are turned away; who came before them goes on."""
    with page.socket("/api/feed", cookie=viewer) as honest:
        honest.send({"sources": [["here", "street-0"]]})
        slow: list[WebSocketClient] = []
        refused = 0
        try:
            for _ in range(_SLOW):
                try:
                    slow.append(page.socket("/api/feed", cookie=viewer))
                except ClosedError:
                    refused += 1
                    continue
                slow[-1].send({"sources": [["here", "street-0"], ["here", "street-1"]]})
            assert (len(slow), refused) == (399, _SLOW - 399)
            first = honest.until("detections")["message"]["seq"]
            while honest.until("detections")["message"]["seq"] < first + 10:
                pass
        finally:
            for one in slow:
                one.close()
    wait_until(lambda: page.dashboard.hub.viewers == 0, "all viewers are gone")


def test_a_queue_is_bounded_and_says_how_much_it_left_out() -> None:
    viewer = Viewer(ManualClock())
    for number in range(20_000):
        viewer.put(b'{"kind":"x","number":%d}' % number)
    assert len(viewer._queue) <= 5000
    for _ in range(100):
        viewer.put(b'"' + b"x" * 100_000 + b'"')
    assert viewer._bytes <= 2 << 20
    assert len(viewer._queue) + viewer._skipped == 20_100


def test_a_slow_viewer_of_live_video_goes_on_at_a_key_picture() -> None:
    queue = ViewerQueue(("here", "cam"), ManualClock())
    queue.begin(Init("video/mp4", "s", 0, 16, 16, 0, b"init"))
    for number in range(100):
        queue.show(Fragment(b"x" * 100_000, number % 10 == 0, 1))
        assert queue._bytes <= (4 << 20) + 100_000
    rows = [row if isinstance(row, str) else len(row) for row in iter(queue.poll, None)]
    assert "init" in str(rows[0])  # the beginning of the stream is not lost
    left_out = sum(msgspec.json.decode(row)["frames"] for row in rows if isinstance(row, str) and "skipped" in row)
    assert left_out > 0
    shown = sum(row == 100_008 for row in rows)
    assert left_out + shown + queue._skipped + len(queue._queue) == 100


def test_a_client_that_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READ_S", 0.2)
    ended = threading.Event()

    async def flood(connection: WebSocket) -> None:
        await connection.accept()
        gone = asyncio.ensure_future(connection.receive())
        with suppress(WebSocketDisconnect, RuntimeError, OSError):
            while not gone.done():
                await connection.send_bytes(b"x" * 65536)
                await asyncio.sleep(0)
        ended.set()

    server = HttpServer(HttpConfig(enabled=True, port=0), "test")
    server.mount(Starlette(routes=[WebSocketRoute("/", flood)]), connections.limited_websockets())
    server.start()
    try:
        with WebSocketClient(server.port, "/"):
            assert ended.wait(60)
    finally:
        server.stop(5.0)
