"""The API of recordings: the timeline, bytes of files, stills, clips and locks, as clients see them."""

from __future__ import annotations

import io
import json
import os
import random
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt
import pytest

from daemon.config.http import HttpConfig
from daemon.config.recording import RecordConfig, StoreConfig, check_playback
from daemon.errors import ConfigError
from daemon.playback.opened import PlayPlace
from daemon.playback.ranges import MAX_BYTES
from daemon.recording.index import ClaimedTime
from daemon.recording.records import FileFacts
from daemon.recording.scan import scan
from daemon.redact import Secret
from tests.recording.playback_rig import OPERATE, VIEW, Recorded, recorded, served
from tests.support.asgi import Answered, InProcess
from tests.support.events import logged
from tests.support.recorded import SECOND, append, groups, later, played

API = "/api/v1/recordings"
Picture = npt.NDArray[np.uint8]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, clips: Path) -> Iterator[Recorded]:
    with recorded(tmp_path_factory.mktemp("recorded") / "main", clips) as found:
        yield found


@pytest.fixture(scope="module")
def client(rig: Recorded) -> Iterator[InProcess]:
    with served([PlayPlace("main", rig.path), PlayPlace("away", rig.path.parent / "nothing")]) as found:
        yield found


def _times(rig: Recorded, begin: float, end: float) -> str:
    return f"from={rig.at(begin)}&to={rig.at(end)}"


def test_stores_are_told_of_with_what_is_wrong(client: InProcess, rig: Recorded) -> None:
    found = client.get(API).json
    assert found["sources"] == ["door", "turned"]
    main, away = found["stores"]
    assert (main["name"], main["state"], main["bytes"] > 0) == ("main", "up", True)
    door = main["sources"][0]
    assert (door["first"], door["last"]) == (rig.begin, rig.open.facts.end)
    assert (away["name"], away["state"]) == ("away", "failed")
    assert "No such file" in away["reason"]
    assert not (rig.path.parent / "nothing").exists()


def test_every_instant_has_a_row(client: InProcess, rig: Recorded) -> None:
    found = client.get(f"{API}/door/spans?{_times(rig, -5, 60)}").json
    (store,) = found["stores"]
    assert found["failed"].keys() == {"away"}
    rows = store["rows"]
    assert all(before["end"] == after["begin"] for before, after in pairwise(rows))
    said = [
        (round((row["begin"] - rig.begin) / SECOND), row.get("cause") or f"claimed {row.get('claimed', False)}")
        for row in rows
    ]
    assert said == [(-5, "off"), (0, "claimed False"), (3, "source_down"), (10, "claimed True"),
                    (13, "claimed False"), (16, "no_key"), (20, "claimed False")]  # fmt: skip
    assert client.get(f"{API}/nobody/spans?{_times(rig, 0, 9)}&store=main").status == 404


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("to=2027-01-15T08:00:00Z", "from is missing"),
        ("from=1800000000&to=1900000000", "numbers are UTC nanoseconds"),
        ("from=2027-01-15T08:00:00&to=2027-01-15T09:00:00Z", "not a date|no time"),
        ("from=2027-01-15T08:00:00+01:00&to=2027-01-15T09:00:00Z", "written %2B"),
        ("from=2027-02-30T08:00:00Z&to=2027-03-15T09:00:00Z", "no time"),
        ("from=2027-01-15T08:00:00Z&from=2027-01-15T08:00:00Z&to=2027-01-15T09:00:00Z", "given twice"),
        ("from=2027-01-15T08:00:00Z&to=2027-01-15T09:00:00Z&stor=x", "unknown parameter 'stor'"),
        ("from=2027-01-15T09:00:00Z&to=2027-01-15T08:00:00Z", "not later"),
        ("from=2027-01-15T09:00:00Z&to=2027-11-15T08:00:00Z", "ask for less"),
    ],
)
def test_a_query_that_could_mean_two_things_is_refused(client: InProcess, query: str, reason: str) -> None:
    answer = client.get(f"{API}/door/spans?{query}")
    assert answer.status == 400
    assert any(words in answer.json["error"] for words in reason.split("|")), answer.json


