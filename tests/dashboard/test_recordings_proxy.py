"""Recordings through the page: what comes is what the daemon has, and what the page passes on is no more than that."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from daemon.config.http import DashboardConfig, HttpConfig, TokenConfig
from daemon.config.recording import RecordConfig, StoreConfig
from daemon.dashboard import recordings
from daemon.peers.addresses import DaemonAddress
from daemon.redact import Secret
from tests.lifetimes.running import STREET, running
from tests.recording.playback_rig import HTTP, OPERATE, Recorded, recorded
from tests.support.daemon import PATIENCE_S, wait_until
from tests.support.events import logged
from tests.support.page import Page
from tests.support.ports import free_port
from tests.support.told_recordings import ToldRecordings

_VIEW, _GUARD = "view-" + "v" * 20, "operate-" + "o" * 20
_TOKENS = [TokenConfig("screen", "view", Secret(_VIEW)), TokenConfig("guard", "operate", Secret(_GUARD))]
_HOSTILE = 600
_KNOWN = re.compile(
    rb"/api/v1/(?:recordings(?:/[^/?]+/(?:spans|fragments|tracks|activity|still|locks|clip\.mp4|exports)"
    rb"|/files/[0-9a-f]{16}|/locks/[0-9a-f]{16})?|search)(?:\?[\x21-\x7e]*)?"
)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


# --- a daemon that records, behind TLS -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> HttpConfig:
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=here"]
    subprocess.run(
        ["openssl", "req", "-x509", *kind, "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    return HttpConfig(enabled=True, port=free_port(), tokens=HTTP.tokens, tls_certificate=certificate, tls_key=key)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, clips: Path) -> Recorded:
    with recorded(tmp_path_factory.mktemp("recorded") / "main", clips) as found:
        return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, http: HttpConfig, rig: Recorded) -> Iterator[Page]:
    record = RecordConfig(stores={"main": StoreConfig(rig.path, min_free_gib=0)}, port=0, mode="off")
    with running(tmp_path_factory.mktemp("daemon"), STREET, config={"record": record, "http": http}) as app:
        endpoint = app.parts.endpoint
        address = DaemonAddress("here", endpoint, f"https://127.0.0.1:{http.port}", Secret(OPERATE), is_here=True)
        with Page([address]) as found:
            wait_until(lambda: found.get("/api/recordings/here")["stores"][0]["state"] == "up", "it serves")
            yield found


@pytest.mark.needs("openssl")
def test_what_a_player_needs_comes_as_the_daemon_has_it(page: Page, rig: Recorded) -> None:
    assert page.get("/api/daemons")[0]["recordings"] is True
    assert page.get("/api/recordings/here")["sources"] == ["door", "turned"]
    times = {"from": str(rig.at(0)), "to": str(rig.at(30))}
    rows = page.get("/api/recordings/here/door/spans", **times)["stores"][0]["rows"]
    assert [row.get("cause") for row in rows][:2] == [None, "source_down"]
    file = page.get("/api/recordings/here/door/fragments", **times)["stores"][0]["files"][0]
    stored = (rig.path / rig.files[0].path).read_bytes()
    path = f"/api/recordings/here/files/{file['id']}"
    offset, size = file["fragments"][1][:2]
    part = page.client.get(path, headers={"Range": f"bytes={offset}-{offset + size - 1}"})
    assert (part.status_code, part.content == stored[offset : offset + size]) == (206, True)
    assert part.headers["content-range"] == f"bytes {offset}-{offset + size - 1}/{len(stored)}"
    assert part.headers["content-length"] == str(size)
    tag = part.headers["etag"]
    assert page.client.get(path, headers={"If-None-Match": tag}).status_code == 304
    other = page.client.get(path, headers={"Range": "bytes=0-1", "If-Range": '"other"'})
    assert (other.status_code, other.content == stored) == (200, True)
    assert page.client.head(path).headers["content-length"] == str(len(stored))
    late = page.client.get(path, headers={"Range": "bytes=99999999-"})
    assert (late.status_code, late.headers["content-range"]) == (416, f"bytes */{len(stored)}")
    assert "behind the end" in late.json()["error"]


@pytest.mark.needs("openssl")
def test_stills_and_clips_have_their_facts(page: Page, rig: Recorded) -> None:
    with logged() as lines:
        clip = page.client.get(f"/api/recordings/here/door/clip.mp4?from={rig.at(0)}&to={rig.at(2)}")
        still = page.client.get(f"/api/recordings/here/door/still?at={rig.at(1)}&width=64")
        page.client.get(f"/api/recordings/here/door/still?at={rig.at(2)}&width=64")
    assert clip.headers["content-disposition"].startswith('attachment; filename="door-')
    assert len(json.loads(clip.headers["x-lookout-clip"])["pieces"]) == 1
    assert (clip.headers["content-type"], b"moov" in clip.content[:4096]) == ("video/mp4", True)
    assert (still.headers["content-type"], still.content[:2]) == ("image/jpeg", b"\xff\xd8")
    assert int(still.headers["x-captured-at"]) <= rig.at(1)
    told = [(line["event"], line["token"]) for line in lines if line.get("peer")]
    assert told.count(("a clip is taken", "this machine")) == 1
    assert told.count(("pictures of recordings are seen", "this machine")) == 1
    missing = page.client.get(f"/api/recordings/here/door/clip.mp4?from={rig.at(4)}&to={rig.at(9)}")
    assert (missing.status_code, missing.json()["gaps"][0]["cause"]) == (404, "source_down")


@pytest.mark.needs("openssl")
def test_a_lock_is_made_and_removed(page: Page, rig: Recorded) -> None:
    order = {"from": rig.at(0), "to": rig.at(1), "reason": "case 17"}
    made = page.client.post("/api/recordings/here/door/locks", json=order)
    assert made.status_code == 201
    (row,) = made.json()["locks"]
    assert [kept["lock"]["id"] for kept in page.get("/api/recordings/here/door/locks")["locks"]] == [row["lock"]["id"]]
    assert page.client.delete(f"/api/recordings/here/locks/{row['lock']['id']}").status_code == 204
    assert page.client.delete(f"/api/recordings/here/locks/{row['lock']['id']}").status_code == 404
    wrong = page.client.post("/api/recordings/here/door/locks", json={**order, "reason": ""})
    assert (wrong.status_code, "reason" in wrong.json()["error"]) == (422, True)
    assert page.client.post("/api/recordings/here/door/locks", content=b"{}").status_code == 415


# --- servers of recordings that are not as they should be ------------------------------------------------------------


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a daemon whose messages say that it is there."""
    with running(tmp_path_factory.mktemp("speaker"), STREET) as app:
        yield app.parts.endpoint


