"""The index: what files say, found quickly; made anew from them to the byte. Limits delete the oldest, and no lock."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from daemon.recording import deleted
from daemon.recording.boxes import BoxError
from daemon.recording.clips import ClaimedTime
from daemon.recording.errors import StoreAwayError, StoreError, StoreFullError
from daemon.recording.index import NAME, Index, IndexReader
from daemon.recording.locks import Locks
from daemon.recording.reconcile import rebuild, reconcile
from daemon.recording.recording_file import RecordingFile
from daemon.recording.records import FileFacts, Gap
from daemon.recording.retention import Retention, Rules
from daemon.recording.scan import scan
from daemon.recording.store import MARKER, Store, folder_name
from daemon.recording.timeline import Span
from daemon.recording.verify import verify
from tests.support.events import logged
from tests.support.recorded import BEGIN, SECOND, append, begun, clip, groups, head_of, later, record

DAY = 86_400 * SECOND
RULES = Rules(continuous_ns=3 * DAY, events_ns=30 * DAY)


@pytest.fixture
def index(store: Store) -> Iterator[Index]:
    with closing(Index(store)) as opened:
        yield opened


@pytest.fixture
def files(store: Store, index: Index, clips: Path) -> list[FileFacts]:
    """Five files of three seconds, ten seconds apart; an event wants the last one."""
    found: list[FileFacts] = []
    for number in range(5):
        before = found[-1] if found else None
        made = clip(clips, "h264")
        found.append(record(store, made, at=number * 10 * SECOND, before=before, claimed=number == 4))
        index.add_file(found[-1], scan(store, found[-1].path).head.gaps)
    return found


def _said(index: IndexReader, source: str = "door") -> list[tuple[int, int, str]]:
    """The whole timeline, in seconds since its begin: what is recorded, and causes."""
    first = index.files(source)[0].since
    rows = index.timeline(source, first - 5 * SECOND, first + 100 * SECOND)
    ends = [(row.begin, row.end) for row in rows]
    assert all(before[1] == after[0] for before, after in pairwise(ends))
    return [
        (
            round((row.begin - first) / SECOND),
            round((row.end - first) / SECOND),
            "recorded" if isinstance(row, Span) else row.cause,
        )
        for row in rows
    ]


def _dump(index: IndexReader) -> list[object]:
    tables = ("files", "gaps", "sizes")
    return [row for name in tables for row in index._ask(f"SELECT * FROM {name} ORDER BY 1, 2")]  # noqa: S608


def test_every_instant_is_a_span_or_has_a_cause(store: Store, index: Index, files: list[FileFacts]) -> None:
    down = "source_down"
    expected = [(-5, 0, "off"), (0, 3, "recorded")]
    for begin in (3, 13, 23, 33):
        expected += [(begin, begin + 7, down), (begin + 7, begin + 10, "recorded")]
    assert _said(index) == expected
    index.put_open_gaps("door", [Gap(files[-1].end, files[-1].end + 4 * SECOND, "store_hung", "no answer")])
    assert _said(index) == [*expected, (43, 47, "store_hung")]
    for gone in files[1:3]:
        os.unlink(store.path / gone.path)
        index.remove_file(gone.id)
    assert _said(index)[2:4] == [(3, 23, "expired"), (23, 30, down)]
    middle = files[3].begin + SECOND
    (span,) = index.timeline("door", middle, middle + SECOND)
    assert isinstance(span, Span)
    assert (span.begin, span.end, span.file) == (middle, middle + SECOND, files[3])
    with closing(IndexReader(store)) as reader:
        assert _said(reader) == _said(index)
        assert reader.sizes() == {"door": sum(files[number].size for number in (0, 3, 4))}


def test_nothing_is_called_deleted_while_an_index_is_made(store: Store, index: Index, files: list[FileFacts]) -> None:
    """A recorder goes on, and tells the new index of its file first."""
    before = _said(index)
    os.unlink(store.path / NAME)
    with closing(Index(store)) as other:
        other.add_file(files[-1], scan(store, files[-1].path).head.gaps)
        with closing(IndexReader(store)) as reader:
            assert _said(reader) == [before[0], (0, 33, "unread"), *before[-2:]]
            reconcile(store, other)
            assert _said(reader) == before


@pytest.mark.usefixtures("files")
def test_an_index_that_is_lost_while_recording_is_the_same_again(store: Store, index: Index, clips: Path) -> None:
    """A reader follows, and the recorder's own goes on in the new one."""
    file = begun(store, clip(clips, "h264"), at=60 * SECOND)
    index.add_file(file.facts, file.head.gaps)
    index.put_claims([ClaimedTime("door", "e1", BEGIN, BEGIN + SECOND, "ready")])
    before = _dump(index)
    with closing(IndexReader(store)) as reader:
        os.unlink(store.path / NAME)
        with closing(Index(store)) as other:
            told = list[tuple[float, float]]()
            done = rebuild(store, other, lambda *row: told.append(row))
            assert (done.added, done.problems) == (6, {})
            assert told == [(number, 6) for number in range(6)]
            assert _dump(other) == before == _dump(reader)
        facts = file.close("minute", file.fragments[-1].end)
        index.add_file(facts, file.head.gaps)
        assert index.unread is None
        assert index.file(facts.id) == facts == reader.file(facts.id)
        assert len(index.files()) == 6
    os.unlink(store.path / NAME)
    index.put_open_gaps("door", [])
    assert index.unread is not None
    reconcile(store, index)
    assert index.unread is None
    assert len(index.files()) == 6


