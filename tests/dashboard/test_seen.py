"""Marks of seen events: what is kept over a kill, a full disk and a second page, and who may make them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from daemon.config.http import DashboardConfig, TokenConfig
from daemon.dashboard import seen
from daemon.dashboard.seen import SeenMarks
from daemon.errors import ConfigError
from daemon.redact import Secret
from tests.dashboard.review import fill
from tests.support.browsing import OPERATE, ROLES, VIEW, Dashboard
from tests.support.clock import ManualClock
from tests.support.page import Page, address_of
from tests.support.served import Served

FILE = "seen.jsonl"
_TOKENS = [TokenConfig("screen", "view", Secret(VIEW)), TokenConfig("guard", "operate", Secret(OPERATE))]


def _with(path: Path | None, work: Callable[[SeenMarks], Coroutine[Any, Any, None]], clock: ManualClock) -> None:
    """Do something with the marks of a file, as one run of the page."""
    marks = SeenMarks(path, clock)
    try:
        asyncio.run(work(marks))
    finally:
        marks.close()


def test_marks_outlive_a_run_and_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "MAX_MARKS", 50)
    monkeypatch.setattr(seen, "_SPARE_LINES", 20)
    clock = ManualClock()

    async def first(marks: SeenMarks) -> None:
        assert marks.mark(["a-1", "a-2", "a-1"], "guard") == ["a-1", "a-2"]
        assert marks.mark(["a-1", "a-3"], "other") == ["a-3"]
        assert marks.unmark(["a-2", "a-9"]) == ["a-2"]
        assert await marks.kept()

    async def second(marks: SeenMarks) -> None:
        assert [mark and mark.by for mark in map(marks.of, ("a-1", "a-2", "a-3"))] == ["guard", None, "other"]
        clock.advance(seen.MAX_AGE_NS / 1e9 + 1)
        for number in range(500):
            marks.mark([f"b-{number}"], "guard")
            assert await marks.kept()
        assert marks.of("a-1") is None
        assert (marks.of("b-449"), marks.of("b-450") is not None) == (None, True)

    _with(tmp_path / FILE, first, clock)
    _with(tmp_path / FILE, second, clock)
    assert len((tmp_path / FILE).read_bytes().splitlines()) < 200

    async def third(marks: SeenMarks) -> None:
        assert [id for id in map("b-{}".format, range(500)) if marks.of(id)] == [f"b-{n}" for n in range(450, 500)]

    _with(tmp_path / FILE, third, clock)


def test_what_is_half_written_is_left_out(tmp_path: Path) -> None:
    clock = ManualClock()

    async def mark(marks: SeenMarks) -> None:
        marks.mark(["a-1", "a-2"], "guard")
        assert await marks.kept()

    _with(tmp_path / FILE, mark, clock)
    path = tmp_path / FILE
    whole = path.read_bytes()
    for content in (whole[:-3], whole + b'{"id":"a-', whole[:40] + b"\xff{}\n" + whole[40:], b"", whole[:5]):
        path.write_bytes(content)

        async def again(marks: SeenMarks) -> None:
            marks.mark(["a-3"], "guard")
            assert await marks.kept()

        _with(tmp_path / FILE, again, clock)
        ids = [msgspec.json.decode(row)["id"] for row in path.read_bytes().splitlines()[1:]]
        assert ids[-1] == "a-3", content
        assert set(ids) <= {"a-1", "a-2", "a-3"}


def test_a_second_page_and_a_file_of_another_program_are_refused(tmp_path: Path) -> None:
    clock = ManualClock()
    marks = SeenMarks(tmp_path / FILE, clock)
    with pytest.raises(ConfigError, match="another page writes"):
        SeenMarks(tmp_path / FILE, clock)
    marks.close()
    (tmp_path / FILE).write_text("a diary\n")
    with pytest.raises(ConfigError, match="is of another program"):
        SeenMarks(tmp_path / FILE, clock)
    assert (tmp_path / FILE).read_text() == "a diary\n"


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    _with(tmp_path / "file" / FILE, _not_kept, ManualClock())


async def _not_kept(marks: SeenMarks) -> None:
    marks.mark(["a-1"], "guard")
    assert not await marks.kept()
    assert marks.of("a-1")
    assert marks.problem


def test_a_disk_that_takes_nothing_costs_no_mark_of_this_run(tmp_path: Path) -> None:
    """It is full for a while: the file is made anew, with all marks, when there is room."""
    path = tmp_path / FILE

    async def work(marks: SeenMarks) -> None:
        marks.mark(["a-1"], "guard")
        assert await marks.kept()
        path.unlink()
        path.mkdir()  # nothing can be written there, whoever one is
        await _not_kept_more(marks)
        path.rmdir()
        marks.mark(["a-4"], "guard")
        assert await marks.kept()

    async def _not_kept_more(marks: SeenMarks) -> None:
        marks.mark(["a-2"], "guard")
        assert not await marks.kept()
        marks.unmark(["a-1"])
        assert not await marks.kept()
        assert marks.problem

    async def after(marks: SeenMarks) -> None:
        assert [marks.of(f"a-{number}") is not None for number in range(1, 5)] == [False, True, False, True]

    _with(path, work, ManualClock())
    _with(path, after, ManualClock())


def test_without_a_folder_they_go_with_the_process() -> None:
    _with(None, _not_kept, ManualClock())


def test_marks_survive_a_kill_of_the_page(tmp_path: Path) -> None:
    """kill -9 beside a stream of marks: what was answered is there afterwards."""
    rows = [{"name": "here", "endpoint": "tcp://127.0.0.1:1"}]
    state = {"seen": str(tmp_path / FILE)}
    marked: list[str] = []
    for turn in range(2):
        dashboard = Dashboard(tmp_path, rows, ROLES, state)
        try:
            with httpx.Client(base_url=dashboard.url, headers={"Origin": dashboard.url}, timeout=60) as client:
                assert client.post("/api/login", json={"token": OPERATE}).is_success
                for number in range(20):
                    ids = [f"run{turn}-{number}", f"other{turn}-{number}"]
                    answer = client.post("/api/seen", json={"ids": ids})
                    assert answer.json() == {"marked": 2, "kept": True, "reason": None}
                    marked += ids
        finally:
            dashboard.close()  # kill -9
    lines = (tmp_path / FILE).read_bytes().splitlines()[1:]
    assert {msgspec.json.decode(line)["id"] for line in lines} == set(marked)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("seen")
    fill(folder)
    events = {"journal": str(folder / "events.db"), "snapshots": {"folder": str(folder / "pictures")}}
    with Served(folder, events=events) as found:
        yield found


@pytest.fixture(scope="module")
def page(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    config = DashboardConfig(tokens=_TOKENS, seen=str(tmp_path_factory.mktemp("state") / FILE))
    with Page([address_of(served)], config, awaits=()) as found:
        yield found


def _login(page: Page, token: str) -> dict[str, str]:
    with httpx.Client(base_url=page.url, headers={"Origin": page.url}) as client:
        return {"Cookie": client.post("/api/login", json={"token": token}).headers["set-cookie"].partition(";")[0]}


def _rows(page: Page, cookie: dict[str, str], **query: str) -> Any:
    answer = page.client.get("/api/events", params=query, headers=cookie)
    assert answer.is_success, answer.text
    return answer.json()


def test_who_has_seen_an_event_is_told_to_all_and_filtered_by(page: Page) -> None:
    guard, screen = _login(page, OPERATE), _login(page, VIEW)
    ids = [row["id"] for row in _rows(page, screen, limit="12")["events"]]
    seen_ids = ids[1:11]
    with page.socket("/api/feed", cookie=screen["Cookie"]) as feed:
        feed.until("daemon")
        assert page.client.post("/api/seen", json={"ids": seen_ids}, headers=guard).json()["marked"] == 10
        told = feed.until("seen")
        assert (set(told["ids"]), told["by"]) == (set(seen_ids), "guard")
        found = _rows(page, screen, seen="yes", limit="4")
        assert [row["seen"]["by"] for row in found["events"]] == ["guard"] * 4
        more = _rows(page, screen, seen="yes", limit="50", cursor=found["cursor"])["events"]
        assert {row["id"] for row in found["events"] + more} == set(seen_ids)
        unseen = _rows(page, screen, seen="no", limit="200")
        assert not {row["id"] for row in unseen["events"]} & set(seen_ids)
        assert page.client.request("DELETE", "/api/seen", json={"ids": seen_ids[:3]}, headers=guard).is_success
        assert feed.until("unseen")["ids"] == seen_ids[:3]
    assert page.client.get(f"/api/events/here/{seen_ids[0]}", headers=screen).json()["seen"] is None
    assert page.client.get(f"/api/events/here/{seen_ids[3]}", headers=screen).json()["seen"]["by"] == "guard"
    assert page.client.post("/api/seen", json={"ids": ids}, headers=screen).status_code == 403
    assert page.client.get("/api/seen", headers=screen).json() == {"kept": True, "reason": None}


def test_hostile_bodies_are_refused(page: Page) -> None:
    guard = _login(page, OPERATE)
    json = {**guard, "Content-Type": "application/json"}
    bad = (
        b"", b"null", b"[]", b"{}", b'{"ids":[]}', b'{"ids":"a-1"}', b'{"ids":[1]}', b'{"ids":[null]}',
        b'{"ids":["../../etc/passwd"]}', b'{"ids":["a-1\\n"]}', b'{"ids":["a"]}', b'{"ids":["\\u0000-1"]}',
        b'{"ids":["a-1"],"by":"somebody"}', b'{"ids":["' + b"a" * 65 + b'-1"]}', b"[" * 60_000, b"\xff\xfe",
        msgspec.json.encode({"ids": [f"a-{n}" for n in range(501)]}),
    )  # fmt: skip
    for method in ("POST", "DELETE"):
        for content in bad:
            answer = page.client.request(method, "/api/seen", content=content, headers=json)
            assert answer.status_code == 400, (method, content[:50])
            assert len(answer.json()["error"]) < 200
        large = page.client.request(method, "/api/seen", content=b" " * 70_000, headers=json)
        assert large.status_code == 413
        text = page.client.request(
            method, "/api/seen", content=b'{"ids":["a-1"]}', headers={**guard, "Content-Type": "text/plain"}
        )
        assert text.status_code == 415
    assert _rows(page, guard, seen="yes")["events"] is not None
    assert page.client.get("/api/events", params={"seen": "perhaps"}, headers=guard).status_code == 400


def test_a_small_picture_of_the_place_of_an_event(page: Page) -> None:
    import cv2
    import numpy as np

    guard = _login(page, OPERATE)

    event = next(row for row in _rows(page, guard)["events"] if row["has_snapshot"])
    path = f"/api/events/here/{event['id']}/snapshot"

    def picture(**query: str) -> Any:
        answer = page.client.get(path, params=query, headers=guard)
        assert answer.is_success, answer.text
        return cv2.imdecode(np.frombuffer(answer.content, np.uint8), cv2.IMREAD_COLOR)

    assert picture().shape == (1080, 1920, 3)
    assert picture(width="160").shape == (90, 160, 3)
    assert picture(width="4096").shape == (1080, 1920, 3)
    crop = picture(width="48", box=",".join(map(str, event["box"])))
    assert crop.shape[1] == 48
    assert abs(crop.shape[0] - 27) <= 1
    refused: list[dict[str, str]] = [{"width": "0"}, {"width": "1e3"}, {"box": "0,0,1,1"}]
    refused += [{"width": "160", "box": box} for box in ("1,2", "nan,0,1,1", "5,5,1,1", "0,0,1e9,1", "a,b,c,d")]
    for query in refused:
        assert page.client.get(path, params=query, headers=guard).status_code == 400, query
