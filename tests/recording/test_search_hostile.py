"""Searches of people who do not mean well: none fails the API, and none keeps others out."""

from __future__ import annotations

import json
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from daemon.clock import SystemClock
from daemon.config.recording import RecordConfig, StoreConfig
from daemon.config.root import LogConfig
from daemon.playback.opened import PlayPlace
from daemon.playback.process import PlaybackProcess, playback_order
from tests.recording.playback_rig import HTTP, OPERATE, VIEW, Recorded, recorded, served
from tests.support.asgi import InProcess
from tests.support.clock import ManualClock
from tests.support.daemon import PATIENCE_S, children_of, wait_until
from tests.support.recorded import BEGIN, SECOND

_LINE = {"type": "line", "name": "kerb", "points": [[0.5, 0.0], [0.5, 1.0]]}
_PATH = "/api/v1/search"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, clips: Path) -> Iterator[Recorded]:
    with recorded(tmp_path_factory.mktemp("hostile") / "main", clips) as found:
        yield found


@pytest.fixture(scope="module")
def client(rig: Recorded) -> Iterator[InProcess]:
    clock = ManualClock()
    clock.step((BEGIN - clock.utc_ns()) / SECOND + 100)
    with served([PlayPlace("main", rig.path)], clock=clock) as found:
        yield found


def _body(rig: Recorded, **changes: Any) -> dict[str, Any]:
    return {"source": "door", "rule": _LINE, "from": str(rig.at(0)), "to": str(rig.at(3)), **changes}


def _needles(count: int, polygons: int) -> dict[str, Any]:
    """A zone whose sides all lie beside each other, so that each must be compared with each."""
    found = []
    for number in range(polygons):
        zigzag = [[place * 15 + number + place % 2 * 4000 + 1, 9000 if place % 2 else 2] for place in range(count)]
        found.append([*zigzag, [count * 15 + number, 1], [number + 1, 1]])
    return {"type": "zone", "name": "comb", "polygons": found, "frame_size": [9999, 9999]}


def _says(end: socket.socket, words: bytes) -> bool:
    return words in end.recv(65536)


def _nested(depth: int) -> bytes:
    return b'{"source": "door", "rule": ' + b'{"a": ' * depth + b"1" + b"}" * depth + b', "from": "1", "to": "2"}'


def test_no_hostile_search_is_begun(client: InProcess, rig: Recorded) -> None:
    def rule(**changes: Any) -> dict[str, Any]:
        return _body(rig, rule={**_LINE, **changes})

    bodies: list[bytes | dict[str, Any]] = [
        *(rule(name=name) for name in ("", "\x1b[31m", "a\nb", "\u202e", "\0", "x" * 65, "../kerb", 7)),
        *(rule(points=points) for points in (
            [], [[0.5, 0.5]], [[0.5, 0.5]] * 2, [[0, 0], [1e308, 1]], [[-1, 0], [1, 1]], [[0, 0], [1]],
            [[0.1, 0.1]] * 257, "0,0 1,1", [[0.1] * 3] * 2, [["0", "1"]] * 2,
        )),
        *(rule(type="zone", points=points) for points in (
            [[0, 0], [1, 1], [1, 0], [0, 1]], [[0.1, 0.1], [0.9, 0.1], [0.5, 0.1]], [[0.1, 0.1]] * 200,
        )),
        rule(type="zone", points=None, polygons=[[[0.1, 0.1], [0.9, 0.1], [0.5, 0.9]]] * 65),
        rule(timezone="../../../../etc/passwd", active="mon 10:00-12:00"), rule(active="mon " * 9000, timezone="UTC"),
        rule(min_area=-1), rule(labels=[]), rule(labels=[["x"]]), rule(rule={}), rule(__class__="x"),
        *(_body(rig, source=source) for source in ("../main", "", "\0", "a\nb", "x" * 9000, ".", "door/spans")),
        *(_body(rig, store=store) for store in ("../main", "", "\0", "nas", "/")),
        *(_body(rig, to=to) for to in ("9999-12-31T23:59:59Z", -1, 0, 1 << 64, 1 << 200, "-1", "NaN", None, 1.5, True)),
        _body(rig, **{"from": "0001-01-01T00:00:00Z"}), _body(rig, **{"from": str(rig.at(3))}), _body(rig, limit=1),
        b"", b"null", b"[" * 60_000, b'{"source": "door"', b"\xff\xfe", b"{}" * 30_000, b"x" * 70_000,
        *(_nested(depth) for depth in (100, 900, 5_000)),
        json.dumps(_body(rig, rule={**_LINE, "points": [[float("nan"), 0], [float("inf"), 1]]})).encode(),
        json.dumps(_body(rig, source="\ud800")).encode(),
    ]  # fmt: skip
    for body in bodies:
        headers = {"Content-Type": "application/json"} if isinstance(body, bytes) else None
        answer = client.send("POST", _PATH, body=body, headers=headers)
        assert 400 <= answer.status < 500, (body, answer)
        assert "\n" not in answer.json["error"], answer
    assert client.send("POST", _PATH, body=_body(rig)).status == 200  # each has given its place back


