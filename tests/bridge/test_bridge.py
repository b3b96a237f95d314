"""What the bridge passes on: every event once, in order, whatever is away, full, broken or restarted meanwhile."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from time import time_ns
from typing import Any

import msgspec
import pytest

from daemon.bridge import bridge, journal_pages, spool
from daemon.bridge.bridge import Reloaded
from daemon.bridge.messages import Loss, Notice
from daemon.bridge.records import Record
from daemon.bridge.worker import WINDOW
from daemon.errors import ConfigError
from lookout.messages import Event
from tests.bridge.publisher import EventSource
from tests.bridge.rig import DigestReceiver, Receiver, Rig
from tests.support.daemon import PATIENCE_S
from tests.support.small_disk import small_disk

EVENTS = {"kinds": ["event"]}


@pytest.fixture
def source() -> Iterator[EventSource]:
    with EventSource(["door", "yard"]) as found:
        yield found


def _numbers(source: EventSource) -> list[int]:
    return [event.number for event in source.events]


def test_events_of_the_wire_come_in_order_and_the_account_adds_up(tmp_path: Path, source: EventSource) -> None:
    with Rig(tmp_path, source, [{"name": "all"}, {"name": "doors", "when": {"sources": ["door"]}}]) as rig:
        rig.wait_until(rig.is_following)
        source.emit(200)
        rig.wait_until(lambda: rig.account("all").delivered == 200)
        rig.wait_until(lambda: rig.account("doors").spooled == 0)
    assert rig.receivers["all"].numbers == _numbers(source)
    assert [row.source for row in rig.receivers["doors"].records] == ["door"] * 100
    assert (rig.account("doors").delivered, rig.account("doors").filtered) == (100, 100)


def test_a_gap_on_the_wire_is_filled_from_the_journal(tmp_path: Path, source: EventSource) -> None:
    with Rig(tmp_path, source, [{"name": "all"}]) as rig:
        rig.wait_until(rig.is_following)
        source.emit(5)
        with source.losing():
            source.emit(7)
        source.emit(5)
        rig.wait_until(lambda: rig.account("all").delivered == 17)
        (feed,) = rig.bridge.report().feeds
    assert rig.receivers["all"].numbers == _numbers(source)
    assert (feed.events, feed.lost) == (17, 0)
    assert feed.filled >= 7


def test_events_that_nobody_has_any_more_are_told_as_lost(tmp_path: Path, source: EventSource) -> None:
    with Rig(tmp_path, source, [{"name": "all"}]) as rig:
        rig.wait_until(rig.is_following)
        source.emit(3)
        rig.wait_until(lambda: rig.account("all").delivered == 3)
        source.lose_for_good(4)
        source.emit(1)
        rig.wait_until(lambda: rig.account("all").delivered == 5)
        (feed,) = rig.bridge.report().feeds
    before, lost, after = rig.receivers["all"].records[-3:]
    assert isinstance(before.message, Event)
    assert isinstance(after.message, Event)
    assert isinstance(lost.message, Loss)
    assert (lost.message.count, lost.message.first, lost.message.last) == (
        4, before.message.number + 1, after.message.number - 1,
    )  # fmt: skip
    assert feed.lost == 4


def test_what_happens_while_the_bridge_is_stopped_comes_afterwards(tmp_path: Path, source: EventSource) -> None:
    with Rig(tmp_path, source, [{"name": "all"}]) as rig:
        rig.wait_until(rig.is_following)
        source.emit(3)
        rig.wait_until(lambda: rig.account("all").delivered == 3)
        rig.bridge.stop()
        source.emit(300)
        source.restart()
        source.emit(4)
        rig.restart()
        rig.wait_until(lambda: rig.account("all").delivered == 307)
    assert rig.receivers["all"].numbers == _numbers(source)
    assert not any(delivery.is_repeated for delivery in rig.receivers["all"].deliveries)


def test_a_target_that_is_away_gets_all_of_it_later_and_no_other_one_waits(tmp_path: Path, source: EventSource) -> None:
    with Rig(tmp_path, source, [{"name": "there"}, {"name": "away"}]) as rig:
        rig.receivers["away"].away = "nothing answers"
        rig.wait_until(rig.is_following)
        source.emit(50)
        rig.wait_until(lambda: rig.account("there").delivered == 50)
        rig.wait_until(lambda: rig.account("away").state == "away")
        account = rig.account("away")
        assert (account.reason, account.spooled, account.delivered) == ("nothing answers", 50, 0)
        rig.receivers["away"].away = None
        rig.wait_until(lambda: rig.account("away").delivered == 50)
    assert rig.receivers["away"].numbers == _numbers(source)


def test_a_connection_that_breaks_in_a_batch_goes_on_behind_what_was_confirmed(
    tmp_path: Path, source: EventSource
) -> None:
    with Rig(tmp_path, source, [{"name": "all"}]) as rig:
        receiver = rig.receivers["all"]
        rig.wait_until(rig.is_following)
        receiver.takes = 10
        source.emit(30)
        rig.wait_until(lambda: rig.account("all").delivered == 30)
    assert receiver.connections == 2
    assert receiver.numbers == _numbers(source)
    assert rig.account("all").repeated == sum(delivery.is_repeated for delivery in receiver.deliveries) > 0


def test_a_refused_record_is_dropped_and_counted_and_the_rest_goes_on(tmp_path: Path, source: EventSource) -> None:
    with Rig(tmp_path, source, [{"name": "all"}]) as rig:
        rig.receivers["all"].refuse = lambda record: "too large" if record.source == "yard" else None
        rig.wait_until(rig.is_following)
        source.emit(10)
        rig.wait_until(lambda: rig.account("all").spooled == 0 < rig.account("all").received)
        rig.wait_until(lambda: rig.account("all").received == 10 and rig.account("all").spooled == 0)
        assert rig.account("all").dropped == {"refused": 5}
        assert rig.account("all").delivered == 5


def test_a_hanging_target_holds_up_neither_a_stop_nor_its_neighbour(
    tmp_path: Path, source: EventSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("interrupted", "spool"):
        monkeypatch.setitem(bridge._STOP, name, PATIENCE_S)  # a busy machine
    with Rig(tmp_path, source, [{"name": "hangs"}, {"name": "fine"}]) as rig:
        rig.wait_until(rig.is_following)
        rig.receivers["hangs"].hangs.set()
        source.emit(20)
        rig.wait_until(lambda: rig.account("fine").delivered == 20)
        assert rig.account("hangs").delivered == 0
        rig.wait_until(lambda: rig.receivers["hangs"].hung_in is not None)
        assert rig.bridge.stop()
        assert rig.receivers["hangs"].interrupted_by == [threading.get_ident()]  # by the stop itself
        rig.receivers["hangs"].hangs.clear()
        rig.restart()
        rig.wait_until(lambda: rig.account("hangs").delivered == 20)
    assert rig.receivers["hangs"].numbers == _numbers(source)


def test_a_full_spool_drops_the_oldest_counts_them_and_says_so(tmp_path: Path, source: EventSource) -> None:
    with Rig(tmp_path, source, [{"name": "all"}], spool_mib=1) as rig:
        receiver = rig.receivers["all"]
        receiver.away = "nothing answers"
        rig.wait_until(rig.is_following)
        source.emit(400, label="x" * 4000)
        rig.wait_until(lambda: rig.account("all").received == 400)
        rig.wait_until(lambda: rig.bridge.report().spool.bytes <= 1 << 20)
        dropped = rig.account("all").dropped["spool_full"]
        receiver.away = None
        rig.wait_until(lambda: rig.account("all").spooled == 0)
        assert rig.account("all").dropped == {"spool_full": dropped}
    told = [row.message for row in receiver.records if isinstance(row.message, Loss)]
    assert [loss.count for loss in told] == [dropped]
    assert receiver.numbers == _numbers(source)[dropped:]


def test_people_get_one_message_of_what_waited_for_long(tmp_path: Path, source: EventSource) -> None:
    rig = Rig(tmp_path, source, [{"name": "phone"}])
    receiver = rig.receivers["phone"] = DigestReceiver()
    receiver.away = "nothing answers"
    with rig:
        rig.wait_until(rig.is_following)
        source.emit(40, at=time_ns() - 3_600_000_000_000)
        rig.wait_until(lambda: rig.account("phone").received == 40)
        receiver.away = None
        rig.wait_until(lambda: rig.account("phone").delivered == 40)
        source.emit(1)
        rig.wait_until(lambda: rig.account("phone").delivered == 41)
    assert [len(digest) for digest in receiver.digests] == [40]
    assert receiver.numbers == _numbers(source)[-1:]


def test_stale_records_are_not_told(tmp_path: Path, source: EventSource) -> None:
    with Rig(tmp_path, source, [{"name": "phone", "stale_s": 60}]) as rig:
        rig.wait_until(rig.is_following)
        source.emit(3, at=time_ns() - 61_000_000_000)
        source.emit(1)
        rig.wait_until(lambda: rig.account("phone").received == 4 and not rig.account("phone").spooled)
        assert rig.account("phone").dropped == {"stale": 3}


def test_a_reload_adds_removes_and_changes_targets(tmp_path: Path, source: EventSource) -> None:
    with Rig(tmp_path, source, [{"name": "stays"}, {"name": "goes"}, {"name": "changes"}]) as rig:
        rig.receivers["goes"].away = rig.receivers["changes"].away = "nothing answers"
        rig.wait_until(rig.is_following)
        source.emit(6)
        rig.wait_until(lambda: rig.account("stays").delivered == 6)
        rows: list[dict[str, Any]] = [
            {"name": "stays"},
            {"name": "changes", "when": {"sources": ["door"]}},
            {"name": "comes"},
        ]
        assert rig.bridge.reload(rig.config_of(rows)) == Reloaded(["goes", "changes", "comes"], [])
        rig.receivers["changes"].away = None
        source.emit(2)
        rig.wait_until(lambda: rig.account("comes").delivered == 2)
        rig.wait_until(lambda: rig.account("changes").spooled == 0)
        assert [row.name for row in rig.bridge.report().targets] == ["stays", "changes", "comes"]
        assert rig.account("changes").delivered == 4
        assert rig.receivers["stays"].connections == 1
        rig.config = rig.config_of(rows)
        rig.restart()
        assert {row.name for row in rig.bridge.report().targets} == {"stays", "changes", "comes"}
    assert rig.receivers["stays"].numbers == _numbers(source)


def test_a_camera_that_is_down_is_told_once_over_restarts_and_its_return_as_well(
    tmp_path: Path, source: EventSource
) -> None:
    with Rig(tmp_path, source, [{"name": "all", "when": {"kinds": ["status"]}}], status={"down_s": 0}) as rig:
        receiver = rig.receivers["all"]
        rig.wait_until(rig.is_following)
        source.status("door", "down", reason="no route to host")
        rig.wait_until(lambda: [row for row in receiver.records if row.source == "door"])
        rig.restart()
        rig.wait_until(rig.is_following)
        source.status("door", "up")
        rig.wait_until(lambda: len([row for row in receiver.records if row.source == "door"]) == 2)
    notices = [row.message for row in receiver.records if row.source == "door"]
    assert all(isinstance(notice, Notice) for notice in notices)
    assert [(notice.condition, notice.reason) for notice in notices if isinstance(notice, Notice)] == [
        ("down", "no route to host"), ("up", "no route to host"),
    ]  # fmt: skip


def test_a_damaged_spool_is_replaced_and_another_programs_is_refused(tmp_path: Path, source: EventSource) -> None:
    path = tmp_path / "spool.sqlite"
    path.write_bytes(b"no database at all" * 1000)
    with Rig(tmp_path, source, [{"name": "all"}]) as rig:
        rig.wait_until(rig.is_following)
        source.emit(3)
        rig.wait_until(lambda: rig.account("all").delivered == 4)
    lost = rig.receivers["all"].records[0].message
    assert isinstance(lost, Loss)
    assert (lost.count, lost.cause) == (None, "disk")
    assert path.with_name("spool.sqlite.damaged").exists()
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (text)")
    with pytest.raises(ConfigError, match=r"bridge\.spool: .* is a database of another program: name another file"):
        Rig(tmp_path, source, [{"name": "all"}])


def test_a_spool_that_is_removed_while_it_is_used_is_begun_anew(tmp_path: Path, source: EventSource) -> None:
    with Rig(tmp_path, source, [{"name": "all"}]) as rig:
        rig.wait_until(rig.is_following)
        source.emit(3)
        rig.wait_until(lambda: rig.account("all").delivered == 3)
        for file in tmp_path.glob("spool.sqlite*"):
            if file.suffix != ".lock":
                file.unlink()
        source.emit(3)
        rig.wait_until(lambda: rig.account("all").delivered == 6)
        rig.restart()
        source.emit(3)
        rig.wait_until(lambda: rig.account("all").delivered == 9)
    assert rig.receivers["all"].numbers == _numbers(source)


def test_two_bridges_on_one_spool_are_refused(tmp_path: Path, source: EventSource) -> None:
    with Rig(tmp_path, source, [{"name": "all"}]), pytest.raises(ConfigError, match=r"bridge\.spool: another"):
        Rig(tmp_path, source, [{"name": "all"}])


def test_no_more_than_a_window_is_ahead_of_the_disk(tmp_path: Path, source: EventSource) -> None:
    """What a kill could repeat."""
    with Rig(tmp_path, source, [{"name": "all"}]) as rig:
        receiver, path, ahead = rig.receivers["all"], tmp_path / "spool.sqlite", list[int]()
        rig.wait_until(rig.is_following)

        def compare(_: Record) -> None:
            """Before a record is taken, by the thread that delivers: none is taken meanwhile."""
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                rows = db.execute("SELECT value FROM texts WHERE owner = 'target/all' AND key = 'account'").fetchall()
            cursor = msgspec.json.decode(rows[0][0])["cursor"] if rows else 0
            ahead.append(len(receiver.records) + 1 - cursor)

        receiver.refuse = compare
        source.emit(1000)
        rig.wait_until(lambda: len(receiver.records) == 1000)
    assert 1 < max(ahead) <= WINDOW
    assert receiver.numbers == _numbers(source)


@pytest.mark.needs("loop mounts")
def test_a_loop_mount_that_is_full_costs_what_memory_cannot_hold_and_delays_nobody(
    tmp_path: Path, source: EventSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "MAX_IN_MEMORY", 100)
    with small_disk(tmp_path, 16) as disk:
        with Rig(disk.folder, source, [{"name": "there"}, {"name": "away"}]) as rig:
            rig.wait_until(rig.is_following)
            source.emit(5)
            rig.wait_until(lambda: rig.account("there").delivered == 5)
            rig.receivers["away"].away = "nothing answers"
            with suppress(OSError), (disk.folder / "foreign").open("wb") as file:
                while True:
                    file.write(bytes(4096))
                    file.flush()
            source.emit(200, label="x" * 4000)
            rig.wait_until(lambda: rig.account("there").received == 205)
            rig.wait_until(lambda: rig.account("there").spooled == 0)
            assert rig.bridge.report().spool.failure
            assert rig.account("there").delivered + rig.account("there").dropped.get("disk", 0) == 205
            (disk.folder / "foreign").unlink()
            rig.wait_until(lambda: rig.bridge.report().spool.failure is None)
            rig.receivers["away"].away = None
            rig.wait_until(lambda: rig.account("away").spooled == 0)
            assert rig.account("away").dropped["disk"] >= 1
        told = [row.message for row in rig.receivers["away"].records if isinstance(row.message, Loss)]
        assert sum(loss.count or 0 for loss in told) == sum(rig.account("away").dropped.values())


@pytest.mark.needs("loop mounts")
def test_a_loop_mount_that_hangs_holds_up_no_delivery_and_no_stop(tmp_path: Path, source: EventSource) -> None:
    with small_disk(tmp_path, 16) as disk:
        with Rig(disk.folder, source, [{"name": "all"}]) as rig:
            rig.wait_until(rig.is_following)
            source.emit(5)
            rig.wait_until(lambda: rig.account("all").delivered == 5)
            disk.freeze()
            source.emit(50)
            rig.wait_until(lambda: rig.account("all").delivered == 55)
            assert rig.bridge.report().spool.failure == "the disk does not answer"
            assert not rig.bridge.stop()
            disk.thaw()
            rig.wait_until(lambda: not rig.bridge._spool._thread.is_alive())
            rig.restart()
            source.emit(5)
            rig.wait_until(lambda: rig.account("all").delivered >= 60)
        assert [*dict.fromkeys(rig.receivers["all"].numbers)] == _numbers(source)


def test_a_long_absence_overflows_no_memory_while_the_disk_is_slow(
    tmp_path: Path, source: EventSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal keeps what the disk has not taken yet."""
    monkeypatch.setattr(spool, "MAX_IN_MEMORY", 100)
    monkeypatch.setattr(journal_pages, "_PAGE", 50)
    rig = Rig(tmp_path, source, [{"name": "all"}])
    with rig:
        rig.wait_until(rig.is_following)
        rig.bridge.stop()
        source.emit(700)
        rig.bridge = rig._made()
        file = rig.bridge._spool._file
        assert file is not None
        with file._db.reading() as db:  # the disk takes nothing more
            db.execute("PRAGMA max_page_count = 1")
        rig.bridge.start()
        rig.wait_until(lambda: rig.bridge.report().spool.failure and rig.account("all").received >= 100)
        source.emit(5)
        with file._db.reading() as db:
            db.execute("PRAGMA max_page_count = 1000000")
        rig.wait_until(lambda: rig.account("all").spooled == 0 and rig.account("all").received == 705)
        assert not rig.account("all").dropped
    assert rig.receivers["all"].numbers == _numbers(source)


