"""Boxes and tracks beside recordings: those of exactly the recorded pictures, and all that rules need."""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daemon.analytics.event import Event
from daemon.analytics.grouping import Grouping
from daemon.analytics.loops import PYTHON
from daemon.analytics.rules import RuleBook
from daemon.analytics.source_rules import RuleSet
from daemon.analytics.source_tracks import SourceTracks
from daemon.analytics.tracker import track
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.pipeline.outbox import Served
from daemon.recording import index_reader
from daemon.recording.errors import StoreError
from daemon.recording.index import NAME, Index
from daemon.recording.index_reader import IndexReader
from daemon.recording.reconcile import rebuild, reconcile
from daemon.recording.records import FileFacts, PacketRecord, StreamRecord
from daemon.recording.retention import Retention, Rules
from daemon.recording.ring import Ring, RingReader
from daemon.recording.scan import scan
from daemon.recording.store import Store
from daemon.recording.tracks import codec
from daemon.recording.tracks.activity import RECORD_BYTES, Activity, activity_at_end, packed
from daemon.recording.tracks.open_tracks import LeftTracks, note_ended, note_open
from daemon.recording.tracks.records import Handed, PackedNews, SeenFrame, StateChange, decode_message
from daemon.recording.tracks.stored_frames import frames_of
from daemon.recording.tracks.tap import TrackTap, decode_labels
from daemon.recording.tracks.track_records import TracksError, read_tracks, tracks_head, tracks_path
from daemon.recording.verify import verify
from detectors.detections import Detections
from detectors.port import HostImage
from lookout.messages import Attribute, FrameClock, Model
from tests.analytics.feed import rules_of
from tests.analytics.walks import SETTINGS, walk
from tests.recording.rig import DAY, EVENTS, SECOND, Rig
from tests.support.clock import ManualClock
from tests.support.events import logged
from tests.support.recorded import Clip, clip, played

LABELS = ("person", "car")
SERVED = Served(Model("model.onnx", "0123456789ab", "fp32", "ort"), LABELS)
CLOCK = FrameClock("arrival", 1000)
_IN_DELETE = 0x200  # of sys/inotify.h
_PICTURE = HostImage(np.zeros((1, 1, 3), np.uint8))


# --- the codec -------------------------------------------------------------------------------------------------------

_corners = st.floats(-5000, 5000, width=32)
_shares = st.floats(0, 1, width=32)
_ids = st.integers(0, 5) | st.integers(0, 1 << 50)
_looks = st.none() | st.fixed_dictionaries(
    {"colour": st.builds(Attribute, st.sampled_from(["red", "blue"]), st.just(0.5), st.just(3), st.booleans(), _ids)}
)
_rows = st.tuples(
    st.tuples(*[_corners] * 4), _shares, st.integers(0, 1), _ids, st.integers(0, 1), st.tuples(*[_corners] * 4), _looks
)
_news = st.none() | st.builds(
    PackedNews, st.dictionaries(_ids, st.binary(max_size=2).map(lambda data: data[:1] * 16)), st.lists(_ids),
    st.lists(_ids),
)  # fmt: skip
_times = st.integers(-(1 << 61), 1 << 61)
_frames = st.tuples(st.lists(_rows, max_size=4), _times, _times, _times, st.booleans(), st.booleans(), _news)


def _array(values: Iterable[Any], kind: Any, width: int = 0) -> bytearray:
    return bytearray(np.array([*values], kind).reshape((-1, width) if width else -1).tobytes())


_ZERO = ((0.0,) * 4, 0.0, 0, 1, 0, (0.0, 0.0, 0.0, -0.0), None)