def test_times_may_be_written_in_two_ways(client: InProcess, rig: Recorded) -> None:
    seconds, rest = divmod(rig.begin, SECOND)
    assert seconds // 60 == 1_800_000_000 // 60
    text = f"2027-01-15T09:00:{seconds % 60:02d}.{rest:09d}%2B01:00"
    as_text = client.get(f"{API}/door/spans?from={text}&to={rig.at(3)}")
    assert as_text.json == client.get(f"{API}/door/spans?{_times(rig, 0, 3)}").json


def test_fragments_play_from_their_bytes_alone(client: InProcess, rig: Recorded) -> None:
    """Beginning and rows as told, concatenated, are the video: also of a file that is being written."""
    append(rig.open, list(groups(later(rig.clip.samples, 20 * SECOND)))[1], 15)  # the index does not know it yet
    found = client.get(f"{API}/door/fragments?{_times(rig, 10, 60)}").json
    (store,) = found["stores"]
    assert [file["is_open"] for file in store["files"]] == [False, False, True]
    assert store["next"] is None
    assert store["files"][0]["mime"].startswith('video/mp4; codecs="avc1.')
    for file, facts in zip(store["files"], [*rig.files[1:], rig.open.facts]):
        rows = [dict(zip(found["columns"], row)) for row in file["fragments"]]
        pieces = [file["head"], *((row["offset"], row["size"]) for row in rows)]
        data = b"".join(_bytes(client, file["id"], *piece) for piece in pieces)
        path = rig.path.parent / "played.mp4"
        path.write_bytes(data)
        assert played(path) == played(rig.path / facts.path)
        assert all(row["key"] for row in rows)
    assert [row[-1] for row in store["files"][0]["fragments"]] == [True] * 3


def _bytes(client: InProcess, id: str, offset: int, size: int) -> bytes:
    answer = client.get(f"{API}/files/{id}", range=f"bytes={offset}-{offset + size - 1}")
    assert answer.status == 206
    assert len(answer.body) == size == int(answer.headers["content-length"])
    return answer.body


def _content(rig: Recorded, facts: FileFacts) -> bytes:
    return (rig.path / facts.path).read_bytes()


def test_bytes_of_a_file_are_had_by_ranges(client: InProcess, rig: Recorded) -> None:
    facts = rig.files[0]
    whole, target = _content(rig, facts), f"{API}/files/{facts.id}"
    answer = client.get(target)
    assert (answer.status, answer.body, answer.headers["accept-ranges"]) == (200, whole, "bytes")
    tag, size = answer.headers["etag"], len(whole)
    for header, begin, end in (("bytes=0-0", 0, 1), ("bytes=100-", 100, size), (f"bytes=-{size + 5}", 0, size),
                               ("bytes=-7", size - 7, size), (f"bytes=5-{size * 9}", 5, size)):  # fmt: skip
        answer = client.get(target, range=header)
        assert (answer.status, answer.body) == (206, whole[begin:end])
        assert answer.headers["content-range"] == f"bytes {begin}-{end - 1}/{size}"
    assert client.get(target, if_none_match=tag).status == 304
    assert client.get(target, range="bytes=0-9", if_range=tag).status == 206
    assert client.get(target, range="bytes=0-9", if_range='"another"').body == whole
    head = client.send("HEAD", target)
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(size))
    for header in ("bytes=0-1,5-6", "bytes=9-3", f"bytes={size}-", "bytes=-0", "octets=0-1", "bytes=a-b", "bytes=-"):
        answer = client.get(target, range=header)
        assert (answer.status, answer.headers["content-range"]) == (416, f"bytes */{size}"), header
    assert client.get(f"{API}/files/{'0' * 16}?store=main").status == 404


def test_a_large_file_needs_a_range(client: InProcess, rig: Recorded) -> None:
    facts = rig.turned
    path = rig.path / facts.path
    before = path.stat().st_size
    os.truncate(path, MAX_BYTES + 10)
    try:
        target = f"{API}/files/{facts.id}"
        answer = client.get(target)
        assert (answer.status, "Range" in answer.json["error"]) == (416, True)
        assert client.get(target, range=f"bytes=0-{MAX_BYTES}").status == 416
        assert len(client.get(target, range="bytes=4-").body) == MAX_BYTES
    finally:
        os.truncate(path, before)


