"""Counters and states when two things happen at once: nothing is lost, and nothing grows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from daemon.capture.recordings import RecordingCapture
from daemon.capture.sinks import CaptureSinks, Quota
from daemon.config.root import MonitorConfig
from daemon.config.sources import ReconnectConfig
from daemon.control.admission import Admission
from daemon.errors import LookoutError
from daemon.http.snapshots import Snapshots
from daemon.monitoring.monitor import Monitor, MonitoredParts
from daemon.monitoring.probes import GpuReader, NoGpu, ProcessProbe
from daemon.pipeline.board_rules import BoardRules
from daemon.pipeline.frame_board import FrameBoard
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.pipeline.lane import LaneThread, Pipeline
from daemon.pipeline.ledger import MAX_GONE, Ledger, Rows
from daemon.pipeline.outbox import Outbox, Report, Result, Served
from daemon.pipeline.stages import BoxFilter, FilterStage
from daemon.sources.port import DecodeBudget, Picture
from daemon.system.stop_token import StopToken
from detectors.fake.detector import FakeDetector, FakeLane
from detectors.port import HostImage, Options
from lookout.client import Subscriber
from lookout.messages import FrameClock, Latency, Metrics, Model, PublisherMetrics, Status, VideoFormat
from tests.lifetimes.parts import Announcements
from tests.lifetimes.rig import wait_until
from tests.lifetimes.running import STREET, edit, running, wait_up
from tests.support.clock import ManualClock
from tests.support.daemon import is_state, receive_until
from tests.support.runtime import runtime_of

_SERVED = Served(Model("m", "0" * 12, "fp32", "fake"), ("thing",))
_NOTHING = FakeLane(1.0, 0.0, lambda _: None)


def _info(source: str, seq: int) -> FrameInfo:
    return FrameInfo(source, "s", seq, None, 0, 0, FrameClock("file"), 0, 2, 2)


def _frame(source: str, seq: int) -> Frame:
    return Frame(_info(source, seq), HostImage(np.zeros((2, 2, 3), np.uint8)))


def _result(ledger: Ledger, seq: int) -> Result:
    ledger.captured("cam")
    (found,), times = _NOTHING.detect([_frame("cam", seq).image])
    return Result(_info("cam", seq), found, 0, times, _SERVED)


class Quiet:
    """An idle subject of a monitor."""

    captures: tuple[Any, ...] = ()

    def housekeeping(self, stall_after_s: float) -> None:
        """No subscribers."""

    def metrics(self) -> PublisherMetrics:
        return PublisherMetrics(outbox=0, outbox_limit=8, subscriptions=0)


def test_a_report_throws_no_rows_away() -> None:
    """D9: a frame that is published between the monitor's last look and its report comes with the next."""
    ledger, clock, seen = Ledger(["cam"]), ManualClock(), list[Rows]()
    quiet, no_gpu = Quiet(), GpuReader(lambda: NoGpu("none"), clock)
    outbox = Outbox(8, ledger, lossless=False)
    subject = MonitoredParts(ledger, quiet, quiet, outbox, ProcessProbe(list), no_gpu, "run")  # type: ignore[arg-type]
    monitor = Monitor(MonitorConfig(), subject, runtime_of(clock), [seen.append])
    monitor.report()
    ledger.captured("cam")
    ledger.add_rows([(ledger.published("cam"), _info("cam", 0), Latency(1, 2, 3, 4, 5, 15))])
    monitor.report()
    monitor.start()
    monitor.stop(60)
    assert [row["seq"].tolist() for row in seen] == [[0]]


def test_a_full_outbox_of_a_live_daemon_keeps_the_newest() -> None:
    """D19: fresh, not late."""
    ledger = Ledger(["cam"])
    outbox = Outbox(3, ledger, lossless=False)
    outbox.put([_result(ledger, seq) for seq in range(6)])
    kept = [row.frame.seq for row in outbox.get(8, 0) if isinstance(row, Result)]
    assert kept == [3, 4, 5]
    assert ledger.totals("cam").outbox_full == 3