@given(st.lists(_frames, min_size=1, max_size=8), st.booleans())
@example(frames=[([_ZERO], 0, 0, 0, False, True, None)], on_grid=False)  # a zero that is less than none, on no grid
@settings(max_examples=25, deadline=None)
def test_boxes_come_back_as_they_were(frames: list[Any], on_grid: bool) -> None:
    rows = [row for frame in frames for row in frame[0]]
    if on_grid:
        rows = [(*row[:5], tuple(round(corner) + 0.25 for corner in row[5]), row[6]) for row in rows]
    ids = [row[3] for row in rows]
    looks = [row[6] for row in rows]
    infos, places, begin = [], {}, 0
    for place, (own, pts, captured_ns, captured_at, corrupt, _, _) in enumerate(frames):
        infos.append(
            FrameInfo("cam", "5e55", place, pts, captured_ns, captured_at, CLOCK, 0, 640, 480, 0, 1.5, corrupt, "a/b")
        )
        places[place] = looks[begin : begin + len(own)]
        begin += len(own)
    handed = Handed(
        1, infos, [3 * place for place in range(len(frames))], [len(frame[0]) for frame in frames],
        [frame[5] for frame in frames],
        _array((row[0] for row in rows), np.float32, 4), _array((row[1] for row in rows), np.float32),
        _array((row[2] for row in rows), np.int32), _array(ids, np.int64), _array((row[4] for row in rows), np.int32),
        _array((row[5] for row in rows), np.float32, 4),
        {place: frame[6] for place, frame in enumerate(frames) if frame[6] is not None},
        {place: own for place, own in places.items() if any(own)},
    )  # fmt: skip
    untracked = msgspec.structs.replace(
        handed, tracked=[False] * len(frames), id=bytearray(), track_class=bytearray(), track_xyxy=bytearray()
    )
    others, own_frames = frames_of([untracked, handed])  # batches are converted together
    assert [frame.rows[:, :6].tolist() for frame in others] == [frame.rows[:, :6].tolist() for frame in own_frames]
    found = [*codec.decode(codec.encode(own_frames), {1: SERVED})]
    assert [one.frame for one in found] == infos
    assert [one.index for one in found] == handed.indexes
    begin = 0
    for place, one in enumerate(found):
        own = rows[begin : begin + len(frames[place][0])]
        begin += len(own)
        assert one.xyxy.tolist() == np.array([row[0] for row in own], np.float64).reshape(-1, 4).round(2).tolist()
        assert one.confidence.tolist() == np.array([row[1] for row in own], np.float64).round(4).tolist()
        assert one.class_id.tolist() == [row[2] for row in own]
        if not frames[place][5]:
            assert one.tracks is None
            continue
        assert one.tracks is not None
        assert one.tracks.id.tolist() == [row[3] for row in own]
        for row, label, corners in zip(own, one.tracks.class_id.tolist(), one.tracks.xyxy):
            assert label == (row[4] if row[3] else row[2])
            if row[3]:
                assert corners.tobytes() == np.array(row[5], np.float32).tobytes()
        news = frames[place][6]
        assert (None if one.tracks.news is None else PackedNews.of(one.tracks.news)) == news
    shown = [look for one in found for look in (one.attributes or [None] * len(one.xyxy))]
    assert shown == looks


# --- from lanes to files ---------------------------------------------------------------------------------------------


