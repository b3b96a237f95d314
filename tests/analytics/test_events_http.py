"""Events of a running daemon: over HTTP, on the wire and on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from daemon.analytics.event import Event as Found
from daemon.build import build
from daemon.cli import invoke
from daemon.clock import SystemClock
from daemon.commands.events import line_of
from daemon.commands.watch import View
from daemon.config.events import EventsConfig, SnapshotsConfig
from daemon.config.http import HttpConfig
from daemon.config.model import ModelConfig
from daemon.config.publisher import PublisherConfig
from daemon.config.root import Config, MonitorConfig
from daemon.config.sources import SyntheticConfig
from daemon.redact import Secret
from daemon.seams import Seams
from detectors.fake.detector import FakeDetector
from lookout.client import Subscriber
from lookout.messages import Counts, Detections, Event, Unseen, decode
from tests.support.daemon import PATIENCE_S, ROOT, receive_until, wait_until
from tests.support.events import Rig, crossing, frame
from tests.support.ports import free_port
from tests.support.served import HEADERS, TOKEN


def _pictures(folder: Path | None) -> SnapshotsConfig | None:
    return SnapshotsConfig(folder=folder, min_free_mib=0) if folder else None


class Running:
    """A daemon in this process whose rules are the test.

    Args:
        journal: path, or off.
    """

    def __init__(self, journal: str, snapshots: Path | None = None) -> None:
        self.port = free_port()
        config = Config(
            model=ModelConfig(path=Path("none")),
            sources=[SyntheticConfig(id="street", fps=5, width=32, height=32)],
            publisher=PublisherConfig(endpoint="tcp://127.0.0.1:*"),
            monitor=MonitorConfig(interval_s=0.2),
            events=EventsConfig(journal=journal, counts_interval_s=0.2, snapshots=_pictures(snapshots)),
            http=HttpConfig(enabled=True, port=self.port, token=Secret(TOKEN)),
        )
        self.app = build(config, Seams(open_detector=lambda _, options: FakeDetector(options)))
        self.app.start()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, headers=HEADERS, timeout=PATIENCE_S)

    def get(self, path: str) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def close(self) -> None:
        self.client.close()
        self.app.stop()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events") / "events.sqlite"


@pytest.fixture(scope="module")
def running(path: Path) -> Iterator[Running]:
    running = Running(str(path))
    yield running
    running.close()


def _is_event(message: object) -> bool:
    return isinstance(message, Event)


def test_a_subscriber_that_was_away_gets_the_rest(running: Running) -> None:
    """What it missed is what others got."""
    app = running.app
    with Subscriber(app.endpoint, kinds=("events",)) as subscriber:
        assert app.parts.publishing.publisher.has_subscribers.wait(PATIENCE_S)
        app.events.on_event(crossing(0))
        (seen,) = receive_until(subscriber, _is_event)
        assert isinstance(seen, Event)
    with Subscriber(app.endpoint, kinds=("events", "counts")) as other:
        wait_until(lambda: other.receive(0.1), "counts come")
        for seq in range(1, 6):
            app.events.on_event(crossing(seq))
        missed = [receive_until(other, _is_event)[-1] for _ in range(5)]
    wait_until(lambda: running.get("/api/v1/events?limit=1")["events"][0]["seq"] == 5, "they are written")
    since, found = seen.number, list[Any]()
    while True:
        page = running.get(f"/api/v1/events?since={since}&limit=2")
        found += page["events"]
        since = page["next"]
        if not page["more"]:
            break
    assert [decode(b"events/street/", json.dumps({**row, "index": 0}).encode()) for row in found] == [
        decode(b"events/street/", json.dumps({**_plain(row), "index": 0}).encode()) for row in missed
    ]
    assert running.get(f"/api/v1/events?since={since}")["events"] == []
    app.events.on_event(crossing(6, source="yard"))
    wait_until(lambda: running.get(f"/api/v1/events?since={since}")["events"], "the next one comes")
    (row,) = running.get(f"/api/v1/events?since={since}&source=yard&rule=door&kind=line")["events"]
    assert row["seq"] == 6
    page = running.get("/api/v1/events?source=nobody")
    assert (page["events"], page["more"], page["lost"]) == ([], False, 0)
    assert page["next"] == row["number"]


def _plain(message: object) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(message)
    return plain


def test_counts_are_the_same_everywhere(running: Running) -> None:
    app = running.app
    with Subscriber(app.endpoint, kinds=("counts",), sources=["park"]) as subscriber:
        assert app.parts.publishing.publisher.has_subscribers.wait(PATIENCE_S)
        app.events.on_event(crossing(source="park", kind="zone", phase="entered", rule="lawn", direction=None))
        (*_, counts) = receive_until(subscriber, lambda message: isinstance(message, Counts))
    (row,) = running.get("/api/v1/counts?source=park")["counts"]
    assert isinstance(counts, Counts)
    assert row["totals"] == _plain(counts)["totals"]
    assert row["occupancy"] == [{"rule": "lawn", "label": "car", "count": 1}]
    assert row["since"] == counts.since
    assert "park" in [other["source"] for other in running.get("/api/v1/counts")["counts"]]
    text = running.client.get("/metrics").text
    labels = 'direction="",kind="zone",label="car",phase="entered",rule="lawn",source="park"'
    assert f"lookout_events_total{{{labels}}} 1.0" in text
    assert 'lookout_zone_tracks{rule="lawn",source="park"} 1.0' in text
    assert "lookout_journal_lost_events_total 0.0" in text


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("since=-1", "since: must be a whole number from 0 to"),
        ("since=1e3", "since: must be"),
        ("since=", "since: is empty"),
        ("since=1&since=2", "since: is given twice"),
        (f"since={'9' * 40}", "since: must be"),
        ("limit=0", "limit: must be a whole number from 1 to 1000, not '0'"),
        ("limit=1001", "limit: must be"),
        ("limit=²", "limit: must be"),
        ("kind=zebra", "kind: 'zebra' is not one of object, zone, line, gate, crowd"),
        ("after=5", "'after' is not a parameter: there are since, "),
        (f"rule={'x' * 300}", "rule: is longer than 200"),
    ],
)
def test_bad_queries_are_one_line(running: Running, query: str, words: str) -> None:
    answer = running.client.get(f"/api/v1/events?{query}")
    assert answer.status_code == 400
    assert words in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


def test_bad_queries_of_counts(running: Running) -> None:
    answer = running.client.get("/api/v1/counts?since=5")
    assert (answer.status_code, answer.json()["error"]) == (400, "'since' is not a parameter: there are source")


@pytest.mark.parametrize("place", ["/api/v1/events", "/api/v1/counts"])
def test_a_token_is_needed(running: Running, place: str) -> None:
    assert httpx.get(f"{running.url}{place}").status_code == 401


def test_the_command_line_shows_the_journal(
    running: Running, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOKOUT_TOKEN", TOKEN)
    running.app.events.on_event(crossing(99, source="gate"))
    wait_until(lambda: running.get("/api/v1/events?source=gate")["events"], "it is written")
    assert invoke(["events", running.url, "--since", "0", "--source", "gate", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["seq"] == 99
    assert invoke(["events", running.url, "--source", "gate"]) == 0
    assert "gate  line crossed  door  forward  car  track 7" in capsys.readouterr().out
    monkeypatch.setenv("LOOKOUT_TOKEN", "another")
    assert invoke(["events", running.url]) == 2
    assert "answers 401: the token is none of this daemon's" in capsys.readouterr().err
    monkeypatch.delenv("LOOKOUT_TOKEN")
    assert invoke(["events", running.url]) == 2
    assert "answers 401: a bearer token is needed" in capsys.readouterr().err


def test_the_command_line_refuses_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (["tcp://127.0.0.1:1", "--since", "5"], "--since is for the journal"),
        ([f"http://127.0.0.1:{free_port()}"], "does not answer"),
        (["http://"], "does not answer"),
        (["127.0.0.1"], "cannot subscribe"),
    ):
        assert invoke(["events", *arguments]) == 2
        error = capsys.readouterr().err.strip()
        assert words in error
        assert "\n" not in error


@pytest.mark.parametrize("command", [["-m", "daemon", "events"], [str(ROOT / "docs" / "examples" / "events.py")]])
def test_crossings_are_printed_as_they_happen(running: Running, command: list[str]) -> None:
    """By the command, and by the document's example with nothing but pyzmq."""
    publisher = running.app.parts.publishing.publisher
    wait_until(lambda: not publisher.metrics().subscriptions, "the subscribers of other tests are gone")
    reader = subprocess.Popen([sys.executable, *command, running.app.endpoint], stdout=subprocess.PIPE, cwd=ROOT)
    try:
        wait_until(lambda: publisher.metrics().subscriptions, "it has subscribed")
        running.app.events.on_event(crossing(7))
        assert reader.stdout is not None
        line = reader.stdout.readline().decode()
    finally:
        reader.kill()
        reader.communicate()
    for word in ("street", "door", "forward", "car", "7"):
        assert word in line.split()


