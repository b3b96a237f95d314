"""Boxes and activity over HTTP: those of exactly the recorded pictures, and how much was seen when."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from daemon.playback import activity, tracks
from daemon.playback.opened import PlayPlace
from daemon.recording.index import Index
from daemon.recording.records import FileFacts
from daemon.recording.tracks.activity import Activity
from daemon.recording.tracks.track_records import tracks_path
from lookout.messages import Attribute
from tests.recording.playback_rig import Recorded, recorded, served
from tests.support.asgi import InProcess
from tests.support.clock import ManualClock
from tests.support.recorded import RATE, SECOND, later
from tests.support.seen import Seen, write_seen

API = "/api/v1/recordings/door"
_RED = {"colour": Attribute("red", 0.5, 3, True, 7)}
_LATER_S = 200_000_000.0  # from the clock of tests to behind the recordings


@pytest.fixture
def rig(tmp_path: Path, clips: Path) -> Iterator[Recorded]:
    with recorded(tmp_path / "main", clips) as found:
        yield found


@pytest.fixture
def client(rig: Recorded) -> Iterator[InProcess]:
    with served([PlayPlace("main", rig.path)]) as found:
        yield found


def _pictures(rig: Recorded, facts: FileFacts, at_s: float) -> list[Seen]:
    """One of each picture of a file that begins at a second, and how many objects it has follows from its place."""
    samples = sorted(sample.pts for sample in later(rig.clip.samples, round(at_s * SECOND)))
    return [
        Seen(pts, facts.begin + 5_000_000 + place * SECOND // RATE, range(1, 1 + place % 4))
        for place, pts in enumerate(samples)
    ]


def _tracks(client: InProcess, rig: Recorded, begin: float, end: float) -> dict[str, Any]:
    (store,) = client.get(f"{API}/tracks?from={rig.at(begin)}&to={rig.at(end)}").json["stores"]
    return dict(store)


def test_boxes_are_those_of_the_recorded_pictures(client: InProcess, rig: Recorded) -> None:
    facts = rig.files[0]
    seen = _pictures(rig, facts, 0)
    seen[1] = Seen(seen[1].pts, seen[1].at, (7, 0), [_RED, None])
    write_seen(rig.store, facts, [seen[:20], seen[20:]])
    found = client.get(f"{API}/tracks?from={rig.at(-1)}&to={rig.at(9)}").json
    assert (found["source"], found["from"], found["failed"]) == ("door", rig.at(-1), {})
    (store,) = found["stores"]
    (file,) = store["files"]
    assert (store["next"], store["damaged"]) == (None, {})
    assert (file["id"], file["session"], file["same_stream"]) == (facts.id, facts.session, True)
    assert file["labels"] == ["person", "car"]
    rows = file["frames"]
    assert [row["pts"] for row in rows] == [one.pts for one in seen]
    assert [[box["box"] for box in row["boxes"]] for row in rows] == [one.boxes for one in seen]
    fragments = client.get(f"{API}/fragments?from={rig.at(-1)}&to={rig.at(9)}").json["stores"][0]["files"][0]
    first = fragments["fragments"][0]
    assert [row["at"] for row in rows[:9]] == [first[2] + one.pts - first[4] for one in seen[:9] if one.pts is not None]
    assert (rows[1]["width"], rows[1]["height"]) == (320, 180)
    look = {"value": "red", "confidence": 0.5, "votes": 3, "settled": True, "at_seq": 7}
    assert rows[1]["boxes"][0]["attributes"] == {"colour": look}
    assert "attributes" not in rows[1]["boxes"][1]
    assert [(box["track_id"], box["label"], box["confidence"]) for box in rows[1]["boxes"]] == [
        (7, "car", 0.75), (None, "person", 0.75)
    ]  # fmt: skip


def test_a_time_has_its_pictures_alone_over_several_files(client: InProcess, rig: Recorded) -> None:
    for facts, at in zip(rig.files[1:], (10, 13)):
        write_seen(rig.store, facts, [_pictures(rig, facts, at)])
    store = _tracks(client, rig, 12, 14)
    assert [file["id"] for file in store["files"]] == [facts.id for facts in rig.files[1:]]
    times = [frame["at"] for file in store["files"] for frame in file["frames"]]
    assert all(rig.at(12) <= at < rig.at(14) for at in times)
    assert abs(len(times) - 2 * RATE) <= 1
    assert _tracks(client, rig, 4, 9)["files"] == []


def test_what_is_too_much_for_one_answer_follows(
    client: InProcess, rig: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [_pictures(rig, facts, at) for facts, at in zip(rig.files[1:], (10, 13))]
    for facts, part in zip(rig.files[1:], seen):
        write_seen(rig.store, facts, [part])
    wanted = [one.pts for part in seen for one in part]
    for limit, name in ((17, "_FRAMES"), (29, "_BOXES"), (3, "_BOXES")):
        monkeypatch.setattr(tracks, name, limit)
        found, begin = [], str(rig.at(9))
        while begin:
            (store,) = client.get(f"{API}/tracks?from={begin}&to={rig.at(17)}").json["stores"]
            rows = [frame for file in store["files"] for frame in file["frames"]]
            assert (len(rows) if name == "_FRAMES" else sum(len(row["boxes"]) for row in rows)) <= limit
            found += [row["pts"] for row in rows]
            begin = store["next"]
        assert found == wanted
    monkeypatch.setattr(tracks, "_BOXES", 2)
    assert "more boxes of one moment" in _all_damaged(client, rig)


def _all_damaged(client: InProcess, rig: Recorded) -> str:
    begin, told = str(rig.at(9)), ""
    while begin:
        (store,) = client.get(f"{API}/tracks?from={begin}&to={rig.at(17)}").json["stores"]
        told += "".join(store["damaged"].values())
        begin = store["next"]
    return told


def test_an_answer_has_a_minute_at_most(client: InProcess, rig: Recorded) -> None:
    assert _tracks(client, rig, 0, 61)["next"] == str(rig.at(60))
    assert _tracks(client, rig, 0, 60)["next"] is None


def test_boxes_of_another_stream_lie_at_their_time_of_day(client: InProcess, rig: Recorded) -> None:
    facts = rig.files[0]
    seen = [Seen(None, facts.begin + number * SECOND // 2, [1]) for number in range(6)]
    write_seen(rig.store, facts, [seen], same_stream=False, tracked=False)
    (file,) = _tracks(client, rig, 1, 2)["files"]
    assert (file["same_stream"], [row["at"] for row in file["frames"]]) == (False, [seen[2].at, seen[3].at])
    assert file["frames"][0]["boxes"][0]["track_id"] is None


def test_a_file_that_is_being_written_has_what_came_so_far(client: InProcess, rig: Recorded) -> None:
    seen = _pictures(rig, rig.open.facts, 20)[:RATE]
    write_seen(rig.store, rig.open.facts, [seen[:10], seen[10:]], ends=False)
    path = rig.path / tracks_path(rig.open.facts.path)
    assert len(_tracks(client, rig, 19, 40)["files"][0]["frames"]) == RATE
    path.write_bytes(path.read_bytes()[:-3])  # the end of a block is on its way
    store = _tracks(client, rig, 19, 40)
    assert (len(store["files"][0]["frames"]), store["damaged"]) == (10, {})


def test_damaged_boxes_are_named_and_the_rest_is_there(client: InProcess, rig: Recorded) -> None:
    first, second = rig.files[:2]
    for facts, at in ((first, 0), (second, 10)):
        seen = _pictures(rig, facts, at)
        write_seen(rig.store, facts, [seen[:30], seen[30:]])
    path = rig.path / tracks_path(first.path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-200] + bytes([whole[-200] ^ 1]) + whole[-199:])
    store = _tracks(client, rig, 0, 14)
    assert [len(file["frames"]) for file in store["files"]] == [30, 45]
    assert "not as they were written" in store["damaged"][first.id]
    path.write_bytes(b"something else")
    store = _tracks(client, rig, 0, 14)
    assert ([file["id"] for file in store["files"]], [*store["damaged"]]) == ([second.id], [first.id])
    for strange in (os.mkfifo, lambda to: os.symlink("/etc/passwd", to)):
        path.unlink()
        strange(path)
        assert [file["id"] for file in _tracks(client, rig, 0, 14)["files"]] == [second.id]


# --- activity -------------------------------------------------------------------------------------------------------


def _values(client: InProcess, rig: Recorded, begin: float, end: float, step: int = 1) -> list[int | None]:
    (store,) = client.get(f"{API}/activity?from={rig.at(begin)}&to={rig.at(end)}&step={step}").json["stores"]
    assert not store["partial"]
    return list(store["values"])


def _seen_by_second(rig: Recorded) -> None:
    """In the first file 0, 2 and 1 objects at most in its seconds; in the second 3, nothing analysed, and 0."""
    by_file: list[list[int | None]] = [[0, 2, 1], [3, None, 0]]
    for facts, counts in zip(rig.files, by_file):
        seen = [
            Seen(None, (facts.begin // SECOND + second) * SECOND + part * SECOND // 4, range(1, 1 + count - part // 3))
            for second, count in enumerate(counts)
            if count is not None
            for part in range(3)
        ]
        write_seen(rig.store, facts, [seen])


def test_activity_is_the_most_that_was_seen_at_once(client: InProcess, rig: Recorded) -> None:
    _seen_by_second(rig)
    assert _values(client, rig, 0, 14) == [0, 2, 1, *[None] * 7, 3, None, 0, None]
    assert _values(client, rig, 0, 14, step=4) == [2, None, 3, 0]
    assert _values(client, rig, 11, 12) == [None]
    assert _values(client, rig, 1, 3600, step=3599) == [3]


def test_files_whose_end_tells_nothing_are_counted(client: InProcess, rig: Recorded) -> None:
    """Those of earlier versions, those that were cut, and the one that is being written."""
    _seen_by_second(rig)
    whole = _values(client, rig, 0, 14)
    for facts in rig.files[:2]:
        path = rig.path / tracks_path(facts.path)
        path.write_bytes(path.read_bytes()[:-5])
    assert _values(client, rig, 0, 14) == whole
    write_seen(rig.store, rig.open.facts, [[Seen(None, rig.at(20), [4, 5])]], ends=False)
    assert _values(client, rig, 20, 22) == [2, None]


def test_the_index_tells_it_as_well(client: InProcess, rig: Recorded) -> None:
    facts = rig.files[0]
    counts = Activity(rig.at(0) // SECOND, b"\2\0\xff\xff\0\0")
    rig.index.put_activity(facts.id, counts.first, counts.counts)
    assert _values(client, rig, 0, 4) == [2, None, 0, None]
    rig.index.remove_file(facts.id)
    assert rig.index.activity("door", 0, 1 << 62) == []
    rig.index.put_activity(facts.id, counts.first, counts.counts)  # too late: the file is gone
    rig.index.add_file(facts)
    assert _values(client, rig, 0, 4) == [None] * 4


def test_an_index_of_an_earlier_version_is_used_as_it_is(client: InProcess, rig: Recorded) -> None:
    _seen_by_second(rig)
    whole = _values(client, rig, 0, 14)
    with rig.index.writing() as db:
        db.execute("DROP TRIGGER activity_goes")
        db.execute("DROP TABLE activity")
        db.execute("DROP TABLE unread")
    assert _values(client, rig, 0, 14) == whole
    with closing(Index(rig.store)) as index:
        assert index.unread is None
        index.put_activity(rig.files[0].id, rig.at(0) // SECOND, b"\7\0")
    assert _values(client, rig, 0, 2) == [7, None]


def test_without_tracking_boxes_count(client: InProcess, rig: Recorded) -> None:
    write_seen(rig.store, rig.files[0], [[Seen(None, rig.at(0), [0, 0, 0])]], tracked=False)
    assert _values(client, rig, 0, 1) == [3]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "step is missing"),
        ("&step=0", "whole number from 1"),
        ("&step=1.5", "whole number from 1"),
        ("&step=1&step=2", "given twice"),
        ("&step=1", "there would be 90000 steps"),
    ],
)
def test_steps_that_cannot_be_told_are_refused(client: InProcess, rig: Recorded, query: str, reason: str) -> None:
    answer = client.get(f"{API}/activity?from={rig.at(0)}&to={rig.at(90_000)}{query}")
    assert (answer.status, reason in answer.json["error"]) == (400, True)


class _Slow(ManualClock):
    """A second goes by with each look at it."""

    def monotonic_ns(self) -> int:
        self.advance(1)
        return super().monotonic_ns()


def test_what_took_too_long_is_told_and_goes_on_with_the_next_request(
    rig: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "_READ_NS", round(1.5 * SECOND))
    _seen_by_second(rig)
    clock = _Slow()
    clock.step(_LATER_S)
    with served([PlayPlace("main", rig.path)], clock=clock) as client:
        target = f"{API}/activity?from={rig.at(0)}&to={rig.at(14)}&step=1"
        found: list[Any] = []
        while not found or found[-1]["partial"]:
            found.append(client.get(target).json["stores"][0])
        assert len(found) > 1
        assert found[0]["values"][10] is None
        assert found[-1]["values"] == [0, 2, 1, *[None] * 7, 3, None, 0, None]
        (rig.path / tracks_path(rig.files[0].path)).unlink()  # it is known, and read no more
        assert client.get(target).json["stores"][0]["values"][:3] == [0, 2, 1]
