"""What docs/backup.md promises: a backup while the daemon works, restored elsewhere, where a daemon goes on with it."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from lookout.messages import Event, Message
from tests.support.daemon import DEMO_MODEL, ROOT, Lookout, receive_until

_ANY = {"name": "all", "type": "object"}


def _back_up(to: Path, *tops: Path, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    words = [word for top in tops for word in ("--from", str(top))]
    command = [sys.executable, str(ROOT / "deploy/backup.py"), str(to), *words, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def _is_event(message: Message) -> bool:
    return isinstance(message, Event)


def _numbers(file: Path) -> list[int]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        return [number for (number,) in db.execute("SELECT number FROM events ORDER BY number")]


def _crossings(file: Path) -> int:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        ((total,),) = db.execute("SELECT sum(count) FROM totals")
        return int(total or 0)


def test_a_daemon_goes_on_with_what_was_backed_up_while_another_worked(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    config: dict[str, object] = {
        "model": {"path": str(DEMO_MODEL), "backend": "fake"},
        "sources": [{"id": "street", "type": "synthetic", "fps": 25, "rules": [_ANY]}],
        "tracking": {"enabled": True},
        "events": {"journal": str(here / "events.sqlite")},
    }
    with Lookout(here, config) as lookout, lookout.subscribe("events") as subscriber:
        told: list[int] = []
        while len(told) < 3:
            told += [one.number for one in receive_until(subscriber, _is_event) if isinstance(one, Event)]
        done = _back_up(tmp_path / "backup", here)
        assert done.returncode == 0, done.stderr
        receive_until(subscriber, _is_event)  # it goes on
        assert lookout.stop() == 0
    kept = tmp_path / "backup" / here.relative_to("/")
    assert sorted(path.name for path in kept.iterdir()) == ["config.yaml", "events.sqlite", "log.jsonl"]
    shutil.copytree(kept, there)
    before, total = _numbers(there / "events.sqlite"), _crossings(there / "events.sqlite")
    assert set(told[:-1]) <= set(before)  # the last one may still be on its way to the disk
    restored = yaml.safe_load((there / "config.yaml").read_text())
    restored["events"]["journal"] = str(there / "events.sqlite")
    with Lookout(there, restored) as lookout, lookout.subscribe("events") as subscriber:
        (new,) = [one.number for one in receive_until(subscriber, _is_event)[-1:] if isinstance(one, Event)]
        assert lookout.stop() == 0
        assert new > max(before)  # nobody takes it for an event of before
    assert set(before) < set(_numbers(there / "events.sqlite"))
    assert _crossings(there / "events.sqlite") > total


def _database(path: Path) -> sqlite3.Connection:
    """In WAL mode, with a row that is committed, and one that is not."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE events (number INTEGER)")
    db.execute("INSERT INTO events VALUES (1)")
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO events VALUES (2)")
    return db


