"""The page's server in front of a real daemon: its API, its feed and its live video."""

from __future__ import annotations

import base64
import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import av
import httpx
import msgspec
import pytest
import yaml
import zmq

from daemon.config.http import DashboardConfig
from daemon.dashboard import live as live_video
from daemon.peers import subscription
from daemon.peers.addresses import DaemonAddress
from lookout.messages import Packets, decode, topic
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, ROOT, wait_until
from tests.support.page import Page, address_of
from tests.support.ports import free_port
from tests.support.served import Served, street
from tests.support.websocket import ClosedError, WebSocketClient

pytestmark = pytest.mark.needs("ffmpeg")
_RULE = {"type": "line", "name": "middle", "points": [[0.5, 0.0], [0.5, 1.0]]}


@pytest.fixture(scope="module")
def served(long_clip: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    sources = [
        street("street-0", width=640, height=360, fps=5, tracking=True, rules=[_RULE]),
        street("street-1", fps=5),
        {"id": "cam", "type": "av", "url": str(long_clip), "loop": True},
    ]
    folder = tmp_path_factory.mktemp("page")
    http: dict[str, object] = {"sources_file": str(folder / "sources.json")}
    model = {"path": str(DEMO_MODEL), "backend": "cpu", "threads": 1}
    with Served(folder, http, sources=sources, model=model, events={"journal": str(folder / "events.db")}) as found:
        yield found


@pytest.fixture(scope="module")
def page(served: Served) -> Iterator[Page]:
    with Page([address_of(served)]) as found:
        yield found


def _media(socket: WebSocketClient, pictures: int) -> tuple[dict[str, object], bytes]:
    """The beginning of a stream, and so many bytes of it that this many pictures are in it."""
    init, count = socket.until("init"), 0
    blob = base64.b64decode(str(init["segment"]))
    while count < pictures:
        part = socket.next()
        if isinstance(part, bytes):
            blob += part[8:]  # behind the time when it came
            count += part.count(b"moof")
            continue
        told = msgspec.json.decode(part)
        assert told["kind"] in ("skipped", "waiting", "init")  # a busy machine, or a source that has just begun again
        if told["kind"] == "init":
            init, blob, count = told, base64.b64decode(told["segment"]), 0
    return init, blob


def _beginning(socket: WebSocketClient) -> dict[str, object]:
    """The beginning of a stream, before which no pictures come."""
    while isinstance(text := socket.next(), str):
        told: dict[str, object] = msgspec.json.decode(text)
        if told["kind"] == "init":
            return told
    raise AssertionError("there are pictures before it")


def test_its_api_shows_what_there_is(page: Page) -> None:
    (daemon,) = page.get("/api/daemons")
    assert (daemon["name"], daemon["state"], daemon["http"], daemon["persists"]) == ("here", "up", True, True)
    wait_until(lambda: all(row["state"] == "up" for row in page.sources().values()), "all are up")
    rows = page.sources()
    assert {id: row["live"] for id, row in rows.items()} == {"street-0": "jpeg", "street-1": "jpeg", "cam": "mse"}
    assert (rows["cam"]["width"], rows["cam"]["codec"], rows["street-0"]["tracking"]) == (320, "h264", True)
    config = page.get("/api/sources/here/street-0/config")
    assert config["config"]["rules"][0]["name"] == "middle"
    assert page.get("/api/session") == {"role": "operate", "login": False, "version": daemon["version"]}
    wait_until(lambda: page.get("/api/health/here")["series"]["t"], "a report has come")
    assert page.get("/api/health/here")["metrics"]["sources"].keys() == rows.keys()
    for path in ("/api/health/none", "/api/sources/here/none/recent", "/api/still/here/none", "/api/events/here/x"):
        assert page.client.get(path).status_code == 404


def test_a_still_is_a_frame_of_which_the_browser_has_a_copy(page: Page) -> None:
    first = page.client.get("/api/still/here/street-0")
    assert first.content.startswith(b"\xff\xd8")
    assert int(first.headers["x-seq"]) >= 0
    assert int(first.headers["x-pts"]) >= 0

    def again() -> int:
        return page.client.get("/api/still/here/street-0", headers={"If-None-Match": first.headers["etag"]}).status_code

    wait_until(lambda: again() == 200, "there is another")


def test_files_have_tags_and_nothing_outside_is_one(page: Page) -> None:
    first = page.client.get("/")
    assert first.headers["content-encoding"] == "gzip"
    assert "script-src 'self'" in first.headers["content-security-policy"]
    for path in ("/events", "/camera/here/cam", "/rules/here/cam"):
        assert page.client.get(path, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    for name in ("../routes.py", "%2e%2e/routes.py", ".", "", "index.py", "//etc/passwd"):
        assert page.client.get(f"/static/{name}").status_code == 404


def test_the_feed_has_what_was_asked_for(page: Page) -> None:
    with page.socket("/api/feed") as feed:
        assert feed.until("daemon")["state"] == "up"
        feed.send({"sources": [["here", "street-1"]], "metrics": True, "events": True})
        found = feed.until("detections")
        assert (found["daemon"], found["message"]["source"]) == ("here", "street-1")
        assert feed.until("metrics")["message"]["sources"]
        assert feed.until("drops")["source"] in page.sources()
        wait_until(lambda: page.get("/api/sources/here/street-0/recent")["tracks"], "tracks are remembered")
        feed.send({"sources": "all"})
        with pytest.raises(ClosedError, match="1008"):
            feed.until("none of these")
    points = page.get("/api/sources/here/street-0/recent")["tracks"][0]["points"]
    assert all(0 <= x <= 1 and top < bottom <= 1.5 and width > 0 for _, x, bottom, top, width in points)


def test_events_are_listed_with_a_link_to_each(page: Page) -> None:
    wait_until(lambda: len(page.get("/api/events", source="street-0", rule="middle")["events"]) >= 3, "some happened")
    first = page.get("/api/events", limit="1", type="line")
    (event,) = first["events"]
    assert page.get(f"/api/events/here/{event['id']}")["rule"] == "middle"
    (before,) = page.get("/api/events", limit="1", type="line", cursor=first["cursor"])["events"]
    assert before["number"] < event["number"]
    assert page.get("/api/events", label=event["label"], after=str(event["at"] / 1e9 + 3600))["events"] == []
    assert page.client.get("/api/events", params={"colour": "red"}).status_code == 400


def test_sources_are_tried_added_changed_and_removed(page: Page, served: Served) -> None:
    new = {"id": "new", "type": "synthetic", "width": 64, "height": 48, "fps": 5}
    tried = page.client.post("/api/sources/here?dry_run=true", json=new).json()
    assert (tried["ok"], "64x48" in tried["lines"][0]) == (True, True)
    bad = page.client.patch("/api/sources/here/street-1?dry_run=true", json={"labels": ["cow"]}).json()
    assert (bad["ok"], "cow" in bad["lines"][0]) == (False, True)
    with page.socket("/api/feed") as feed:
        answer = page.client.post("/api/sources/here", json=new)
        assert (answer.status_code, answer.headers["x-persisted"]) == (201, "true")
        assert feed.until("sources")["daemon"] == "here"
    assert "new" in page.sources()
    rules = {"tracking": True, "rules": [_RULE]}
    assert page.client.patch("/api/sources/here/new", json=rules).json()["config"]["rules"]
    assert page.client.patch("/api/sources/here/new", json={"enabled": False}).is_success
    wait_until(lambda: page.sources()["new"]["state"] == "disabled", "it is disabled")
    assert page.client.delete("/api/sources/here/new").status_code == 204
    wait_until(lambda: "new" not in page.sources(), "it is gone")
    assert "new" not in {row["config"]["id"] for row in served.client.get("/api/v1/sources").json()}


def test_a_change_is_made_to_what_was_seen_alone(page: Page) -> None:
    seen = page.get("/api/sources/here/street-1/config")["tag"]
    first = page.client.patch("/api/sources/here/street-1", json={"max_fps": 5}, headers={"If-Match": seen})
    assert first.is_success
    late = page.client.patch("/api/sources/here/street-1", json={"max_fps": 6}, headers={"If-Match": seen})
    assert (late.status_code, "meanwhile" in late.json()["error"]) == (412, True)
    assert page.get("/api/sources/here/street-1/config")["config"]["max_fps"] == 5
    now = {"If-Match": first.headers["etag"]}
    assert page.client.patch("/api/sources/here/street-1", json={"max_fps": None}, headers=now).is_success


def test_a_source_that_is_down_is_not_said_to_be_without_video(page: Page) -> None:
    """Nobody knows yet what it sends. Its states are remembered for who looks later."""
    gone = {"id": "gone", "type": "av", "url": "rtsp://127.0.0.1:1/none"}
    assert page.client.post("/api/sources/here", json=gone).is_success
    wait_until(lambda: page.sources()["gone"]["reason"], "it is down")
    assert page.sources()["gone"]["live"] is None
    with page.socket("/api/live/here/gone") as live:
        assert live.until("waiting")["reason"].startswith("the source, which is")  # down, or it tries again
    states = page.get("/api/sources/here/gone/states")
    assert all(row["reason"] for row in states if row["state"] == "down")
    assert page.client.delete("/api/sources/here/gone").is_success
    wait_until(lambda: page.client.get("/api/sources/here/gone/states").status_code == 404, "it is forgotten")


def test_a_daemon_that_does_not_answer_keeps_no_other_waiting(served: Served) -> None:
    with ExitStack() as stack:
        deaf = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        known = address_of(served)
        silent = DaemonAddress("silent", known.endpoint, f"http://127.0.0.1:{deaf.getsockname()[1]}", known.token)
        page = stack.enter_context(Page([known, silent]))
        pool = stack.enter_context(ThreadPoolExecutor(12))
        path = f"{page.url}/api/events?daemon=silent"
        waiting = [pool.submit(httpx.get, path, timeout=PATIENCE_S) for _ in range(12)]
        with ExitStack() as asked:
            for _ in range(4):  # so many at once
                asked.enter_context(deaf.accept()[0])
            assert page.get("/api/events", daemon="here")["missing"] == []
            assert not any(row.done() for row in waiting)
            assert page.client.get("/api/still/silent/none").status_code == 404  # without asking it
            deaf.close()


def test_each_detections_message_has_its_shown_picture(page: Page) -> None:
    """The pts of a message is the pts of a picture, as the browser calculates it. A busy machine drops frames."""
    with page.socket("/api/feed") as feed, page.socket("/api/live/here/cam") as live:
        feed.send({"sources": [["here", "cam"]]})
        init, blob = _media(live, 40)
        with av.open(io.BytesIO(blob)) as video:
            frames = [frame.time for frame in video.decode(video=0)]
        shown = [int(str(init["base_pts"])) + round(float(time or 0) * 1e9) for time in frames]
        detected: set[int] = set()
        while max(detected, default=0) < max(shown):
            detected.add(feed.until("detections")["message"]["pts"])
        within = [pts for pts in detected if min(shown) <= pts <= max(shown)]
        misses = [pts for pts in within if min(abs(pts - other) for other in shown) > 1000]
    assert init["mime"].startswith('video/mp4; codecs="avc1.')  # type: ignore[attr-defined]
    assert len(shown) >= 39
    assert within
    assert misses == []


def test_one_muxer_serves_all_viewers_and_who_comes_later_need_not_wait(page: Page) -> None:
    with page.socket("/api/live/here/cam") as first:
        _media(first, 3)
        others = [page.socket("/api/live/here/cam") for _ in range(10)]
        for other in others:
            init, _ = _media(other, 2)
            assert init["turns"] == 0
        assert sum(key == ("here", "cam") for key in page.dashboard.live._streams) == 1
        for other in others:
            other.close()


def test_nobody_pays_before_somebody_asks_exactly(served: Served, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription to everything is no demand, and what it gets is what others asked for."""
    monkeypatch.setattr(live_video, "_LINGER_S", 0.2)
    with page.socket("/api/live/here/cam") as live:
        _media(live, 1)
        endpoint = page.dashboard.live._endpoints["here"]
    with zmq.Context() as context, context.socket(zmq.SUB) as main, context.socket(zmq.SUB) as packets:
        main.setsockopt(zmq.SUBSCRIBE, topic("packets", "street-0"))
        main.connect(served.lookout.endpoint)
        assert main.poll(60_000)
        answer = decode(*main.recv_multipart())
        assert isinstance(answer, Packets)
        assert answer.endpoint == endpoint
        packets.setsockopt(zmq.SUBSCRIBE, b"")
        packets.setsockopt(zmq.LINGER, 0)
        packets.connect(answer.endpoint or "")

        def is_silent() -> bool:
            """Once the page's own subscription has ended."""
            while packets.poll(500):
                frames = packets.recv_multipart()
                assert len(frames) == 3
                assert msgspec.json.decode(frames[1])["source"] == "cam"
                if not page.dashboard.live._streams:
                    return not packets.poll(700)
            return True

        wait_until(is_silent, "no packets come")


def test_sources_without_packets_say_so(page: Page) -> None:
    with page.socket("/api/live/here/street-0") as drawn, page.socket("/api/live/here/none") as none:
        assert "drawn" in drawn.until("jpeg")["reason"]
        assert none.until("ended")["reason"]


def test_a_viewer_is_told_when_the_source_goes_and_comes(page: Page) -> None:
    with page.socket("/api/live/here/cam") as live:
        _media(live, 2)
        assert page.client.patch("/api/sources/here/cam", json={"max_fps": 7}).is_success
        live.until("waiting")
        init, _ = _media(live, 2)
        assert init["session"]
        assert page.client.patch("/api/sources/here/cam", json={"enabled": False}).is_success
        assert live.until("ended")["reason"]
    assert page.client.patch("/api/sources/here/cam", json={"enabled": True, "max_fps": None}).is_success
    wait_until(lambda: page.sources()["cam"]["state"] == "up", "it is back")


def test_who_comes_after_the_daemon_was_away_sees_the_stream_that_went_on(page: Page) -> None:
    """Its connection was lost for a moment, and that to the packets was not."""
    hub = page.dashboard.hub
    assert hub.loop is not None
    with page.socket("/api/live/here/cam") as first:
        _media(first, 2)
        hub.loop.call_soon_threadsafe(hub._on_state, "here", "away", "for a moment")
        hub.loop.call_soon_threadsafe(hub._on_state, "here", "up", None)
        first.until("waiting")
        with page.socket("/api/live/here/cam") as second:
            _media(second, 2)


def test_who_comes_before_the_state_of_a_new_session_need_not_wait_for_another(page: Page) -> None:
    """Packets tell of a session before the source's state does, or the state was lost."""
    hub = page.dashboard.hub
    assert hub.loop is not None
    wait_until(lambda: page.sources()["cam"]["state"] == "up", "it is up")
    with page.socket("/api/live/here/cam") as first:
        now = _media(first, 2)[0]["session"]
        daemon = hub.daemons["here"]
        known = daemon.statuses["cam"]
        daemon.statuses["cam"] = msgspec.structs.replace(known, session="an earlier one")
        with page.socket("/api/live/here/cam") as second:
            assert second.until("waiting")["reason"].startswith("a key picture")
            stream = page.dashboard.live._streams["here", "cam"]
            key = stream.gop[:1]
            wait_until(lambda: stream.gop[:1] not in ([], key), "another key picture has come")
            daemon.statuses["cam"] = known
            hub.loop.call_soon_threadsafe(page.dashboard.live.on_change, "here", "cam")
            assert _beginning(second)["session"] == now
            while not isinstance(second.next(), bytes):
                pass


def test_it_ends_under_its_viewers(served: Served) -> None:
    before = {thread.name for thread in threading.enumerate()}
    with Page([address_of(served)]) as page:
        viewers = [page.socket(path) for path in ("/api/feed", "/api/live/here/cam", "/api/live/here/street-0")]
        _media(viewers[1], 1)
    wait_until(lambda: {thread.name for thread in threading.enumerate()} <= before, "its threads have ended")
    for viewer in viewers:
        with pytest.raises((ClosedError, OSError, AssertionError)):
            viewer.until("nothing that comes")
        viewer.close()


def test_a_daemon_that_stands_still_is_away_within_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped, and its connections stay: nothing but silence tells."""
    monkeypatch.setattr(subscription, "_HEARTBEAT_MS", 200)
    monkeypatch.setattr(subscription, "_NO_ANSWER_MS", 1000)
    with Served(tmp_path) as served, Page([address_of(served)]) as page, page.socket("/api/feed") as feed:
        served.lookout.process.send_signal(signal.SIGSTOP)
        while (daemon := feed.until("daemon"))["state"] != "away":
            pass
        assert (
            "does not answer" in daemon["reason"]
        )  # and not that its figures are missed, which takes a minute and more
        assert {row["state"] for row in page.sources().values()} == {"away"}
        served.lookout.process.send_signal(signal.SIGCONT)
        while feed.until("daemon")["state"] != "up":
            pass
        wait_until(lambda: {row["state"] for row in page.sources().values()} == {"up"}, "its sources are back")


def test_a_daemon_that_goes_and_comes_back(tmp_path: Path) -> None:
    """Found by its HTTP API alone, beside another that never was there."""
    nowhere = DaemonAddress("nowhere", "tcp://127.0.0.1:1", None)
    with Served(tmp_path) as served:
        address = address_of(served)
        known = DaemonAddress("here", None, address.http, address.token)
        with Page([known, nowhere], DashboardConfig()) as page, page.socket("/api/feed") as feed:
            served.lookout.process.kill()
            served.lookout.process.wait()
            while (daemon := feed.until("daemon"))["state"] != "away":
                pass
            assert daemon["reason"]
            assert {row["state"] for row in page.sources().values()} == {"away"}
            assert page.client.get("/api/still/here/street-0").status_code == 503
            served.lookout.restart()
            while feed.until("daemon")["state"] != "up":
                pass
            wait_until(lambda: {row["state"] for row in page.sources().values()} == {"up"}, "its sources are back")
            states = {row["name"]: row["state"] for row in page.get("/api/daemons")}
            assert states["here"] == "up"
            assert states["nowhere"] in ("connecting", "away")


def test_a_terminal_is_told_where_the_page_is(tmp_path: Path) -> None:
    """In a line of its own, and not in the log alone."""
    config = {
        "model": {"path": str(DEMO_MODEL), "threads": 1},
        "sources": [street("street-0", fps=2)],
        "publisher": {"endpoint": f"tcp://127.0.0.1:{free_port()}"},
        "dashboard": {"port": 0},
        "log": {"format": "json"},
    }
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    ours, its = os.openpty()
    command = [sys.executable, "-m", "daemon", "run", "-c", str(file), "--dashboard"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=its, stderr=its) as process:
        os.close(its)
        try:
            said = b""
            while not (found := re.search(rb"^the page: (\S+)\r\n", said, re.M)):
                said += os.read(ours, 65536)
            assert "<title>Lookout" in httpx.get(found[1].decode(), timeout=PATIENCE_S).text
        finally:
            process.kill()
            os.close(ours)
