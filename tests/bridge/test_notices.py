"""Which changes of state are told, and which are not: by a clock that the tests move."""

from __future__ import annotations

import json
from collections.abc import Sequence

from daemon.bridge.messages import Notice
from daemon.bridge.notices import NoticeBook
from daemon.config.bridge import StatusConfig
from lookout.messages import (
    Dropped,
    Metrics,
    Owner,
    ProcessMetrics,
    PublisherMetrics,
    SourceMetrics,
    State,
    Status,
    Store,
)
from tests.support.clock import ManualClock

_S = 1_000_000_000


class _World:
    """A book whose ticks come each second, and daemons that are up."""

    def __init__(self, *daemons: str, status: StatusConfig | None = None, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self._daemons = daemons or ("hall",)
        self._status = status or StatusConfig()
        self.book = self.made()
        for daemon in self._daemons:
            self.book.on_daemon(daemon, is_up=True)

    def made(self) -> NoticeBook:
        return NoticeBook(self._status, self._daemons, self.clock)

    def tell(
        self,
        source: str,
        state: State,
        reason: str | None = None,
        *,
        daemon: str = "hall",
        owner: Owner | None = None,
    ) -> None:
        message = Status(
            instance="1",
            source=source,
            session=None,
            index=0,
            at=self.clock.utc_ns(),
            state=state,
            reason=reason,
            owner=owner,
        )
        self.book.on_message(daemon, message)

    def store(self, cause: str | None, reason: str | None = None) -> None:
        at = self.clock.utc_ns()
        message = Store(
            instance="1", index=0, at=at, store="main", cause=cause, reason=reason, bytes=0, free_bytes=None
        )
        self.book.on_message("hall", message)

    def metrics(self, daemon: str = "hall", **states: State) -> None:
        rows = {
            source: SourceMetrics(
                state=state,
                captured_fps=0,
                published_fps=0,
                captured=0,
                published=0,
                dropped=Dropped(),
                in_flight=0,
                latency=None,
            )
            for source, state in states.items()
        }
        message = Metrics(
            instance="1",
            index=0,
            at=self.clock.utc_ns(),
            interval_s=10,
            uptime_s=10,
            fps=0,
            latency=None,
            sources=rows,
            process=ProcessMetrics(0, 0, 0, 0),
            gpus=None,
            gpus_reason=None,
            publisher=PublisherMetrics(0, 0, 0),
        )
        self.book.on_message(daemon, message)

    def gaps(self, source: str = "door", store: str = "main", **causes: float) -> None:
        self.book.on_gaps("hall", {(source, store): causes})

    def wait(self, seconds: int) -> list[Notice]:
        found: list[Notice] = []
        for _ in range(seconds):
            self.clock.advance(1)
            found += self.book.tick()
        return found

    def restarted(self) -> None:
        """The bridge, with what it has kept."""
        kept = json.loads(json.dumps(self.book.export()))
        self.clock.advance(30)
        self.book = self.made()
        self.book.restore(kept)


def _said(notices: Sequence[Notice]) -> list[str]:
    return [f"{row.about} {row.name} {row.condition}".replace("  ", " ") for row in notices]


def test_a_source_is_told_when_it_has_been_down_for_so_long_and_again_when_it_is_up() -> None:
    world = _World()
    world.tell("door", "up")
    began = world.clock.utc_ns()
    world.tell("door", "down", "connection refused")
    quiet = world.wait(30)
    world.tell("door", "connecting")  # each try has states of its own
    quiet += world.wait(29)
    assert quiet == []
    (down,) = world.wait(2)
    assert (down.about, down.name, down.condition, down.daemon) == ("source", "door", "down", "hall")
    assert (down.since, down.reason) == (began, "connection refused")
    assert world.wait(600) == []  # once
    world.tell("door", "up")
    (up,) = world.wait(10)
    assert (up.condition, up.since, up.reason) == ("up", began, "connection refused")
    assert up.id != down.id
    assert world.wait(600) == []


def test_a_short_outage_is_not_told_and_a_moment_of_being_up_does_not_hide_a_long_one() -> None:
    world = _World()
    world.tell("door", "stalled")
    quiet = world.wait(50)
    world.tell("door", "up")
    quiet += world.wait(60)
    assert quiet == []
    told: list[Notice] = []
    for _ in range(12):  # it connects, gives a picture, and breaks
        world.tell("door", "down", "broken pipe")
        told += world.wait(9)
        world.tell("door", "up")
        told += world.wait(2)
    assert _said(told) == ["source door down"]


def test_what_flaps_is_told_a_few_times_an_hour() -> None:
    world = _World()
    told: list[Notice] = []
    for _ in range(60 * 60 // 80):
        world.tell("door", "down", "timed out")
        told += world.wait(70)
        world.tell("door", "up")
        told += world.wait(10)
    assert _said(told) == ["source door down", "source door up", "source door down"]
    told = world.wait(1000)
    assert _said(told) == ["source door up"]
    world.wait(3600)
    world.tell("door", "down")  # long ago
    assert _said(world.wait(61)) == ["source door down"]
    world.tell("door", "up")
    assert _said(world.wait(6)) == ["source door up"]


def test_a_recording_that_ended_and_a_source_that_is_removed_are_no_trouble() -> None:
    world = _World()
    world.tell("clip", "connecting")
    world.tell("clip", "up")
    world.tell("clip", "ended")
    world.tell("gate", "down", "refused")
    world.wait(20)
    world.tell("gate", "ended", "stopped")
    assert world.wait(300) == []
    world.tell("door", "down", "refused")
    assert _said(world.wait(61)) == ["source door down"]
    world.metrics(gate="up")  # it is not there any more
    (up,) = world.wait(40)
    assert (up.name, up.condition, up.reason) == ("door", "up", "refused; it was removed, or disabled")


def test_states_come_from_metrics_where_a_status_was_lost() -> None:
    world = _World()
    world.metrics(door="down", gate="up", clip="ended")
    assert [(row.name, row.reason) for row in world.wait(61)] == [("door", "down")]
    world.metrics(door="up", gate="up")
    assert _said(world.wait(6)) == ["source door up"]


def test_a_daemon_that_goes_away_is_one_notice_however_many_sources_it_has() -> None:
    world = _World()
    for number in range(240):
        world.tell(f"cam{number}", "up" if number % 2 else "connecting")
    world.wait(30)
    world.book.on_daemon("hall", is_up=False, reason="it sends nothing")
    for number in range(240):
        world.tell(f"cam{number}", "down")  # whatever a dying daemon may say
    (down,) = world.wait(900)
    assert (down.about, down.name, down.reason) == ("daemon", "", "it sends nothing")
    world.book.on_daemon("hall", is_up=True)
    for number in range(240):
        world.tell(f"cam{number}", "connecting")
    world.wait(20)
    for number in range(240):
        world.tell(f"cam{number}", "up")
    assert world.wait(300) == []


def test_a_daemon_that_is_back_is_told_and_its_sources_are_judged_anew() -> None:
    world = _World()
    world.tell("door", "down", "refused")
    assert _said(world.wait(61)) == ["source door down"]
    world.tell("door", "ended", "stopped")  # an orderly stop says so of all sources
    world.book.on_daemon("hall", is_up=False, reason="closed")
    assert _said(world.wait(100)) == ["daemon down"]
    world.book.on_daemon("hall", is_up=True)
    world.tell("door", "connecting")
    assert _said(world.wait(6)) == ["daemon up"]
    assert world.wait(300) == []  # it was told, and is down still
    world.tell("door", "up")
    assert _said(world.wait(6)) == ["source door up"]


def test_a_daemon_that_never_answers_is_told() -> None:
    world = _World()
    world.book = world.made()
    assert _said(world.wait(59)) == []
    (down,) = world.wait(2)
    assert (down.about, down.reason) == ("daemon", "it has not answered yet")


def test_a_store_that_cannot_be_written_is_told() -> None:
    world = _World()
    world.store(None)
    world.store("disk_full", "no room on /srv")
    (down,) = world.wait(120)
    assert (down.about, down.name, down.reason) == ("store", "main", "disk_full: no room on /srv")
    world.store(None)
    assert _said(world.wait(6)) == ["store main up"]
    world.book.on_store("hall", "main", "store_away", "nothing is mounted")  # as a bridge that comes late finds it
    assert _said(world.wait(61)) == ["store main down"]


def test_recordings_that_lack_more_than_allowed_are_told_once_and_again_when_nothing_lacks() -> None:
    world = _World()
    world.gaps(network=500.0)  # of the time before the bridge
    told = world.wait(30)
    for seconds in (520.0, 540.0, 559.0):
        world.gaps(network=seconds)
        told += world.wait(30)
    assert told == []
    world.gaps(network=559.0, disk_slow=2.0)
    (down,) = world.wait(2)
    assert (down.about, down.name, down.condition) == ("recording", "door", "down")
    assert down.reason == "61 s are not on disk in store main: network 59 s, disk_slow 2 s"
    for seconds in range(560, 700, 10):
        world.gaps(network=float(seconds), disk_slow=2.0)
        told += world.wait(30)
    assert told == []
    for _ in range(4):
        world.gaps(network=690.0, disk_slow=2.0)
        told += world.wait(30)
    assert _said(told) == ["recording door up"]
    world.gaps(network=70.0)  # another run of the daemon begins at 0
    (down,) = world.wait(2)
    assert down.reason is not None
    assert down.reason.startswith("70 s")


def test_gaps_that_another_notice_tells_of_are_not_told_again() -> None:
    world = _World()
    world.gaps(source_down=0.0)
    world.tell("door", "down", "refused")
    told: list[Notice] = []
    for seconds in range(0, 300, 30):
        world.gaps(source_down=float(seconds))
        told += world.wait(30)
    assert _said(told) == ["source door down"]
    world.tell("door", "up")
    told = world.wait(10)
    world.gaps(source_down=310.0)  # its end is counted late
    told += world.wait(300)
    assert _said(told) == ["source door up"]
    for lacking in (340.0, 370.0, 400.0):  # short outages, none of which is told
        world.tell("door", "down")
        told += world.wait(30)
        world.tell("door", "up")
        world.gaps(source_down=lacking)
        told += world.wait(30)
    assert _said(told)[1:] == ["recording door down"]


def test_nothing_is_told_twice_by_a_bridge_that_starts_again() -> None:
    world = _World()
    world.tell("door", "down", "refused")
    world.store("disk_full")
    world.gaps("gate", "nas", network=10.0)
    (store, source) = world.wait(61)
    world.gaps("gate", "nas", network=60.0)
    world.restarted()
    world.book.on_daemon("hall", is_up=True)
    world.tell("door", "connecting")
    world.book.on_store("hall", "main", "disk_full", None)
    world.gaps("gate", "nas", network=65.0)
    assert world.wait(400) == []
    world.gaps("gate", "nas", network=72.0)  # 62 of them since the bridge first looked
    assert _said(world.wait(1)) == ["recording gate down"]
    world.tell("door", "up")
    world.store(None)
    ups = world.wait(6)
    assert [row.since for row in ups] == [store.since, source.since]
    world.restarted()
    world.book.on_daemon("hall", is_up=True)
    world.tell("door", "up")
    assert world.wait(200) == []


def test_a_daemon_that_was_told_stays_told_over_a_restart() -> None:
    world = _World()
    world.book.on_daemon("hall", is_up=False, reason="gone")
    (down,) = world.wait(61)
    world.restarted()
    assert world.wait(300) == []
    world.book.on_daemon("hall", is_up=True)
    (up,) = world.wait(6)
    assert (up.since, up.reason) == (down.since, "gone")


def test_what_was_kept_of_a_daemon_that_is_gone_or_makes_no_sense_is_left_out() -> None:
    world = _World("hall", "attic")
    world.book.on_daemon("attic", is_up=False, reason="gone")
    world.wait(61)
    kept = world.book.export()
    alone = _World("hall")
    alone.book.restore(kept)
    assert alone.wait(100) == []
    for wrong in ({"troubles": 3}, {"troubles": [{"daemon": "hall"}]}, {"gaps": {"hall": [1]}}):
        try:
            alone.book.restore(wrong)
        except ValueError as error:
            assert "not readable" in str(error)  # noqa: PT017 - each of several
        else:
            raise AssertionError(wrong)


def test_a_source_of_a_fleet_belongs_to_its_newest_owner() -> None:
    world = _World("one", "two")
    world.tell("door", "down", "refused", daemon="one", owner=Owner("one", 1))
    assert _said(world.wait(61)) == ["source door down"]
    world.tell("door", "connecting", daemon="two", owner=Owner("two", 2))
    (up,) = world.wait(1)
    assert (up.daemon, up.condition, up.reason) == ("one", "up", "refused; it is at two now")
    world.tell("door", "down", daemon="one", owner=Owner("one", 1))  # late
    world.tell("door", "up", daemon="two", owner=Owner("two", 2))
    assert world.wait(300) == []


def test_at_once_if_the_configuration_says_so() -> None:
    world = _World(status=StatusConfig(down_s=0))
    world.tell("door", "down")
    assert _said(world.wait(1)) == ["source door down"]
