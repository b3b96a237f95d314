"""States of sources and stores: since when something is wrong, why, and when it is tried again."""

from __future__ import annotations

import asyncio

import msgspec

from daemon.dashboard.hub import Hub
from daemon.dashboard.state_log import StateLog, StateSince, StoreState
from daemon.dashboard.viewers import Viewer
from daemon.peers.addresses import DaemonAddress
from daemon.peers.link import Arrived
from lookout.messages import Status, Store, encoder, topic
from tests.support.clock import ManualClock


def test_a_source_is_in_trouble_until_it_is_up_however_often_it_is_tried() -> None:
    log = StateLog()
    log.note("cam", StateSince(100.0, "up", None), 500.0)
    assert log.trouble("cam") is None
    log.note("cam", StateSince(1.0, "down", "refused"), 510.0, 4.0)  # the daemon's clock is not the page's
    log.note("cam", StateSince(1.0, "connecting", None), 514.0)
    trying = log.trouble("cam")
    assert trying is not None
    assert (trying.since, trying.reason, trying.retry_at) == (510.0, "refused", None)
    log.note("cam", StateSince(1.0, "down", "silent"), 524.0, 8.0)
    again = log.trouble("cam")
    assert again is not None
    assert (again.since, again.reason, again.retry_at) == (510.0, "silent", 532.0)
    log.note("cam", StateSince(1.0, "up", None), 600.0)
    assert log.trouble("cam") is None


def test_states_of_a_day_are_kept() -> None:
    log = StateLog()
    for minute in range(36 * 60):
        log.note("cam", StateSince(0.0, "up" if minute % 2 else "down", None), 60.0 * minute)
    rows = log.of("cam")
    assert len(rows) == 1000  # a source that comes and goes all the time
    log = StateLog()
    for hour in range(72):
        log.note("cam", StateSince(0.0, "up" if hour % 2 else "down", None), 3600.0 * hour)
    assert (len(log.of("cam")), log.of("cam")[0].at) == (26, 46 * 3600.0)  # and the one before
    log.keep([])
    assert log.of("cam") == []


def test_a_store_that_is_not_written_is_told_with_its_reason() -> None:
    asyncio.run(_stop_recording())


async def _stop_recording() -> None:
    clock = ManualClock()
    hub, viewer = Hub([DaemonAddress("here", None, None)], clock), Viewer(clock)
    hub.join(viewer)
    daemon = hub.daemons["here"]

    def tell(index: int, cause: str | None) -> StoreState:
        store = Store(
            instance="one", index=index, at=0, store="disk-a", cause=cause, reason=cause, bytes=10, free_bytes=0
        )
        hub._on_message(daemon, Arrived(topic("stores", "disk-a"), encoder("json")(store)))
        (found,) = daemon.entry()["stores"]
        assert isinstance(found, StoreState)
        return found

    since = tell(0, "disk_full").since
    clock.advance(10)
    assert tell(1, "disk_full").since == since  # the same trouble
    assert tell(2, None).since == since + 10
    status = Status(instance="one", source="cam", session=None, index=0, at=0, state="down", reason="x", retry_in_s=5)
    hub._on_message(daemon, Arrived(topic("status", "cam"), encoder("json")(status)))
    rows = msgspec.json.decode(await viewer.next())
    told = [row["stores"][0]["cause"] for row in rows if row["kind"] == "daemon" and row["stores"]]
    assert told == ["disk_full", "disk_full", None]
    (trouble,) = [row["trouble"] for row in rows if row["kind"] == "status"]
    assert (trouble["reason"], trouble["retry_at"] - trouble["since"]) == ("x", 5)
