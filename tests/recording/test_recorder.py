"""What a recorder makes of a camera: every second is in a file, or has a cause why not."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from time import monotonic

import pytest

from daemon.recording import claimed_times, index_reader, recorder
from daemon.recording.absence import Absence
from daemon.recording.causes import LASTING, Cause
from daemon.recording.clips import Claim
from daemon.recording.errors import StoreError
from daemon.recording.index import Index, IndexReader
from daemon.recording.open_store import Troubles, open_store
from daemon.recording.reconcile import rebuild
from daemon.recording.records import Gap
from daemon.recording.retention import Retention, Rules
from daemon.recording.ring import Ring
from daemon.recording.scan import scan
from daemon.recording.source_recorder import Settings
from daemon.recording.store import Store
from daemon.recording.timeline import Span
from daemon.sources.bitstream import Bitstream
from tests.recording.playback_rig import locked_index
from tests.recording.rig import DAY, EVENTS, EVERYTHING, FPS, SECOND, Rig
from tests.support.events import logged
from tests.support.recorded import Clip, clip, units
from tests.support.stored import Stored


@pytest.fixture(scope="module")
def camera(clips: Path) -> Clip:
    return clip(clips, "h264")


def sent(found: Clip, count: int) -> list[list[str]]:
    """NAL units of what a camera has sent."""
    bits = Bitstream(found.stream.codec, found.stream.extradata)
    return [units(bits, found.samples[number % len(found.samples)].data) for number in range(count)]


def is_whole(rig: Rig) -> bool:
    """Whether the timeline has neither a hole nor an overlap up to now."""
    rows = rig.timeline()
    return all(one.end == other.begin for one, other in pairwise(rows)) and all(one.begin < one.end for one in rows)


@pytest.mark.parametrize("kind", ["h264", "h264-b", "hevc"])
def test_each_packet_is_in_the_files_once_although_recorders_are_killed(tmp_path: Path, clips: Path, kind: str) -> None:
    found = clip(clips, kind)
    rig = Rig(tmp_path / "store", found)
    for seconds in (3.3, 20.1, 0.4, 47):
        rig.send(seconds)
        rig.kill()
        rig.send(2, turns=False)
        rig.start()
    rig.send(1)
    rig.finish()
    assert [*rig.packets()] == sent(found, rig.put)
    assert rig.shape() == [("recorded", round(rig.put / 15, 1))]
    assert is_whole(rig)


def test_files_that_a_killed_recorder_had_only_begun_go(tmp_path: Path, camera: Clip) -> None:
    """Nothing was in them; what no recorder has begun stays."""
    rig = Rig(tmp_path / "store", camera)
    rig.send(20)
    rig.kill()
    (written,) = (tmp_path / "store" / "door").glob("*/*.mp4")
    begun = [written.with_name(f"235959.99{number}Z-aaaa-0.mp4") for number in range(3)]
    for path, size in zip(begun, (0, 20, 100)):
        path.write_bytes(written.read_bytes()[:size])
    other = written.with_name("000000.000Z-none-0.mp4")
    other.write_text("notes")
    rig.start()
    rig.send(5)
    rig.finish()
    assert [path for path in (*begun, other) if path.exists()] == [other]
    other.unlink()
    assert rig.shape() == [("recorded", 25.0)]
    assert [*rig.packets()] == sent(camera, rig.put)


@pytest.mark.parametrize("begun", [b"", b"lookTRK\1\x90"])
def test_boxes_that_a_killed_recorder_had_only_begun_go(tmp_path: Path, camera: Clip, begun: bytes) -> None:
    rig = Rig(tmp_path / "store", camera)
    rig.send(5)
    rig.kill()
    (written,) = (tmp_path / "store" / "door").glob("*/*.mp4")
    boxes = written.with_suffix(".trk")
    boxes.write_bytes(begun)
    rig.start()
    rig.recorder.turn()
    rig.finish()
    assert not boxes.exists()
    Stored(tmp_path / "store").check_sound()


def test_a_source_that_is_added_again_begins_anew(tmp_path: Path, camera: Clip) -> None:
    """Numbers of packets begin anew in its ring, whoever is killed then."""
    rig = Rig(tmp_path / "store", camera)
    rig.send(20)
    rig.recorder.forget("door", "off", "the source was removed")
    rig.begin_ring()
    rig.connect("bbbb")
    rig.send(1)
    rig.kill()
    rig.start()
    rig.send(9)
    rig.finish()
    assert rig.shape() == [("recorded", 30.0)]
    assert [*rig.packets()] == sent(camera, 300) + sent(camera, 150)


def test_a_second_that_is_not_there_says_why(tmp_path: Path, camera: Clip) -> None:
    """A camera that goes and comes back in the middle of a group; one that pauses; a recorder that is stopped."""
    rig = Rig(tmp_path / "store", camera)
    rig.send(10)
    rig.recorder.note("door", rig.clock.utc_ns(), "source_down", "no data for 5 s")
    rig.connect("bbbb", first=4)
    rig.wait(5)
    rig.send(10)
    rig.send(4, skip=True)
    rig.send(10)
    rig.finish()
    gaps = [row for row in rig.timeline() if isinstance(row, Gap)]
    assert [(gap.cause, gap.detail) for gap in gaps] == [
        ("source_down", "no data for 5 s"), ("no_key", None), ("network", "no video for 4.1 s"),
    ]  # fmt: skip
    assert rig.shape() == [
        ("recorded", 10), ("source_down", 5), ("no_key", 0.7), ("recorded", 9.3), ("network", 4.0), ("recorded", 10),
    ]  # fmt: skip
    rig.wait(60, turns=False)
    rig.begin_daemon()
    rig.connect("cccc")
    rig.send(5)
    rig.finish()
    assert rig.shape()[-2:] == [("daemon_down", 60), ("recorded", 5)]
    assert is_whole(rig)


def test_all_causes_of_a_gap_outlive_the_daemon(tmp_path: Path, camera: Clip) -> None:
    """The camera was down before the daemon was, and recording was off after that, for days that nobody counted."""
    rig = Rig(tmp_path / "store", camera)
    rig.send(5)
    rig.recorder.note("door", rig.clock.utc_ns(), "source_down", "no answer")
    rig.wait(20)
    rig.finish()
    rig.wait(60, turns=False)
    rig.begin_daemon()
    rig.recorder.turn()
    rig.send(2, skip=True)
    rig.recorder.forget("door", "off", "it was switched off")
    rig.finish()
    rig.wait(600, turns=False)
    rig.begin_daemon()
    rig.connect("bbbb")
    rig.send(5)
    rig.finish()
    causes = [("source_down", 20.0), ("daemon_down", 60.0), ("source_down", 2.0), ("off", 600.0)]
    assert rig.shape() == [("recorded", 5.0), *causes, ("recorded", 5.0)]
    assert is_whole(rig)


@pytest.mark.parametrize("cause", LASTING)
def test_a_switched_off_source_is_known_as_such_without_an_index(tmp_path: Path, camera: Clip, cause: Cause) -> None:
    rig = Rig(tmp_path / "store", camera)
    rig.send(5)
    rig.recorder.turn()
    rig.recorder.forget("door", cause, "words")
    rig.finish()
    for path in rig.folder.glob("index.sqlite*"):
        path.unlink(missing_ok=True)  # whoever closes it last removes its log
    rig.wait(60, turns=False)
    rig.begin_daemon()
    rig.connect("bbbb")
    rig.send(5)
    rig.finish()
    assert rig.shape() == [("recorded", 5.0), (cause, 60.0), ("recorded", 5.0)]


@pytest.mark.parametrize("in_fleet", [False, True])
def test_a_source_that_a_daemon_does_not_record_is_off_since_its_start(
    tmp_path: Path, camera: Clip, *, in_fleet: bool
) -> None:
    """Whoever is killed meanwhile, until it is recorded again."""
    rig, cause = Rig(tmp_path / "store", camera), "fenced" if in_fleet else "off"
    rig.send(5)
    rig.kill()
    rig.wait(60, turns=False)
    for _ in range(2):
        rig.start_without(in_fleet=in_fleet)
        rig.kill()
        rig.wait(20, turns=False)
    rig.begin_daemon()
    rig.recorder.turn()
    rig.wait(3)
    rig.connect("bbbb")
    rig.send(5)
    rig.finish()
    (_, recorded), (down, length), *rest = rig.shape()
    assert down == "daemon_down"
    assert recorded + length == pytest.approx(65)
    assert rest == [(cause, 40.0), ("source_down", 3.0), ("recorded", 5.0)]
    assert is_whole(rig)


@pytest.mark.parametrize("rebuilds", [False, True])
def test_a_source_that_is_not_recorded_stays_off_without_an_index(
    tmp_path: Path, camera: Clip, *, rebuilds: bool
) -> None:
    rig = Rig(tmp_path / "store", camera)
    rig.send(5)
    rig.finish()
    rig.wait(60, turns=False)
    began = rig.clock.utc_ns()
    rig.start_without()
    rig.wait(20)
    if rebuilds:
        with closing(Store.open(rig.folder)) as store, closing(Index(store)) as index:
            rebuild(store, index)
    else:
        rig.kill()
        _lose_index(rig)
        rig.start_without(began)
        rig.await_index()
    for _ in range(10):
        rig.wait(1)
    rig.recorder.finish()
    rig.begin_daemon()
    rig.connect("bbbb")
    rig.send(5)
    rig.finish()
    assert rig.shape() == [("recorded", 5.0), ("daemon_down", 60.0), ("off", 30.0), ("recorded", 5.0)]
    assert is_whole(rig)


@pytest.mark.parametrize("rebuilds", [False, True])
def test_a_source_whose_recordings_were_all_deleted_is_forgotten(
    tmp_path: Path, camera: Clip, *, rebuilds: bool
) -> None:
    """And which is no more a source: by somebody who follows the documents, or by the limits of the store."""
    rig = Rig(tmp_path / "store", camera)
    rig.send(5)
    rig.recorder.forget("door", "off", "it was switched off")
    rig.recorder.explain(Absence(rig.clock.utc_ns(), frozenset(), frozenset(), in_fleet=False))
    rig.wait(6)
    assert "door" in (rig.folder / "open_gaps.json").read_text()
    if rebuilds:
        shutil.rmtree(rig.folder / "door")
        with closing(Store.open(rig.folder)) as store, closing(Index(store)) as index:
            rebuild(store, index)
    else:
        for _ in range(3):  # the limits trust a clock that has gone on for a while
            rig.wait(86_400)
    rig.wait(6)
    rig.wait(6)
    with closing(Store.open(rig.folder)) as store, closing(IndexReader(store)) as index:
        assert index.sources() == []
    assert "door" not in (rig.folder / "open_gaps.json").read_text()
    rig.begin_ring()
    rig.connect("bbbb")
    rig.send(5)
    rig.finish()
    assert rig.shape() == [("recorded", 5.0)]


def _events_of(rig: Rig) -> list[str]:
    with closing(Store.open(rig.folder)) as store, closing(IndexReader(store)) as index:
        return [event for (event,) in index._ask("SELECT event FROM claims")]


def _lose_index(rig: Rig) -> None:
    for path in rig.folder.glob("index.sqlite*"):
        path.unlink(missing_ok=True)  # whoever closes it last removes its log


def test_video_that_may_still_be_written_is_no_gap(tmp_path: Path, camera: Clip) -> None:
    """Neither of the camera that was away before, nor of the daemon if all is killed."""
    rig = Rig(tmp_path / "store", camera, EVENTS)
    begin = rig.clock.utc_ns()
    rig.recorder.turn()
    rig.wait(7)
    rig.send(8)
    last, account = rig.timeline()[-1], rig.account
    assert isinstance(last, Gap)
    assert last.cause == "source_down"
    assert account.cause is None
    for length in (last.end - begin, account.gap_ns["source_down"]):
        assert length / SECOND == pytest.approx(7, abs=0.1)
    rig.kill()
    rig.wait(60, turns=False)
    rig.begin_daemon()
    rig.connect("bbbb")
    rig.send(30)
    rig.finish()
    causes, lengths = zip(*rig.shape()[1:])
    assert causes == ("source_down", "daemon_down", "no_event")
    assert lengths == pytest.approx((7, 68, 30), abs=0.1)


def test_an_index_that_could_not_be_made_is_made_later(
    tmp_path: Path, camera: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without anybody who opens the store again."""
    monkeypatch.setattr(index_reader, "_WAIT_S", 0.1)
    rig = Rig(tmp_path / "store", camera)
    rig.send(5)
    rig.await_index()
    with closing(Store.open(rig.folder)) as store:
        _lose_index(rig)
        Index(store).close()
        with logged() as lines, locked_index(rig.folder) as let_go:
            for _ in range(3):
                rig.wait(10)
                rig.await_index()
            let_go()
            rig.wait(10)
            rig.await_index()
        assert [line["event"] for line in lines].count("the index of a store is not whole") == 1
        with closing(IndexReader(store)) as index:
            assert index.is_whole
            assert len(index.files()) == 1
    rig.finish()