@dataclass
class Seeing(Rig):
    """A camera whose pictures are analysed, five pictures later.

    Attributes:
        handed: boxes of each picture by session and pts, with the number of the frame.
    """

    latency: int = 5

    def __post_init__(self) -> None:
        self.tracks = Ring("tracks", 4 << 20)
        self.tap = TrackTap({"main": self.tracks}, self.clock, self.clock.monotonic_ns)
        self.tap.use({"main": {"door"}})
        self.handed: dict[tuple[str, int], Detections] = {}
        self._coming: list[tuple[str, int]] = []
        self._seq = 0
        self._random = np.random.default_rng(5)
        super().__post_init__()

    def start(self, down_since: int | None = None) -> None:
        super().start(down_since)
        self.recorder.use_tracks(self.tracks.fd)

    def _send_one(self) -> None:
        super()._send_one()
        samples = self.clip.samples
        lap, number = divmod(self._next, len(samples))
        self._coming.append((self.session, samples[number].pts + round(lap * len(samples) * SECOND / 15)))
        self._coming.sort()
        if len(self._coming) > self.latency:
            self.hand_over(self._coming.pop(0))

    def hand_over(self, picture: tuple[str, int]) -> None:
        """The boxes of a picture leave a lane; those of each eighth picture do not."""
        session, pts = picture
        seq, self._seq = self._seq, self._seq + 1
        if seq % 8 == 7:
            return
        corners = self._random.uniform(0, 300, (seq % 4, 4)).astype(np.float32)
        found = Detections(corners, np.full(len(corners), 0.5, np.float32), np.zeros(len(corners), np.int32))
        now = self.clock.monotonic_ns()
        info = FrameInfo("door", session, seq, pts, now, self.clock.utc_ns(), CLOCK, 0, 320, 180)
        self.handed[picture] = found
        self.tap.on_batch([Frame(info, _PICTURE)], [found], SERVED)

    def files(self) -> Iterator[tuple[Store, FileFacts, list[int]]]:
        """Each file with the pts of its pictures."""
        with closing(Store.open(self.folder)) as store:
            for path in store.files():
                found = scan(store, path)
                base = found.head.base_dts
                yield store, found.facts, [base + pts for pts, _, _, _ in played(store.path / path)]

    def read(self) -> list[tuple[list[SeenFrame | StateChange], FileFacts]]:
        """What lies beside each file."""
        return [([*read_tracks(store, facts)], facts) for store, facts, _ in self.files()]

    def check(self) -> int:
        """Each recorded picture has exactly the boxes that were handed over, in the file beside it; how many have."""
        pictures = defaultdict(list)
        for session, pts in self.handed:
            pictures[session].append(pts)
        count = 0
        for store, facts, shown in self.files():
            known = np.sort(np.array(pictures[facts.session] or [-SECOND]))
            expected = set()
            for pts in shown:
                nearest = int(known[np.abs(known - pts).argmin()])
                if abs(nearest - pts) < 20_000:  # rounding of the file
                    expected.add(nearest)
            seen = [one for one in read_tracks(store, facts) if isinstance(one, SeenFrame)] if expected else []
            assert [one.frame.pts for one in seen] == sorted(expected)
            for one in seen:
                assert one.frame.session == facts.session
                assert one.frame.pts is not None
                boxes = self.handed[facts.session, one.frame.pts]
                assert one.xyxy.tolist() == boxes.xyxy.astype(np.float64).round(2).tolist()
                assert one.served == SERVED
            count += len(seen)
            assert verify(store).problems == []
        return count


@pytest.fixture(scope="module")
def camera(clips: Path) -> Clip:
    return clip(clips, "h264")


def test_each_recorded_picture_has_its_boxes_although_recorders_are_killed(tmp_path: Path, clips: Path) -> None:
    """The files of minutes, of another connection, and those of which a recorder was killed."""
    rig = Seeing(tmp_path / "store", clip(clips, "h264-b"))
    for seconds in (3.3, 0.4, 47.2):
        rig.send(seconds)
        rig.kill()
        rig.send(2, turns=False)
        rig.start()
    rig.connect("bbbb")
    rig.send(65)
    rig.finish()
    assert rig.check() == len(rig.handed)
    with closing(Store.open(rig.folder)) as store, closing(Index(store)) as index:
        there = sum(path.stat().st_size for kind in ("mp4", "trk") for path in rig.folder.rglob(f"*.{kind}"))
        assert index.sizes() == {"door": there}
        rebuild(store, index)
        assert index.sizes() == {"door": there}
        for facts in index.files():
            found = sum((rig.folder / facts.path).with_suffix(kind).stat().st_size for kind in (".mp4", ".trk"))
            assert index.file_sizes("door", facts.begin, facts.end)[facts.id] == found
        limit = Rules(max_bytes=there - 1, continuous_ns=DAY.continuous_ns, events_ns=DAY.events_ns)
        retention = Retention(store, index, limit)
        assert retention.run(0, ages=False) == 1
        assert sum(index.sizes().values()) == there - retention.deleted_bytes


def test_what_events_do_not_want_has_no_boxes_either(tmp_path: Path, camera: Clip) -> None:
    rig = Seeing(tmp_path / "store", camera, settings=EVENTS)
    rig.send(20)
    rig.event("first", ago=1)
    rig.send(20)
    rig.event("second", ago=1)
    rig.send(10)
    rig.finish()
    assert 100 < rig.check() < 200
    for store, facts, _ in rig.files():
        assert tracks_head(store, facts).video == facts.id


def test_what_was_lost_on_the_way_is_told(tmp_path: Path, camera: Clip) -> None:
    """A frame that was dropped is missing in one count, and one that was lost between lane and file in the other; and
    the states of the camera stand between its frames."""
    rig = Seeing(tmp_path / "store", camera)
    rig.send(2)
    rig.tap.use({})
    rig.send(1)
    rig.tap.use({"main": {"door"}})
    rig.tap.note("door", "stalled", rig.clock.monotonic_ns())
    rig.send(2)
    rig.finish()
    ((items, _),) = rig.read()
    frames = [one for one in items if isinstance(one, SeenFrame)]
    assert [one.index for one in frames] == [*range(len(frames))]
    steps = [after.frame.seq - before.frame.seq for before, after in pairwise(frames)]
    assert max(steps) >= 14
    place = next(number for number, one in enumerate(items) if isinstance(one, StateChange))
    assert steps[place - 1] == max(steps)