def test_what_an_outbox_gives_up_is_counted_once() -> None:
    """Whether a result waits, is taken but not sent, or was sent; the publisher may go on meanwhile."""
    ledger = Ledger(["cam"])
    outbox = Outbox(8, ledger, lossless=True)
    outbox.put([_result(ledger, seq) for seq in range(4)])
    assert len(outbox.get(2, 0)) == 2
    sending = outbox.sending()
    assert next(sending)  # 0 is out
    outbox.abandon()
    outbox.abandon()
    assert not [*sending]  # 1 is not to go out any more
    assert not outbox.get(8, 0)
    outbox.put([_result(ledger, 4)])
    assert ledger.totals("cam").shutdown == 4


def test_an_outbox_gives_up_the_last_and_keeps_reports() -> None:
    """The publisher sends from one end while the other is dropped; each result is sent or dropped, by its number."""
    ledger = Ledger(["cam"])
    outbox = Outbox(8, ledger, lossless=True)
    outbox.put([_result(ledger, seq) for seq in range(2)])
    outbox.report(report := Report(b"metrics/", object()))  # type: ignore[arg-type]
    assert len(outbox.get(8, 0)) == 3
    assert next(outbox.sending())
    outbox.abandon()
    assert outbox.get(8, 0) == [report]
    assert [row["seq"] for row in ledger.drain()] == [1]


def test_frames_on_which_a_wish_fails_are_counted() -> None:
    """A source's filter or a snapshot fails: every frame is still accounted for."""
    ledger, clock, failures = Ledger(["cam"]), ManualClock(), list[str]()
    board = FrameBoard(["cam"], ledger, clock, BoardRules(depth=8, max_age_ns=10**9))
    outbox = Outbox(8, ledger, lossless=True)
    pipeline = Pipeline(board, outbox, ledger, runtime_of(clock, failures.append), [_Fails()])
    lane = LaneThread("0", FakeDetector(Options(Path("none"))), (), pipeline, StopToken(), lambda: None)
    ledger.captured("cam")
    assert board.put(_frame("cam", 0))
    lane.go.set()
    lane.run()
    assert failures == ["lane-0 failed: a picture of no size"]
    assert ledger.counts()["cam"].in_flight == 0
    assert ledger.totals("cam").detector_error == 1


class _Fails:
    """Implements `daemon.pipeline.lane.Observer`."""

    is_waiting = True

    def on_result(self, *_: object) -> None:
        raise RuntimeError("a picture of no size")


