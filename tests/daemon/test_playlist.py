"""Several recordings as one source."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.errors import SourceError
from daemon.sources.playlist import RECORDINGS, Playlist, is_playlist
from tests.scan.parts import of_extension
from tests.support.playing import play


def _touched(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).touch()


@pytest.mark.share(3)
@pytest.mark.needs("ffmpeg")
@pytest.mark.parametrize("extension", sorted(RECORDINGS))
def test_recordings_of_each_extension_can_be_opened(extension: str, folder_of_all: Path) -> None:
    folder = folder_of_all / "scan"
    folder.mkdir(exist_ok=True)
    played = play(of_extension(folder, extension))
    assert (played.pictures > 0, played.reason) == (True, None)


def test_by_name_one_after_the_other(tmp_path: Path) -> None:
    _touched(tmp_path, "b.mp4", "a.MKV", "c.txt", "d.mp4.part")
    (tmp_path / "e.mp4").mkdir()
    playlist = Playlist(str(tmp_path), loop=False)
    assert not playlist.has_next
    assert (playlist.next().name, playlist.has_next) == ("a.MKV", True)
    assert (playlist.next().name, playlist.has_next) == ("b.mp4", False)


def test_a_loop_finds_what_has_come_meanwhile(tmp_path: Path) -> None:
    _touched(tmp_path, "a.mp4")
    playlist = Playlist(str(tmp_path / "*.mp4"), loop=True)
    assert (playlist.next().name, playlist.has_next) == ("a.mp4", True)
    _touched(tmp_path, "b.mp4")
    assert [playlist.next().name for _ in range(4)] == ["a.mp4", "b.mp4", "a.mp4", "b.mp4"]


def test_there_may_be_none(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="holds no recording"):
        Playlist(str(tmp_path), loop=True).next()


def test_a_file_may_have_the_name_of_a_pattern(tmp_path: Path) -> None:
    _touched(tmp_path, "what[1].mp4", "what1.mp4")
    assert is_playlist(str(tmp_path))
    assert is_playlist(str(tmp_path / "*.mp4"))
    assert not is_playlist(str(tmp_path / "what[1].mp4"))
    assert not is_playlist(str(tmp_path / "missing.mp4"))
