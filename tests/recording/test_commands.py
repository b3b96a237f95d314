"""`lookout recordings`, on a store that nobody else uses."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from daemon.cli import invoke
from daemon.commands.times import Moment, length_text
from daemon.recording.footage import _Ranges
from daemon.recording.index import NAME, Index
from daemon.recording.reconcile import reconcile
from daemon.recording.records import FileFacts
from daemon.recording.store import Store
from tests.support.clock import ManualClock
from tests.support.recorded import SECOND, clip, played, record


@pytest.fixture
def files(store: Store, clips: Path) -> list[FileFacts]:
    """Two of `door` with a gap between, one of `gate`."""
    made = clip(clips, "h264")
    first = record(store, made)
    found = [first, record(store, made, at=10 * SECOND, before=first), record(store, made, source="gate")]
    with closing(Index(store)) as index:
        reconcile(store, index)
    return found


class Command:
    """Runs `lookout recordings` on a store."""

    def __init__(self, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
        self._store, self._capsys = store, capsys

    def run(self, *words: object, code: int = 0) -> tuple[str, str]:
        """What it prints on both streams."""
        told = invoke(["recordings", *map(str, words), "--store", str(self._store.path)])
        read = self._capsys.readouterr()
        assert told == code, read.err
        return read.out, read.err

    def json(self, *words: object, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code)[0])


@pytest.fixture
def command(store: Store, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    os.environ["COLUMNS"] = "200"
    yield Command(store, capsys)
    del os.environ["COLUMNS"]


def test_what_is_there_and_why_the_rest_is_not(command: Command, files: Sequence[FileFacts]) -> None:
    rows = {row["source"]: row for row in command.json("list")}
    assert rows.keys() == {"door", "gate"}
    assert rows["door"]["files"] == 2
    assert rows["door"]["recorded"] == sum(row.end - row.begin for row in files[:2])
    parts = command.json("list", "door")
    assert [(row["begin"], row["end"], row["cause"]) for row in parts] == [
        (files[0].begin, files[0].end, None),
        (files[0].end, files[1].begin, "source_down"),
        (files[1].begin, files[1].end, None),
    ]
    assert command.json("gaps") == [parts[1]]
    assert command.json("gaps", "door", "--min", 60) == []
    assert "source_down: the camera gave no video" in command.run("gaps", "door")[0]
    assert "gate" in command.run("list")[0]
    assert command.json("list", "--to", "2001-01-01") == []


def test_a_time_is_locked_exported_and_verified(command: Command, files: Sequence[FileFacts], tmp_path: Path) -> None:
    times = ("--from", "2027-01-15T08:00:02Z", "--to", "2027-01-15T08:00:13+00:00")
    lock = command.json("lock", "door", *times, "--reason", "theft")
    assert [row["id"] for row in command.json("list", "--locks")] == [lock["id"]]
    listed = command.run("list", "--locks")[0]
    assert "theft" in listed
    assert lock["id"] in listed
    out = tmp_path / "out.mp4"
    told = command.run("export", "door", out, *times)
    assert "not there: " in told[1]
    assert len(played(out)) > 45
    assert "unlocked: door" in command.run("unlock", lock["id"])[0]
    assert "no lock" in command.run("unlock", lock["id"], code=2)[1]
    assert "no problem" in command.run("verify")[0]
    path = command._store.path / files[0].path
    changed = bytearray(path.read_bytes())
    changed[len(changed) // 2] ^= 1
    path.write_bytes(changed)
    (problem,) = command.json("verify", "door", code=1)["problems"]
    assert (problem["kind"], problem["source"], problem["path"]) == ("changed", "door", files[0].path)


@pytest.mark.usefixtures("files")
def test_an_export_that_is_interrupted_is_whole_or_not_there(
    store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C comes while FFmpeg has Python read for it, where an exception is lost."""

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is _Ranges.readinto.__code__:
            sys.setprofile(None)
            os.kill(os.getpid(), signal.SIGINT)

    words = ["recordings", "export", "door", "--from", "2027-01-15", "--to", "2027-01-16", "--store", str(store.path)]
    assert invoke([*words, str(tmp_path / "whole.mp4")]) == 0
    capfd.readouterr()
    out = tmp_path / "interrupted.mp4"
    sys.setprofile(interrupt)
    code = invoke([*words, str(out)])
    assert sys.getprofile() is None
    assert "KeyboardInterrupt" not in capfd.readouterr().err
    if code == 0:  # it was through before the signal was heard
        assert out.read_bytes() == (tmp_path / "whole.mp4").read_bytes()
    else:
        assert (code, sorted(path.name for path in tmp_path.glob("*.mp4*"))) == (130, ["whole.mp4"])


def test_an_index_is_made_anew(command: Command, store: Store, files: Sequence[FileFacts]) -> None:
    os.unlink(store.path / NAME)
    assert "rebuild" in command.run("list", code=2)[1]
    assert f"{len(files)} files are in the index" in command.run("rebuild")[0]
    assert len(command.json("list")) == 2


@pytest.mark.usefixtures("files")
def test_each_mistake_is_one_clear_line(command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.mp4"
    for words, said in (
        (["list", "shed"], "the store has no source shed: there are door, gate"),
        (["gaps", "--from", "yesterday"], "'yesterday' is no time: 2026-11-26T10:30:00"),
        (["export", "door", out, "--from", "2h", "--to", "1h"], "door: nothing is recorded of that time"),
        (["lock", "door", "--from", "2h", "--to", "1h"], "nothing is recorded of that time"),
        (["list", "--from", "1h", "--to", "2h"], "--to is not later than --from"),
        (["export", "door", out], "Missing option '--from'"),
        (["unlock", "../../etc/passwd"], "has no lock ../../etc/passwd"),
    ):
        told = command.run(*words, code=2)[1]
        assert said in told
        assert told.count("\n") == 1
    assert not out.exists()
    config = tmp_path / "config.yaml"
    for text, words, said in (
        ("{}", [], "record.stores has no store: name its folder with --store"),
        ("record: {stores: {a: {path: a}, b: {path: b}}}", [], "name one with --store: a, b"),
        ("record: {stores: {a: {path: a}}}", ["--store", "b"], "has no store 'b', only a"),
        ("record: {stores: {a: {path: a}}}", [], "a: is no folder"),
        ("record: {stores: {a: {paht: a}}}", [], "paht"),
    ):
        config.write_text(text)
        assert invoke(["recordings", "list", "-c", str(config), *words]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_a_store_is_named_by_the_configuration(store: Store, files: Sequence[FileFacts], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("record: {stores: {main: {path: store}}}")
    assert invoke(["recordings", "verify", "-c", str(tmp_path / "config.yaml"), "--store", "main"]) == 0
    assert invoke(["recordings", "init", str(tmp_path / "new")]) == 0
    assert invoke(["recordings", "init", str(store.path)]) == 2
    assert len(files) == 3


def test_times_are_as_people_write_them() -> None:
    clock = ManualClock()
    moment, now = Moment(clock), clock.utc_ns()
    assert moment.convert("2h", None, None) == now - 7200 * SECOND
    assert moment.convert("2027-01-15T08:00:00.250Z", None, None) == 1_800_000_000_250_000_000
    assert moment.convert("2027-01-15 09:00+01:00", None, None) == 1_800_000_000_000_000_000
    lengths = [length_text(count * SECOND) for count in (61, 90_061)]
    assert lengths == ["00:01:01", "1 d 01:01:01"]