@pytest.mark.usefixtures("files")
def test_a_reading_that_was_cut_off_is_begun_again(store: Store, index: Index) -> None:
    """By the next process, unless the index was lost once more meanwhile: that is another reading."""
    before = _dump(index)
    index.close()
    os.unlink(store.path / NAME)
    with closing(Index(store)) as cut:
        assert cut.unread is not None
    with closing(Index(store)) as following:
        assert following.unread is not None
        reading = following.unread
        os.unlink(store.path / NAME)
        following.mark_known(reading)
        assert following.unread is not None
        reconcile(store, following)
    with closing(Index(store)) as last:
        assert last.unread is None
        assert _dump(last) == before


@pytest.mark.usefixtures("files")
def test_a_damaged_index_is_begun_anew(store: Store, index: Index) -> None:
    before = _dump(index)
    index.close()
    (store.path / NAME).write_bytes(b"SQLite format 3\0" + b"\xaa" * 8192)
    with closing(Index(store)) as again:
        assert again.unread is not None
        reconcile(store, again)
        assert _dump(again) == before


def test_files_and_index_are_brought_together(store: Store, index: Index, files: list[FileFacts], clips: Path) -> None:
    """Unknown files are added, unfinished ones finished, rows of lost files go; strange files stay."""
    found = clip(clips, "h264")
    os.unlink(store.path / files[0].path)
    unknown = record(store, found, source="gate")
    torn = begun(store, found, at=60 * SECOND)
    torn.detach()
    folder = (store.path / unknown.path).parent
    (folder / "strange.mp4").write_text("a text of mine")
    (folder / "empty.mp4").touch()
    done = reconcile(store, index)
    assert (done.added, done.removed, done.recovered) == (2, 1, 1)
    assert list(done.problems) == [f"{folder.relative_to(store.path)}/strange.mp4"]
    assert index.file(unknown.id) == unknown
    assert index.file(files[0].id) is None
    recovered = next(facts for facts in index.files("door") if facts.path == torn.path)
    assert (recovered.reason, recovered.fragments) == ("killed", 1)
    assert sorted(os.listdir(folder)) == sorted([Path(unknown.path).name, "strange.mp4"])


def test_the_oldest_goes_first_and_a_lock_stays(store: Store, index: Index, files: list[FileFacts]) -> None:
    locks = Locks(store)
    kept = locks.add("door", files[1].begin, files[1].begin + 1, reason="theft", by="anna", at=BEGIN)
    size = files[0].size
    total = sum(facts.size for facts in files)
    retention = Retention(store, index, Rules(max_bytes=total, continuous_ns=DAY, events_ns=DAY))
    assert retention.make_room(size + 10)
    assert [facts.id for facts in index.files()] == [files[number].id for number in (1, 3, 4)]
    assert set(store.files()) == {facts.path for facts in index.files()}
    assert deleted.noted(store, "door") == {files[0].id, files[2].id}
    assert not retention.make_room(total)
    assert [facts.id for facts in index.files()] == [files[1].id]
    locks.remove(kept.id)
    assert retention.make_room(total)
    assert index.files() == []
    assert list((store.path / "door").iterdir()) == [store.path / "door" / "deleted.ids"]