def test_a_path_in_an_index_leads_to_recordings_alone(rig: Recorded, client: InProcess) -> None:
    """Neither a link, nor another file, nor one outside is served, even if an index names it."""
    secret = rig.path.parent / "secret.mp4"
    secret.write_bytes(_content(rig, rig.files[0]))
    folder = rig.path / "door" / "2027-01-15"
    os.symlink(secret, folder / "link.mp4")
    os.mkfifo(folder / "fifo.mp4")
    (folder / "text.mp4").write_text("no recording")
    for number, path in enumerate(("door/2027-01-15/link.mp4", "../secret.mp4", "door/../../secret.mp4",
                                   "door/2027-01-15/fifo.mp4", "door/2027-01-15/text.mp4", rig.files[1].path,
                                   str(secret))):  # fmt: skip
        id = f"{number:016x}"
        planted = FileFacts(**{**_fields(rig.files[0]), "id": id, "path": path, "begin": 5, "end": 6, "source": "door"})
        rig.index.add_file(planted)
        answer = client.get(f"{API}/files/{id}?store=main")
        rig.index.remove_file(id)
        assert answer.status in (404, 409, 503), (path, answer)
    rig.index.add_file(rig.files[1], scan(rig.store, rig.files[1].path).head.gaps)


def _fields(facts: FileFacts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in facts.__struct_fields__}


def _picture(jpeg: bytes) -> Picture:
    found = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert found is not None
    return found.astype(np.uint8)


def _decoded(path: Path) -> list[tuple[int, Picture]]:
    """Times since the first picture, and all pictures."""
    with av.open(str(path)) as video:
        frames = list(video.decode(video=0))
    base = frames[0].pts or 0
    unit = frames[0].time_base
    assert unit is not None
    return [(round(((frame.pts or 0) - base) * unit * SECOND), frame.to_ndarray(format="bgr24")) for frame in frames]


def test_a_still_is_the_picture_that_was_shown(client: InProcess, rig: Recorded) -> None:
    """Exactly it, and none beside it, at any moment of a file with B-frames; turned upright."""
    facts = rig.files[0]
    pictures = _decoded(rig.path / facts.path)
    for number in (0, 1, 7, 14, 15, 31, 44):
        at = facts.begin + pictures[number][0] + SECOND // 30
        answer = client.get(f"{API}/door/still?at={at}")
        assert (answer.status, answer.headers["content-type"]) == (200, "image/jpeg")
        shown = _picture(answer.body)
        away = [float(np.abs(shown.astype(int) - other.astype(int)).mean()) for _, other in pictures]
        assert int(np.argmin(away)) == number
    turned = client.get(f"{API}/turned/still?at={rig.turned.begin}")
    assert _picture(turned.body).shape == (320, 180, 3)
    assert _picture(client.get(f"{API}/turned/still?at={rig.turned.begin}&width=90").body).shape == (160, 90, 3)
    assert client.get(f"{API}/door/still?at={facts.begin}&width=9").status == 400


@pytest.mark.parametrize("first", [0, 10**17, 9_183_110_400 * 10**9, (1 << 63) - 10**10, (1 << 63) - 1, 1 << 64])
def test_no_time_is_too_early_or_too_late_to_be_answered(client: InProcess, first: int) -> None:
    """At the ends of what there may be as well, each with one line."""
    for begin in (first - 1, first, first + 1):
        times = f"from={begin - SECOND}&to={begin}"
        for what in (f"spans?{times}", f"fragments?{times}", f"tracks?{times}", f"activity?{times}&step=1",
                     f"clip.mp4?{times}", f"still?at={begin}"):  # fmt: skip
            answer = client.get(f"{API}/door/{what}")
            assert answer.status in (200, 400, 404, 503), (what, answer)


def test_where_no_picture_is_the_cause_is_said(client: InProcess, rig: Recorded) -> None:
    """And where a store cannot say that it has none, that."""
    for what, cause in ((f"still?at={rig.at(5)}", "source_down"), (f"clip.mp4?{_times(rig, 17, 18)}", "no_key")):
        answer = client.get(f"{API}/door/{what}&store=main")
        assert (answer.status, answer.json["gaps"][0]["cause"]) == (404, cause)
        assert cause in answer.json["error"]
        answer = client.get(f"{API}/door/{what}")
        assert (answer.status, "'away'" in answer.json["error"]) == (503, True)