@pytest.fixture(scope="module")
def all_told() -> Iterator[ToldRecordings]:
    with closing(ToldRecordings()) as found:
        yield found


@pytest.fixture
def told(all_told: ToldRecordings) -> ToldRecordings:
    all_told.forget()
    return all_told


@contextmanager
def _page_of(told: ToldRecordings, endpoint: str, config: DashboardConfig | None = None) -> Iterator[Page]:
    with Page([DaemonAddress("here", endpoint, told.url, Secret(OPERATE))], config, awaits=()) as found:
        entry = found.dashboard.hub.daemons["here"].entry
        wait_until(lambda: entry()["recordings"], "it knows of recordings")
        yield found


@pytest.fixture(scope="module")
def open_page(all_told: ToldRecordings, endpoint: str) -> Iterator[Page]:
    with _page_of(all_told, endpoint) as found:
        yield found


@pytest.mark.parametrize(
    ("what", "status", "reason"),
    [
        ("redirect", 502, "answer 302"),
        ("fail", 502, "answer 500"),
        ("refuse", 502, "refuse the page's token"),
        ("close", 503, "closed the connection"),
        ("nonsense", 503, "do not answer"),
        ("two", 503, "do not answer"),
        ("huge", 503, "do not answer"),
        ("hang", 503, "did not answer in time"),
    ],
)
def test_a_daemon_that_answers_wrongly_gives_one_line(
    open_page: Page, what: str, status: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "_SILENCE_S", 0.3 if what == "hang" else PATIENCE_S)
    answer = open_page.client.get(f"/api/recordings/here/door/spans?do={what}")
    line = answer.json()["error"]
    assert answer.status_code == status
    assert (reason in line, "\n" in line, "here" in line) == (True, False, True)


