"""The journal: whole after a kill, bounded, and no trouble of its disk is anybody else's."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import pytest

from daemon.analytics import journal as module
from daemon.analytics.journal import Journal, journal_path, try_journal
from daemon.analytics.journal_file import Query, read
from daemon.clock import SystemClock
from daemon.config.events import EventsConfig
from daemon.errors import ConfigError, LookoutError
from daemon.system import database
from daemon.system.database import DAMAGED
from lookout.messages import Event
from tests.support.clock import ManualClock
from tests.support.daemon import PATIENCE_S, ROOT, wait_until
from tests.support.events import Rig, crossing, logged, runtime

ALL = Query(since=0, limit=1_000_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.sqlite"


def _written(rig: Rig, query: Query = ALL) -> list[str]:
    assert rig.journal is not None
    return [event.id for event in rig.journal.read(query)]


def _asked(path: Path, question: str) -> tuple[Any, ...]:
    """The first row of SQLite's answer."""
    with closing(sqlite3.connect(path)) as db:
        row: tuple[Any, ...] = db.execute(question).fetchone()
        return row


def _run_and_kill(path: Path, instance: str, count: int) -> list[tuple[int, str]]:
    """Number and id of the events that a process has published before it was killed, after some were written."""
    command = [sys.executable, "-m", "tests.support.events", str(path), instance]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while len(lines) < count or not any(event.instance == instance for event in read(path, ALL)):
            lines += [process.stdout.readline() for _ in range(100)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines(keepends=True)
    whole = [line.split() for line in lines if line.endswith("\n")]
    return [(int(number), id) for number, id in whole]


def test_after_kill_9_the_journal_is_whole_and_goes_on(path: Path) -> None:
    """No number and no id comes twice, those of events that were not written included; counts go on. Of the last event
    of each run there may be a row and no line: it was killed between the two."""
    published: list[tuple[int, str]] = []
    for run in range(3):
        published += _run_and_kill(path, f"run-{run}", 400)
    numbers = [number for number, _ in published]
    assert numbers == sorted(set(numbers))
    assert len({id for _, id in published}) == len(published)
    clock = ManualClock()
    with Rig(path, clock, instance="run-3") as rig:
        assert rig.journal is not None
        assert rig.journal.first > numbers[-1]
        rows = rig.journal.read(ALL)
        assert _asked(path, "PRAGMA integrity_check") == ("ok",)
        last = {row.instance: row.id for row in rows}
        assert {row.id for row in rows} <= {id for _, id in published} | {*last.values()}
        assert last.keys() == {"run-0", "run-1", "run-2"}
        (before,) = rig.events.counts()
        assert before.totals[0].count == len(rows)
        assert before.since < rows[0].confirmed_at * 2
        rig.events.on_event(crossing())
        assert rig.events.counts()[0].totals[0].count == len(rows) + 1
        assert rig.events.counts()[0].since == before.since


def test_events_of_a_thread_arrive(path: Path) -> None:
    with Rig(path, SystemClock()) as rig:
        assert rig.journal is not None
        rig.journal.start()
        for seq in range(50):
            rig.events.on_event(crossing(seq))
        wait_until(lambda: len(_written(rig)) == 50, "they are written")
        assert rig.reports() == [*rig.journal.read(ALL)]
        for seq in range(50, 60):
            rig.events.on_event(crossing(seq))
        rig.journal.stop(PATIENCE_S)
        assert len(_written(rig)) == 60  # the rest is written at the end


def test_a_reader_that_was_away_gets_the_rest_by_number(path: Path, clock: ManualClock) -> None:
    with Rig(path, clock) as rig:
        for seq in range(10):
            rig.events.on_event(crossing(seq, source=("street", "yard")[seq % 2], rule=f"rule-{seq % 3}"))
        rig.write()
        assert rig.journal is not None
        rows = rig.journal.read(ALL)
        assert [row.seq for row in rows] == list(range(10))
        seen = rows[3].number
        assert rig.journal.read(Query(since=seen)) == rows[4:]
        assert rig.journal.read(Query(since=seen, limit=2)) == rows[4:6]
        assert rig.journal.read(Query(limit=3)) == rows[-3:]
        assert rig.journal.read(Query(since=0, source="yard")) == rows[1::2]
        assert rig.journal.read(Query(source="yard", rule="rule-0", kind="line")) == [rows[3], rows[9]]
        assert rig.journal.read(Query(kind="zone")) == []


def test_only_so_many_events_are_kept(path: Path, clock: ManualClock) -> None:
    with Rig(path, clock, max_rows=5) as rig:
        for seq in range(12):
            rig.events.on_event(crossing(seq))
            if seq % 4 == 3:
                rig.write()
        assert rig.journal is not None
        assert [row.seq for row in rig.journal.read(ALL)] == [7, 8, 9, 10, 11]
        assert rig.events.counts()[0].totals[0].count == 12
    with Rig(path, clock, max_rows=2) as rig:
        rig.events.on_event(crossing(12))
        rig.write()
        assert rig.journal is not None
        assert [row.seq for row in rig.journal.read(ALL)] == [11, 12]


def test_old_events_go_and_totals_stay(path: Path, clock: ManualClock) -> None:
    with Rig(path, clock, max_age_days=2) as rig:
        rig.events.on_event(crossing(0))
        rig.write()
        clock.advance(86_400)
        rig.events.on_event(crossing(1))
        rig.write()
        assert len(_written(rig)) == 2
        clock.advance(86_401)
        rig.write()
        assert rig.journal is not None
        assert [row.seq for row in rig.journal.read(ALL)] == [1]
        clock.advance(86_400)
        rig.write()
        assert _written(rig) == []
    with Rig(path, clock) as rig:
        assert rig.events.counts()[0].totals[0].count == 2


def test_a_journal_that_opens_late_goes_on_above_its_numbers(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of earlier runs are ahead of the clock. An event from before the journal is open may be lost."""
    monkeypatch.setattr(database, "WAIT_S", 0.0)
    earlier = []
    for _ in range(3):
        with Rig(path, clock) as rig:
            rig.events.on_event(crossing())
            rig.write()
            earlier += [message.number for message in rig.reports() if isinstance(message, Event)]
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with logged(), Rig(path, clock) as rig:
            rig.events.on_event(crossing())
            assert rig.journal is not None
            assert rig.journal.earlier is None
            other.close()
            rig.write()
            rig.events.on_event(crossing())
            rig.write()
            _, last = [message.number for message in rig.reports() if isinstance(message, Event)]
            kept = _written(rig)
    assert last > max(earlier)
    assert kept[-1].endswith(f"-{last}")


def test_numbers_do_not_depend_on_the_time_of_day(path: Path, clock: ManualClock) -> None:
    with Rig(path, clock) as rig:
        rig.events.on_event(crossing())
        rig.write()
        (first,) = rig.reports()
    clock.step(-1_000_000.0)
    with Rig(path, clock) as rig:
        rig.events.on_event(crossing())
        (second,) = rig.reports()
    assert second.number > first.number + 100_000  # published events that were not written have numbers, too


@pytest.mark.parametrize("content", [b"no database " * 500, b"SQLite format 3\0" + b"x" * 9000])
def test_a_damaged_journal_is_moved_and_a_new_one_begun(path: Path, clock: ManualClock, content: bytes) -> None:
    path.write_bytes(content)
    with logged() as lines, Rig(path, clock) as rig:
        rig.events.on_event(crossing())
        rig.write()
        assert len(_written(rig)) == 1
    (line,) = lines
    assert line["event"] == "the journal is damaged: a new one is begun"
    assert Path(line["moved_to"]).read_bytes() == content


def test_damage_in_the_middle_is_found_at_the_start(path: Path, clock: ManualClock) -> None:
    with Rig(path, clock) as rig:
        for seq in range(500):
            rig.events.on_event(crossing(seq))
        rig.write()
    content = bytearray(path.read_bytes())
    content[8192:40_000] = os.urandom(40_000 - 8192)
    path.write_bytes(content)
    with Rig(path, clock) as rig:
        rig.events.on_event(crossing())
        rig.write()
        assert len(_written(rig)) == 1
    assert Path(f"{path}{DAMAGED}").read_bytes() == bytes(content)


def test_a_removed_journal_is_begun_anew(path: Path, clock: ManualClock) -> None:
    with Rig(path, clock) as rig:
        rig.events.on_event(crossing(0))
        rig.write()
        for suffix in ("", "-wal", "-shm"):
            os.unlink(f"{path}{suffix}")
        clock.advance(61)
        rig.write()
        rig.events.on_event(crossing(1))
        rig.write()
        assert rig.journal is not None
        assert [row.seq for row in rig.journal.read(ALL)] == [1]


def _remove_file(path: Path) -> None:
    path.unlink()


def _move_file(path: Path) -> None:
    path.rename(path.with_name("moved"))


def _remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def _move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


@pytest.mark.parametrize("take_away", [_remove_file, _move_file, _remove_folder, _move_folder])
def test_every_event_is_in_the_journal_or_counted_as_lost(
    take_away: Callable[[Path], None], tmp_path: Path, clock: ManualClock
) -> None:
    """Whatever happens to its file or folder while it is written; and totals go on, in the next run as well."""
    folder = tmp_path / "journal"
    folder.mkdir()
    path = folder / "events.sqlite"
    with Rig(path, clock) as rig:
        assert rig.journal is not None
        for seq in range(40):
            rig.events.on_event(crossing(seq))
            if seq == 10:
                rig.write()
                take_away(path)
            if seq == 20:
                rig.write()  # finds no place, where the folder is gone
                folder.mkdir(exist_ok=True)
            if seq == 30:
                rig.write()
        rig.write()
        kept = rig.journal.read(ALL)
        assert [row.seq for row in kept][-10:] == [*range(30, 40)]
        assert len(kept) + rig.journal.lost == 40
        assert rig.events.counts()[0].totals[0].count == 40
    with Rig(path, clock, instance="run-2") as rig:
        assert rig.events.counts()[0].totals[0].count == 40


class LateHand(ManualClock):
    """A clock that removes a file when it is asked for the time of day: after the look at its place."""

    path: Path | None = None

    def utc_ns(self) -> int:
        if self.path:
            self.path.unlink()
            self.path = None
        return super().utc_ns()


def test_a_file_that_goes_while_it_is_written_loses_nothing_unseen(path: Path) -> None:
    clock = LateHand()
    with Rig(path, clock) as rig:
        assert rig.journal is not None
        rig.events.on_event(crossing(0))
        rig.write()
        rig.events.on_event(crossing(1))
        clock.path = path
        rig.write()
        assert not clock.path
        assert [row.seq for row in rig.journal.read(ALL)] == [1]
        assert rig.journal.lost == 1


def test_a_reader_is_told_that_the_journal_is_gone_until_there_is_a_new_one(path: Path, clock: ManualClock) -> None:
    with Rig(path, clock) as rig:
        assert rig.journal is not None
        rig.events.on_event(crossing(0))
        rig.write()
        path.unlink()
        with pytest.raises(LookoutError, match="it was removed or moved"):
            rig.journal.read(ALL)
        rig.write()
        assert rig.journal.read(ALL) == []
        assert rig.journal.lost == 1


def test_a_second_daemon_does_not_take_the_place_of_a_journal_that_was_moved(path: Path, clock: ManualClock) -> None:
    """Its lock was moved with it."""
    with Rig(path, clock) as rig:
        for name in (path.name, f"{path.name}.lock"):
            path.with_name(name).rename(path.with_name(f"moved-{name}"))
        rig.write()
        with pytest.raises(ConfigError, match="another Lookout writes to"):
            Journal(path, EventsConfig(), runtime(clock))


class Disk(Protocol):
    """A place for a journal that takes no more after `fill`."""

    folder: Path

    def fill(self) -> None: ...

    def make_room(self) -> None: ...


class SmallDisk:
    """A file system of one MiB, with a file that fills it. SQLite says that the disk is full."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        with (self.folder / "filler").open("ab", buffering=0) as file:
            for size in (4096, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue

    def make_room(self) -> None:
        (self.folder / "filler").unlink()


class LimitedDisk:
    """A folder in which the kernel lets no file of this process grow beyond the largest one. SQLite cannot write.

    It takes no mount. Files can still be made, as on a full disk.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self) -> None:
        largest = max((path.stat().st_size for path in self.folder.iterdir()), default=0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, self._limits[1]))

    def make_room(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)


@pytest.fixture(params=["limit", pytest.param("tmpfs", marks=pytest.mark.needs("mounts"))])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if request.param == "limit":
        limited = LimitedDisk(folder)
        yield limited
        limited.make_room()
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield SmallDisk(folder)
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_costs_rows_and_nothing_else(disk: Disk, clock: ManualClock) -> None:
    """Events are published while the disk is full; later ones are kept, and so is every total."""
    path = disk.folder / "events.sqlite"
    with logged() as lines, Rig(path, clock) as rig:
        assert rig.journal is not None
        rig.events.on_event(crossing())
        rig.write()
        disk.fill()
        for seq in range(1, 300):
            rig.events.on_event(crossing(seq))
            rig.write()
        assert len([message for message in rig.reports() if isinstance(message, Event)]) == 300
        assert rig.journal.lost == 300 - len(_written(rig)) > 0
        assert [line["log_level"] for line in lines] == ["error"]
        assert str(rig.journal.trouble).endswith(f"so far {rig.journal.lost} are lost")
        rig.write()
        assert rig.journal.trouble is not None
        disk.make_room()
        rig.write()
        assert rig.journal.trouble is None  # before the next event, which may be days away
        assert lines[-1]["event"] == "the journal takes events again"
        rig.events.on_event(crossing(300))
        rig.write()
        assert rig.journal.read(ALL)[-1].seq == 300
        assert lines[-1]["events_lost"] == rig.journal.lost
    with Rig(path, clock) as rig:
        assert rig.events.counts()[0].totals[0].count == 301


def test_a_disk_that_is_full_at_the_start_delays_nothing(disk: Disk, clock: ManualClock) -> None:
    """Totals of earlier runs are there as soon as the file can be opened."""
    path = disk.folder / "events.sqlite"
    disk.fill()
    with logged() as lines, Rig(path, clock) as rig:
        assert lines[0]["log_level"] == "error"
        for seq in range(3):
            rig.events.on_event(crossing(seq))
            rig.write()
        assert len(rig.reports()) == 3
        disk.make_room()
        rig.events.on_event(crossing(3))
        rig.write()
        assert rig.journal is not None
        assert rig.journal.lost == 3
        assert [row.seq for row in rig.journal.read(ALL)] == [3]
    with Rig(path, clock) as rig:
        assert rig.events.counts()[0].totals[0].count == 4


def test_a_disk_that_is_too_slow_costs_rows(path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal's thread does not come to write; totals are right all the same."""
    monkeypatch.setattr(module, "MAX_WAITING", 5)
    with Rig(path, clock) as rig:
        for seq in range(8):
            rig.events.on_event(crossing(seq))
        assert len(rig.reports()) == 8
        rig.write()
        assert rig.journal is not None
        assert [row.seq for row in rig.journal.read(ALL)] == [0, 1, 2, 3, 4]
        assert rig.journal.lost == 3
    with Rig(path, clock) as rig:
        assert rig.events.counts()[0].totals[0].count == 8


def test_two_daemons_do_not_share_a_journal(path: Path, clock: ManualClock) -> None:
    with Rig(path, clock), pytest.raises(ConfigError, match=r"^events\.journal: another Lookout"):
        Rig(path, clock)
    Rig(path, clock).close()


def test_a_path_that_cannot_be_used_is_one_line(tmp_path: Path, clock: ManualClock) -> None:
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    newer = tmp_path / "newer.sqlite"
    Rig(newer, clock).close()
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    for path, words in ((tmp_path / "none" / "x", "does not exist"), (tmp_path, "is not a file"),
                        (other, "another program"), (newer, "newer Lookout")):  # fmt: skip
        with pytest.raises(ConfigError, match=words) as caught:
            Journal(path, EventsConfig(), runtime(clock))
        assert str(caught.value).startswith("events.journal: ")
        assert "\n" not in str(caught.value)
    assert _asked(other, "SELECT count(*) FROM mine") == (0,)
    with pytest.raises(ConfigError, match="does not exist"):
        try_journal(EventsConfig(journal=str(tmp_path / "none" / "x")))
    try_journal(EventsConfig(journal=str(tmp_path / "new")))
    assert not (tmp_path / "new").exists()


def test_others_may_not_read_it(path: Path, clock: ManualClock) -> None:
    with Rig(path, clock):
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) & 0o007 == 0


def test_where_the_journal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    assert journal_path(EventsConfig()) is None
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/lookout:/var/lib/other")
    assert journal_path(EventsConfig()) == Path("/var/lib/lookout/events.sqlite")
    assert journal_path(EventsConfig(journal="off")) is None
    assert journal_path(EventsConfig(journal="/x/y")) == Path("/x/y")


def test_a_backup_can_be_read_beside_the_running_daemon(path: Path, clock: ManualClock, tmp_path: Path) -> None:
    with Rig(path, clock) as rig:
        rig.events.on_event(crossing())
        rig.write()
        folder = tmp_path / "backup"
        folder.mkdir()
        for file in path.parent.glob("events.sqlite*"):
            shutil.copy(file, folder)
    with Rig(folder / path.name, clock) as rig:
        assert len(_written(rig)) == 1


def test_totals_that_make_no_sense_are_damage(path: Path, clock: ManualClock) -> None:
    Rig(path, clock).close()
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO totals VALUES ('[1]', 5)")
    db.close()
    with Rig(path, clock) as rig:
        assert rig.events.counts() == []
    assert Path(f"{path}{DAMAGED}").exists()