def _clip(answer: Answered, path: Path) -> dict[str, Any]:
    assert answer.status == 200
    assert int(answer.headers["content-length"]) == len(answer.body)
    path.write_bytes(answer.body)
    told: dict[str, Any] = json.loads(answer.headers["x-lookout-clip"])
    return told


def test_a_clip_is_a_plain_file_of_the_same_packets(client: InProcess, rig: Recorded, tmp_path: Path) -> None:
    """Over two files and a gap, from the key picture before; each packet once, none encoded again."""
    path = tmp_path / "clip.mp4"
    told = _clip(client.get(f"{API}/door/clip.mp4?{_times(rig, 1.5, 14.5)}"), path)
    sources = [played(rig.path / facts.path) for facts in rig.files]
    expected = [*sources[0][15:], *sources[1]]
    found = played(path)
    count = len(found) - len(expected)
    assert 15 < count < 30  # up to 1.5 s of the third file
    assert [row[2:] for row in found] == [row[2:] for row in (*expected, *sources[2][:count])]
    steps = [after[1] - before[1] for before, after in pairwise(found)]
    assert max(steps) - min(steps) <= SECOND // 1000
    frames = _decoded(path)
    assert len(frames) == len(found)
    assert [gap["cause"] for gap in told["gaps"]] == ["source_down"]
    assert [piece["at"] for piece in told["pieces"]] == [0, 2000]
    assert (told["begin"], told["left_out"]) == (rig.at(1), 0)
    with av.open(io.BytesIO(path.read_bytes())) as video:
        assert video.start_time == 0
        assert video.streams.video[0].frames == len(found)


def test_a_clip_that_broke_off_goes_on_where_it_was(client: InProcess, rig: Recorded) -> None:
    """A player that was paused for long is cut off, and asks for the rest."""
    target = f"{API}/door/clip.mp4?{_times(rig, 1.5, 14.5)}"
    whole = client.get(target)
    tag, size = whole.headers["etag"], len(whole.body)
    assert whole.headers["accept-ranges"] == "bytes"
    begun = client.get(target, range="bytes=0-")
    assert (begun.status, begun.body == whole.body) == (206, True)
    edges = sorted(random.Random(7).sample(range(1, size), 20))
    for begin, end in pairwise([0, *edges, size]):
        part = client.get(target, range=f"bytes={begin}-{end - 1}", if_range=tag)
        assert (part.status, part.headers["content-range"]) == (206, f"bytes {begin}-{end - 1}/{size}")
        assert part.body == whole.body[begin:end]
        assert int(part.headers["content-length"]) == end - begin
    assert client.get(target, range="bytes=-9").body == whole.body[-9:]
    assert client.get(target, range="bytes=9-", if_range='"other"').body == whole.body
    assert client.get(target, if_none_match=tag).status == 304
    other = client.get(f"{API}/door/clip.mp4?{_times(rig, 1.5, 11.5)}")
    assert other.headers["etag"] != tag
    for refused in (f"bytes={size}-", "bytes=5-2", "bytes=0-1,3-4", "bytes=99999999999999999999-", "bytes=-0", "x=0-1"):
        answer = client.get(target, range=refused)
        assert (answer.status, answer.headers["content-range"]) == (416, f"bytes */{size}"), refused
    assert client.send("HEAD", target).headers["content-length"] == str(size)
    assert all(client.get(target, range="bytes=0-0").status == 206 for _ in range(20))  # each gives its place back


def test_a_clip_of_an_event(client: InProcess, rig: Recorded, tmp_path: Path) -> None:
    answer = client.get(f"{API}/door/clip.mp4?event=e1")
    told = _clip(answer, tmp_path / "clip.mp4")
    assert (told["begin"], told["gaps"]) == (rig.at(11), [])
    assert 'filename="door-2027' in answer.headers["content-disposition"]
    assert client.get(f"{API}/door/clip.mp4?event=e2&store=main").status == 404
    assert client.get(f"{API}/door/clip.mp4?event=e1&from=1").status == 400
    assert client.get(f"{API}/door/clip.mp4?{_times(rig, 0, 3000)}").status == 400