def test_a_file_that_was_cut_is_whole_up_to_there_and_a_changed_byte_is_found(tmp_path: Path, camera: Clip) -> None:
    rig = Seeing(tmp_path / "store", camera)
    rig.send(9)
    rig.finish()
    ((items, facts),) = rig.read()
    path, draw = rig.folder / tracks_path(facts.path), random.Random(1)
    whole, frames = path.read_bytes(), len(items)
    end = len(whole) - RECORD_BYTES - len(packed(_activity(path)))
    with closing(Store.open(rig.folder)) as store:
        for at in draw.sample(range(len(whole)), 25):
            path.write_bytes(whole[:at])
            assert len([*read_tracks(store, facts)]) < frames or at >= end
            (problem,) = verify(store).problems
            assert (problem.path, problem.begin, problem.end) == (tracks_path(facts.path), facts.begin, facts.end)
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :])
            assert [problem.kind for problem in verify(store).problems] == ["changed"]
        path.write_bytes(b"something else")
        with pytest.raises(TracksError, match="it is no file of tracks"):
            next(read_tracks(store, facts))
        path.unlink()
        assert verify(store).problems == []
        with pytest.raises(FileNotFoundError):
            next(read_tracks(store, facts))


def _activity(path: Path) -> Activity:
    with path.open("rb") as file:
        found = activity_at_end(file.fileno())
    assert found is not None
    return found


def test_end_and_index_tell_how_much_was_seen_in_each_second(tmp_path: Path, camera: Clip) -> None:
    """Also where more came after the end, and a process has begun again."""
    rig = Seeing(tmp_path / "store", camera)
    rig.send(3)
    rig.kill()
    rig.start()
    rig.connect("bbbb")
    rig.send(4)
    rig.finish()
    with closing(Store.open(rig.folder)) as store, closing(Index(store)) as index:
        indexed = {file: (first, counts) for file, first, counts in index.activity("door", 0, 1 << 62)}
    for items, facts in rig.read():
        told = _activity(rig.folder / tracks_path(facts.path))
        assert indexed[facts.id] == (told.first, told.counts)
        counted: dict[int, int] = defaultdict(int)
        for one in items:
            if isinstance(one, SeenFrame):
                second = one.frame.captured_at // SECOND
                counted[second] = max(counted[second], one.objects)
        assert max(counted.values()) > 0
        most = told.most.tolist()
        assert {told.first + place: count for place, count in enumerate(most) if count >= 0} == counted


def test_no_end_but_a_whole_one_tells_of_activity(tmp_path: Path, camera: Clip) -> None:
    rig = Seeing(tmp_path / "store", camera)
    rig.send(9)
    rig.finish()
    ((_, facts),) = rig.read()
    path, draw = rig.folder / tracks_path(facts.path), random.Random(2)
    whole, told = path.read_bytes(), _activity(path)
    end = len(whole) - RECORD_BYTES - len(packed(told))
    for at in [*draw.sample(range(len(whole)), 20), *draw.sample(range(end, len(whole)), 30)]:
        for changed in (whole[:at], whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :]):
            path.write_bytes(changed)
            with path.open("rb") as file:
                found = activity_at_end(file.fileno())
            assert found in (None, told)  # its own bytes alone are looked at
            assert found is None or len(changed) == len(whole)


def test_all_that_was_killed_at_once_leaves_whole_records(tmp_path: Path, camera: Clip) -> None:
    """No ring is left to go on from: the file ends with what was written."""
    rig = Seeing(tmp_path / "store", camera)
    rig.send(9)
    rig.kill()
    with closing(Store.open(rig.folder)) as store, closing(Index(store)) as index:
        (path,) = store.files()
        tracks = store.path / tracks_path(path)
        tracks.write_bytes(tracks.read_bytes()[:-3])
        reconcile(store, index)
        (facts,) = index.files()
        assert len([*read_tracks(store, facts)]) > 30
        assert verify(store).problems == []


