"""Which recordings a batch has, and their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daemon.batch.clips import find_clips, name_of, path_of
from daemon.errors import LookoutError


def _make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def _names(*arguments: Path | str) -> list[str]:
    return [clip.name for clip in find_clips([str(argument) for argument in arguments])]


def test_a_folder_with_all_in_it(tmp_path: Path) -> None:
    _make(tmp_path, "b/1.mp4", "a/1.mp4", "a/x/2.MKV", "a/notes.txt", ".trash/3.mp4", "a/.hidden.mp4", "0.avi")
    found = find_clips([str(tmp_path)])
    assert [clip.name for clip in found] == ["0.avi", "a/1.mp4", "a/x/2.MKV", "b/1.mp4"]
    assert [clip.number for clip in found] == [0, 1, 2, 3]
    assert [clip.size for clip in found] == [5, 7, 9, 7]
    assert found[1].path == tmp_path / "a/1.mp4"


def test_names_are_the_same_wherever_the_archive_is(tmp_path: Path) -> None:
    for root in ("here", "there/deeper"):
        _make(tmp_path / root, "a/1.mp4", "b/1.mp4")
    assert _names(tmp_path / "here") == _names(tmp_path / "there/deeper") == ["a/1.mp4", "b/1.mp4"]
    assert _names(tmp_path / "here/a", tmp_path / "here/b") == ["a/1.mp4", "b/1.mp4"]


def test_files_patterns_and_what_is_named_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _make(tmp_path, "a/1.mp4", "a/2.mp4", "a/odd.dat", "b/1.mp4", "c[1].mp4")
    assert _names(tmp_path / "a/odd.dat") == ["odd.dat"]
    assert _names(f"{tmp_path}/*/1.mp4") == ["a/1.mp4", "b/1.mp4"]
    assert _names(f"{tmp_path}/**/*.mp4") == ["a/1.mp4", "a/2.mp4", "b/1.mp4", "c[1].mp4"]
    assert _names(tmp_path / "c[1].mp4") == ["c[1].mp4"]
    monkeypatch.chdir(tmp_path)
    assert _names("a", "a/1.mp4", f"{tmp_path}/a/../a/2.mp4") == ["1.mp4", "2.mp4"]
    assert _names("*.mp4") == ["c[1].mp4"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("plain one.mp4", "plain one.mp4"),
        ("100%.mp4", "100%25.mp4"),
        ("a\nb.mp4", "a%0Ab.mp4"),
        ("grün/é.mp4", "grün/é.mp4"),
        (os.fsdecode(b"\xe9t\xe9.mp4"), "%E9t%E9.mp4"),
        ("%E9.mp4", "%25E9.mp4"),
    ],
)
def test_names_are_reversible(path: str, name: str) -> None:
    assert name_of(Path(path)) == name
    assert path_of(name) == Path(path)


@pytest.mark.parametrize("argument", ["absent.mp4", "", "empty", "*.nothing"])
def test_what_names_no_recording_is_refused(argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LookoutError, match=r"no recording"):
        find_clips([argument])