class _Looking(FakeLane):
    """Runs a callback while a picture is detected."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__(0.0, 1.0, lambda _: happens())


class _Looks(FakeDetector):
    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__(Options(Path("none")))
        self._happens = happens

    def lane(self) -> FakeLane:
        return _Looking(self._happens)


def test_a_source_that_goes_while_its_frame_is_looked_at_has_the_boxes_it_asked_for() -> None:
    """The filter goes with the source; the last message must not have boxes that the source never wanted."""
    ledger, clock, failures = Ledger(["cam"]), ManualClock(), list[str]()
    board = FrameBoard(["cam"], ledger, clock, BoardRules(depth=8, max_age_ns=10**9))
    outbox = Outbox(8, ledger, lossless=True)
    stage = FilterStage({"cam": BoxFilter(2.0, None, 100)})
    pipeline = Pipeline(board, outbox, ledger, runtime_of(clock, failures.append))
    lane = LaneThread("0", _Looks(lambda: stage.forget("cam")), [stage], pipeline, StopToken(), lambda: None)
    ledger.captured("cam")
    assert board.put(_frame("cam", 0))
    board.close()
    lane.go.set()
    lane.run()
    (row,) = outbox.get(8, 0)
    assert isinstance(row, Result)
    assert len(row.detections) == 0
    assert failures == []


def test_two_who_want_a_snapshot_do_not_disturb_each_other() -> None:
    """D18: one goes away while the other still waits."""
    snapshots, answers = Snapshots(), list[tuple[bytes, FrameInfo]]()
    waiting = threading.Thread(target=lambda: answers.append(snapshots.jpeg("cam", 60, boxes=False)))
    waiting.start()
    with pytest.raises(LookoutError, match="is it up"):
        snapshots.jpeg("cam", 0.01, boxes=False)

    def look() -> bool:
        frame = _frame("cam", 0)
        (found,), _ = _NOTHING.detect([frame.image])
        snapshots.on_result(frame, found, _NOTHING, ())
        return bool(answers)

    wait_until(look, "the other has its picture")
    waiting.join(60)
    assert answers[0][0].startswith(b"\xff\xd8")


def test_a_source_that_comes_back_while_a_frame_of_it_is_looked_at_keeps_its_order() -> None:
    """It is removed and added while a lane has its frame: the next frame is taken after that one is out."""
    ledger = Ledger(["cam"])
    board = FrameBoard(["cam"], ledger, ManualClock(), BoardRules(depth=4, max_age_ns=10**9))
    for seq in range(2):
        ledger.captured("cam")
        assert board.put(_frame("cam", seq))
    first = board.take_batch(1, 0)
    assert [frame.info.seq for frame in first.frames] == [0]
    board.remove("cam")
    board.add("cam")
    ledger.captured("cam")
    assert board.put(_frame("cam", 2))
    assert board.take_batch(1, 0).frames == []
    assert board.claim(first)
    board.release(first)
    assert [frame.info.seq for frame in board.take_batch(1, 0).frames] == [2]
    assert ledger.totals("cam").removed == 1


class _Once:
    """A source with one picture."""

    plays_once, live, realtime, has_next, clock = True, False, False, False, FrameClock("file", 0)
    format = VideoFormat("once", 2, 2, 10.0, "none")

    def __init__(self) -> None:
        self._left = 1

    def open(self, budget: DecodeBudget | None = None) -> _Once:
        return self

    def read(self) -> Picture | None:
        self._left -= 1
        return Picture(0, 0, lambda: HostImage(np.zeros((2, 2, 3), np.uint8))) if self._left == 0 else None

    def close(self) -> None:
        """Nothing is held."""


class _Meanwhile(float):
    """Runs a callback at the moment when a number is compared with this one."""

    _happens: Callable[[], None]

    def __new__(cls, value: float, happens: Callable[[], None]) -> _Meanwhile:
        self = super().__new__(cls, value)
        self._happens = happens
        return self

    def __lt__(self, other: float) -> bool:
        self._happens()
        return float(self) < other


def test_nothing_is_said_of_a_source_after_its_end() -> None:
    """A source ends just while the monitor checks whether it has stalled."""
    said, ledger, clock = Announcements(), Ledger(["street"]), ManualClock()
    board = FrameBoard(["street"], ledger, clock, BoardRules(depth=None, max_age_ns=10**9))
    capture = RecordingCapture(
        STREET, _Once(), CaptureSinks(board, ledger, said, Admission()), clock, ReconnectConfig()
    )
    ending = threading.Thread(target=lambda: [None for _ in iter(capture.step, None)])

    def end() -> None:
        ending.start()
        ending.join(0.2)  # it may have to wait until the monitor has looked

    while "up" not in said.states:
        capture.step()
    board.release(board.take_batch(1, 0))
    clock.advance(1.0)
    capture.check_stalled(_Meanwhile(0.5, end))
    ending.join(60)
    assert capture.state == "ended"
    assert said.states[-1] == "ended"


def test_a_source_that_has_not_begun_is_not_stalled() -> None:
    """The monitor checks a source that was just added, on a machine that has been up for a day."""
    said, ledger, clock = Announcements(), Ledger(["street"]), ManualClock()
    clock.advance(86_400)
    board = FrameBoard(["street"], ledger, clock, BoardRules(depth=None, max_age_ns=10**9))
    capture = RecordingCapture(
        STREET, _Once(), CaptureSinks(board, ledger, said, Admission()), clock, ReconnectConfig()
    )
    capture.check_stalled(5.0)
    assert said.states == []
    clock.advance(3_600)
    capture.check_stalled(5.0)
    assert said.states == ["stalled"]


class _SharedOut(Admission):
    """Runs a callback at the moment when a source enters."""

    def __init__(self) -> None:
        super().__init__("degrade", capacity=100.0)
        self.happens: Callable[[], None] = lambda: None

    def admit(self, *args: Any, **more: Any) -> Future[None]:
        self.happens()
        return super().admit(*args, **more)


def test_a_source_that_is_left_behind_as_it_enters_keeps_no_share() -> None:
    """Otherwise its successor of the same name, or all others, would have less for ever."""
    ledger, clock, admission = Ledger(["street", "other"]), ManualClock(), _SharedOut()
    board = FrameBoard(["street"], ledger, clock, BoardRules(depth=None, max_age_ns=10**9))
    capture = RecordingCapture(
        STREET, _Once(), CaptureSinks(board, ledger, Announcements(), admission), clock, ReconnectConfig()
    )
    disowning = threading.Thread(target=capture.abandon)

    def abandon() -> None:
        admission.happens = lambda: None
        disowning.start()
        disowning.join(0.2)  # it may have to wait until the source has entered

    admission.happens = abandon
    while capture.step() is not None:
        pass
    disowning.join(60)
    had: list[Quota] = []
    admission.admit("other", 100.0, had.append)
    assert had[-1].fps == pytest.approx(90.0)  # what there is for one


def test_accounts_of_sources_that_are_gone_do_not_grow() -> None:
    """An API client may add and remove sources with new names for ever."""
    ledger = Ledger(["cam"])
    for number in range(5 * MAX_GONE):
        source = f"guest-{number}"
        ledger.add(source)
        ledger.captured(source)
        ledger.add_rows([(ledger.published(source), _info(source, 0), Latency(1, 1, 1, 1, 1, 5))])
        ledger.remove(source)
        if number % 50 == 0:
            ledger.drain()
            ledger.forget_removed()
    assert len(ledger.accounts) < 2 * MAX_GONE
    assert ledger.add(f"guest-{number}") == 1  # one that was there lately goes on
    assert list(ledger.counts()) == ["cam", f"guest-{number}"]


def test_an_account_with_a_frame_on_its_way_is_kept() -> None:
    """However many other sources have gone since."""
    ledger = Ledger(["slow"])
    ledger.captured("slow")
    ledger.remove("slow")
    for number in range(3 * MAX_GONE):
        ledger.add(f"guest-{number}")
        ledger.remove(f"guest-{number}")
        ledger.forget_removed()
    ledger.published("slow")
    assert ledger.counts_of("slow").published == 1


def test_a_row_may_come_after_its_account_is_forgotten() -> None:
    """The publisher counts a frame at once, and adds the rows of many frames together."""
    ledger = Ledger(["slow"])
    ledger.captured("slow")
    index = ledger.published("slow")
    ledger.remove("slow")
    for number in range(3 * MAX_GONE):
        ledger.add(f"guest-{number}")
        ledger.remove(f"guest-{number}")
        ledger.forget_removed()
    with pytest.raises(KeyError):
        ledger.counts_of("slow")
    ledger.add_rows([(index, _info("slow", 0), Latency(1, 1, 1, 1, 1, 5))])
    assert ledger.drain()["seq"].tolist() == [0]


def test_a_subscriber_is_told_of_sources_that_are_there_alone(tmp_path: Path) -> None:
    """The publisher's state of a source is removed with it."""
    config = {"monitor": MonitorConfig(interval_s=0.2, stall_after_s=60)}
    with running(tmp_path, STREET, config=config) as app:
        for number in range(5):
            source = msgspec.structs.replace(STREET, id=f"guest-{number}")
            edit(app, lambda rows, source=source: [*rows, source]).result(60)  # type: ignore[misc]
            edit(app, lambda rows: rows[:1]).result(60)
        wait_up(app, "street")
        with Subscriber(app.endpoint, kinds=["status", "metrics"]) as subscriber:
            messages = receive_until(subscriber, is_state("street", "up"))
            messages += receive_until(subscriber, lambda message: isinstance(message, Metrics))
        assert {message.source for message in messages if isinstance(message, Status)} == {"street"}