def test_a_target_that_is_left_behind_at_a_reload_enters_nothing_into_its_successors_account(
    tmp_path: Path, source: EventSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge, "_RELOAD_S", 0.1)
    with Rig(tmp_path, source, [{"name": "all"}]) as rig:
        rig.wait_until(rig.is_following)
        old = rig.receivers["all"]
        old.hangs.set()
        old.is_deaf = True
        source.emit(3)
        rig.wait_until(lambda: rig.account("all").received == 3)
        successor = rig.receivers["all"] = Receiver()
        rig.bridge.reload(rig.config_of([{"name": "all", "stale_s": 3600}]))
        source.emit(200)
        rig.wait_until(lambda: rig.account("all").delivered == 203)
        old.hangs.clear()
        source.emit(200)
        rig.wait_until(lambda: rig.account("all").delivered == 403)
    assert successor.numbers == _numbers(source)


def test_records_that_are_left_out_cost_a_phone_no_time(tmp_path: Path, source: EventSource) -> None:
    rig = Rig(tmp_path, source, [{"name": "phone", "when": {"labels": ["person"]}}])
    receiver = rig.receivers["phone"] = DigestReceiver()
    receiver.away = "nothing answers"
    with rig:
        rig.wait_until(rig.is_following)
        source.emit(1500, label="cat", at=time_ns() - 3_600_000_000_000)
        source.emit(1)
        rig.wait_until(lambda: rig.account("phone").received == 1501)
        receiver.away = None
        rig.wait_until(lambda: rig.account("phone").delivered == 1)
        assert rig.account("phone").filtered == 1500
    assert not receiver.digests