def test_a_line_for_a_person() -> None:
    event = Event(id="i-1", number=1, instance="i", source="yard", session="s", index=0, kind="zone", phase="left",
                  seq=1, pts=None, at=1_700_000_000_000_000_000, confirmed_seq=2, confirmed_at=1, rule="lawn\x1b[31m",
                  track=5, label="dog", dwell=2_500_000_000, reason="lost", unseen=Unseen(4, 800_000_000))  # fmt: skip
    assert line_of(event) == (
        "2023-11-14T22:13:20+00:00  yard  zone left  lawn\ufffd[31m  dog  track 5  2.5 s  lost  "
        "(4 frames unseen, 0.8 s at most)"
    )


def test_watch_shows_the_last_event(running: Running) -> None:
    with Rig(None, SystemClock()) as rig, Subscriber(running.app.endpoint) as subscriber:
        view = View("here")
        rig.events.on_event(crossing())
        rig.events.flush()
        for message in rig.reports():
            view.add(message)
        assert "last event: " in str(view.render(subscriber).caption)
        assert "line crossed  door  forward  car  track 7" in str(view.render(subscriber).caption)


def test_the_examples_stand_in_the_document() -> None:
    text = (ROOT / "docs" / "wire.md").read_text()
    example = (ROOT / "docs" / "examples" / "events.mjs").read_text()
    assert example.partition('socket.subscribe("events/");')[2] in text