def test_a_file_that_was_deleted_is_said_to_be_gone(rig: Recorded, client: InProcess) -> None:
    facts = rig.files[0]
    path = rig.path / facts.path
    content = path.read_bytes()
    os.unlink(path)
    try:
        gone = client.get(f"{API}/files/{facts.id}?store=main")
        assert (gone.status, gone.json["error"]) == (404, "it was deleted")
        assert client.get(f"{API}/door/fragments?{_times(rig, 0, 3)}").json["stores"][0]["files"] == []
    finally:
        path.write_bytes(content)


def test_video_is_kept_and_kept_no_longer(client: InProcess, rig: Recorded) -> None:
    operate = {"Authorization": f"Bearer {OPERATE}"}
    body = {"from": "2027-01-15T08:00:00Z", "to": rig.at(3), "reason": "a theft"}
    assert client.send("POST", f"{API}/door/locks", body=body).status == 403
    made = client.send("POST", f"{API}/door/locks", headers=operate, body=body)
    assert (made.status, made.json["failed"].keys()) == (201, {"away"})
    (row,) = made.json["locks"]
    assert (row["store"], row["lock"]["by"], row["lock"]["end"]) == ("main", "guard", rig.at(3))
    assert client.get(f"{API}/door/locks").json["locks"] == [row]
    id = row["lock"]["id"]
    assert client.send("DELETE", f"{API}/locks/{id}").status == 403
    assert client.send("DELETE", f"{API}/locks/{id}", headers=operate).status == 204
    assert client.send("DELETE", f"{API}/locks/{id}?store=main", headers=operate).status == 404
    assert client.get(f"{API}/door/locks").json["locks"] == []
    both, half = {**body, "event": "e1"}, {"to": rig.at(3), "reason": "a theft"}
    wrongs: list[Any] = [{**body, "reason": "two\nlines"}, {**body, "more": 1}, {"from": 1}, [[]], both, half]
    for wrong in wrongs:
        assert client.send("POST", f"{API}/door/locks", headers=operate, body=wrong).status == 422


def test_what_an_event_wants_is_kept_to_its_end_also_while_that_is_to_come(client: InProcess, rig: Recorded) -> None:
    now, operate = time.time_ns(), {"Authorization": f"Bearer {OPERATE}"}
    rig.index.put_claims([ClaimedTime("door", "now", now - 5 * SECOND, now + 3600 * SECOND, "recording")])
    for event, begin, end in (("e1", rig.at(11), rig.at(14)), ("now", now - 5 * SECOND, now + 3600 * SECOND)):
        order = {"event": event, "reason": f"event {event}"}
        made = client.send("POST", f"{API}/door/locks", headers=operate, body=order)
        assert made.status == 201, made.json
        (row,) = made.json["locks"]
        assert (row["lock"]["begin"], row["lock"]["end"]) == (begin, end)
        assert client.get(f"{API}/door/locks").json["locks"] == [row]
        assert client.send("DELETE", f"{API}/locks/{row['lock']['id']}", headers=operate).status == 204
    for unknown, reason in (("e2", "no time of this event is known"), ("\u0007", "there is no such event")):
        order = {"event": unknown, "reason": "a theft"}
        missing = client.send("POST", f"{API}/door/locks?store=main", headers=operate, body=order)
        assert (missing.status, reason in missing.json["error"]) == (404, True)


def test_what_is_played_is_in_the_log_once(rig: Recorded) -> None:
    with served([PlayPlace("main", rig.path)]) as client, logged() as lines:
        for _ in range(3):
            client.get(f"{API}/files/{rig.files[0].id}", range="bytes=0-99")
        client.get(f"{API}/door/clip.mp4?{_times(rig, 0, 2)}")
    told = [(line["event"], line["token"], line["source"]) for line in lines]
    assert told == [("a recording is played", "screen", "door"), ("a clip is sent", "screen", "door")]


def test_a_port_that_nobody_could_use_is_refused() -> None:
    stores = {"main": StoreConfig(Path("/main"))}
    http = HttpConfig(enabled=True, token=Secret(VIEW))
    check_playback(RecordConfig(), HttpConfig())
    check_playback(RecordConfig(stores=stores, port=0), http)
    for record, config, reason in (
        (RecordConfig(port=1), http, "record.stores"),
        (RecordConfig(stores=stores, port=1), HttpConfig(), "http.token"),
        (RecordConfig(stores=stores, port=9105), http, "http.port"),
    ):
        with pytest.raises(ConfigError, match=reason):
            check_playback(record, config)
