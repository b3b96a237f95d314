"""Sources that come and go while the daemon starts, while others leave, and while their libraries block."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from daemon.build import build
from daemon.config.root import MonitorConfig
from daemon.config.sources import SourceConfig, SyntheticConfig
from daemon.errors import LookoutError
from daemon.seams import Seams
from daemon.sources.factory import make_source
from daemon.sources.port import DecodeBudget
from daemon.system.time_limits import Limits
from detectors.fake.detector import FakeDetector
from lookout.client import Subscriber
from lookout.messages import Status
from tests.lifetimes.cameras import camera
from tests.lifetimes.gate import Gate
from tests.lifetimes.parts import Camera
from tests.lifetimes.rig import wait_until
from tests.lifetimes.running import STREET, config_of, edit, only, running, state_of, wait_up, warned
from tests.support.daemon import receive_until


def test_a_source_may_come_before_the_daemon_starts() -> None:
    """D3: over HTTP, while lanes warm up. It begins with the others, and one that has gone again does not."""
    app = build(config_of(STREET), Seams(open_detector=lambda _, options: FakeDetector(options)))
    early, late = (msgspec.structs.replace(STREET, id=id) for id in ("early", "late"))
    coming = [edit(app, lambda _: [STREET, early, late]), edit(app, lambda _: [STREET, early])]
    try:
        app.start()
        for future in coming:
            future.result(60)
        wait_up(app, "street", "early")
        assert state_of(app, "late") is None
    finally:
        assert app.stop() == 0


def test_a_capture_process_that_hangs_says_nothing_in_the_name_of_the_next(tmp_path: Path) -> None:
    """D5: its source is removed, and another has its name when the library returns. Numbers go on, the state is the new
    one's, and there is one account."""
    hang = tmp_path / "HANG-cam"
    with running(
        tmp_path, camera("cam"), camera("other"), config={"capture_processes": 1}, limits=Limits(remove=0.3)
    ) as app:
        wait_up(app, "cam", "other")
        hang.touch()
        wait_until(hang.with_name("HANG-cam-reached").exists, "it hangs")
        only(app, camera("other"))
        hang.unlink()  # whatever it says from here on is of the past
        only(app, camera("other"), camera("cam"))
        wait_up(app, "cam", "other")
        wait_up(app, "cam", "other")
        assert state_of(app, "cam") == "up"
        assert len(app.sources.pids) == 1


def test_a_process_that_has_nothing_but_a_hung_source_is_ended(tmp_path: Path) -> None:
    """The library that does not return ends with its process."""
    hang = tmp_path / "HANG-cam"
    with running(tmp_path, STREET, camera("cam"), limits=Limits(remove=0.3)) as app:
        wait_up(app, "cam")
        (pid,) = app.sources.pids
        hang.touch()
        wait_until(hang.with_name("HANG-cam-reached").exists, "it hangs")
        only(app, STREET)
        wait_until(lambda: not psutil.pid_exists(pid), "the process is gone")


def test_the_last_source_of_the_capture_processes_goes_and_comes(tmp_path: Path) -> None:
    """D6: a thread that served it was about to end, and the next was lost. Descriptors do not pile up."""
    me = psutil.Process()
    with running(tmp_path, STREET, camera("cam"), limits=Limits(worker_idle=0.0)) as app:
        wait_up(app, "cam")
        files = []
        for _ in range(6):
            only(app, STREET)
            only(app, STREET, camera("cam"))
            wait_up(app, "cam")
            files.append(me.num_fds())
        assert files[-1] <= files[0] + 2  # one process may still be on its way out


def test_a_change_of_the_last_living_source_is_not_the_end() -> None:
    """D8: a recording has ended, and the one camera that is left is being connected anew."""
    making, held = Gate(), list[bool]()

    def make(config: SourceConfig, hardware: Any) -> Any:
        if held:
            making()
        return make_source(config, hardware)

    clip = SyntheticConfig(id="clip", frames=2, pace="fast", width=16, height=16)
    app = build(
        config_of(clip, STREET), Seams(open_detector=lambda _, options: FakeDetector(options), make_source=make)
    )
    runner = threading.Thread(target=app.run)
    runner.start()
    try:
        wait_until(lambda: state_of(app, "clip") == "ended" and state_of(app, "street") == "up", "the clip ended")
        held.append(True)
        making.close()
        change = edit(app, lambda _: [clip, msgspec.structs.replace(STREET, fps=40.0)])
        making.wait_for_one()
        assert not app.sources.finished
        making.open()
        change.result(60)
        wait_up(app, "street")
        assert runner.is_alive()
    finally:
        making.open()
        app.request_stop()
        runner.join(60)


def test_sources_are_never_finished_while_they_change() -> None:
    """D8: between one that has left and the one that comes in its place."""
    app = build(config_of(STREET), Seams(open_detector=lambda _, options: FakeDetector(options)))
    try:
        for capture in app.sources.captures:
            capture.end.set()
        assert app.sources.finished
        with app.sources.changing():
            assert not app.sources.finished
        assert app.sources.finished
    finally:
        app.stop()


