"""Odd recordings beside ffprobe: some of each kind here, and all of them by `make test-long`."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import msgspec
import pytest

from tests.scan.parts import muxed
from tests.scan.recordings import RECORDINGS
from tests.scan.scan import Row, of_played, scan
from tests.support.playing import play

pytestmark = pytest.mark.needs("ffmpeg")
SOME = (
    "pid-changes",
    "pid-changes-with-the-size",
    "pid-changes-and-time-begins-again",
    "pid-changes-back-with-another-codec",
    "program-changes",
    "codec-changes-to-hevc",
    "joined-matroska-of-sizes",
    "joined-mp4",
    "joined-transport-back-in-time",
    "two-videos-transport",
    "first-track-is-empty",
    "cover-comes-first",
    "units-in-tags-of-their-own",
    "cut-by-an-edit-list",
    "longer-sound-matroska",
    "longer-subtitles",
    "stated-length-is-wrong",
    "cut-mp4",
    "cut-flv",
    "cut-avi-without-index",
    "cut-matroska-by-a-picture",
    "without-its-index",
    "zeros-at-the-end",
    "avi-with-reordered-pictures",
    "avi-with-packed-pictures",
    "bare-with-reordered-pictures",
    "times-of-decoding-alone",
    "times-wrap",
    "damaged-pictures",
    "lost-packets-of-hevc",
    "dahua",
)


@pytest.fixture(scope="session")
def made(folder_of_all: Path) -> Path:
    folder = folder_of_all / "scan"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.share(3)
@pytest.mark.parametrize("name", SOME)
def test_every_picture_is_accounted_for(name: str, made: Path) -> None:
    expected = RECORDINGS[name](made)
    row = Row(name, expected, of_played(play(expected.path)))
    assert not row.faults, row


def test_results_say_what_was_passed_over_and_what_is_damaged(tmp_path: Path) -> None:
    """By `lookout batch` itself; a damaged picture is marked in its line."""
    names = ["pid-changes", "cover-comes-first", "damaged-pictures", "cut-mp4"]
    rows = [*scan(tmp_path, names, {"corrupt": "mark"})]
    assert [row.faults for row in rows] == [[]] * len(names), "\n".join(map(str, rows))
    lines = (tmp_path / "results" / "damaged-pictures.h264.jsonl").read_bytes().splitlines()
    damaged = [row for row in map(msgspec.json.decode, lines[1:-1]) if row.get("corrupt")]
    assert msgspec.json.decode(lines[-1])["corrupt"] == len(damaged) > 0
    assert lines[1].count(b"corrupt") == 1  # as a drop cause alone


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("name", ["pid-changes-with-the-codec", "codec-changes-in-flv", "joined-short-pieces"])
def test_each_pass_of_a_loop_is_the_first_one_again(
    name: str, keeps: bool, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its packets are kept in memory, or read again."""
    if not keeps:
        monkeypatch.setattr("daemon.sources.packets._MAX_CACHE_BYTES", 0)
    expected = RECORDINGS[name](made)
    once = play(expected.path)
    looped = play(expected.path, loop=True, most=3 * once.pictures)
    assert not looped.dropped
    passes = [looped.steps[start : start + once.pictures - 1] for start in (0, once.pictures, 2 * once.pictures)]
    assert passes == [once.steps] * 3
    assert min(looped.steps) > 0


@pytest.mark.parametrize("extension", ["avi", "ivf"])
def test_times_by_a_rate_that_cannot_be_are_no_times(extension: str, made: Path, tmp_path: Path) -> None:
    """Two seconds would be as long as one picture. The pictures are counted, and the format says so."""
    content = bytearray(muxed(made, "vp9", extension).read_bytes())
    at = content.index(b"strh") + 28 if extension == "avi" else 16
    content[at : at + 8] = pack("<II", 1, 90_000) if extension == "avi" else pack("<II", 90_000, 1)
    path = tmp_path / f"claim.{extension}"
    path.write_bytes(content)
    played = play(path)
    assert (played.pictures, set(played.steps), played.reason) == (30, {40_000_000}, None)
    assert played.formats[-1].fps is None
    assert "its header claims 90000 frames/s: they are counted as 25/s" in played.formats[-1].notes


@pytest.mark.long
def test_all_of_them(tmp_path: Path) -> None:
    wrong = [str(row) for row in scan(tmp_path, [*RECORDINGS]) if row.faults]
    assert not wrong, "\n".join(wrong)
