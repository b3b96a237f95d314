"""Rules that are asked of the past: the events are those that live rules gave, and what could not be seen is named."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from daemon.cli import invoke
from daemon.clock import SystemClock, utc_text
from daemon.config.recording import RecordConfig, StoreConfig
from daemon.config.root import LogConfig
from daemon.http.access import Access
from daemon.http.routes import application
from daemon.playback.audit import Audit
from daemon.playback.opened import PlayPlace
from daemon.playback.process import PlaybackProcess, playback_order
from daemon.playback.searches import Searches
from daemon.playback.stores import Stores
from daemon.recording.scan import scan
from daemon.recording.search.answers import Answer
from daemon.recording.search.asked import SearchError
from daemon.recording.store import Store
from daemon.recording.tracks.track_records import BLOCK, HEAD, MAGIC, SERVED, record_of, records_in, tracks_path
from tests.recording.playback_rig import HTTP, OPERATE, VIEW, served
from tests.recording.rig import SECOND
from tests.recording.watching import RULES, Watching, end_of, past, said, unseen
from tests.support.asgi import InProcess, event_loop
from tests.support.daemon import PATIENCE_S, wait_until
from tests.support.recorded import Clip, clip


@pytest.fixture(scope="module")
def camera(clips: Path) -> Clip:
    return clip(clips, "h264")


def _random_scene(folder: Path, camera: Clip, seed: int) -> Watching:
    """Objects come and go; frames are dropped, connections break, pictures change their size, rules beside those that
    are asked come and go, and recorders are killed."""
    draw = random.Random(seed)
    rig = Watching(folder / f"store-{seed}", camera, seed=seed)
    others = [{"type": "line", "name": "other", "points": [[0.1, 0.1], [0.9, 0.9]]}]
    rig.announce("up")
    for number in range(draw.randrange(4, 9)):
        rig.show(draw.uniform(0.5, 12), objects=draw.choice([0, 1, 2, 6]), drops=draw.choice([0, 0, 0.1, 0.6]))
        match draw.randrange(7):
            case 0:
                rig.break_off(draw.choice([0.3, 0.9, 1.4, 2.1, 5.0]), f"session-{number}")
            case 1:
                rig.use([*others, *RULES] if draw.random() < 0.5 else RULES)
            case 2:
                rig.kill()
                rig.show(1.0, objects=2, turns=False)
                rig.start()
            case 3:
                rig.size = draw.choice([(1920, 1080), (704, 576), (640, 480)])
            case 4:
                rig.show(draw.uniform(0.2, 3), objects=3, drops=1.0)
    rig.show(3.0)
    rig.announce("ended")
    rig.finish()
    return rig


def _check(rig: Watching, seed: int) -> int:
    """Each rule finds the events that it gave, of all and of a part of the time; returns how many."""
    draw, count = random.Random(seed), 0
    first, last = rig.frames[0].captured_at - SECOND, rig.clock.utc_ns()
    for rule in RULES:
        live = rig.events(rule)
        answers = rig.ask(rule, first)
        assert [said(event) for event in past(answers)] == [said(event) for event in live], (seed, rule["name"])
        assert not any(event.partial for event in past(answers))
        end = end_of(answers)
        assert end.events == len(live)
        assert end.seen_s + end.unseen_s == pytest.approx((last - first) / SECOND, abs=0.002)
        begin, until = sorted(draw.randrange(first, last) for _ in range(2))
        part = [said(event) for event in live if begin <= event.confirmed_at < until]
        assert [said(event) for event in past(rig.ask(rule, begin, until))] == part, (seed, rule["name"])
        count += len(live)
    return count


@pytest.mark.parametrize("seed", [0, 2])
def test_rules_find_the_events_that_they_gave(tmp_path: Path, camera: Clip, seed: int) -> None:
    """To the last field, but for ids and numbers, which are given out once."""
    assert _check(_random_scene(tmp_path, camera, seed), seed) > 10


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 200))
def test_rules_find_the_events_that_they_gave_in_many_scenes(tmp_path: Path, camera: Clip, seed: int) -> None:
    _check(_random_scene(tmp_path, camera, seed), seed)


# --- what could not be seen ------------------------------------------------------------------------------------------

_MANY = 4000
_LINE = RULES[2]


def _causes(answers: Sequence[Answer]) -> list[tuple[str, float]]:
    """Causes and seconds of what was not seen."""
    return [(row.cause, round((row.end - row.begin) / SECOND, 1)) for row in unseen(answers)]


def _tracks(rig: Watching, number: int) -> Path:
    with closing(Store.open(rig.folder)) as store:
        return rig.folder / tracks_path([*store.files()][number])


def test_what_could_not_be_seen_is_named(tmp_path: Path, camera: Clip) -> None:
    rig = Watching(tmp_path / "store", camera)
    rig.announce("up")
    rig.show(20, objects=4)
    rig.show(2, objects=4, drops=1.0)
    rig.show(8, objects=4)
    rig.break_off(6, "bbbb")
    rig.show(40, objects=4)
    rig.finish()
    answers = rig.ask(_LINE)
    # A frame is captured some pictures later than its packet comes.
    assert _causes(answers) == [("dropped", 2.1), ("source_down", pytest.approx(6.1, abs=0.3))]
    dropped, _ = unseen(answers)
    assert dropped.detail == "30 frames"
    whole = end_of(answers)
    assert whole.unseen_s == pytest.approx(8.1, abs=0.3)
    found = [said(event) for event in past(answers)]
    assert found == [said(event) for event in rig.events(_LINE)]
    first, second = (_tracks(rig, number) for number in (0, 2))
    kept = second.read_bytes()
    second.write_bytes(kept[: len(kept) // 2] + b"?" + kept[len(kept) // 2 + 1 :])
    assert [cause for cause, _ in _causes(rig.ask(_LINE))] == ["dropped", "source_down", "damaged"]
    second.write_bytes(first.read_bytes())
    assert [cause for cause, _ in _causes(rig.ask(_LINE))] == ["dropped", "source_down", "other_video"]
    second.unlink()
    answers = rig.ask(_LINE)
    causes = _causes(answers)
    assert [cause for cause, _ in causes] == ["dropped", "source_down", "no_tracks"]
    assert causes[2][1] == pytest.approx(37, abs=1)
    until = unseen(answers)[2].begin
    assert [said(event) for event in past(answers)] == [
        said(event) for event in rig.events(_LINE) if event.confirmed_at < until
    ]


def test_events_after_boxes_that_are_missing_are_marked(tmp_path: Path, camera: Clip) -> None:
    """Objects are always there, and the boxes of a file are gone. Tracks that were there
    before, or are older, may lack something. Those that begin afterwards lack nothing."""
    rig = Watching(tmp_path / "store", camera)
    rig.announce("up")
    rig.show(10, objects=3, lasts=34)
    for session in ("bbbb", "cccc"):
        rig.break_off(0.3, session)  # so short that tracks go on
        rig.send(12)
    rig.show(4)
    rig.show(8, objects=3)
    rig.show(4)
    rig.finish()
    yard = RULES[0]
    _tracks(rig, 1).unlink()
    answers = rig.ask(yard)
    missing = next(row for row in unseen(answers) if row.cause == "no_tracks")
    assert (missing.end - missing.begin) / SECOND == pytest.approx(12, abs=1)
    live = [said(event) for event in rig.events(yard)]
    whole = [said(event) for event in past(answers) if not event.partial]
    assert all(event in live for event in whole)
    assert any(event.partial for event in past(answers))
    later = rig.frames[-1].captured_at - 12 * SECOND
    assert [event for event in whole if event["confirmed_at"] > later] == [
        event for event in live if event["confirmed_at"] > later
    ]
    # Nothing of before the third file is read: a track that is there was not seen to begin.
    begin = missing.end + SECOND
    cut = past(rig.ask(yard, begin, look_back_ns=SECOND))
    assert any(event.partial for event in cut)
    assert all(said(event) in live for event in cut if not event.partial)


# --- by the command and over HTTP ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, camera: Clip) -> Watching:
    rig = Watching(tmp_path_factory.mktemp("stored") / "store", camera)
    rig.announce("up")
    rig.show(10, objects=4)
    rig.show(1, objects=4, drops=1.0)
    rig.show(5, objects=4)
    rig.announce("ended")
    rig.finish()
    return rig


def _times(rig: Watching) -> tuple[str, str]:
    return utc_text(rig.frames[0].captured_at), utc_text(rig.clock.utc_ns())


def test_an_event_leads_to_its_picture(stored: Watching) -> None:
    events = past(stored.ask(RULES[4])) + past(stored.ask(_LINE))
    assert events
    with closing(Store.open(stored.folder)) as store:
        (path,) = store.files()
        found = scan(store, path)
    for event in events:
        assert event.picture is not None
        assert event.pts is not None
        assert event.picture.file == found.head.id
        assert event.picture.at == pytest.approx(found.head.begin + event.pts - found.head.first_pts, abs=SECOND // 15)
        assert event.picture.begin < event.picture.at < event.picture.end


def test_a_rule_that_the_boxes_cannot_answer_is_refused(stored: Watching) -> None:
    with pytest.raises(SearchError, match="has no label 'cow'; it has person, car"):
        stored.ask({"type": "object", "name": "cows", "labels": ["cow"]})


def test_the_command_tells_events_and_what_it_could_not_see(
    stored: Watching, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin, end = _times(stored)
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"sources": [{"id": "door", "rules": [*RULES]}]}))
    rule = tmp_path / "rule.yaml"
    rule.write_text(json.dumps(_LINE))
    where = ("--from", begin, "--to", end, "--store", str(stored.folder), "-c", str(config))

    def run(*words: str, code: int = 0) -> str:
        assert invoke(["recordings", "search", "door", *words, *where]) == code
        read = capsys.readouterr()
        return read.err if code else read.out

    told = run("--rule", str(rule)).splitlines()
    assert len([line for line in told if "line crossed" in line]) == len(stored.events(_LINE)) > 0
    assert any("dropped: 15 frames" in line for line in told)
    assert told[-1] == f"{len(stored.events(_LINE))} events; 00:00:15 searched, 00:00:01 not seen"
    rows = [json.loads(line) for line in run("--rule", "yard", "--line", "0.5,0 0.5,1", "--json").splitlines()]
    found = [row["event"] for row in rows if "event" in row]
    assert [event["seq"] for event in found if event["rule"] == "yard"] == [
        event.seq for event in stored.events(RULES[0])
    ]
    assert rows[-1]["end"]["events"] == len(found)
    for words, said_of in (
        (["--rule", "shed"], "source 'door' has no rule 'shed': there are yard, full"),
        (["--rule", str(tmp_path / "none.yaml")], "none.yaml: cannot be read: No such file"),
        (["--line", "0.5"], "--line: '0.5' is no list of points"),
        (["--zone", "0,0 1,1"], "--zone.points: a polygon needs three different points or more, not 2"),
        (["--line", "0,0 2000,0.5"], "--line.points: mixes shares of the picture"),
        ([], "name what to look for: --rule FILE or NAME"),
    ):
        refused = run(*words, code=2)
        assert said_of in refused
        assert refused.count("\n") == 1


def _body(rig: Watching, **more: object) -> dict[str, object]:
    begin, end = _times(rig)
    return {"source": "door", "rule": _LINE, "from": begin, "to": end, **more}


def test_a_search_over_http_tells_lines_as_they_are_found(stored: Watching) -> None:
    with served([PlayPlace("main", stored.folder)]) as client:
        found = client.send("POST", "/api/v1/search", body=_body(stored))
        assert (found.status, found.headers["content-type"]) == (200, "application/x-ndjson")
        rows = [json.loads(line) for line in found.body.splitlines()]
        assert [row["event"]["seq"] for row in rows if "event" in row] == [event.seq for event in stored.events(_LINE)]
        assert [row["unseen"]["cause"] for row in rows if "unseen" in row] == ["dropped"]
        assert rows[-1]["end"]["events"] == len(stored.events(_LINE))
        crossed = {"type": "zone", "name": "z", "points": [[0, 0], [1, 1], [1, 0], [0, 1]]}
        for status, change, words in (
            (404, {"source": "shed"}, "nothing was recorded of a source of this name"),
            (404, {"store": "nas"}, "there is no such store: there are main"),
            (422, {"rule": crossed}, "rule.points: the polygon crosses itself"),
            (422, {"rule": {"type": "line", "name": "a"}}, "rule: missing key `points`"),
            (422, {"rule": {**_LINE, "labels": []}}, "rule.labels: is empty"),
            (422, {"rule": {**_LINE, "colour": "red"}}, "colour"),
            (422, {"rule": [_LINE]}, "$.rule"),
            (422, {"speed": 2}, "speed"),
            (400, {"from": "yesterday"}, "from: 'yesterday' is no time"),
            (400, {"to": "2020-01-01T00:00:00Z"}, "to is not later than from"),
            (413, {"rule": {**_LINE, "name": "x" * 70_000}}, "more than 65536 bytes"),
        ):
            refused = client.send("POST", "/api/v1/search", body=_body(stored, **change))
            assert (refused.status, words in refused.json["error"]) == (status, True), refused.json
        none = client.send("POST", "/api/v1/search", body=_body(stored, rule={**_LINE, "labels": ["cow"]}))
        assert "has no label 'cow'" in json.loads(none.body.splitlines()[-1])["error"]


def _takes_long(rig: Watching, folder: Path) -> Path:
    """A copy of a store with its boxes again and again: minutes of work."""
    shutil.copytree(rig.folder, folder)
    with closing(Store.open(folder)) as store:
        (path,) = store.files()
        with store.opened(tracks_path(path)) as file:
            records = [*records_in(file)]
    blocks = [record for record in records if record.kind == BLOCK]
    with (folder / tracks_path(path)).open("wb") as written:
        written.write(MAGIC)
        crc = 0
        for record in [*(one for one in records if one.kind in (HEAD, SERVED)), *_MANY * blocks]:
            data, crc = record_of(record.kind, record.data, crc)
            written.write(data)
    return folder


def test_a_search_that_takes_too_long_is_ended(stored: Watching, tmp_path: Path) -> None:
    clock, places = SystemClock(), [PlayPlace("slow", _takes_long(stored, tmp_path / "slow"))]
    searches = Searches(Stores(places, clock), places, Audit(clock), clock, limit_s=0.1)
    with event_loop() as loop:
        client = InProcess(application(searches.operations(), Access(HTTP, clock)), loop, VIEW)
        for _ in range(2):  # the first has given its place back
            (line,) = client.send("POST", "/api/v1/search", body=_body(stored)).body.splitlines()
            assert "it took longer than" in json.loads(line)["error"]


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def test_one_search_of_a_token_runs_at_a_time_and_ends_with_its_client(stored: Watching, tmp_path: Path) -> None:
    """A long search goes on for as long as its client waits, or until it is killed."""
    record = RecordConfig(stores={"slow": StoreConfig(_takes_long(stored, tmp_path / "slow"))}, port=0)
    process = PlaybackProcess(playback_order(HTTP, record, LogConfig()), SystemClock())
    process.start()
    url = f"http://127.0.0.1:{process.port}/api/v1/search"

    def searches() -> list[psutil.Process]:
        assert process.pid is not None
        found = []
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):  # it ends meanwhile
                if "search_process" in " ".join(child.cmdline()):
                    found.append(child)
        return found

    def begun(token: str) -> AbstractContextManager[httpx.Response]:
        return httpx.stream(
            "POST", url, json=_body(stored), headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE_S
        )

    def can_begin() -> bool:
        """Its body is refused, but for which it would be begun."""
        headers = {"Authorization": f"Bearer {VIEW}"}
        return httpx.post(url, json={}, headers=headers, timeout=PATIENCE_S).status_code == 422

    try:
        with begun(VIEW) as first, begun(OPERATE) as second:
            assert (first.status_code, second.status_code) == (200, 200)
            with begun(VIEW) as third:
                assert (third.status_code, third.headers["retry-after"]) == (429, "5")
            wait_until(lambda: len(searches()) == 2, "two processes search")
            wait_until(lambda: all(child.nice() == 19 for child in searches()), "they come last")
            for child in searches():
                child.kill()
            lines = [json.loads(row.read().splitlines()[-1]) for row in (first, second)]
            assert all("the search was ended" in line["error"] for line in lines)
        wait_until(can_begin, "the places are given back")
        with begun(VIEW) as again:
            assert again.status_code == 200
            wait_until(lambda: len(searches()) == 1, "another one searches")
        wait_until(lambda: searches() == [], "it ends when its client has gone")
        wait_until(can_begin, "its place is given back")
        with begun(VIEW):
            wait_until(lambda: len(searches()) == 1, "one searches when the server stops")
            (last,) = searches()
            process.request_stop()
            process.finish(PATIENCE_S)
            wait_until(lambda: not _runs(last), "it ends with the server")
    finally:
        process.request_stop()
        process.finish(PATIENCE_S)