def test_what_cannot_be_deleted_ends_nothing(store: Store, index: Index, files: list[FileFacts]) -> None:
    """As an immutable file. It is told once, is not noted as deleted, and is tried again an hour later."""
    in_its_place = store.path / files[0].path
    in_its_place.rename(kept := store.path / "kept.mp4")
    in_its_place.mkdir()
    total = sum(facts.size for facts in files)
    retention = Retention(store, index, Rules(max_bytes=total, continuous_ns=DAY, events_ns=DAY))
    assert retention.run(BEGIN, ages=False) == 0
    with logged() as lines:
        assert retention.make_room(10)
        assert retention.make_room(files[1].size + 10)
    assert [row["recording"] for row in lines] == [files[0].path]
    assert [facts.id for facts in index.files()] == [files[number].id for number in (0, 3, 4)]
    assert deleted.noted(store, "door") == {files[1].id, files[2].id}
    in_its_place.rmdir()
    kept.rename(in_its_place)
    for minutes, left in ((59, (0, 4)), (61, (4,))):
        retention.run(BEGIN + minutes * 60 * SECOND, ages=False)
        assert retention.make_room(total - sum(facts.size for facts in index.files()) + 10)
        assert [facts.id for facts in index.files()] == [files[number].id for number in left]


def test_a_disk_that_fails_for_a_while_keeps_the_order(
    store: Store, index: Index, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing newer goes for what could be deleted a moment later."""
    found = clip(clips, "h264")
    facts = [record(store, found, source=f"cam-{number:02}") for number in range(40)]
    for row in facts:
        index.add_file(row)
    retention = Retention(
        store, index, Rules(max_bytes=sum(row.size for row in facts), continuous_ns=DAY, events_ns=DAY)
    )
    with monkeypatch.context() as broken:
        broken.setattr(os, "unlink", _refusing)
        for _ in range(3):
            with pytest.raises(StoreError, match="Input/output"):
                retention.make_room(10)
    oldest = next(iter(index.oldest())).id
    assert retention.make_room(10)
    assert oldest not in {row.id for row in index.files()}


def _refusing(path: str, **_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO), path)


def test_age_counts_only_with_a_trusted_clock(store: Store, index: Index, files: list[FileFacts]) -> None:
    """What an event wants stays longer."""
    retention = Retention(store, index, RULES)
    late = files[-1].end + 4 * DAY
    assert retention.run(late, ages=False) == 0
    assert retention.run(late, ages=True, limit=3) == 3
    assert retention.run(late, ages=True) == 1
    assert index.files() == [files[-1]]
    assert retention.run(files[-1].end + 31 * DAY, ages=True) == 1


def test_a_source_has_a_limit_of_its_own(store: Store, index: Index, files: list[FileFacts], clips: Path) -> None:
    gate = record(store, clip(clips, "h264"), source="gate")
    index.add_file(gate)
    two = files[0].size * 2 + 2000
    retention = Retention(store, index, Rules(max_source_bytes={"door": two}, continuous_ns=DAY, events_ns=DAY))
    assert retention.run(BEGIN, ages=False) == 3
    assert retention.make_room(files[0].size, "door")
    assert [facts.id for facts in index.files()] == [files[4].id, gate.id]


def test_a_file_that_is_written_is_not_deleted(store: Store, index: Index, clips: Path) -> None:
    file = begun(store, clip(clips, "h264"))
    index.add_file(file.facts)
    retention = Retention(store, index, Rules(max_bytes=10, continuous_ns=DAY, events_ns=DAY))
    assert not retention.make_room(1)
    assert file.close("minute", file.fragments[-1].end).packets == 15
    assert retention.make_room(1)


def test_what_is_no_store_is_not_written(tmp_path: Path) -> None:
    folder = tmp_path / "place"
    with pytest.raises(StoreAwayError, match="nothing is mounted"):
        Store.open(folder, must_be_mount=True)
    assert not folder.exists()
    with closing(Store.open(folder)) as store:
        assert store.is_new
        store.claim()
        with closing(Store.open(folder, uuid=store.uuid)) as other:
            assert not other.is_new
            with pytest.raises(StoreError, match="another process records"):
                other.claim()
        with pytest.raises(StoreAwayError, match="another store"):
            Store.open(folder, uuid="0000")
        with pytest.raises(StoreError, match="a store already"):
            Store.init(folder)
        folder.rename(tmp_path / "away")
        assert not store.is_there()
    (folder / "photos").mkdir(parents=True)
    with pytest.raises(StoreAwayError, match=MARKER):
        Store.open(folder)
    with pytest.raises(StoreError, match="has photos"):
        Store.init(folder)
    assert [path.name for path in folder.iterdir()] == ["photos"]


@pytest.mark.parametrize("source", ["../../etc", "/etc", ".", "..", "a/b", "locks", "\0", "ü" * 64, "🎥" * 64])
def test_no_source_leaves_its_folder(store: Store, source: str) -> None:
    name = folder_name(source)
    assert "/" not in name
    assert name not in (".", "..", "locks", "lost+found")
    with store.folder(name, makes=True):
        assert (store.path / name).is_dir()
    assert len({folder_name(source), folder_name(source + "x"), folder_name("%" + source)}) == 3


def test_links_are_not_followed(store: Store, files: list[FileFacts], tmp_path: Path) -> None:
    path = store.path / files[0].path
    path.rename(tmp_path / "secret.mp4")
    path.symlink_to(tmp_path / "secret.mp4")
    with pytest.raises(StoreError):
        scan(store, files[0].path)


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK])
def test_nobody_waits_for_what_is_no_file(store: Store, index: Index, files: list[FileFacts], kind: int) -> None:
    """Each in its place, with one line that names it."""

    def replace(name: str) -> None:
        path = store.path / name
        path.unlink(missing_ok=True)
        os.mknod(path, kind | 0o600)

    locks = Locks(store)
    lock = locks.add("door", 0, 1, reason="", by="", at=0)
    replace(f"locks/{lock.id}.json")
    assert (locks.all(), locks.damaged) == ([], [f"{lock.id}.json"])
    replace("door/deleted.ids")
    with pytest.raises(OSError, match="is no regular file"):
        deleted.note(store, "door", "00" * 8)
    with pytest.raises(OSError, match="is no regular file"):
        deleted.noted(store, "door")
    (store.path / "door" / "deleted.ids").unlink()
    replace(files[0].path)
    replace(files[0].path.replace(".mp4", ".trk"))
    with pytest.raises(BoxError, match="is no regular file"):
        scan(store, files[0].path)
    assert {problem.path for problem in verify(store, index).problems} == {files[0].path, f"locks/{lock.id}.json"}
    assert [*reconcile(store, index).problems] == []
    assert Retention(store, index, Rules(max_bytes=1, continuous_ns=1, events_ns=1)).run(0, ages=False) == 5
    assert [*store.files()] == []
    for name in ("index.sqlite-journal", "index.sqlite"):
        index.close()
        replace(name)
        for kind_of in (Index, IndexReader):
            with pytest.raises(StoreError, match=f"{name}: is no regular file"):
                kind_of(store)
    replace(MARKER)
    with pytest.raises(StoreError, match=f"{MARKER} is no regular file"):
        Store.open(store.path)


@pytest.mark.needs("mounts")
def test_a_full_disk_takes_the_fragment_after_the_oldest_went(tmp_path: Path, clips: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    try:
        with closing(Store.open(folder, must_be_mount=False)) as store, closing(Index(store)) as index:
            _fill(store, index, clips)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _until_room(retention: Retention, work: Callable[[], object]) -> int:
    """How often it was tried."""
    tries = 1
    while True:
        try:
            work()
            return tries
        except StoreFullError:
            tries += 1
            assert retention.make_room(0, is_full=True)


def _fill(store: Store, index: Index, clips: Path) -> None:
    """Many times what there is room for: no fragment is lost."""
    found, retention, tries = clip(clips, "h264"), Retention(store, index, RULES), 0
    for number in range(40):
        at = number * 3 * SECOND
        samples = later(found.samples, at)
        file = RecordingFile.create(store, head_of(store, found.stream, samples[0]), samples[0].data)
        for count, group in enumerate(groups(samples)):
            tries += _until_room(retention, partial(append, file, group, count * 15))
        facts = file.close("minute", file.fragments[-1].end)
        assert facts.packets == 45
        tries += _until_room(retention, partial(index.add_file, facts))
    assert retention.deleted_files > 10
    assert tries > 40 * 4  # the disk was full within a write
    assert all(scan(store, facts.path).facts == facts for facts in index.files())


@pytest.mark.usefixtures("files")
def test_sqlite_says_what_the_index_says(store: Store, index: Index) -> None:
    """Anybody may read it with tools of their own."""
    with closing(sqlite3.connect(store.path / NAME)) as db:
        assert db.execute("SELECT count(*), sum(size) FROM files").fetchone() == (5, index.sizes()["door"])