def test_what_a_backup_has(tmp_path: Path) -> None:
    """A copy of a database's file alone would have no row. Keys stay keys."""
    state = tmp_path / "state"
    (state / "keys").mkdir(parents=True, mode=0o700)
    key = state / "keys/lookout.key_secret"
    key.write_text("secret")
    key.chmod(0o600)
    (state / "link").symlink_to("keys")
    (state / "empty").mkdir()
    store = state / "recordings"
    (store / "door").mkdir(parents=True)
    (store / "lookout-store.json").write_text("{}")
    (store / "door/1.mp4").write_bytes(b"video")
    with closing(_database(state / "events.sqlite")):
        shutil.copy(state / "events.sqlite", tmp_path / "plain.sqlite")
        done = _back_up(tmp_path / "a", state)
        whole = _back_up(tmp_path / "b", state, options=("--recordings",))
    assert (done.returncode, whole.returncode) == (0, 0), done.stderr + whole.stderr
    kept = tmp_path / "a" / state.relative_to("/")
    with closing(sqlite3.connect(tmp_path / "plain.sqlite")) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    names = sorted(str(path.relative_to(kept)) for path in kept.rglob("*"))
    assert names == ["empty", "events.sqlite", "keys", "keys/lookout.key_secret", "link"]
    assert _numbers(kept / "events.sqlite") == [1]
    assert stat.S_IMODE((kept / "keys/lookout.key_secret").stat().st_mode) == 0o600
    assert stat.S_IMODE((kept / "keys").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700  # it holds keys
    assert os.readlink(kept / "link") == "keys"
    assert (tmp_path / "b" / store.relative_to("/") / "door/1.mp4").read_bytes() == b"video"


def test_a_backup_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    state, to = tmp_path / "state", tmp_path / "to"
    state.mkdir()
    (state / "a").write_text("a")
    (state / "events.sqlite").write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    done = _back_up(to, state)
    assert (done.returncode, done.stdout) == (2, "")
    assert str(state / "events.sqlite") in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state"]
    to.mkdir()
    assert f"{to}: is there already" in _back_up(to, state).stderr
    missing = _back_up(tmp_path / "b", tmp_path / "none")
    assert (missing.returncode, missing.stderr) == (2, f"backup: not there: {tmp_path}/none: name folders by --from\n")


def test_a_folder_that_is_deleted_meanwhile_ends_no_backup(tmp_path: Path) -> None:
    """As the folder of an hour is, when its last recording goes."""
    state, kept = tmp_path / "state", tmp_path / "kept"
    (state / "keys").mkdir(parents=True, mode=0o700)
    for name in ("keys", "2026-01-01"):
        (kept / name).mkdir(parents=True)
    runpy.run_path(str(ROOT / "deploy/backup.py"))["_keep_folders"](state, kept)
    assert stat.S_IMODE((kept / "keys").stat().st_mode) == 0o700


def _lines_that_restore(backup: Path, root: Path) -> str:
    """Those of docs/backup.md, for another root."""
    page = (ROOT / "docs/backup.md").read_text(encoding="utf-8")
    lines = "\n".join(re.findall(r"^sudo (sh -c .*/srv/backup/lookout-monday/.*)$", page, re.M))
    places = {"/srv/backup/lookout-monday": str(backup), "to=/var": f"to={root}/var", " /etc/'": f" {root}/etc/'"}
    for old, new in places.items():
        assert old in lines
        lines = lines.replace(old, new)
    return lines


@pytest.mark.parametrize("is_new", [True, False])
def test_what_the_page_says_of_restoring(tmp_path: Path, is_new: bool) -> None:
    """On a new machine, and where a killed daemon has left its state in the private folder of a service."""
    backup, root = tmp_path / "backup", tmp_path / "root"
    (backup / "etc/lookout").mkdir(parents=True)
    (backup / "etc/lookout/environment").write_text("A=b\n")
    (backup / "etc/lookout/environment").chmod(0o600)
    (backup / "var/lib/lookout").mkdir(parents=True)
    (backup / "var/lib/lookout-bridge").mkdir()
    (backup / "var/lib/lookout-bridge/bridge.sqlite").write_bytes(b"spool")
    with closing(_database(backup / "var/lib/lookout/events.sqlite")) as db:
        db.execute("ROLLBACK")
    backup.chmod(0o700)
    for name in ("etc", "var/lib/private/lookout/recordings"):
        (root / name).mkdir(parents=True)
    if not is_new:
        killed = root / "var/lib/private/lookout"
        (killed / "recordings/1.mp4").write_bytes(b"video")
        (root / "var/lib/lookout").symlink_to("private/lookout")
        (root / "etc/lookout").mkdir()
        with closing(_database(tmp_path / "events.sqlite")) as db:
            db.execute("ROLLBACK")
            db.execute("UPDATE events SET number = 7")
            for path in tmp_path.glob("events.sqlite*"):
                shutil.copy(path, killed)
    modes = {path: path.stat().st_mode for path in (root, root / "etc", root / "var", root / "var/lib")}
    subprocess.run(["sh", "-ec", _lines_that_restore(backup, root)], check=True, timeout=60)
    assert _numbers(root / "var/lib/lookout/events.sqlite") == [1]
    assert stat.S_IMODE((root / "etc/lookout/environment").stat().st_mode) == 0o600
    assert (root / "var/lib/lookout-bridge/bridge.sqlite").read_bytes() == b"spool"
    assert {path: path.stat().st_mode for path in modes} == modes
    assert (root / "var/lib/lookout/recordings/1.mp4").exists() != is_new