def test_a_source_that_cannot_be_made_in_its_process_hurts_nobody(tmp_path: Path) -> None:
    """D22: it is down with the reason, and tried again; its neighbour keeps its connection."""
    with running(tmp_path, camera("good"), config={"capture_processes": 1}) as app:
        wait_up(app, "good")
        pids = app.sources.pids
        with Subscriber(app.endpoint, kinds=["status"]) as subscriber:
            only(app, camera("good"), camera("unmade"))
            told = receive_until(
                subscriber, lambda row: isinstance(row, Status) and row.source == "unmade" and row.state == "down"
            )
        assert isinstance(told[-1], Status)
        assert "cannot be made: RuntimeError: this source cannot be made here" in str(told[-1].reason)
        assert told[-1].retry_in_s is not None
        wait_up(app, "good")
        assert app.sources.pids == pids


@pytest.mark.parametrize("where", ["here", "in-a-worker"])
def test_a_source_that_hangs_is_left_behind_and_said_to_have_ended(tmp_path: Path, where: str) -> None:
    """Its counters add up, subscribers hear its state, and the change completes."""
    library, hang = Gate(), tmp_path / "HANG-cam"

    def make(config: SourceConfig, hardware: Any) -> Any:
        return Camera(library) if config.id == "cam" else make_source(config, hardware)

    cam: SourceConfig = msgspec.structs.replace(STREET, id="cam") if where == "here" else camera("cam")
    parts: dict[str, Any] = {"make_source": make} if where == "here" else {}
    with running(tmp_path, STREET, cam, limits=Limits(remove=0.3, stop=2.0), **parts) as app:
        wait_up(app, "cam")
        library.close()
        hang.touch()
        with Subscriber(app.endpoint, kinds=["status"]) as subscriber:
            assert subscriber.receive(30) is not None
            only(app, STREET)
            told = receive_until(
                subscriber, lambda row: isinstance(row, Status) and row.source == "cam" and row.state == "ended"
            )
        assert "left behind" in str(told[-1].reason)  # type: ignore[union-attr]
        wait_until(lambda: app.ledger.counts_of("cam").in_flight == 0, "its frames are all accounted for")
        counts = app.ledger.counts_of("cam")
        library.open()
        hang.unlink()
        wait_up(app, "street")
        assert app.ledger.counts_of("cam") == counts


def test_a_stop_while_a_source_is_removed_calls_nobody_stuck(tmp_path: Path) -> None:
    """Its library has the time limit of a stop, not the minute of a removal: that is not the source's fault."""
    library = Gate()

    def make(config: SourceConfig, hardware: Any) -> Any:
        return Camera(library) if config.id == "cam" else make_source(config, hardware)

    cam = msgspec.structs.replace(STREET, id="cam")
    limits = Limits(remove=60.0)
    with warned() as lines, running(tmp_path, STREET, cam, make_source=make, limits=limits) as app:
        wait_up(app, "cam")
        library.close()
        library.wait_for_one()
        change = edit(app, lambda rows: rows[:1])
        wait_until(lambda: state_of(app, "cam") is None, "it is to end")
        stopping = threading.Thread(target=app.stop)
        stopping.start()
        wait_until(lambda: state_of(app, "street") == "ended", "all are to end")
        wait_until(change.done, "nobody waits for it any more")
        library.open()
        stopping.join(60)
    assert not [row for row in lines if row.get("source") == "cam"]


def test_a_jump_in_a_recordings_time_does_not_hold_it_for_ever() -> None:
    """A6: one damaged time, a year ahead. It is played on at once."""
    year = 365 * 86_400 * 10**9

    class Jumping(Camera):
        realtime = True

        def open(self, budget: DecodeBudget | None = None) -> Any:
            reader = super().open(budget)
            read, numbers = reader.read, iter(range(100))

            def jump() -> Any:
                picture, number = read(), next(numbers)
                return picture and msgspec.structs.replace(picture, pts=number * 10_000_000 + (number > 2) * year)

            reader.read = jump  # type: ignore[method-assign]
            return reader

    app = build(
        config_of(STREET, monitor=MonitorConfig(stall_after_s=60)),
        Seams(
            open_detector=lambda _, options: FakeDetector(options),
            make_source=lambda _config, _hardware: Jumping(lambda: None, frames=8),
        ),
    )
    assert app.run() == 0
    assert app.ledger.counts()["street"].captured == 8


def test_a_change_that_asks_for_what_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    """The error goes to the future; the call itself raises nothing."""

    def refuse(_: list[SourceConfig]) -> list[SourceConfig]:
        raise LookoutError("no")

    with running(tmp_path, STREET) as app:
        with pytest.raises(LookoutError, match="no"):
            edit(app, refuse).result(60)
        wait_up(app, "street")
    with pytest.raises(LookoutError, match="stopping"):
        edit(app, lambda rows: rows).result(60)