def _problems(rig: Seeing) -> list[str]:
    with closing(Store.open(rig.folder)) as store:
        return [problem.detail for problem in verify(store).problems]


def _open_tracks(rig: Seeing) -> list[str]:
    with closing(Store.open(rig.folder)) as store, closing(IndexReader(store)) as index:
        return index.open_tracks()


def _boxes(rig: Seeing) -> dict[str, str]:
    """What lies beside each file that has something."""
    return {facts.path: str([*read_tracks(store, facts)]) for store, facts, _ in rig.files()
            if (rig.folder / tracks_path(facts.path)).exists()}  # fmt: skip


def _send_files(rig: Seeing, *lengths: int) -> None:
    """Seconds of each, which has a session of its own."""
    for seconds in lengths:
        rig.connect(f"{rig.put:04}", rig._next)
        rig.send(seconds)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_all_boxes_that_a_killed_process_left_open_get_their_end(
    tmp_path: Path, camera: Clip, is_recorded: bool
) -> None:
    """However many they are, however long nobody recorded, and although the camera is recorded no more. No other file
    is looked at for that, but by a reading of all."""
    rig = Seeing(tmp_path / "store", camera)
    _send_files(rig, 9, 9, 1, 1, 1, 1, 1, 3)
    rig.kill()
    before = _boxes(rig)
    left = _open_tracks(rig)
    assert 2 < len(left) == len(_problems(rig)) - 1  # and the last video
    with closing(Store.open(rig.folder)) as store:
        other = rig.folder / tracks_path(next(store.files()))
    whole = other.read_bytes()
    other.write_bytes(whole[:-3])
    rig.clock.advance(3600)
    if is_recorded:
        rig.begin_daemon()
        rig.send(6)
    else:
        rig.start_without()
    rig.recorder.finish()
    assert _open_tracks(rig) == []
    with closing(Store.open(rig.folder)) as store, closing(Index(store)) as index:
        if not is_recorded:
            reconcile(store, index)  # the last video
        assert [rig.folder / problem.path for problem in verify(store).problems] == [other]
        rebuild(store, index)
        assert verify(store).problems == []
        assert index.sizes() == {"door": sum(path.stat().st_size for path in rig.folder.glob("door/*/*"))}
    assert other.read_bytes() == whole
    assert before.items() <= _boxes(rig).items()


def test_boxes_of_a_store_that_was_away_get_their_end(tmp_path: Path, camera: Clip) -> None:
    """By the process that had to close them as they were."""
    rig = Seeing(tmp_path / "store", camera)
    _send_files(rig, 9, 9, 4)
    rig.folder.rename(tmp_path / "elsewhere")
    rig.send(9, skip=True)
    (tmp_path / "elsewhere").rename(rig.folder)
    rig.send(9, skip=True)
    assert _problems(rig) == []
    rig.finish()
    assert rig.check() == len(rig.handed)


@pytest.mark.parametrize("is_lost", [False, True])
def test_boxes_wait_for_a_process_that_is_not_gone_yet(tmp_path: Path, camera: Clip, is_lost: bool) -> None:
    """It was killed, and still holds its locks; and perhaps the index that knew of it is lost."""
    rig = Seeing(tmp_path / "store", camera)
    _send_files(rig, 9, 3)
    held = [os.open(path, os.O_RDONLY) for path in rig.folder.glob("door/*/*.trk")]
    rig.kill()
    for file in held:
        fcntl.flock(file, fcntl.LOCK_EX)
    if is_lost:
        for path in rig.folder.glob("index.sqlite*"):
            path.unlink()
        with closing(Store.open(rig.folder)) as store, closing(Index(store)) as index:
            rebuild(store, index)
    rig.start()
    rig.send(9)
    for file in held:
        os.close(file)
    assert _problems(rig)
    rig.finish()
    assert rig.check() == len(rig.handed)


def test_boxes_that_get_no_end_are_no_trouble_to_others(tmp_path: Path, camera: Clip) -> None:
    """There is time for one at each turn, and those that come first fail each time."""
    rig = Seeing(tmp_path / "store", camera)
    _send_files(rig, 9, 9, 1, 1, 1, 1, 3)
    rig.kill()
    with closing(Store.open(rig.folder)) as store, closing(Index(store)) as index:
        first, second, *others = index.open_tracks()
        assert others
        for path in (first, second):
            (rig.folder / tracks_path(path)).unlink()
            (rig.folder / tracks_path(path)).mkdir()
        left = LeftTracks()
        with logged() as told:
            for _ in range(2 * len((first, second, *others))):
                left.finish(store, index, [], lambda: True)
        assert index.open_tracks() == [first, second]
        assert [line["recording"] for line in told] == [first, second]