def test_events_wait_for_a_journal_that_does_not_answer(tmp_path: Path, source: EventSource) -> None:
    """Of another run as well: a gap is never passed over in silence."""
    with Rig(tmp_path, source, [{"name": "all"}]) as rig:
        rig.wait_until(rig.is_following)
        source.emit(3)
        rig.wait_until(lambda: rig.account("all").delivered == 3)
        with source.without_journal():
            with source.losing():
                source.emit(4)
            source.restart()
            source.emit(2)

            rig.wait_until(lambda: rig.bridge._feeds[0]._progress.is_unheard)
        rig.wait_until(lambda: rig.account("all").delivered == 9)
        assert rig.bridge.report().feeds[0].lost == 0
    assert rig.receivers["all"].numbers == _numbers(source)


def test_damage_that_a_target_finds_is_mended(tmp_path: Path, source: EventSource) -> None:
    with Rig(tmp_path, source, [{"name": "all"}]) as rig:
        rig.receivers["all"].away = "nothing answers"
        rig.wait_until(rig.is_following)
        source.emit(300, label="x" * 2000)
        rig.wait_until(lambda: rig.account("all").received == 300 and rig.bridge._spool._stored == 300)
        file = rig.bridge._spool._file
        assert file is not None
        with file._db.reading() as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with (tmp_path / "spool.sqlite").open("r+b") as broken:
            broken.seek(20 * 4096)
            broken.write(b"\xff" * 40 * 4096)
        rig.receivers["all"].away = None
        rig.wait_until(lambda: rig.account("all").spooled == 0)
        source.emit(3)
        rig.wait_until(lambda: rig.receivers["all"].numbers[-3:] == _numbers(source)[-3:])
        assert rig.account("all").received == 303
