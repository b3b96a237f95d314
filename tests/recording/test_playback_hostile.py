"""Thousands of requests that should not be served, straight to the application: none is, and none fails."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from daemon.playback.opened import PlayPlace
from tests.recording.playback_rig import OPERATE, VIEW, Recorded, recorded, served
from tests.support.asgi import InProcess

_API = b"/api/v1/recordings"
_FEW, _MANY, _DAMAGED = 1_000, 10_000, 40


@dataclass(frozen=True)
class Request:
    """A request that would be served."""

    method: str
    path: bytes
    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    token: bytes = VIEW.encode()
    cookies: list[bytes] = field(default_factory=list)


Change = Callable[[random.Random, Request], Request]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, clips: Path) -> Iterator[Recorded]:
    with recorded(tmp_path_factory.mktemp("hostile") / "main", clips) as found:
        yield found


@pytest.fixture(scope="module")
def client(rig: Recorded) -> Iterator[InProcess]:
    with served([PlayPlace("main", rig.path)], token=None) as found:
        yield found


def _valid(rig: Recorded) -> list[Request]:
    times = f"from={rig.at(0)}&to={rig.at(2)}".encode()
    door = _API + b"/door"
    lock = f'{{"from": {rig.at(0)}, "to": {rig.at(2)}, "reason": "test"}}'.encode()
    json = ((b"content-type", b"application/json"),)
    return [
        Request("GET", _API),
        Request("GET", door + b"/spans", times),
        Request("GET", door + b"/fragments", times),
        Request("GET", door + b"/clip.mp4", times),
        Request("GET", door + b"/tracks", times),
        Request("GET", door + b"/activity", times + b"&step=1"),
        Request("GET", door + b"/still", f"at={rig.at(1)}&width=64".encode()),
        Request("GET", door + b"/locks"),
        Request("GET", _API + b"/files/" + rig.files[0].id.encode(), headers=((b"range", b"bytes=0-99"),)),
        Request("POST", door + b"/locks", b"", json, lock, OPERATE.encode()),
    ]


_STRANGE = [
    b"..", b"../../etc/passwd", b"%2e%2e%2f", b"..%5c..%5c", b"%00", b"%0d%0aX-A: b", b"/etc/passwd", b"%c0%ae%c0%ae/",
    b"\xff\xfe", b"%ff%fe", b"A" * 9000, b"' OR 1=1 --", b"%27;DROP TABLE files;--", b"{{7*7}}", b"${HOME}", b"~root",
    b"lookout-store.json", b"index.sqlite", b"%F0%9F%92%A9", b"%ED%A0%80", b"\0", b"locks", b"-1", b"NaN", b"1e999",
    b"0x10", b"9" * 30, b"2027-13-01T00:00:00Z", b"2027-01-15T08:00:00", b"2027-01-15T08:00:00+01:00", b"now", b" ",
    b"0", b"1800000000", b"1800000000000", b"%E2%80%8F", b"0000000000000000", b"0" * 17, b"..;/", b"%2F%2F", b"file://",
]  # fmt: skip
_METHODS = ["PUT", "PATCH", "TRACE", "OPTIONS", "CONNECT", "PROPFIND", "get", "G\0T", "", "DELETE"]
_RANGES = [
    b"bytes=0-1,2-3", b"bytes=5-2", b"bytes=-0", b"bytes=99999999999-", b"bytes=--1", b"bytes=a-b", b"bytes", b"bytes=",
    b"items=0-5", b"bytes=0-9" * 400, b"bytes=1-2-3", b"bytes=0-0\r\nX: y", b"bytes=0-\xb2",
    b"bytes=18446744073709551616-", b"bytes=0x0-0x9", b"bytes= 1 - 2", b"\xff", b"bytes=9223372036854775807-", b"",
]  # fmt: skip
_BODIES = [
    b"", b"{}", b"[" * 60_000, b'{"from": 1}', b"\xff\xfe", b"null", b'{"from": 1e400, "to": 2, "reason": "x"}',
    b'{"from": "now", "to": "then", "reason": "x"}', b"{" * 70_000, b'{"from": true, "to": false, "reason": 1}',
    b'{"from": 18446744073709551616, "to": 36893488147419103232, "reason": "x"}', b"a=1&b=2",
    b'{"from": 1800000000000000000, "to": 1700000000000000000, "reason": "x"}',
]  # fmt: skip


def _with_token(random: random.Random, request: Request) -> Request:
    token = request.token
    wrong = [b"", b"x", token[:-1], token + b"x", token.upper(), token[::-1], b"\xff" * 9, token + b" " + token]
    if request.method == "POST":
        wrong.append(VIEW.encode())
    cookie = [random.choice((b"token=", b"session=", b"__Host-lookout=", b"Authorization=Bearer ")) + token]
    query = request.query + random.choice((b"", b"&token=" + token, b"&access_token=" + token))
    return replace(request, token=random.choice(wrong), cookies=cookie * random.randrange(3), query=query)


def _with_path(random: random.Random, request: Request) -> Request:
    parts = request.path.split(b"/")
    at = random.randrange(3, len(parts)) if len(parts) > 4 else len(parts)
    strange = random.choice(_STRANGE)
    if random.random() < 0.5:
        parts.insert(at, strange)
    else:
        parts[at : at + 1] = [strange]
    return replace(request, path=b"/".join(parts))


def _with_query(random: random.Random, request: Request) -> Request:
    """Another parameter, one twice, or with another value; where there is none, one that nobody knows."""
    names = b"from", b"to", b"at", b"width", b"store", b"event", b"step"
    name, strange = random.choice(names), random.choice(_STRANGE)
    if not request.query:
        return replace(request, query=random.choice((b"path=", b"store=", b"file=")) + strange)
    pairs = [row.split(b"=", 1) for row in request.query.split(b"&")]
    if random.random() < 0.5:
        pairs[random.randrange(len(pairs))][1] = strange
    else:
        pairs += [[name, strange]] * random.randrange(1, 40)
    return replace(request, query=b"&".join(b"=".join(row) for row in pairs))


def _with_method(random: random.Random, request: Request) -> Request:
    return replace(request, method=random.choice(_METHODS))


def _with_range(random: random.Random, request: Request) -> Request:
    """For those that have one."""
    if not request.path.startswith(_API + b"/files/"):
        return _with_token(random, request)
    ranges = [(b"range", random.choice(_RANGES))] * random.randrange(1, 4)
    return replace(request, headers=tuple(ranges))


def _with_body(random: random.Random, request: Request) -> Request:
    """For those that have one."""
    if request.method != "POST":
        return _with_token(random, request)
    changed = random.randrange(3)
    if changed == 0:
        return replace(request, body=random.choice(_BODIES))
    if changed == 1:
        kinds = (b"text/plain", b"multipart/form-data", b"application/x-www-form-urlencoded", b"", b"application/jsonx")
        return replace(request, headers=((b"content-type", random.choice(kinds)),))
    both = (b"content-length", b"5"), (b"transfer-encoding", b"chunked")
    return replace(request, headers=(*request.headers, *both))


_CHANGES: list[Change] = [_with_token, _with_path, _with_query, _with_method, _with_range, _with_body]


def _send(client: InProcess, request: Request) -> Any:
    headers = [*request.headers, *((b"cookie", row) for row in request.cookies)]
    if request.token:
        headers.append((b"authorization", b"Bearer " + request.token))
    return client.raw(request.method, request.path + b"?" + request.query, headers, request.body)


def _try(client: InProcess, rig: Recorded, count: int, seed: int) -> None:
    chance, valid = random.Random(seed), _valid(rig)
    for request in valid:
        assert _send(client, request).status in (200, 201, 206), request
    before = sorted(path.name for path in rig.path.rglob("*"))
    for number in range(count):
        change = chance.choice(_CHANGES)
        request = change(chance, chance.choice(valid))
        if request in valid:
            continue
        answer = _send(client, request)
        assert 400 <= answer.status < 500, (number, change.__name__, request, answer)
        assert "error" in answer.json if answer.headers.get("content-type") == "application/json" else True
    assert sorted(path.name for path in rig.path.rglob("*")) == before


def test_no_hostile_request_is_served(client: InProcess, rig: Recorded) -> None:
    _try(client, rig, _FEW, 50)


def test_a_damaged_file_is_no_failure_of_ours(client: InProcess, rig: Recorded) -> None:
    """Whatever byte of its tables is wrong: it is shown as far as it goes, or refused."""
    chance, path = random.Random(52), rig.path / rig.files[0].path
    whole = path.read_bytes()
    tables = [*range(rig.first.beginning), *range(rig.first.fragments[0].offset, rig.first.fragments[0].offset + 900),
              *range(rig.first.end, len(whole))]  # fmt: skip
    try:
        for _ in range(_DAMAGED):
            damaged = bytearray(whole)
            for at in chance.sample(tables, 3):
                damaged[at] = chance.randrange(256)
            path.write_bytes(damaged[: chance.choice((len(whole), len(whole), rig.first.end, chance.choice(tables)))])
            for what in _valid(rig)[2:5]:
                answer = _send(client, replace(what, token=VIEW.encode()))
                assert answer.status in (200, 404, 409, 503), (what, answer)
    finally:
        path.write_bytes(whole)


@pytest.mark.long
def test_no_hostile_request_of_many_is_served(client: InProcess, rig: Recorded) -> None:
    _try(client, rig, _MANY, 51)