def test_who_asks_is_one_word(client: InProcess, rig: Recorded) -> None:
    body = json.dumps(_body(rig)).encode()
    for values in ([b""], [b"a b"], [b"x" * 65], [b"a", b"b"], [b"\xff"], [b"a\x00"]):
        pairs = [(b"content-type", b"application/json"), *((b"x-lookout-viewer", value) for value in values)]
        assert client.raw("POST", _PATH.encode(), pairs, body).status == 400, values


# --- a server --------------------------------------------------------------------------------------------------------


@pytest.fixture
def process(rig: Recorded) -> Iterator[PlaybackProcess]:
    record = RecordConfig(stores={"main": StoreConfig(rig.path)}, port=0)
    process = PlaybackProcess(playback_order(HTTP, record, LogConfig()), SystemClock())
    process.start()
    try:
        yield process
    finally:
        process.request_stop()
        process.finish(PATIENCE_S)


def _spans(port: int, rig: Recorded) -> int:
    times = {"from": str(rig.at(0)), "to": str(rig.at(3))}
    headers = {"Authorization": f"Bearer {OPERATE}"}
    url = f"http://127.0.0.1:{port}/api/v1/recordings/door/spans"
    return httpx.get(url, params=times, headers=headers, timeout=PATIENCE_S).status_code


def test_a_rule_that_takes_long_to_check_holds_nobody_up(process: PlaybackProcess, rig: Recorded) -> None:
    """All of its sides are compared; others are answered meanwhile."""
    assert _spans(process.port, rig) == 200
    done: list[int] = []
    body = _body(rig, rule=_needles(240, 18))
    assert len(json.dumps(body)) < 65_536

    def search() -> None:
        headers = {"Authorization": f"Bearer {VIEW}"}
        answer = httpx.post(f"http://127.0.0.1:{process.port}{_PATH}", json=body, headers=headers, timeout=PATIENCE_S)
        done.append(answer.status_code)

    thread = threading.Thread(target=search)
    thread.start()
    before = 0
    while not done:
        assert _spans(process.port, rig) == 200
        before += not done
    thread.join()
    assert before >= 2


def test_a_thousand_searches_that_never_come_keep_nobody_out(process: PlaybackProcess, rig: Recorded) -> None:
    """Heads without their bodies. Those of one token have its one place, and connections that wait give way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
    head = f"POST {_PATH} HTTP/1.1\r\nHost: 127.0.0.1:{process.port}\r\nContent-Type: application/json\r\n"
    with ExitStack() as stack:
        for token in (*(["wrong"] * 200), *([VIEW] * 800)):
            end = stack.enter_context(socket.create_connection(("127.0.0.1", process.port), PATIENCE_S))
            end.sendall(f"{head}Authorization: Bearer {token}\r\nContent-Length: 60000\r\n\r\n{{".encode())
        assert _spans(process.port, rig) == 200
        url, headers = f"http://127.0.0.1:{process.port}{_PATH}", {"Authorization": f"Bearer {OPERATE}"}
        answer = httpx.post(url, json=_body(rig), headers=headers, timeout=PATIENCE_S)
        assert (answer.status_code, "to is not later" in answer.text) == (400, True)  # the rig's time is to come
        assert process.pid is not None
        assert children_of(process.pid, "daemon.playback.search_process") == []
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_token_that_says_it_is_many_leaves_places_to_others(process: PlaybackProcess) -> None:
    head = f"POST {_PATH} HTTP/1.1\r\nHost: 127.0.0.1:{process.port}\r\nContent-Type: application/json\r\n"

    def ask(token: str, viewer: str) -> socket.socket:
        end = socket.create_connection(("127.0.0.1", process.port), PATIENCE_S)
        lines = f"Authorization: Bearer {token}\r\nX-Lookout-Viewer: {viewer}\r\nContent-Length: 2\r\n\r\n{{"
        end.sendall((head + lines).encode())
        return end

    with ExitStack() as stack:
        first, second = (stack.enter_context(closing(ask(VIEW, viewer))) for viewer in ("ann", "bob"))
        for viewer, words in (("ann", b"1 of yours"), ("cy", b"2 of this token")):
            refused = stack.enter_context(closing(ask(VIEW, viewer)))
            wait_until(partial(_says, refused, words), "it is refused")
        other = stack.enter_context(closing(ask(OPERATE, "ann")))
        for end in (first, second, other):
            end.sendall(b"}")
            assert b" 422 " in end.recv(65536)
