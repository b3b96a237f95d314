"""Results appear whole or not at all, and what a killed worker leaves goes away."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from daemon.batch.clips import Clip
from daemon.batch.folder import STATE, FolderError, ResultError, ResultFolder
from daemon.batch.records import Footer, Header
from lookout.messages import Dropped, Model, VideoFormat

HEADER = Header(clip="1.mp4", size=7, sha256="0", model=Model("m", "d", "fp32", "cpu"), settings={}, release="1")
FORMAT = VideoFormat("h264", 8, 8, 15.0, "cpu")
FOOTER = Footer(
    complete=True,
    ended="",
    format=FORMAT,
    frames=0,
    analysed=0,
    dropped=Dropped(),
    boxes=0,
    bad_boxes=0,
    events=0,
    totals=[],
)


def _clip(name: str = "a/1.mp4") -> Clip:
    return Clip(0, name, Path("/archive") / name, 7)


def _parts(folder: Path) -> list[Path]:
    return [*(folder / STATE).glob("*.part")]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[ResultFolder]:
    made = ResultFolder(tmp_path / "out", exclusive=False)
    yield made
    made.close()


def test_a_result_appears_when_it_is_whole(folder: ResultFolder) -> None:
    result = folder.begin(_clip())
    result.write(msgspec.json.encode(HEADER) + b"\n")
    assert folder.header_of(_clip()) is None
    result.write(msgspec.json.encode(FOOTER) + b"\n")
    result.flush()
    assert not folder.path_of(_clip()).exists()
    result.publish()
    assert folder.path_of(_clip()) == folder.root / "a/1.mp4.jsonl"
    assert folder.header_of(_clip()) == HEADER
    assert _parts(folder.root) == []
    result.discard()
    assert folder.header_of(_clip()) == HEADER


def test_a_last_line_of_any_length(folder: ResultFolder) -> None:
    footer = msgspec.structs.replace(FOOTER, ended="x" * 300_000)
    result = folder.begin(_clip())
    result.write(b"\n".join(map(msgspec.json.encode, (HEADER, footer))) + b"\n")
    result.flush()
    result.publish()
    assert folder.header_of(_clip()) == HEADER


def test_a_result_that_is_thrown_away(folder: ResultFolder) -> None:
    result = folder.begin(_clip())
    result.write(b"{")
    assert len(_parts(folder.root)) == 1
    result.discard()
    result.discard()
    assert _parts(folder.root) == []


def test_a_published_result_is_withdrawn_unless_another_has_its_place(folder: ResultFolder) -> None:
    first, second = folder.begin(_clip()), folder.begin(_clip())
    first.publish()
    second.publish()
    first.withdraw()
    assert folder.path_of(_clip()).exists()
    second.withdraw()
    assert not folder.path_of(_clip()).exists()
    second.withdraw()


def test_clips_of_the_same_name(folder: ResultFolder) -> None:
    names = ["a/1.mp4", "b/1.mp4", "1.mp4", "1.avi", "100%25.mp4", "%E9.mp4"]
    assert len({folder.path_of(_clip(name)) for name in names}) == len(names)
    assert folder.path_of(_clip("100%25.mp4")).name == "100%.mp4.jsonl"
    assert os.fsencode(folder.path_of(_clip("%E9.mp4")).name) == b"\xe9.mp4.jsonl"


def test_a_name_that_is_too_long_is_the_fault_of_one_clip(folder: ResultFolder) -> None:
    result = folder.begin(_clip("x" * 252))
    with pytest.raises(ResultError, match="File name too long"):
        result.publish()
    result.discard()
    assert _parts(folder.root) == []


def test_what_a_killed_worker_left_is_removed(folder: ResultFolder) -> None:
    """A living worker's file stays."""
    mine = folder.begin(_clip())
    program = (
        "import os, signal, sys; from pathlib import Path; from tests.batch.test_folder import ResultFolder, _clip\n"
        "folder = ResultFolder(Path(sys.argv[1]), exclusive=False)\n"
        "result = folder.begin(_clip()); result.write(b'half'); result.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder.root)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert len(_parts(folder.root)) == 2
    foreign = folder.root / STATE / "otherhost-1.part"
    foreign.touch()
    other = ResultFolder(folder.root, exclusive=False)
    assert len(_parts(folder.root)) == 2
    assert foreign.exists()  # its lock may not be seen here
    other.close()
    other.close()
    mine.publish()


def test_processes_that_share_the_folder_know_it(folder: ResultFolder, tmp_path: Path) -> None:
    other, elsewhere = ResultFolder(folder.root, exclusive=False), ResultFolder(tmp_path / "other", exclusive=True)
    assert other.id == folder.id != elsewhere.id
    other.close()
    elsewhere.close()


def test_two_that_work_alone_exclude_each_other(tmp_path: Path) -> None:
    first = ResultFolder(tmp_path, exclusive=True)
    with pytest.raises(FolderError, match=r"another `lookout batch` works in"):
        ResultFolder(tmp_path, exclusive=True)
    with pytest.raises(FolderError, match="same coordinator"):
        ResultFolder(tmp_path, exclusive=False)
    first.close()
    ResultFolder(tmp_path, exclusive=True).close()


@pytest.mark.parametrize("content", [b"", b"notes\n", msgspec.json.encode(HEADER) + b"\n"])
def test_a_file_that_is_no_result_is_not_replaced(content: bytes, folder: ResultFolder) -> None:
    path = folder.path_of(_clip())
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(FolderError, match="is no result of a batch: move it"):
        folder.header_of(_clip())


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match="cannot be written: Not a directory") as raised:
        ResultFolder(tmp_path / "file" / "out", exclusive=True)
    assert "\n" not in str(raised.value)


@pytest.mark.needs("mounts")
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)], check=True)
    try:
        _fill(ResultFolder(tmp_path, exclusive=True), "no space is left: make room, and start the same command again")
        assert _parts(tmp_path) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_limit_of_the_size_of_files_is_one_line_too(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path, exclusive=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        _fill(folder, "cannot be written: File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert _parts(tmp_path) == []


def _fill(folder: ResultFolder, words: str) -> None:
    result = folder.begin(_clip())
    with pytest.raises(FolderError, match=words):
        result.write(bytes(1_000_000))
    result.discard()
    folder.close()