def test_why_nothing_is_recorded_outlives_the_index(tmp_path: Path, camera: Clip) -> None:
    """A source that was down, and then off: no file says so, and each restart loses the index."""
    rig = Rig(tmp_path / "store", camera)
    rig.send(5)
    rig.recorder.note("door", rig.clock.utc_ns(), "source_down", "no route to host")
    rig.wait(20)
    rig.recorder.forget("door", "off", "it was switched off")
    rig.wait(0.5)
    rig.recorder.explain(Absence(rig.clock.utc_ns(), frozenset(), frozenset({"door"}), in_fleet=False))
    for _ in range(12):
        rig.wait(0.5)
    for _ in range(2):
        rig.kill()
        _lose_index(rig)
        rig.wait(60, turns=False)
        rig.start_without()
        rig.wait(6)
    rig.kill()
    _lose_index(rig)
    rig.begin_daemon()
    rig.connect("bbbb")
    rig.send(5)
    rig.finish()
    assert rig.shape() == [("recorded", 5.0), ("source_down", 20.0), ("off", 138.5), ("recorded", 5.0)]
    assert is_whole(rig)
    gaps = [row for row in rig.timeline() if isinstance(row, Gap)]
    assert [gap.detail for gap in gaps] == ["no route to host", "it was switched off"]