def test_without_a_journal_there_are_counts_and_no_events() -> None:
    running = Running("off")
    try:
        answer = running.client.get("/api/v1/events")
        assert (answer.status_code, answer.json()["error"]) == (404, "no journal is kept: set events.journal")
        answer = running.client.get("/api/v1/events/run-1/snapshot.jpg")
        assert (answer.status_code, "set events.snapshots" in answer.json()["error"]) == (404, True)
        running.app.events.on_event(crossing())
        assert running.get("/api/v1/counts")["counts"][0]["totals"][0]["count"] == 1
        assert "lookout_journal_lost_events" not in running.client.get("/metrics").text
    finally:
        running.close()


def test_the_picture_of_an_event_is_served(tmp_path: Path) -> None:
    """Of a frame that comes: a lane's stages find an event before the picture is asked for."""
    running = Running("off", tmp_path / "snapshots")
    app = running.app
    try:
        answer = running.client.get("/api/v1/events/run-1/snapshot.jpg")
        assert (answer.status_code, "no picture of this event" in answer.json()["error"]) == (404, True)
        with Subscriber(app.endpoint, kinds=("detections", "events"), sources=["street"]) as subscriber:
            (*_, seen) = receive_until(subscriber, lambda message: isinstance(message, Detections))
            assert isinstance(seen, Detections)
            coming = frame(seen.seq + 20)
            app.events.on_event(Found("line", "crossed", "street", "door", coming, coming))
            (*_, event) = receive_until(subscriber, _is_event)
        assert isinstance(event, Event)
        assert event.snapshot is not None
        wait_until(lambda: running.client.get(str(event.snapshot)).is_success, "the picture is there")
        answer = running.client.get(event.snapshot)
        assert answer.headers["content-type"] == "image/jpeg"
        assert answer.content[:2] == b"\xff\xd8"
        assert httpx.get(f"{running.url}{event.snapshot}").status_code == 401
        assert "lookout_snapshots_lost_total 0.0" in running.client.get("/metrics").text
    finally:
        running.close()


def test_a_daemon_that_starts_again_goes_on(tmp_path: Path) -> None:
    path = str(tmp_path / "events.sqlite")
    first = Running(path)
    first.app.events.on_event(crossing())
    first.close()
    second = Running(path)
    try:
        (old,) = second.get("/api/v1/events")["events"]
        (counts,) = second.get("/api/v1/counts")["counts"]
        assert counts["totals"][0]["count"] == 1
        assert counts["since"] < counts["at"]
        second.app.events.on_event(crossing(1))
        wait_until(lambda: len(second.get("/api/v1/events")["events"]) == 2, "it is written")
        new = second.get("/api/v1/events")["events"][1]
        assert new["number"] > old["number"]
        assert new["instance"] != old["instance"]
    finally:
        second.close()
