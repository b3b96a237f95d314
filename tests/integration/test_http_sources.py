"""Sources over HTTP: read, changed in part, put back, and never a password lost or shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lookout.messages import Detections
from tests.support.daemon import PATIENCE_S, ROOT, has_seen, is_state, receive_until, wait_until
from tests.support.ports import free_port
from tests.support.served import Served, street

_PASSWORD = "hunter2-of-the-camera"  # noqa: S105 - of these tests
_OF_THE_FILE = "hunter3-of-the-environment"


def _cameras(port: int) -> list[dict[str, object]]:
    """As config.yaml has them; nobody listens there."""
    return [
        {"id": "in-url", "type": "av", "url": f"rtsp://viewer:{_PASSWORD}@127.0.0.1:{port}/one"},
        {"id": "in-query", "type": "av", "url": f"http://127.0.0.1:{port}/v?pwd={_PASSWORD}&channel=1"},
        {"id": "beside", "type": "av", "url": f"rtsp://127.0.0.1:{port}/one", "user": "viewer", "password": _PASSWORD},
        {"id": "option", "type": "av", "url": f"rtsp://127.0.0.1:{port}/one", "options": {"headers": _PASSWORD}},
        {"id": "named", "type": "av", "url": f"rtsp://viewer:${{LOOKOUT_TEST_PW}}@127.0.0.1:{port}/one"},
    ]


_CAMERAS = ("in-url", "in-query", "beside", "option", "named")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sources") / "sources.json"


@pytest.fixture(scope="module")
def served(file: Path) -> Iterator[Served]:
    os.environ["LOOKOUT_TEST_PW"] = _OF_THE_FILE
    sources = [street("street-0"), street("street-1"), *_cameras(free_port())]
    try:
        with Served(file.parent, {"sources_file": str(file)}, sources=sources) as served:
            yield served
            assert served.lookout.stop() == 0
            log = served.lookout.log()
            assert [word for word in ("Traceback", _PASSWORD, _OF_THE_FILE) if word in log] == []
    finally:
        del os.environ["LOOKOUT_TEST_PW"]


def _kept(file: Path) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in json.loads(file.read_text())["sources"]}


@pytest.mark.parametrize("id", _CAMERAS)
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_what_is_read_may_be_put_back(served: Served, file: Path, id: str, method: str) -> None:
    """With one key changed: the password is what it was, and is nowhere to be seen; ${NAME} stays ${NAME}."""
    one = f"/api/v1/sources/{id}"
    before = served.client.get(one)
    body = before.json()["config"]
    confidence = 0.25 if body["confidence"] != 0.25 else 0.5
    body["confidence"] = confidence
    answer = served.client.request(method, f"{one}?persist=true", json=body)
    assert (answer.status_code, answer.json()["config"]["confidence"]) == (200, confidence)
    row = next(row for row in _cameras(0) if row["id"] == id)
    text = json.dumps(_kept(file)[id])
    secret = "${LOOKOUT_TEST_PW}" if id == "named" else _PASSWORD
    assert secret in text
    assert "***" not in text
    assert set(row) <= set(_kept(file)[id])
    shown = before.text + answer.text + served.client.get("/api/v1/config").text
    assert _PASSWORD not in shown
    assert _OF_THE_FILE not in shown + file.read_text()


def test_another_path_of_the_same_camera_needs_no_password(served: Served, file: Path) -> None:
    one = "/api/v1/sources/in-url"
    url = served.client.get(one).json()["config"]["url"]
    assert url.startswith("rtsp://***@127.0.0.1:")
    answer = served.client.patch(f"{one}?persist=true", json={"url": url.replace("/one", "/two")})
    assert answer.json()["config"]["url"] == url.replace("/one", "/two")
    kept = _kept(file)["in-url"]["url"]
    assert kept == url.replace("***", f"viewer:{_PASSWORD}").replace("/one", "/two")


@pytest.mark.parametrize(
    ("id", "change", "words"),
    [
        ("in-url", {"url": "rtsp://***@evil.example/one"}, "is not sent to another host"),
        ("in-url", {"url": "rtsp://***@127.0.0.1:1/one"}, "is not sent to another host"),
        ("in-url", {"url": "http://***@127.0.0.1/one"}, "is not sent to another host"),
        ("in-query", {"url": "http://evil.example/v?pwd=***&channel=1"}, "keeps the current secret"),
        ("in-query", {"url": "http://127.0.0.1/v?pwd=***&channel=2"}, "keeps the current secret"),
        ("beside", {"url": "rtsp://evil.example/one"}, "there is none for this host"),
        ("option", {"url": "rtsp://evil.example/one"}, "there is none for this host"),
        ("in-url", {"password": "***"}, "password: *** keeps the current secret"),
        ("in-url", {"url": "rtsp://${HOME}@evil.example/one"}, "does not read the environment"),
        ("in-url", {"options": {"headers": "x"}}, "options: FFmpeg's options are not allowed"),
        ("in-url", {"type": "synthetic"}, "type: cannot be patched"),
        ("in-url", {"fps": 5}, "did you mean `max_fps`?"),
        ("street-0", {"id": "other"}, "id: 'other' is not 'street-0'"),
        ("street-0", {"width": 9999, "height": 9999}, "megapixels"),
    ],
)
def test_a_secret_goes_nowhere_else(served: Served, id: str, change: dict[str, object], words: str) -> None:
    before = served.client.get(f"/api/v1/sources/{id}").json()["config"]
    answer = served.client.patch(f"/api/v1/sources/{id}", json=change)
    assert (answer.status_code, words in answer.json()["error"]) == (422, True), answer.text
    assert served.client.get(f"/api/v1/sources/{id}").json()["config"] == before


def test_a_key_is_changed_and_set_back(served: Served) -> None:
    one = "/api/v1/sources/patched"
    assert served.client.post("/api/v1/sources", json=street("patched", confidence=0.5)).status_code == 201
    with served.lookout.subscribe("status", sources=("patched",)) as subscriber:
        assert served.client.patch(one, json={"enabled": False}).json()["state"] == "disabled"
        assert served.client.patch(one, json={"enabled": True, "confidence": None}).status_code == 200
        receive_until(subscriber, is_state("patched", "up"))
    config = served.client.get(one).json()["config"]
    assert (config["enabled"], config["confidence"], config["width"]) == (True, None, 160)
    assert served.client.delete(one).status_code == 204
    assert served.client.patch(one, json={"enabled": True}).status_code == 404


def test_views_are_changed_and_set_back(served: Served) -> None:
    """Without a new connection; a mistake is refused with its place."""
    one = "/api/v1/sources/viewed"
    roi = [[0, 0], [1, 0], [1, 0.5]]
    assert served.client.post("/api/v1/sources", json=street("viewed", tiles="2x2")).status_code == 201
    with served.lookout.subscribe(sources=("viewed",)) as subscriber:
        receive_until(subscriber, has_seen(3, "viewed"))
        change = {"roi": roi, "tiles": {"columns": 3, "rows": 1, "whole": False}}
        assert served.client.patch(one, json=change).status_code == 200
        messages = receive_until(subscriber, has_seen(3, "viewed"))
        refused = served.client.patch(one, json={"tiles": "1x1"})
        assert (refused.status_code, "tiles: one tile is the whole" in refused.json()["error"]) == (422, True)
        config = served.client.get(one).json()["config"]
        assert (config["roi"], config["tiles"]["columns"]) == (roi, 3)
        assert served.client.patch(one, json={"roi": None, "tiles": None}).status_code == 200
        messages += receive_until(subscriber, has_seen(3, "viewed"))
        assert subscriber.lost == {}
    assert len({message.session for message in messages if isinstance(message, Detections)}) == 1
    assert served.client.delete(one).status_code == 204


def test_a_change_of_what_was_changed_meanwhile_is_refused(served: Served) -> None:
    """With If-Match; the tag of a source tells nothing of its secrets to who compares."""
    one = "/api/v1/sources/street-1"
    tag = served.client.get(one).headers["ETag"]
    assert served.client.get(one).headers["ETag"] == tag
    changed = served.client.patch(one, json={"confidence": 0.3}, headers={"If-Match": tag})
    assert (changed.status_code, changed.headers["ETag"] != tag) == (200, True)
    late = served.client.patch(one, json={"confidence": 0.4}, headers={"If-Match": tag})
    assert (late.status_code, late.json()["error"]) == (412, "the source was changed meanwhile: GET it again")
    assert served.client.get(one).json()["config"]["confidence"] == 0.3
    again = served.client.patch(one, json={"confidence": None}, headers={"If-Match": changed.headers["ETag"]})
    assert again.status_code == 200


def test_what_is_drawn_is_bounded_in_all(served: Served) -> None:
    """AB8: each may be drawn, all of them together may not; what is disabled is not counted."""
    large = {"width": 2048, "height": 2000, "fps": 60}
    codes = [served.client.post("/api/v1/sources", json=street(f"large-{n}", **large)).status_code for n in range(8)]
    assert codes[0] == 201
    assert codes[-1] == 422
    assert codes == sorted(codes)
    asleep = street("asleep", **large, enabled=False)
    assert served.client.post("/api/v1/sources", json=asleep).status_code == 201
    refused = served.client.patch("/api/v1/sources/asleep", json={"enabled": True})
    assert refused.status_code == 422
    assert "megapixels a second" in refused.json()["error"]
    for name in (*(f"large-{n}" for n in range(8)), "asleep"):
        served.client.delete(f"/api/v1/sources/{name}")


def test_what_is_seldom_drawn_takes_memory_too(served: Served) -> None:
    """So few pixels a second that they would never add up to anything."""
    large = {"width": 2048, "height": 2000, "fps": 0.5, "objects": 0}
    answers = [served.client.post("/api/v1/sources", json=street(f"seldom-{n}", **large)) for n in range(5)]
    assert [answer.status_code for answer in answers] == [201] * 4 + [422]
    assert "would draw 21 megapixels; over the network 17 are allowed" in answers[-1].json()["error"]
    for number in range(4):
        served.client.delete(f"/api/v1/sources/seldom-{number}")


def test_what_the_configuration_draws_may_stay(tmp_path: Path) -> None:
    """More than may be drawn for the network; other sources are added all the same, and it may become less."""
    size = {"width": 2048, "height": 1024, "fps": 0.1}
    rows = [street("street-0"), street("street-1"), *(street(f"wall-{number}", **size) for number in range(9))]
    with Served(tmp_path, sources=rows) as served:
        camera = {"id": "camera", "type": "av", "url": "rtsp://127.0.0.1:9/x"}
        assert served.client.post("/api/v1/sources", json=camera).status_code == 201
        assert served.client.post("/api/v1/sources", json=street("one-more")).status_code == 422
        assert served.client.patch("/api/v1/sources/street-0", json={"height": 48}).status_code == 200


def test_many_at_once_do_not_pass_the_limit(tmp_path: Path) -> None:
    with Served(tmp_path, {"max_sources": 8}) as served, ThreadPoolExecutor(40) as clients:
        posts = [
            clients.submit(served.client.post, "/api/v1/sources", json=street(f"more-{number}")) for number in range(40)
        ]
        codes = sorted(post.result().status_code for post in posts)
        assert codes == [201] * 6 + [409] * 34
        assert len(served.client.get("/api/v1/sources").json()) == 8


def test_it_is_said_whose_sources_count(tmp_path: Path) -> None:
    """At the start, at a reload, by `/api/v1/config`: those of config.yaml are not used any more."""
    file = tmp_path / "sources.json"
    words = "the configuration file's are not used"
    with Served(tmp_path, {"sources_file": str(file)}) as served:
        assert served.client.get("/api/v1/config").json()["sources_from"] is None
        assert served.client.patch("/api/v1/sources/street-0?persist=true", json={"confidence": 0.4}).status_code == 200
        assert served.client.get("/api/v1/config").json()["sources_from"] == str(file)
        assert words not in served.lookout.log()
        assert served.client.post("/api/v1/reload").status_code == 200
        wait_until(lambda: words in served.lookout.log(), "the reload says so")
        assert served.lookout.stop() == 0
    with Served(tmp_path, {"sources_file": str(file)}) as again:
        assert words in again.lookout.log()
        assert again.client.get("/api/v1/sources/street-0").json()["config"]["confidence"] == 0.4
        again.lookout.stop()
        check = [sys.executable, "-m", "daemon", "check", "-c", str(again.lookout.config)]
        done = subprocess.run(check, cwd=ROOT, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
        assert words in done.stderr + done.stdout