def test_a_rebuilt_index_has_the_gaps_that_go_on_to_the_byte(tmp_path: Path, camera: Clip) -> None:
    rig = Rig(tmp_path / "store", camera)
    rig.send(5)
    rig.recorder.note("door", rig.clock.utc_ns(), "source_down", "no route to host")
    rig.wait(7)
    rig.finish()
    with closing(Store.open(rig.folder)) as store:
        with closing(Index(store)) as index:
            before = index.open_gaps_of_all()
        assert [(gap.source, gap.cause) for gap in before] == [("door", "source_down"), ("door", "daemon_down")]
        _lose_index(rig)
        with closing(Index(store)) as index:
            rebuild(store, index)
            assert index.open_gaps_of_all() == before


def test_the_last_file_is_known_while_somebody_else_gives_it_its_end(
    tmp_path: Path, camera: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes an index that was lost does so beside a recorder that begins, and may not have told the index."""
    monkeypatch.setattr(index_reader, "_WAIT_S", 0.1)
    rig = Rig(tmp_path / "store", camera)
    rig.send(5)
    rig.kill()
    _lose_index(rig)
    with closing(Store.open(rig.folder)) as store:
        Index(store).close()
    (path,) = rig.folder.glob("door/*/*.mp4")
    with locked_index(rig.folder), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        to = open_store(str(rig.folder), DAY, Troubles(), must_be_mount=False, uuid=None)
        with closing(to):
            last = to.last("door")
    assert last is not None
    assert (last.path, last.packets) == (str(path.relative_to(rig.folder)), 60)


def test_a_gap_that_is_over_does_not_come_back_with_the_index(tmp_path: Path, camera: Clip) -> None:
    """The file of gaps may be some seconds old when everything ends."""
    rig = Rig(tmp_path / "store", camera)
    rig.send(5)
    rig.wait(20)
    rig.connect("bbbb")
    rig.send(3)
    kept = (rig.folder / "open_gaps.json").read_bytes()
    rig.send(10)
    rig.kill()
    _lose_index(rig)
    (rig.folder / "open_gaps.json").write_bytes(kept)
    rig.wait(60, turns=False)
    rig.begin_daemon()
    rig.connect("cccc")
    rig.send(5)
    rig.finish()
    causes = [("recorded", 5.0), ("source_down", 20.0), ("recorded", 12.0), ("daemon_down", 61.0), ("recorded", 5.0)]
    assert rig.shape() == causes


def test_a_clip_of_a_camera_that_never_sent_anything_ends(tmp_path: Path, camera: Clip) -> None:
    """No packet has told how far the time of day is from the clock that nobody sets."""
    rig = Rig(tmp_path / "store", camera, EVENTS)
    rig.recorder.turn()
    rig.event("first")
    rig.wait(1)
    assert _wanted(rig) == {"first": (-3.0, 1.0, "recording")}
    for _ in range(20):
        rig.wait(1)
    assert [(name, is_over) for name, is_over, _ in rig.told] == [("first", False), ("first", True)]
    rig.finish()


def test_an_old_file_of_gaps_hides_no_absence(tmp_path: Path, camera: Clip) -> None:
    """A copy of a store may have one that is older than its videos."""
    rig = Rig(tmp_path / "store", camera)
    begin = rig.clock.utc_ns()
    rig.send(5)
    rig.finish()
    _lose_index(rig)
    (rig.folder / "open_gaps.json").write_bytes(json.dumps([["door", begin - 9, begin + 9, "off", None]]).encode())
    rig.wait(60, turns=False)
    rig.start_without()
    rig.await_index()
    rig.wait(10)
    rig.recorder.turn()
    rig.recorder.finish()
    assert rig.shape()[:2] == [("recorded", 5.0), ("daemon_down", 60.0)]
    with closing(Store.open(rig.folder)) as store, closing(IndexReader(store)) as index:
        assert [gap.cause for gap in index.open_gaps("door")] == ["daemon_down", "off"]


def test_events_without_end_while_a_store_is_away_have_little_state(tmp_path: Path, camera: Clip) -> None:
    """Each time with another clip, or in the same one: the ring's state has room for the newest, and each clip has an
    end."""
    rig = Rig(tmp_path / "store", camera, EVENTS)
    rig.send(5)
    rig.folder.rename(tmp_path / "away")
    for number in range(3000):
        rig.event(f"5f0c2d1e-17951831{number:05}")
        rig.clock.advance(10 if number < 1500 else 0.1)
    rig.recorder.turn()
    (tmp_path / "away").rename(rig.folder)
    rig.wait(10)
    rig.send(20)
    rig.finish()
    assert "5f0c2d1e-1795183102999" in {name for name, _, _ in rig.told} | set(_events_of(rig))
    begun, over = ([name for name, is_over, _ in rig.told if is_over == which] for which in (False, True))
    assert len(begun) > 1500
    assert sorted(begun) == sorted(over)


def test_a_store_that_was_away_says_how_many_events_it_knows_no_time_of(
    tmp_path: Path, camera: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimed_times, "_MOST", 10)
    rig = Rig(tmp_path / "store", camera, EVENTS)
    rig.send(5)
    rig.folder.rename(tmp_path / "away")
    rig.recorder.turn()
    with logged() as lines:
        for number in range(13):
            rig.event(f"e{number}")
        (tmp_path / "away").rename(rig.folder)
        rig.wait(10)
    rig.finish()
    (forgotten,) = (line["at_most"] for line in lines if "when some events were" in line["event"])
    assert len(_events_of(rig)) == 10
    assert forgotten >= 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'[["door",1,2,"rain",null]]',
        b'[["door",1,99999999999999999999,"off",null]]',
        b"\xff\x00",
        b"[[1]]",
        b'[["door",9,3,"off",null]]',
    ],
)
def test_a_damaged_file_of_gaps_costs_only_what_it_said(tmp_path: Path, camera: Clip, content: bytes) -> None:
    rig = Rig(tmp_path / "store", camera)
    rig.send(5)
    rig.finish()
    _lose_index(rig)
    (rig.folder / "open_gaps.json").write_bytes(content)
    rig.wait(60, turns=False)
    with logged() as lines:
        rig.begin_daemon()
        rig.connect("bbbb")
        rig.send(5)
        rig.finish()
    (line,) = [line for line in lines if line["log_level"] == "warning"]
    assert line["path"] == str(rig.folder / "open_gaps.json")
    assert rig.shape() == [("recorded", 5.0), ("daemon_down", 60.0), ("recorded", 5.0)]


def test_a_source_that_never_sent_anything_is_off_as_well(tmp_path: Path, camera: Clip) -> None:
    rig = Rig(tmp_path / "store", camera)
    rig.recorder.turn()
    rig.wait(10)
    rig.finish()
    rig.wait(5, turns=False)
    rig.start_without(is_there=True)
    rig.recorder.finish()
    with closing(Store.open(rig.folder)) as store, closing(IndexReader(store)) as index:
        assert [gap.cause for gap in index.open_gaps("door")] == ["source_down", "daemon_down", "off"]


def test_a_source_that_is_switched_off_later_is_off_since_then(tmp_path: Path, camera: Clip) -> None:
    """What the configuration of the start said of others changes nothing of it."""
    rig = Rig(tmp_path / "store", camera)
    rig.recorder.explain(Absence(rig.clock.utc_ns(), frozenset({"door"}), frozenset({"door"}), in_fleet=False))
    rig.send(5)
    rig.recorder.forget("door", "off", "it was switched off")
    rig.recorder.explain(Absence(rig.clock.utc_ns() - 5 * SECOND, frozenset(), frozenset({"door"}), in_fleet=False))
    rig.wait(20)
    rig.begin_ring()
    rig.connect("bbbb")
    rig.send(5)
    rig.finish()
    assert rig.shape() == [("recorded", 5.0), ("off", 20.0), ("recorded", 5.0)]


def test_an_index_that_is_locked_is_no_store_that_hangs(
    tmp_path: Path, camera: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_reader, "_WAIT_S", 0.1)
    monkeypatch.setattr(recorder, "_HUNG_S", 0.05)
    rig = Rig(tmp_path / "store", camera)
    rig.send(3)
    assert rig.recorder._to is not None
    index = rig.recorder._to.index
    rig.recorder._boottime = lambda: rig.clock.monotonic_ns() + index.waited_ns  # nothing else takes time
    with logged() as lines, locked_index(rig.folder):
        rig.send(3, turns=False)
        rig.wait(5)
    words = [line["event"] for line in lines]
    assert "recording waits for its store" in words
    assert "the store did not answer" not in words
    rig.send(3)
    rig.finish()
    assert rig.shape()[0] == ("recorded", 9.0)


def test_a_stop_waits_once_for_an_index_that_is_locked(
    tmp_path: Path, camera: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the number of sources: each has something to tell it."""
    monkeypatch.setattr(index_reader, "_WAIT_S", 1.0)
    rig = Rig(tmp_path / "store", camera)
    rig.send(3)
    rings = [Ring(f"cam-{number}", rig.ring_bytes) for number in range(8)]
    for number, ring in enumerate(rings):
        rig.recorder.record(f"cam-{number}", rig.settings, ring.fd)
    rig.recorder.turn()
    with locked_index(rig.folder) as let_go:
        began = monotonic()
        with pytest.raises(StoreError), closing(Store.open(rig.folder)) as store, closing(Index(store)) as index:
            index.add_files([])
        once = monotonic() - began
        rig.recorder.finish()
        took = monotonic() - began - once
        let_go()
    assert took < 4 * once
    rig.start()  # who opens the store next reads what the index was not told
    rig.finish()
    assert rig.shape()[0] == ("recorded", 3.0)


@pytest.mark.parametrize("until", ["it has left", "it comes again"])
def test_what_a_source_has_left_is_told_once_the_index_can_be_written(
    tmp_path: Path, camera: Clip, monkeypatch: pytest.MonkeyPatch, until: str
) -> None:
    """It may come again meanwhile."""
    monkeypatch.setattr(index_reader, "_WAIT_S", 0.1)
    rig = Rig(tmp_path / "store", camera)
    rig.send(5)
    with locked_index(rig.folder) as let_go:
        with logged() as lines:
            rig.recorder.forget("door", "off", "it was switched off")
        if until == "it has left":
            let_go()
        rig.wait(20)
        rig.begin_ring()
        if until == "it comes again":
            let_go()
    rig.connect("bbbb")
    rig.send(5)
    rig.finish()
    assert not [line for line in lines if "not recorded" in line["event"]]
    assert rig.shape() == [("recorded", 5.0), ("off", 20.0), ("recorded", 5.0)]


def test_others_are_recorded_while_the_index_cannot_be_told_of_one_that_left(
    tmp_path: Path, camera: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another one is added."""
    monkeypatch.setattr(index_reader, "_WAIT_S", 0.1)
    rig = Rig(tmp_path / "store", camera)
    rings = [Ring(name, rig.ring_bytes) for name in ("other", "new")]
    rig.recorder.record("other", rig.settings, rings[0].fd)
    rig.send(5)
    with locked_index(rig.folder):
        rig.recorder.forget("other", "off", "it was switched off")
        before = rig.account.written
        rig.send(20)
        assert rig.account.written > before + 15 * FPS
    rig.recorder.record("new", rig.settings, rings[1].fd)
    rig.send(5)
    rig.finish()
    assert rig.shape() == [("recorded", 30.0)]


def test_a_clip_has_what_was_written_before_its_event_came(tmp_path: Path, camera: Clip) -> None:
    """Also where a recorder is killed in between."""
    rig = Rig(tmp_path / "store", camera)
    rig.send(10)
    rig.kill()
    rig.start()
    rig.event("late", ago=1)
    rig.send(5)
    rig.event("later", ago=1)
    rig.send(12)
    (told,) = [row for row in rig.told if row[1]]
    assert told[2] == pytest.approx(15 * SECOND, abs=1e8)
    rig.finish()


def test_what_an_event_wants_is_known_to_the_next_recorder_at_once(tmp_path: Path, camera: Clip) -> None:
    """Though the daemon tells both of it, since it does not know how far the first one came."""
    rig = Rig(tmp_path / "store", camera, EVENTS)
    rig.send(20)
    rig.event("first")
    rig.kill()
    rig.start()
    rig.event("first", ago=-1)
    rig.send(20)
    rig.finish()
    assert [(name, is_over) for name, is_over, _ in rig.told] == [("first", False), ("first", True)]
    assert rig.told[1][2] == 4 * SECOND


@pytest.mark.parametrize("trouble", ["killed", "index locked"])
def test_an_older_file_that_an_event_wants_is_marked_in_the_end(
    tmp_path: Path, camera: Clip, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """Otherwise it would go before its time. Each event has its own."""
    monkeypatch.setattr(index_reader, "_WAIT_S", 0.1)
    rig = Rig(tmp_path / "store", camera)
    while len(Stored(rig.folder).files("door") if rig.put else ()) < 2:
        rig.send(2)
    with locked_index(rig.folder) as let_go:
        if trouble == "killed":
            let_go()
        rig.event("first")
        if trouble == "killed":
            rig.kill()
            rig.start()
        rig.send(5)
        let_go()
    rig.send(10)
    rig.finish()
    first, second, *_ = Stored(rig.folder).files("door")
    assert (first.reason, first.claimed, second.claimed) == ("minute", True, True)
    Stored(rig.folder).check_sound()


def test_a_file_that_cannot_be_marked_keeps_no_other_event_waiting(
    tmp_path: Path, camera: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path / "store", camera)

    def _send_to_the_next_file() -> str:
        before = Stored(rig.folder).files("door")
        while len(Stored(rig.folder).files("door")) == len(before):
            rig.send(1)
        return before[-1].path

    rig.send(2)
    refuses, pwrite = _send_to_the_next_file(), os.pwrite

    def _pwrite(file: int, data: bytes, at: int) -> int:
        """Of a file that an administrator has made immutable."""
        if os.readlink(f"/proc/self/fd/{file}").endswith(refuses):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        return pwrite(file, data, at)

    monkeypatch.setattr(os, "pwrite", _pwrite)
    with logged() as lines:
        rig.event("first", ago=2)
        wanted = _send_to_the_next_file()
        rig.event("second", ago=2)
        rig.send(20)
    rig.finish()
    assert [line["recording"] for line in lines if "cannot be marked" in line["event"]] == [refuses]
    assert {row.path: row.claimed for row in Stored(rig.folder).files("door")}[wanted]


def test_an_event_is_known_to_the_next_recorder_though_no_store_was_ever_there(tmp_path: Path, camera: Clip) -> None:
    """As where a share is mounted late."""
    (tmp_path / "store").write_text("no folder")
    rig = Rig(tmp_path / "store", camera, EVENTS)
    rig.send(10)
    rig.event("first")
    rig.send(1)
    rig.kill()
    rig.start()
    (tmp_path / "store").unlink()
    rig.send(20)
    rig.finish()
    assert _wanted(rig)["first"][2] == "ready"
    assert [(name, is_over) for name, is_over, _ in rig.told] == [("first", False), ("first", True)]
    assert ("recorded", 4.0) in rig.shape()


def test_an_event_that_comes_to_a_clip_that_is_given_up_ends_with_it(tmp_path: Path, camera: Clip) -> None:
    rig = Rig(tmp_path / "store", camera, EVENTS)
    rig.send(20)
    rig.folder.rename(tmp_path / "away")
    rig.event("e0", ago=1)
    for number in range(1, 1500):
        rig.clock.advance(10 if number < 20 else 0.001)
        rig.event(f"e{number}")
    late = rig.clock.monotonic_ns() - rig.recorder._sources["door"].clips.open[0].begin
    rig.event("first", ago=late / SECOND - 1)
    (tmp_path / "away").rename(rig.folder)
    rig.wait(10)
    rig.send(20)
    rig.finish()
    assert _wanted(rig)["first"][2] == "ready"  # most of it was written before the store was away


def test_events_share_a_clip_and_the_rest_is_released(tmp_path: Path, camera: Clip) -> None:
    rig = Rig(tmp_path / "store", camera, EVENTS)
    rig.send(20)
    rig.event("first", ago=1)
    rig.send(2)
    rig.event("second", ago=0.5)
    rig.send(20)
    account = rig.account
    assert (account.cause, account.lost) == ("no_event", {})
    assert account.written + account.released <= rig.put
    rig.finish()
    (span,) = [row for row in rig.timeline() if isinstance(row, Span)]
    assert span.file.claimed
    # From the key picture before 17 s, two before the first event, to the end of the group of 23.5 s.
    assert span.begin - rig.clock.utc_ns() + 42 * SECOND == pytest.approx(17 * SECOND, abs=1e6)
    assert span.end - span.begin == pytest.approx(7 * SECOND, abs=1e8)
    assert [(name, is_over) for name, is_over, _ in rig.told] == [("first", False), ("first", True)]
    assert rig.told[1][2] == pytest.approx(6.5 * SECOND, abs=1e8)


def _wanted(rig: Rig) -> dict[str, tuple[float, float, str]]:
    """The times of events in the index, in seconds before now, and their states."""
    now = rig.clock.utc_ns()
    with closing(Store.open(rig.folder)) as store, closing(IndexReader(store)) as index:
        found = {name: index.claim("door", name) for name in ("first", "second", "third")}
    return {
        name: (round((row.begin - now) / SECOND, 1), round((row.end - now) / SECOND, 1), row.state)
        for name, row in found.items()
        if row is not None
    }


@pytest.mark.parametrize("settings", [EVENTS, EVERYTHING])
def test_the_index_knows_the_time_that_an_event_wants(tmp_path: Path, camera: Clip, settings: Settings) -> None:
    """At once, and with what later events of its clip want. It is forgotten with the last video of its time."""
    rig = Rig(tmp_path / "store", camera, settings)
    pre, post = settings.pre / SECOND, settings.post / SECOND
    rig.send(20)
    rig.event("first")
    rig.send(1)
    assert _wanted(rig) == {"first": (-1 - pre, post - 1, "recording")}
    rig.event("second")
    rig.send(1)
    assert _wanted(rig) == dict.fromkeys(("first", "second"), (-2 - pre, post - 1, "recording"))
    rig.recorder.claim("door", Claim("third", None, None, rig.clock.utc_ns() - 3600 * SECOND))  # of which nothing is
    rig.send(30)
    clip = (-32 - pre, post - 31, "ready")
    assert _wanted(rig) == {"first": clip, "second": clip, "third": (-3630, post - 3630, "failed")}
    rig.finish()
    with closing(Store.open(rig.folder)) as store, closing(Index(store)) as index:
        for facts in index.files():
            index.remove_file(facts.id)
    assert _wanted(rig) == {}


@pytest.mark.parametrize("trouble", ["killed", "index locked", "index locked to the end"])
def test_the_time_of_an_event_reaches_the_index_in_the_end(
    tmp_path: Path, camera: Clip, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr(index_reader, "_WAIT_S", 0.1)
    rig = Rig(tmp_path / "store", camera, EVENTS)
    rig.send(20)
    with locked_index(rig.folder) as let_go:
        if "locked" not in trouble:
            let_go()
        rig.event("first")
        rig.send(2)
        if trouble == "killed":
            rig.kill()
            rig.start()
        if trouble != "index locked to the end":
            let_go()
        rig.send(15)
    rig.send(15)
    rig.finish()
    assert {name: row[2] for name, row in _wanted(rig).items()} == {"first": "ready"}


def test_an_index_that_is_made_anew_knows_when_events_were(
    tmp_path: Path, camera: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From files beside the recordings, also where it was locked until the recorder ended."""
    monkeypatch.setattr(index_reader, "_WAIT_S", 0.1)
    rig = Rig(tmp_path / "store", camera, EVENTS)
    rig.send(20)
    rig.event("first")
    rig.send(30)
    (before,) = _wanted(rig).items()
    with locked_index(rig.folder):
        rig.event("second")
        rig.send(20)
        rig.finish()
    (beside,) = rig.folder.glob("door/*/events.jsonl")
    with beside.open("a") as file:
        file.write('\n["door","third",1\n["gate","third",1,2,"ready"]\n["door","third",1,99999999999999999999,"ready"]')
    _lose_index(rig)
    with logged() as lines:
        rig.start_without()
        rig.finish()
    name, (begin, end, _) = before
    assert _wanted(rig) == {name: (begin - 20, end - 20, "ready"), "second": (-22, -18, "ready")}
    assert [line["folder"] for line in lines if "cannot be read" in line["event"]] == [f"door/{beside.parent.name}"]
    with closing(Store.open(rig.folder)) as store, closing(IndexReader(store)) as index:
        end_of_all = rig.clock.utc_ns() + 10 * DAY.events_ns
        assert Retention(store, Index(store), DAY).run(end_of_all, ages=True)
        assert index.files() == []
    assert [*rig.folder.glob("door/*")] == [rig.folder / "door" / "deleted.ids"]


def test_files_beside_recordings_say_how_an_event_ended(
    tmp_path: Path, camera: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that was told of its begin alone has its end once it is made again, also of the next day."""
    monkeypatch.setattr(index_reader, "_WAIT_S", 0.1)
    rig = Rig(tmp_path / "store", camera, EVENTS)
    day = 86_400 * SECOND
    rig.clock.advance((day - rig.clock.utc_ns() % day) / SECOND - 60)
    rig.send(30)
    rig.event("before")
    rig.send(34)
    rig.event("first")
    rig.send(1)
    with locked_index(rig.folder):
        rig.event("second", ago=-1)
        rig.send(20)
        rig.finish()
    assert [row[2] for row in _wanted(rig).values()] == ["recording"]
    with closing(Store.open(rig.folder)) as store, closing(Index(store)) as index:
        rebuild(store, index)
    ready = dict.fromkeys(("first", "second"), (-23.0, -17.0, "ready"))
    assert _wanted(rig) == ready
    _lose_index(rig)
    rig.start_without()
    rig.finish()
    assert _wanted(rig) == ready
    assert len([*rig.folder.glob("door/*/events.jsonl")]) == 2


def test_a_full_ring_loses_the_newest_and_says_so(tmp_path: Path, camera: Clip) -> None:
    """While the process was down for long: what waited is written, and one gap follows."""
    rig = Rig(tmp_path / "store", camera, ring_bytes=1 << 20)
    rig.send(10)
    rig.kill()
    down = rig.clock.utc_ns()
    rig.send(100, turns=False)
    rig.start(down)
    rig.send(10)
    account = rig.account
    assert account.written + account.lost["recorder_down"] <= 120 * 15
    rig.finish()
    assert [what for what, _ in rig.shape()] == ["recorded", "recorder_down", "recorded"]
    assert sum(seconds for _, seconds in rig.shape()) == pytest.approx(120, abs=0.3)
    assert is_whole(rig)


@pytest.mark.parametrize("key_each", [None, 5])
def test_events_that_come_often_put_no_turn_off(tmp_path: Path, camera: Clip, key_each: int | None) -> None:
    """Five a second: a turn still comes each second, and what waits for it is less than a second and a half."""
    rig = Rig(tmp_path / "store", camera, ring_bytes=1 << 20, key_each=key_each)
    counts, most = set[int](), 0
    for number in range(60 * FPS):
        rig.send(1 / FPS, turns=False)
        if number % 3 == 0:
            rig.event(f"seen {number}")
        if number % 4 == 3:  # as often as its process looks
            rig.recorder.turn()
            counts.add(rig.account.written)
        most = max(most, rig.put - rig.account.written)
    assert 45 <= len(counts) <= 70
    assert most < 1.5 * FPS
    assert rig.account.lost == {}
    rig.finish()
    assert [*rig.packets()] == sent(camera, rig.put)


def test_the_clock_is_set_and_nothing_is_deleted(tmp_path: Path, camera: Clip) -> None:
    """A day ahead, an hour back, to 2038: the timeline stays in order, and no age counts for a day."""
    rig = Rig(tmp_path / "store", camera, rules=Rules(continuous_ns=3600 * SECOND, events_ns=3600 * SECOND))
    for step in (86_400, -3600, 4_000 * 86_400, 0):
        rig.send(10)
        rig.clock.step(step)
    rig.send(10)
    rig.finish()
    assert [what for what, _ in rig.shape()] == ["recorded", "clock"] * 3 + ["recorded"]
    assert is_whole(rig)
    assert [*rig.packets()] != []


@pytest.mark.parametrize(("step", "begin", "end"), [(3600, -5, 3605), (-3600, -5, 2), (-1.5, -5, 3.5)])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_clip_within_which_the_clock_is_set_has_the_times_of_its_video(
    tmp_path: Path, camera: Clip, step: float, begin: float, end: float, *, is_killed: bool
) -> None:
    """Or of most of it, where the clock is set back, so that its end comes before its begin."""
    rig = Rig(tmp_path / "store", camera)
    rig.send(20)
    rig.event("first")
    at = rig.clock.utc_ns()
    rig.send(2)
    rig.clock.step(step)
    rig.send(1)
    if is_killed:
        rig.kill()
        rig.start()
    rig.send(20)
    rig.finish()
    with closing(Store.open(rig.folder)) as store, closing(IndexReader(store)) as index:
        row = index.claim("door", "first")
        assert row is not None
        assert ((row.begin - at) / SECOND, (row.end - at) / SECOND) == pytest.approx((begin, end), abs=0.1)
        assert row.state == "ready"
    marked = [row for row in Stored(rig.folder).files("door") if row.claimed]
    assert len(marked) == 2


@pytest.mark.parametrize("step", [3600, -3600])
def test_an_event_of_before_the_clock_was_set_has_its_own_time(tmp_path: Path, camera: Clip, step: float) -> None:
    """One by the time of day alone, that comes after the step."""
    rig = Rig(tmp_path / "store", camera)
    rig.send(20)
    at = rig.clock.utc_ns()
    rig.send(0.5)
    rig.clock.step(step)
    rig.send(3)
    rig.recorder.claim("door", Claim("first", None, None, at))
    rig.send(20)
    rig.finish()
    with closing(Store.open(rig.folder)) as store, closing(IndexReader(store)) as index:
        row = index.claim("door", "first")
    assert row is not None
    assert (row.begin - at) / SECOND == pytest.approx(-5, abs=0.1)
    assert row.state == "ready"


def test_a_store_that_is_away_is_waited_for(tmp_path: Path, camera: Clip) -> None:
    """What comes meanwhile waits in memory; another folder in its place gets nothing."""
    folder = tmp_path / "store"
    rig = Rig(folder, camera)
    rig.send(10)
    folder.rename(tmp_path / "elsewhere")
    folder.mkdir()
    (folder / "foreign").touch()
    rig.send(10)
    assert rig.recorder.trouble is not None
    assert rig.recorder.trouble.cause == "store_away"
    assert [path.name for path in folder.iterdir()] == ["foreign"]
    (folder / "foreign").unlink()
    folder.rmdir()
    (tmp_path / "elsewhere").rename(folder)
    rig.send(20)
    assert rig.recorder.trouble is None
    rig.finish()
    assert rig.shape() == [("recorded", 40)]
    assert [*rig.packets()] == sent(camera, rig.put)


def test_a_source_that_is_switched_off_while_its_store_is_away_is_off_since_then(tmp_path: Path, camera: Clip) -> None:
    folder = tmp_path / "store"
    rig = Rig(folder, camera)
    rig.send(10)
    folder.rename(tmp_path / "elsewhere")
    rig.send(5)
    rig.recorder.turn()
    rig.recorder.forget("door", "off", "it was switched off")
    rig.wait(20)
    rig.begin_ring()
    rig.connect("bbbb")
    rig.send(5)
    (tmp_path / "elsewhere").rename(folder)
    rig.send(10)
    rig.finish()
    assert rig.shape() == [("recorded", 15), ("off", 20), ("recorded", 15)]
    assert [*rig.packets()] == sent(camera, 225) + sent(camera, 225)


def test_a_removed_source_that_cannot_be_written_keeps_no_other_from_its_store(tmp_path: Path, camera: Clip) -> None:
    folder, away = tmp_path / "store", tmp_path / "elsewhere"
    rig = Rig(folder, camera)
    rig.send(10)
    folder.rename(away)
    rig.send(5)
    ring = Ring("test", 1 << 20)
    rig.recorder.record("shed", rig.settings, ring.fd)
    rig.recorder.forget("shed", "off", "it was removed")
    (away / "shed").write_text("no folder")
    away.rename(folder)
    with logged() as lines:
        rig.send(10)
    assert rig.recorder.trouble is None
    assert [line["source"] for line in lines if "last video of a source" in line["event"]] == ["shed"]
    rig.finish()
    assert rig.shape() == [("recorded", 25)]
    assert [*rig.packets()] == sent(camera, rig.put)


def test_a_source_that_is_removed_twice_while_its_store_is_away_has_one_chain(tmp_path: Path, camera: Clip) -> None:
    folder, away = tmp_path / "store", tmp_path / "elsewhere"
    rig = Rig(folder, camera)
    rig.send(10)
    folder.rename(away)
    for session in ("bbbb", "cccc"):
        rig.send(5)
        rig.recorder.turn()
        rig.recorder.forget("door", "off", "it was removed")
        rig.begin_ring()
        rig.connect(session)
    rig.send(5)
    away.rename(folder)
    rig.send(10)
    rig.finish()
    with closing(Store.open(folder)) as store:
        heads = [scan(store, path).head for path in store.files()]
    assert [head.previous for head in heads] == [None, *(head.id for head in heads[:-1])]
    assert [*rig.packets()] == sent(camera, 225) + sent(camera, 75) + sent(camera, 225)


def test_what_a_store_that_stays_away_has_lost_is_said(tmp_path: Path, camera: Clip) -> None:
    rig = Rig(tmp_path / "store", camera)
    rig.send(1)
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    rig.send(1)
    with logged() as lines:
        rig.finish()
    (line,) = (line for line in lines if "last video of a source" in line["event"])
    assert (line["source"], line["cause"]) == ("door", "daemon_down")


def test_the_oldest_goes_where_bytes_are_limited(tmp_path: Path, camera: Clip) -> None:
    rig = Rig(tmp_path / "store", camera, rules=Rules(max_bytes=5 << 20, continuous_ns=DAY.continuous_ns, events_ns=1))
    rig.send(400)
    rig.finish()
    sizes = sum(path.stat().st_size for path in (tmp_path / "store").rglob("*.mp4"))
    assert 2 << 20 < sizes <= 5 << 20
    assert [what for what, _ in rig.shape()] == ["expired", "recorded"]
    assert is_whole(rig)


def test_an_index_that_refuses_costs_no_packet_and_none_comes_twice(tmp_path: Path, camera: Clip) -> None:
    """What is written is not written again, and the index is told of it when it takes something."""
    rig = Rig(tmp_path / "store", camera)
    rig.send(5)
    assert rig.recorder._to is not None
    index = rig.recorder._to.index._db
    index.execute("PRAGMA query_only = 1")
    rig.send(60)  # another minute begins
    index.execute("PRAGMA query_only = 0")
    rig.send(15)
    rig.finish()
    assert [*rig.packets()] == sent(camera, rig.put)
    assert rig.shape() == [("recorded", 80.0)]
    assert is_whole(rig)