def test_what_a_killed_process_has_begun_after_an_end_goes(tmp_path: Path, camera: Clip) -> None:
    rig = Seeing(tmp_path / "store", camera)
    rig.send(9)
    rig.finish()
    ((_, facts),) = rig.read()
    path = rig.folder / tracks_path(facts.path)
    whole = path.read_bytes()
    with closing(Store.open(rig.folder)) as store, closing(Index(store)) as index:
        for begun, left in ((whole + whole[8:40], whole), (whole[:8], None), (whole[:40], None), (b"", None)):
            path.write_bytes(begun)
            assert len(verify(store).problems) == 1
            rebuild(store, index)
            assert (path.read_bytes() if path.exists() else None) == left
            assert verify(store).problems == []


def test_boxes_go_before_their_video(tmp_path: Path, camera: Clip) -> None:
    """Whoever is killed between the two: boxes without their video would be found by nobody. Those that somebody has
    left so are no trouble to others."""
    rig = Seeing(tmp_path / "store", camera)
    _send_files(rig, 9, 9, 1, 3)
    rig.kill()
    *_, last = sorted(rig.folder.glob("door/*/*.trk"))
    last.with_suffix(".mp4").unlink()
    rig.begin_daemon()
    rig.send(6)
    rig.finish()
    assert _open_tracks(rig) == []
    with closing(Store.open(rig.folder)) as store, closing(Index(store)) as index:
        first, second, *_ = index.files()
        boxes = rig.folder / tracks_path(first.path)
        boxes.unlink()
        boxes.mkdir()  # cannot be removed: what is newer goes nevertheless
        limit = Rules(max_bytes=1, continuous_ns=DAY.continuous_ns, events_ns=DAY.events_ns)
        with logged() as told, _deleted(boxes.parent) as deleted:
            Retention(store, index, limit).run(0, ages=False)
        assert [line.get("recording") for line in told] == [first.path]
        assert not [*rig.folder.glob("door/*/*.mp4")]
        pair = tracks_path(second.path), second.path
        assert sorted(pair, key=lambda path: deleted[0].index(path.rpartition("/")[2].encode())) == [*pair]


def _join_reading() -> None:
    """A new index is read from the files beside recording, which writes to it, too."""
    for thread in threading.enumerate():
        if thread.name == "reconcile":
            thread.join()


@contextmanager
def _deleted(folder: Path) -> Iterator[list[bytes]]:
    """What inotify tells of the files that are deleted in a folder meanwhile: their names in order."""
    libc, found = ctypes.CDLL(None, use_errno=True), list[bytes]()
    file = libc.inotify_init1(os.O_NONBLOCK)
    assert file >= 0
    try:
        assert libc.inotify_add_watch(file, os.fsencode(folder), _IN_DELETE) >= 0
        yield found
        found.append(os.read(file, 1 << 16))
    finally:
        os.close(file)