def test_answers_carry_no_more_than_a_player_needs(open_page: Page, told: ToldRecordings) -> None:
    answer = open_page.client.get("/api/recordings/here/door/spans?do=script", headers={"Cookie": "a=b", "X-A": "b"})
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["etag"] == '"x"'
    assert not {"set-cookie", "location", "access-control-allow-origin"} & answer.headers.keys()
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert OPERATE not in str(answer.headers) + answer.text
    head = told.asked[-1].decode().lower()
    assert f"authorization: bearer {OPERATE}" in head
    assert not {"cookie:", "origin:", "x-a:", "user-agent:"} & set(head.split())


def test_an_answer_that_breaks_off_is_seen_to(open_page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        open_page.client.get("/api/recordings/here/door/clip.mp4?do=break")
    monkeypatch.setattr(recordings, "_WORK_S", 0.3)
    with pytest.raises(httpx.RemoteProtocolError):  # and one that falls silent
        open_page.client.post("/api/search/here?do=lines", json={})


def test_lines_come_as_they_are_found(open_page: Page) -> None:
    with open_page.client.stream("POST", "/api/search/here?do=lines", json={"source": "door"}) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert next(answer.iter_lines()) == "{}"  # long before the end


def _get(page: Page, path: str) -> socket.socket:
    """A request whose answer is not read."""
    end = socket.create_connection(("127.0.0.1", page.port), PATIENCE_S)
    end.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\n\r\n".encode())
    return end


def test_a_viewer_that_does_not_read_slows_itself_alone(open_page: Page, told: ToldRecordings) -> None:
    """What it has not read stays at the daemon, but for what kernels hold."""
    with _get(open_page, "/api/recordings/here/files/0123456789abcdef?do=endless&here"):
        assert told.is_stuck.wait(PATIENCE_S)
        assert told.sent < 24 << 20
        assert open_page.get("/api/recordings/here/door/spans") == {}
    wait_until(lambda: told.was_left("do=endless&here"), "the daemon is left")


@pytest.mark.parametrize("what", ["hang", "lines"])
def test_a_viewer_that_leaves_ends_the_request(open_page: Page, told: ToldRecordings, what: str) -> None:
    with _get(open_page, f"/api/recordings/here/door/spans?do={what}&gone"):
        wait_until(lambda: len(told.asked) == 1, "the daemon is asked")
    wait_until(lambda: told.was_left(f"do={what}&gone"), "the daemon is left")


def test_a_change_of_the_port_is_followed(endpoint: str) -> None:
    with closing(ToldRecordings()) as told, closing(ToldRecordings()) as other, _page_of(told, endpoint) as page:
        told.told = {"port": other.port}
        page.dashboard.hub.daemons["here"].mark_stale()
        wait_until(lambda: page.get("/api/recordings/here/door/spans") == {} and other.asked, "it is asked there")
        told.told = None
        other.close()
        gone = page.client.get("/api/recordings/here")
        assert (gone.status_code, "do not answer: Connection refused" in gone.json()["error"]) == (503, True)
        wait_until(lambda: not page.get("/api/daemons")[0]["recordings"], "it has none")
        none = page.client.get("/api/recordings/here")
        assert (none.status_code, "set record.port" in none.json()["error"]) == (404, True)


# --- people --------------------------------------------------------------------------------------------------------


@contextmanager
def _people(page: Page) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """One who may view, and one who may operate."""
    with ExitStack() as stack:
        found = []
        for token in (_VIEW, _GUARD):
            client = stack.enter_context(httpx.Client(base_url=page.url, headers={"Origin": page.url}, timeout=60))
            assert client.post("/api/login", json={"token": token}).status_code == 204
            found.append(client)
        yield found[0], found[1]


def test_who_may_what_and_nobody_keeps_others_out(told: ToldRecordings, endpoint: str) -> None:
    with (
        _page_of(told, endpoint, DashboardConfig(tokens=_TOKENS)) as page,
        _people(page) as (viewer, guard),
        ExitStack() as stack,
    ):
        assert page.client.get("/api/recordings/here/door/spans").status_code == 401
        assert page.client.post("/api/search/here", json={}).status_code == 401
        for method, path in (("POST", "door/locks"), ("POST", "door/exports"), ("DELETE", "locks/0123456789abcdef")):
            asked: dict[str, Any] = {"json": {}} if method == "POST" else {}
            assert viewer.request(method, f"/api/recordings/here/{path}", **asked).status_code == 403
            assert guard.request(method, f"/api/recordings/here/{path}", **asked).status_code == 200
        assert viewer.post("/api/search/here", json={}).status_code == 200
        assert len(told.asked) == 4
        cookie = f"Cookie: {next(f'{name}={value}' for name, value in viewer.cookies.items())}"
        for _ in range(24):
            end = stack.enter_context(socket.create_connection(("127.0.0.1", page.port), PATIENCE_S))
            path = "/api/recordings/here/door/spans?do=hang"
            end.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\n{cookie}\r\n\r\n".encode())
        wait_until(lambda: len(told.asked) == 28, "all are asked")
        more = viewer.get("/api/recordings/here/door/spans")
        assert (more.status_code, more.headers["retry-after"]) == (429, "1")
        assert guard.get("/api/recordings/here/door/spans").status_code == 200
        stack.close()
        wait_until(lambda: viewer.get("/api/recordings/here/door/spans").status_code == 200, "there is room again")
        assert viewer.post("/api/logout").status_code == 204
        assert viewer.get("/api/recordings/here/door/spans").status_code == 401


def test_bodies_that_do_not_come_keep_their_own_viewer_waiting_alone(told: ToldRecordings, endpoint: str) -> None:
    """A viewer has six places for work, whatever has come of it, and everybody else goes on."""
    config = DashboardConfig(tokens=_TOKENS)
    with _page_of(told, endpoint, config) as page, _people(page) as (viewer, guard), ExitStack() as stack:
        cookie = next(f"{name}={value}" for name, value in viewer.cookies.items())
        lines = [
            "POST /api/search/here HTTP/1.1", f"Host: 127.0.0.1:{page.port}", f"Origin: {page.url}",
            f"Cookie: {cookie}", "Content-Type: application/json", "Content-Length: 60000",
        ]  # fmt: skip
        answers = []
        for _ in range(30):
            end = stack.enter_context(socket.create_connection(("127.0.0.1", page.port), PATIENCE_S))
            end.sendall(("\r\n".join(lines) + "\r\n\r\n{").encode())
            answers.append(end)
        for end in answers[6:]:
            assert b" 429 " in end.recv(65536)
        assert guard.post("/api/search/here", json={}).status_code == 200
        assert viewer.get("/api/recordings/here/door/spans").status_code == 200
        assert len(told.asked) == 2


def test_the_daemon_is_told_which_viewer_asks_and_not_by_the_viewer(told: ToldRecordings, endpoint: str) -> None:
    """So that each has a search of its own. It is no name, and the same for all of one viewer's requests."""
    config = DashboardConfig(tokens=_TOKENS)
    with _page_of(told, endpoint, config) as page, _people(page) as people:
        for client in people:
            for _ in range(2):
                headers = {"X-Lookout-Viewer": "somebody-else"}
                assert client.post("/api/search/here", json={}, headers=headers).status_code == 200
        found = [re.findall(rb"(?i)\nx-lookout-viewer: ([^\r]*)", head) for head in told.asked]
        assert all(len(row) == 1 and re.fullmatch(rb"[0-9a-f]{16}", row[0]) for row in found)
        assert found[0] == found[1] != found[2] == found[3]


# --- attacks -------------------------------------------------------------------------------------------------------

_PARTS = [
    "..", ".", "", "%2e%2e", "%2e%2e%2f", "..%2f..%2fdaemon", "%2fetc%2fpasswd", "%5c..%5c", "%00", "a%00b",
    "%0d%0aX:y", "door", "files", "locks", "spans", "still", "clip.mp4", "exports", "tracks", "search",
    "0123456789abcdef", "0123456789ABCDEF", "@127.0.0.1:1", "http:", "%252e%252e", "a" * 65, "%ff%fe", "%E2%80%AE",
    "x;y", "%23", "%3f", "*", "daemon", "sources", "config", "reload", "openapi.json", "metrics", "door%2Fspans",
    "%F0%9F%92%A9", "a:b@c",
]  # fmt: skip
_WAYS = ["door/spans", "door/still", "a%20b/clip.mp4", "door/locks", "files/0123456789abcdef", "locks/0123456789abcdef"]
_METHODS = [*["GET"] * 9, "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "CONNECT"]
_LINES = [
    "Range: bytes=0-1", "Range: bytes=0-1\r\nRange: bytes=2-3", "Range: " + "9" * 600, "If-None-Match: \xff",
    "Authorization: Bearer x", "Content-Type: application/json", "Transfer-Encoding: chunked", "Cookie: a=b; c",
    "X-Forwarded-Host: evil.example", "Origin: null", "Connection: Upgrade\r\nUpgrade: websocket", "If-Range: a\x0bb",
    "Expect: 100-continue", "Accept-Encoding: gzip", "Host: evil.example", "Content-Length: -1", "TE: trailers",
]  # fmt: skip


def _attack(page: Page, told: ToldRecordings, count: int, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(count):
        parts = [chance.choice(_PARTS) for _ in range(chance.randrange(4))]
        if chance.random() < 0.5:
            parts = [chance.choice(_WAYS)]
        root = chance.choice(["/api/recordings/here", "/api/recordings/here", "/api/recordings", "/api/search/here"])
        query = chance.choice(["", "", "?from=1&to=2", "?a=%00", "?x=http://evil.example/", "?" + "y" * 3000])
        method, path = chance.choice(_METHODS), "/".join([root, *parts])
        lines = [f"{method} {path}{query} HTTP/1.1", f"Host: 127.0.0.1:{page.port}", "Connection: close"]
        lines += chance.sample(_LINES, chance.randrange(3))
        body = chance.choice(["", "{}", "[" * 900])
        lines += [f"Origin: {page.url}"] * chance.randrange(2) + [f"Content-Length: {len(body)}"] * chance.randrange(2)
        with socket.create_connection(("127.0.0.1", page.port), PATIENCE_S) as end:
            end.sendall(("\r\n".join(lines) + "\r\n\r\n" + body).encode("latin-1"))
            if chance.random() < 0.3 or re.search("chunked|-1|Expect|Upgrade", str(lines)):
                end.shutdown(socket.SHUT_WR)  # it gives up, or the server would wait for more
            while end.recv(65536):
                pass
    for head in told.asked:
        target = head.split(b" ")[1]
        assert _KNOWN.fullmatch(target), target
        assert b"/../" not in target
        assert b"%2F" not in target.upper().partition(b"?")[0]
        host = re.findall(rb"(?i)\nhost: ([^\r]*)", head)
        assert host == [b"127.0.0.1:%d" % told.port]
        assert re.findall(rb"(?i)\nauthorization: ([^\r]*)", head) == [b"Bearer " + OPERATE.encode()]
        assert not re.search(rb"(?i)\n(?:cookie|origin|upgrade|x-forwarded-host|transfer-encoding):", head)
    assert page.get("/api/recordings/here/door/spans") == {}


def test_nothing_but_the_api_of_recordings_is_asked(open_page: Page, told: ToldRecordings) -> None:
    _attack(open_page, told, _HOSTILE, 53)
    assert told.asked  # some of them are honest


@pytest.mark.long
def test_nothing_but_the_api_is_asked_by_many(open_page: Page, told: ToldRecordings) -> None:
    _attack(open_page, told, int(os.environ.get("LOOKOUT_HOSTILE_REQUESTS", "10000")), 54)
