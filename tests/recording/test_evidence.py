"""What was changed is found, with its time; what is exported is what was recorded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import av
import pytest

from daemon.errors import LookoutError
from daemon.recording.export import export
from daemon.recording.index import Index
from daemon.recording.records import FileFacts
from daemon.recording.retention import Retention, Rules
from daemon.recording.scan import claim, scan
from daemon.recording.store import Store
from daemon.recording.verify import Problem, verify
from tests.support.recorded import SECOND, begun, clip, played, record


@pytest.fixture
def index(store: Store) -> Iterator[Index]:
    with closing(Index(store)) as opened:
        yield opened


@pytest.fixture
def files(store: Store, index: Index, clips: Path) -> list[FileFacts]:
    """Three files of three seconds, with four seconds between them but not before the last."""
    found: list[FileFacts] = []
    for at in (0, 7 * SECOND, 10 * SECOND):
        found.append(record(store, clip(clips, "h264-b"), at=at, before=found[-1] if found else None))
        index.add_file(found[-1], scan(store, found[-1].path).head.gaps)
    return found


def _found(store: Store, index: Index | None = None) -> list[Problem]:
    return verify(store, index).problems


def test_recordings_are_sound_also_while_they_are_written(
    store: Store, index: Index, files: list[FileFacts], clips: Path
) -> None:
    begun(store, clip(clips, "h264"), at=60 * SECOND)
    assert claim(store, files[1].path, files[1].begin, files[1].end) is not None
    Retention(store, index, Rules(max_bytes=files[2].size + 1, continuous_ns=SECOND, events_ns=SECOND)).make_room(1)
    told = list[tuple[float, float]]()
    done = verify(store, index, tell=lambda *row: told.append(row))
    assert told == [(number, len(told)) for number in range(len(told))]
    assert len(told) == done.files
    assert (done.files, done.fragments, done.problems) == (2, 4, [])


def test_every_changed_byte_is_found(store: Store, index: Index, files: list[FileFacts]) -> None:
    """Wherever it is: with the file, and within the time of the fragment."""
    facts, draw = files[1], random.Random(50)
    path, found = store.path / facts.path, scan(store, facts.path)
    whole = path.read_bytes()
    inside = [row.offset + draw.randrange(row.size) for row in found.fragments for _ in range(12)]
    heads = [row.offset + at for row in found.fragments[:2] for at in range(0, 140, 7)]
    others = [draw.randrange(found.beginning) for _ in range(12)] + [
        draw.randrange(found.end, len(whole)) for _ in range(12)
    ]
    for at in (*inside, *heads, *others):
        changed = bytearray(whole)
        changed[at] ^= 0xFF
        path.write_bytes(changed)
        problems = _found(store)
        assert problems, at
        hit = next((row for row in found.fragments if row.offset <= at < row.offset + row.size), None)
        for problem in problems:
            if problem.path == facts.path and problem.begin is not None and hit is not None:
                assert problem.source == "door"
                assert hit.begin <= problem.begin <= hit.end, (at, problem)
    path.write_bytes(whole)
    assert _found(store, index) == []


def test_a_removed_file_is_found(store: Store, index: Index, files: list[FileFacts]) -> None:
    """One in the middle by the next, the newest by the index."""
    for number in (1, 2):
        path = store.path / files[number].path
        aside = path.rename(store.path / "aside")
        (problem,) = _found(store, index)
        assert (problem.kind, problem.begin, problem.end) == ("removed", files[number].begin, files[number].end)
        without = [(row.kind, row.begin, row.end) for row in _found(store)]
        assert without == ([("removed", files[0].end, files[2].covered_until)] if number == 1 else [])
        aside.rename(path)


def test_moved_and_removed_fragments_are_found(store: Store, files: list[FileFacts]) -> None:
    facts = files[0]
    path, found = store.path / facts.path, scan(store, facts.path)
    whole = path.read_bytes()
    first, second, third = (whole[row.offset : row.offset + row.size] for row in found.fragments)
    head, tail = whole[: found.beginning], whole[found.end :]
    one, _, three = found.fragments
    changes = {
        "reordered": (head + second + first + third + tail, one.begin, three.end),
        "removed": (head + first + third + tail, one.end, three.begin),
        "unfinished": (head + first + second + third, facts.end, facts.end),
    }
    for kind, (content, begin, end) in changes.items():
        path.write_bytes(content)
        problem = next(row for row in _found(store) if row.path == facts.path)
        assert (problem.kind, problem.begin, problem.end) == (kind, begin, end)
    path.write_bytes(head + first + second + tail)
    assert [(row.kind, row.begin, row.end) for row in _found(store)] == [("removed", three.begin, three.end)]
    path.write_bytes(b"no recording")
    assert _found(store)[0].kind == "unreadable"


def test_an_export_plays_and_has_each_picture_once(
    store: Store, index: Index, files: list[FileFacts], tmp_path: Path
) -> None:
    """Files that follow at once are one piece; behind a gap it goes on at once, and says so."""
    out = tmp_path / "out.mp4"
    first, last = files[0].begin, files[2].end
    told = list[tuple[float, float]]()
    times = first + SECOND + SECOND // 2, last - SECOND - SECOND // 2
    done = export(store, index, "door", *times, out, lambda *row: told.append(row))
    rows = played(out)
    assert [total for _, total in told] == [(times[1] - times[0]) / SECOND] * len(files)
    assert told == sorted(told)
    originals = [row for facts in files for row in played(store.path / facts.path)]
    assert [row[3] for row in rows] == [row[3] for row in originals[15 : 15 + len(rows)]]
    assert len(rows) == done.packets
    assert [row.cause for row in done.gaps] == ["source_down"]
    assert done.files == [facts.id for facts in files]
    assert len(done.pieces) == 2
    assert abs(done.begin - first - SECOND) < SECOND // 5
    assert [row[1] for row in rows] == sorted({row[1] for row in rows})
    with av.open(str(out)) as container:
        assert sum(1 for _ in container.decode(video=0)) == len(rows)
    assert out.read_bytes().find(b"moov") < out.read_bytes().find(b"mdat")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.mp4", "store"]


def test_what_cannot_be_exported_is_said(
    store: Store, index: Index, files: list[FileFacts], clips: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.mp4"
    with pytest.raises(LookoutError, match="source_down"):
        export(store, index, "door", files[0].end, files[1].begin, out)
    other = record(store, clip(clips, "hevc"), at=14 * SECOND, before=files[-1])
    index.add_file(other)
    with pytest.raises(LookoutError, match="change"):
        export(store, index, "door", files[0].begin, other.end, out)
    assert not out.exists()