def test_an_index_of_an_earlier_version_that_cannot_be_written_yet(
    tmp_path: Path, camera: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows sizes and its reading from the begin, and all else when nobody else writes any more."""
    rig = Seeing(tmp_path / "store", camera)
    rig.send(9)
    rig.finish()
    _join_reading()
    monkeypatch.setattr(index_reader, "_WAIT_S", 0.0)
    with (
        closing(sqlite3.connect(rig.folder / NAME, isolation_level=None)) as other,
        closing(Store.open(rig.folder)) as store,
    ):
        other.execute("DROP TABLE open_tracks")
        other.execute("INSERT OR REPLACE INTO unread VALUES ('reading')")
        other.execute("UPDATE files SET size = 1")
        other.execute("BEGIN IMMEDIATE")
        with closing(Index(store)) as index:
            assert index.unread == "reading"
            other.execute("ROLLBACK")
            ((_, facts),) = rig.read()
            note_ended(index, facts.path, None)
            assert index.sizes() == {"door": sum(path.stat().st_size for path in rig.folder.glob("door/*/*"))}
            assert index.open_tracks() == []
            note_open(index, [facts.path])
            assert index.open_tracks() == [facts.path]
            note_ended(index, facts.path, None)
            assert index.open_tracks() == []


def test_a_turn_waits_once_for_an_index_that_is_locked(
    tmp_path: Path, camera: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten files with boxes begin and end in it. What the index was not told is told it later."""
    monkeypatch.setattr(index_reader, "_WAIT_S", 1.0)
    rig = Seeing(tmp_path / "store", camera)
    rig.send(6)
    _join_reading()
    for number in range(10):
        rig.connect(f"bbb{number}")
        rig.send(2, turns=False)
    with closing(sqlite3.connect(rig.folder / NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(StoreError), closing(Store.open(rig.folder)) as store, closing(Index(store)) as index:
            index.add_files([])
        once = time.monotonic() - began
        rig.recorder.turn()
        took = time.monotonic() - began - once
        assert len([*rig.folder.glob("door/*/*.mp4")]) == 11
        assert took < 4 * once
    rig.wait(9)
    assert sorted(_open_tracks(rig)) == sorted(rig.recorder._sources["door"].tracks.open)
    rig.finish()
    assert rig.check() == len(rig.handed)


@pytest.mark.parametrize("at", range(8, 20, 2))
def test_boxes_that_were_damaged_at_their_begin_are_kept_and_told(tmp_path: Path, camera: Clip, at: int) -> None:
    """Also where a length says that nothing is whole, as in a file that was only begun."""
    rig = Seeing(tmp_path / "store", camera)
    rig.send(9)
    rig.kill()
    with closing(Store.open(rig.folder)) as store, closing(Index(store)) as index:
        (path,) = store.files()
        tracks = store.path / tracks_path(path)
        whole = tracks.read_bytes()
        damaged = whole[:at] + bytes([whole[at] ^ 32]) + whole[at + 1 :]
        tracks.write_bytes(damaged)
        reconcile(store, index)
        assert tracks.read_bytes() == damaged
        assert [problem.path for problem in verify(store).problems] == [tracks_path(path)]


def _handed(record: PacketRecord) -> Handed:
    message = decode_message(record.data)
    assert isinstance(message, Handed)
    return message


# --- rules that are asked of the past --------------------------------------------------------------------------------


def test_rules_give_the_same_events_live_and_of_the_past() -> None:
    """To the last field, of noisy tracks with drops."""
    rules = rules_of(
        {"type": "zone", "name": "yard", "points": [[0.2, 0.2], [0.8, 0.2], [0.8, 0.8], [0.2, 0.8]], "dwell_s": [1]},
        {"type": "line", "name": "gate", "points": [[0.5, 0.0], [0.5, 1.0]]},
        {"type": "object", "name": "all"},
    )
    ring = Ring("tracks", 8 << 20)
    tap = TrackTap({"main": ring}, ManualClock())
    tap.use({"main": {"street"}})
    live: list[Event] = []
    past: list[Event] = []
    books = RuleBook(live.append), RuleBook(past.append)
    for book in books:
        book.update({"street": RuleSet(rules, SETTINGS.timeout_ns, SETTINGS.confirm_hits)})
    state, grouping = SourceTracks(), Grouping(LABELS, ())
    for number, seen in enumerate(walk(3, objects=8, fps=15, seconds=12)):
        if number % 11 in (3, 4):
            continue
        (found,), _ = track(PYTHON.step, [seen.frame], [seen.found], [state], [SETTINGS], grouping)
        books[0].observe([seen.frame], [found.tracks], LABELS)
        tap.on_batch([Frame(seen.frame, _PICTURE)], [found], SERVED)
    stored = []
    with closing(RingReader(ring.fd)) as reader:
        for record in reader.read(0):
            if isinstance(record, PacketRecord):
                stored += frames_of([_handed(record)])[0]
            else:
                assert isinstance(record, StreamRecord)
                assert decode_labels(record.stream.extradata) == {1: SERVED}
        del record
    for begin in range(0, len(stored), 40):
        for one in codec.decode(codec.encode(stored[begin : begin + 40]), {1: SERVED}):
            books[1].observe([one.frame], [one.tracks], one.served.labels)
    assert len(live) > 10
    assert [msgspec.to_builtins(event) for event in past] == [msgspec.to_builtins(event) for event in live]
