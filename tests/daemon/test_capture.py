"""The capture thread's parts: back-off, rate limit, pace, and what it says when a source fails."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from av.packet import Packet

from daemon.capture.camera import CameraCapture, CameraThread, ThreadContext
from daemon.capture.capture import Capture
from daemon.capture.recordings import RecordingCapture, RecordingsThread
from daemon.capture.sinks import UNLIMITED, CaptureSinks, Quota
from daemon.capture.threads import CaptureThreads, capture_kind
from daemon.capture.timing import Backoff, CameraClock, Lag, Pacer, RateLimit
from daemon.config.sources import AvConfig, Decode, ReconnectConfig, SourceConfig, SyntheticConfig
from daemon.control.admission import Admission
from daemon.errors import DecodeError, SourceError
from daemon.pipeline.board_rules import BoardRules
from daemon.pipeline.drop_causes import GiveUp
from daemon.pipeline.frame_board import FrameBoard
from daemon.pipeline.frames import Frame
from daemon.pipeline.ledger import Ledger
from daemon.redact import Url
from daemon.sources.ffmpeg import AvSource
from daemon.sources.port import DecodeBudget, PacketInfo, PacketTap, Picture, Skipped, Source
from detectors.port import HostImage
from lookout.messages import FrameClock, State, VideoFormat
from tests.support.clock import ManualClock

IMAGE = HostImage(np.zeros((4, 6, 3), np.uint8))
EITHER = pytest.mark.parametrize("live", [True, False], ids=["camera", "recording"])


def capture_of(
    config: SourceConfig,
    source: Source,
    sinks: CaptureSinks,
    clock: ManualClock,
    reconnect: ReconnectConfig,
    seq: int = 0,
) -> Capture:
    return capture_kind(source)(config, source, sinks, clock, reconnect, seq)


def thread_of(
    captures: list[Capture], clock: ManualClock, on_failure: Callable[[str], None] = pytest.fail, phase: int = 0
) -> threading.Thread:
    """The thread that serves a camera, or recordings."""
    context = ThreadContext(clock, on_failure, lambda: None)
    if isinstance(captures[0], CameraCapture):
        return CameraThread(captures[0], context)
    recordings = [capture for capture in captures if isinstance(capture, RecordingCapture)]
    return RecordingsThread(captures[0].id, recordings, context, phase=phase)


class ScriptedSource:
    """Plays a list of connections; each is a list of what `read` gives or raises, or an error of `open`."""

    live = False
    realtime = False
    has_next = False
    clock = FrameClock("arrival")

    def __init__(self, *connections: list[object] | Exception, plays_once: bool = False) -> None:
        self.plays_once = plays_once
        self._connections = list(connections)
        self.on_end: Callable[[], None] = lambda: None
        self.on_silence: Callable[[float], None] = lambda _: None
        self.on_open: Callable[[], None] = lambda: None
        self.on_read: Callable[[], None] = lambda: None
        self.on_load: Callable[[int], None] = lambda _: None
        self.format = VideoFormat("script", 6, 4, 10.0, "none")
        self.closed = 0
        self.make_reader = ScriptedReader

    def open(self, budget: DecodeBudget | None = None) -> ScriptedReader:
        if not self._connections:
            self.on_end()
            raise SourceError("the script is over")
        connection = self._connections.pop(0)
        self.on_open()
        if isinstance(connection, Exception):
            raise connection
        return self.make_reader(self, connection)


@dataclass(frozen=True)
class Silence:
    """A step of the script: nothing comes for some seconds."""

    seconds: float


class ScriptedReader:
    def __init__(self, source: ScriptedSource, steps: list[object]) -> None:
        self._source, self._steps = source, list(steps)
        self.format = source.format
        self.on_close: Callable[[], None] = lambda: None

    def read(self) -> Picture | Skipped | None:
        self._source.on_read()
        step = self._steps.pop(0) if self._steps else None
        if isinstance(step, Silence):
            self._source.on_silence(step.seconds)
            return self.read()
        if isinstance(step, VideoFormat):
            self.format = step
            return self.read()
        if isinstance(step, Exception):
            raise step
        return None if step is None else Picture(int(step), 0, partial(self._load, int(step)))  # type: ignore[call-overload]

    def _load(self, time: int) -> HostImage:
        self._source.on_load(time)
        return IMAGE

    def close(self) -> None:
        self.on_close()
        self._source.closed += 1


class PacketScriptedReader(ScriptedReader):
    """Has packets, which wait for a decoder."""

    awaits_decoder = True

    def set_tap(self, tap: PacketTap | None) -> None:
        """It gives none."""

    def take_passed_over(self) -> Mapping[str, int]:
        return {}

    def describe(self, packet: Packet[Any]) -> PacketInfo:
        raise AssertionError("it gives none")


class Run:
    """A capture thread run to its end in this thread, and all that it said."""

    def __init__(
        self,
        source: ScriptedSource,
        clock: ManualClock,
        watch: bool = False,
        admission: Admission | None = None,
        live: bool | None = None,
        **config: float,
    ) -> None:
        source.live = source.live if live is None else live
        self.said: list[tuple[State, str | None, float | None]] = []
        self.ledger = Ledger(["cam"])
        self.clock = clock
        self.hung = False
        self.board = FrameBoard(["cam"], self.ledger, clock, BoardRules(depth=None, max_age_ns=10**9))
        capture = capture_of(
            SyntheticConfig(id="cam", **config),  # type: ignore[arg-type]
            source,
            CaptureSinks(self.board, self.ledger, self._announce, admission or Admission()),
            clock,
            ReconnectConfig(initial_s=1, max_s=8, factor=2, jitter=0),
        )
        thread = thread_of([capture], clock)
        source.on_end = capture.stop

        def stay_silent(seconds: float) -> None:
            clock.advance(seconds)
            self.hung |= capture.check_stalled(2.0)

        source.on_silence = stay_silent
        if watch:
            clock.on_wait = lambda: stay_silent(0.0)
        self.board.close()  # so that nothing waits for lanes
        thread.run()
        self.failure = capture.failure

    def _announce(
        self,
        source: str,
        session: str | None,
        state: State,
        reason: str | None,
        retry_in_s: float | None,
        format: VideoFormat | None,
    ) -> None:
        self.said.append((state, reason, retry_in_s))

    @property
    def states(self) -> list[State]:
        return [state for state, _, _ in self.said]


def test_recordings_on_the_cpu_do_not_share_the_gpus_few_threads(clock: ManualClock) -> None:
    """The GPU's decoder is kept busy by a few; each on the CPU is work of its own."""
    decodes: tuple[Decode, ...] = ("auto", "cpu")
    configs = [AvConfig(id=f"{how}-{number}", url=Url("a.mkv"), decode=how) for how in decodes for number in range(9)]
    ledger = Ledger([config.id for config in configs])
    board = FrameBoard(ledger.accounts, ledger, clock, BoardRules(depth=None, max_age_ns=10**9))
    sinks = CaptureSinks(board, ledger, lambda *_: None, Admission())
    captures = [capture_of(config, AvSource(config), sinks, clock, ReconnectConfig()) for config in configs]
    assert len(CaptureThreads(captures, 3, ThreadContext(clock, pytest.fail, lambda: None)).threads) == 3 + 9
    assert len(CaptureThreads(captures, 0, ThreadContext(clock, pytest.fail, lambda: None)).threads) == 9 + 9


class Decoded(ScriptedSource):
    """Notes which threads read it.

    Args:
        by: what decodes it.
    """

    def __init__(self, by: str, frames: int) -> None:
        super().__init__([*range(1, frames + 1)], plays_once=True)
        self.format = VideoFormat("script", 6, 4, 10.0, by, None if by == "nvdec" else "no room")
        self.threads: list[str] = []
        self.on_read = lambda: self.threads.append(threading.current_thread().name)


def play(sources: Mapping[str, Source], on_gpu: int, clock: ManualClock) -> Ledger:
    """In the threads of one process, to their ends."""
    ledger = Ledger([*sources])
    board = FrameBoard(ledger.accounts, ledger, clock, BoardRules(depth=None, max_age_ns=10**9))
    board.close()  # so that nothing waits for lanes
    sinks = CaptureSinks(board, ledger, lambda *_: None, Admission())
    captures = [
        capture_of(AvConfig(id=id, url=Url("a.mkv")), source, sinks, clock, ReconnectConfig())
        for id, source in sources.items()
    ]
    group = CaptureThreads(captures, on_gpu, ThreadContext(clock, pytest.fail, lambda: None))
    group.start()
    until = time.monotonic() + 60
    while group.threads and time.monotonic() < until:
        for thread in group.threads:
            thread.join(1)
    assert all(capture.ended for capture in captures)
    return ledger


class Slow(ScriptedSource):
    """Opens, or closes, when it may.

    Args:
        step: which of the two.
        begins: until then it cannot be opened.
        may: waited for, up to a limit.

    Attributes:
        waited: whether it might, in that time; None if it did not come to that.
    """

    def __init__(self, step: str, begins: threading.Event, may: threading.Event) -> None:
        super().__init__([1, 2], plays_once=True)
        self.waited: bool | None = None
        self._step, self._begins, self._may = step, begins, may

    def open(self, budget: DecodeBudget | None = None) -> ScriptedReader:
        if not self._begins.is_set():
            raise SourceError("not there yet")
        self._wait("open")
        reader = super().open(budget)
        reader.on_close = lambda: self._wait("close")
        return reader

    def _wait(self, step: str) -> None:
        if step == self._step:
            self.waited = self._may.wait(60)


@pytest.mark.parametrize("step", ["open", "close"])
def test_who_opens_or_closes_holds_up_nobody_who_shares_the_thread(clock: ManualClock, step: str) -> None:
    """A recording on a disk that hangs waits for the disk; another has been played to its end by then."""
    begun, ended = threading.Event(), threading.Event()
    quick, slow = ScriptedSource([*range(1, 41)], plays_once=True), Slow(step, begun, ended)
    quick.format = slow.format = VideoFormat("script", 6, 4, 10.0, "nvdec")
    reads = itertools.count(1)
    quick.on_read = lambda: {2: begun, 41: ended}.get(next(reads), threading.Event()).set()
    ledger = play({"quick": quick, "slow": slow}, 1, clock)
    assert slow.waited is True
    assert {id: count.captured for id, count in ledger.counts().items()} == {"quick": 40, "slow": 2}
    assert (quick.closed, slow.closed) == (1, 1)


@pytest.mark.parametrize("on_gpu", [1, 0])
def test_a_recording_that_falls_to_the_cpu_leaves_those_of_the_gpu_alone(clock: ManualClock, on_gpu: int) -> None:
    """It goes on in a thread of its own, frame after frame; where there is no GPU nobody has reason to leave."""
    decoders = {"a": "nvdec", "b": "cpu", "c": "nvdec"}
    sources = {id: Decoded(by, 40) for id, by in decoders.items()}
    ledger = play(sources, on_gpu, clock)
    assert {id: count.captured for id, count in ledger.counts().items()} == dict.fromkeys(decoders, 40)
    if on_gpu:
        assert {*sources["a"].threads[1:], *sources["c"].threads[1:]} == {"capture-recordings-0"}
        assert {*sources["b"].threads[1:]} == {"capture-b"}
    else:
        assert [{*sources[id].threads} for id in decoders] == [{f"capture-{id}"} for id in decoders]


@EITHER
def test_a_source_that_breaks_is_tried_for_ever(clock: ManualClock, live: bool) -> None:
    """Each failure waits longer, up to the cap; a connection that gave a picture starts the count again."""
    refused = SourceError("refused")
    run = Run(ScriptedSource(*[refused] * 5, [1, SourceError("broke")], refused), clock, live=live)
    assert clock.waits[:7] == [1, 2, 4, 8, 8, 1, 2]
    assert run.states[:2] == ["connecting", "down"]
    assert "up" in run.states
    assert run.said[1] == ("down", "refused", 1)


@EITHER
def test_a_picture_that_cannot_be_decoded_is_counted(clock: ManualClock, live: bool) -> None:
    run = Run(ScriptedSource([1, DecodeError("bad"), 2], plays_once=True), clock, live=live)
    counts = run.ledger.counts()["cam"]
    assert (counts.captured, counts.dropped.decode_error) == (3, 1)


def test_a_recording_that_breaks_in_the_middle_is_not_started_again(clock: ManualClock) -> None:
    """Its first half would be published twice."""
    run = Run(ScriptedSource([1, 2, SourceError("cut short")], [1], plays_once=True), clock)
    assert run.states == ["connecting", "up", "ended"]
    assert run.failure == run.said[-1][1] == "cut short"


@EITHER
def test_an_unforeseen_error_is_one_more_reason_to_retry(clock: ManualClock, live: bool) -> None:
    run = Run(ScriptedSource([1, ZeroDivisionError()], [2, SourceError("x")]), clock, live=live)
    assert run.states.count("up") == 2
    assert "ZeroDivisionError" in str(run.said)


def test_another_format_is_announced_with_its_first_picture(clock: ManualClock) -> None:
    """A recording may change its size or codec; neither sessions nor numbers begin again."""
    other = VideoFormat("other", 8, 4, 10.0, "none")
    run = Run(ScriptedSource([1, 2, other, 3, 4], plays_once=True), clock)
    assert run.states == ["connecting", "up", "up", "ended"]
    assert run.ledger.counts()["cam"].captured == 4


@EITHER
def test_every_connection_is_closed(clock: ManualClock, live: bool) -> None:
    source = ScriptedSource([1, SourceError("a")], [2, ZeroDivisionError()], [3])
    Run(source, clock, live=live)
    assert source.closed == 3


@EITHER
def test_a_source_that_only_gives_errors_is_connected_anew(clock: ManualClock, live: bool) -> None:
    run = Run(ScriptedSource([DecodeError("bad")] * 500), clock, live=live)
    assert "in a row" in str(run.said[1][1])


@pytest.mark.parametrize(
    ("reader", "where"), [(ScriptedReader, "reading"), (PacketScriptedReader, "waiting for its decoder")]
)
def test_a_connection_that_gives_nothing_is_stalled_and_says_where(
    clock: ManualClock, reader: type[ScriptedReader], where: str
) -> None:
    """A library that does not come back must not look like a camera that is about to. It is left to itself: many may
    be waiting for the driver, and to begin anew would only make them wait longer."""
    source = ScriptedSource([Silence(20.0), Silence(11.0), Silence(1000.0), 0])
    source.live, source.make_reader = True, reader
    run = Run(source, clock)
    assert not run.hung
    assert run.said[:3] == [
        ("connecting", None, None),
        ("stalled", f"no picture in 31 s: it is blocked while {where}", None),
        ("up", None, None),
    ]


def test_a_stall_says_why_pictures_are_lost(clock: ManualClock) -> None:
    """A camera that is read well, and gives no picture that can be decoded, is not blocked: neither is it said so, nor
    is it left behind for another thread to begin anew."""
    bad = [step for number in range(90) for step in (Silence(0.5), DecodeError(f"too large: {number}"))]
    source = ScriptedSource([*bad, 0, *bad])
    source.live = True
    run = Run(source, clock)
    assert not run.hung
    assert run.said[:4] == [
        ("connecting", None, None),
        ("stalled", "no picture in 30 s: too large: 59", None),
        ("up", None, None),
        ("stalled", "no frame for 2.5 s: too large: 3", None),
    ]


@EITHER
def test_the_reason_of_an_earlier_loss_is_not_that_of_a_stall(clock: ManualClock, live: bool) -> None:
    """Pictures came after it."""
    run = Run(ScriptedSource([DecodeError("bad"), 1, Silence(5), 2], plays_once=True), clock, watch=True, live=live)
    assert run.said[2][1] == "no frame for 5.0 s"


def test_a_slow_recording_is_not_stalled(clock: ManualClock) -> None:
    """A picture every ten seconds, at its own pace: the wait is ours."""
    source = ScriptedSource([0, 10_000_000_000, 20_000_000_000], plays_once=True)
    source.realtime = True
    run = Run(source, clock, watch=True)
    assert clock.waits == [pytest.approx(10), pytest.approx(10)]
    assert run.states == ["connecting", "up", "ended"]


@EITHER
def test_a_silent_source_is_stalled_once_and_up_again(clock: ManualClock, live: bool) -> None:
    run = Run(ScriptedSource([1, Silence(5), 2], plays_once=True), clock, watch=True, live=live)
    assert run.states == ["connecting", "up", "stalled", "up", "ended"]
    assert run.said[2][1] == "no frame for 5.0 s"


@EITHER
def test_max_fps_is_counted(clock: ManualClock, live: bool) -> None:
    pictures: list[object] = [round(number * 1e9 / 30) for number in range(90)]
    run = Run(ScriptedSource(pictures, plays_once=True), clock, max_fps=10.0, live=live)
    assert run.ledger.counts()["cam"].dropped.rate_limit == 60


@pytest.mark.parametrize(("fps", "limit"), [(30, 10), (30, 15), (30, 20), (25, 10), (29.97, 12.5), (10, 30)])
def test_rate_limit_gives_the_rate(fps: float, limit: float) -> None:
    """Within 3 %, whatever the ratio, with a camera's jitter."""
    rng, gate = random.Random(1), RateLimit(limit)
    times = [number * 1e9 / fps + rng.uniform(-2e6, 2e6) for number in range(round(fps * 100))]
    allowed = sum(gate.allows(round(time)) for time in times)
    assert allowed / 100 == pytest.approx(min(fps, limit), rel=0.03)


def test_rate_limit_survives_a_jump_in_time() -> None:
    gate = RateLimit(10)
    assert gate.allows(10**12)
    assert gate.allows(0)
    assert not gate.allows(10**6)


def test_backoff_jitter_only_shortens() -> None:
    config = ReconnectConfig(initial_s=1, max_s=4, factor=2, jitter=0.5)
    backoff = Backoff(config, random.Random(7))
    waits = [backoff.next() for _ in range(2000)]
    assert max(waits[2:]) <= 4
    assert min(waits[2:]) >= 2


def test_pacer_keeps_a_recording_to_its_time(clock: ManualClock) -> None:
    """The work between frames does not add up."""
    pacer = Pacer(clock, "clip")
    begun = clock.monotonic_ns()
    for number in range(20):
        clock.advance(max(0, pacer.due(number * 100_000_000) - clock.monotonic_ns()) / 1e9)
        clock.advance(0.03)
    assert clock.monotonic_ns() - begun == pytest.approx(1.93e9)


def test_pacer_does_not_race_after_a_pause(clock: ManualClock) -> None:
    pacer = Pacer(clock, "clip")
    pacer.due(0)
    clock.advance(60)
    assert pacer.due(100_000_000) == clock.monotonic_ns()
    assert pacer.due(200_000_000) == clock.monotonic_ns() + 100_000_000


def test_pacer_tells_how_late_a_picture_is(clock: ManualClock) -> None:
    pacer = Pacer(clock, "clip")
    pacer.due(0)
    clock.advance(0.35)
    pacer.due(100_000_000)
    assert pacer.late == 250_000_000
    clock.advance(0.05)
    assert pacer.overdue == 300_000_000


def test_a_stall_is_not_forgotten_when_the_pace_starts_anew(clock: ManualClock) -> None:
    """The count of what is late begins again, so as not to race; the frame itself was due when it was."""
    pacer = Pacer(clock, "clip")
    pacer.due(0)
    clock.advance(3.1)
    pacer.due(100_000_000)
    assert pacer.late == 0
    assert pacer.overdue == 3_000_000_000


def test_lag_is_what_a_camera_has_fallen_behind_its_best() -> None:
    """Neither the network's own delay nor clocks that drift apart are taken for it."""
    lag = Lag()
    assert lag.of(0, 5 * 10**9) == 0
    assert lag.of(10**9, 6 * 10**9 + 3 * 10**8) == pytest.approx(3e8, abs=2e6)
    assert lag.of(2 * 10**9, 7 * 10**9) == pytest.approx(0, abs=3e6)
    now = 7 * 10**9
    for second in range(3, 5000):
        now += 10**9 + 10**5  # a hundred millionths slow
        assert lag.of(second * 10**9, now) < 5e6


def test_what_came_while_the_first_picture_was_decoded_is_lag() -> None:
    """A decoder that is made takes long where many are; what the camera sent meanwhile is old."""
    lag = Lag()
    assert lag.of(None, 9 * 10**9, decode=4 * 10**9) == 0
    assert lag.of(33_000_000, 9_003_000_000, decode=3_000_000) == pytest.approx(4e9, rel=0.01)
    assert lag.of(5 * 10**9, 10 * 10**9, decode=3_000_000) == pytest.approx(0, abs=5e7)
    assert Lag().of(0, 9 * 10**9, decode=60_000_000) == 0


def test_one_thread_serves_many_recordings_in_their_own_time(clock: ManualClock) -> None:
    """Each picture when it is due, of whichever source."""
    ids = ["a", "b", "c"]
    ledger, said = Ledger(ids), []
    board = FrameBoard(ids, ledger, clock, BoardRules(depth=None, max_age_ns=10**9))
    sinks = CaptureSinks(board, ledger, lambda *what: said.append(what[:3:2]), Admission())
    captures = []
    for number, name in enumerate(ids):
        source = ScriptedSource([round(frame * 1e9 / (10 + number)) for frame in range(50)], plays_once=True)
        source.realtime = True
        captures.append(capture_of(SyntheticConfig(id=name), source, sinks, clock, ReconnectConfig()))
    begun = clock.monotonic_ns()
    board.close()
    thread_of(captures, clock).run()
    assert {name: count.captured for name, count in ledger.counts().items()} == dict.fromkeys(ids, 50)
    assert clock.monotonic_ns() - begun == pytest.approx(4.9e9, abs=1e7)
    assert [name for name, state in said if state == "ended"] == ["c", "b", "a"]


@pytest.mark.parametrize("phase", [0, 5_333_333])
def test_pictures_that_are_due_at_nearly_the_same_time_are_taken_in_one_turn(clock: ManualClock, phase: int) -> None:
    """None early, none more than 8 ms late; a thread that woke for each would take twice the CPU."""
    ids = [f"{number}" for number in range(8)]
    ledger = Ledger(ids)
    board = FrameBoard(ids, ledger, clock, BoardRules(depth=None, max_age_ns=10**9))
    sinks = CaptureSinks(board, ledger, lambda *_: None, Admission())
    begun, late = clock.monotonic_ns(), list[int]()
    captures = []
    for number, name in enumerate(ids):
        times = [number * 1_300_000 + frame * 33_333_333 for frame in range(1, 61)]
        source = ScriptedSource([0, *times], plays_once=True)
        source.realtime = True
        source.format = VideoFormat("script", 6, 4, 30.0, "nvdec")
        source.on_load = lambda time: late.append(clock.monotonic_ns() - begun - time)
        captures.append(capture_of(SyntheticConfig(id=name), source, sinks, clock, ReconnectConfig()))
    board.close()
    thread_of(captures, clock, phase=phase).run()
    assert len(late) == 8 * 61
    assert 0 <= min(late) <= max(late) < 8_000_000
    assert len(clock.waits) < 0.4 * len(late)


S = 10**9
ARRIVAL = FrameClock("arrival")


def test_a_camera_that_does_not_tell_the_time() -> None:
    assert CameraClock("cam", ARRIVAL).time_of(None, 100 * S) == (100 * S, ARRIVAL)


def test_the_cameras_time_is_as_good_as_its_fastest_frame() -> None:
    """What it may be off by shrinks to the smallest delay seen, and does not grow with a frame that was held up."""
    clock = CameraClock("cam", ARRIVAL)
    for arrived, error in ((10.3, 300), (11.08, 80), (12.5, 80), (13.06, 60)):
        sent = int(arrived) * S
        assert clock.time_of(sent, round(arrived * S)) == (sent, FrameClock("ntp", error * 10**6))


def test_a_camera_ahead_of_us_is_off_by_at_least_that() -> None:
    assert CameraClock("cam", ARRIVAL).time_of(12 * S, 10 * S) == (12 * S, FrameClock("ntp", 2 * S))


@pytest.mark.parametrize("step", [-5.0, 5.0, -0.1])
def test_the_error_stays_a_bound_when_the_cameras_clock_is_set(step: float) -> None:
    """But for the time that a frame takes; and becomes small again when the clock is right again."""
    clock, late = CameraClock("cam", ARRIVAL), (0.07, 0.2, 0.11)
    for number in range(300):
        taken = number / 10
        offset = step if 100 <= number < 200 else 0.0
        sent_at, arrived_at = round((taken + offset) * S), round((taken + late[number % 3]) * S)
        captured_at, found = clock.time_of(sent_at, arrived_at, pts=round((taken + 50) * S))
        assert abs(captured_at - taken * S) <= (found.error or 0) + late[number % 3] * S + 1
        assert found.kind == "ntp"
    assert found.error == pytest.approx(0.07 * S)


def test_timestamps_that_jump_are_not_taken_for_fast_frames() -> None:
    """A camera begins to count from elsewhere, and sends no report: its frames seem to be three seconds old."""
    clock = CameraClock("cam", ARRIVAL)
    for number in range(400):
        shift = -3 if number >= 100 else 0
        _, found = clock.time_of((number + 10 * shift) * S // 10, number * S // 10 + S // 20, pts=number * S // 10)
    assert found.error == pytest.approx(3.05 * S)


def test_a_camera_that_lives_in_another_year_is_not_believed() -> None:
    """And may be believed again when somebody sets its clock."""
    clock = CameraClock("cam", ARRIVAL)
    assert clock.time_of(10 * S, 10_000 * S) == (10_000 * S, ARRIVAL)
    assert clock.time_of(10_001 * S, 10_001 * S) == (10_001 * S, FrameClock("ntp", 0))


@EITHER
def test_a_source_gets_its_share_of_the_detector_and_says_so(clock: ManualClock, live: bool) -> None:
    """Half the detector is somebody else's: of 10 frames/s this camera gets 5, and the rest is counted."""
    admission = Admission("degrade", capacity=10 / 0.9)
    admission.admit("other", 30.0, lambda _: None)
    frames = [number * S // 10 for number in range(100)]
    run = Run(ScriptedSource([*frames, None], plays_once=True), clock, admission=admission, live=live)
    (up,) = [reason for state, reason, _ in run.said if state == "up"]
    assert up == "limited to 5.0 frames/s: the detector does 11 in all"
    counts = run.ledger.counts()["cam"]
    assert counts.captured == 100
    assert counts.dropped.rate_limit == 50
    free: list[Quota] = []
    admission.admit("next", 5.0, free.append)
    assert free == [UNLIMITED]  # its share is somebody else's now


@EITHER
def test_a_source_that_is_not_admitted_is_down_and_tried_again(clock: ManualClock, live: bool) -> None:
    admission = Admission("refuse", capacity=35 / 0.9)
    admission.admit("other", 30.0, lambda _: None)
    run = Run(ScriptedSource([1, None], [1, None]), clock, admission=admission, live=live)
    assert run.states[:4] == ["connecting", "down", "connecting", "down"]
    assert "not admitted: it asks for 10 frames/s, the sources that are up for 30" in (run.said[1][1] or "")


@EITHER
@pytest.mark.parametrize("comes", [1, None, DecodeError("bad"), SourceError("gone"), "a connection"])
def test_a_capture_that_was_left_behind_touches_nothing_of_its_successor(
    clock: ManualClock, comes: object, live: bool
) -> None:
    """Its library came back when nobody waited for it any more, and another source has its name."""
    said: list[object] = []
    ledger, admission = Ledger(["cam"]), Admission("degrade", capacity=10 / 0.9)
    board = FrameBoard(["cam"], ledger, clock, BoardRules(depth=None, max_age_ns=10**9))
    source = ScriptedSource([0, 1, 2]) if comes == "a connection" else ScriptedSource([0, comes, 2])
    source.live = live
    capture = capture_of(
        SyntheticConfig(id="cam"),
        source,
        CaptureSinks(board, ledger, lambda *args: said.append(args), admission),
        clock,
        ReconnectConfig(),
    )
    steps = itertools.count()

    def return_late() -> None:
        if next(steps) != 2 * (comes != "a connection"):
            return
        capture.stop()
        capture.abandon()
        for part in (board, ledger):
            part.remove("cam")
            part.add("cam")
        admission.admit("cam", 5.0, lambda _: None)
        said.clear()

    source.on_open = source.on_read = return_late
    board.close()  # so that nothing waits for lanes
    captured = int(comes != "a connection")
    thread_of([capture], clock).run()
    assert said == []
    assert ledger.counts()["cam"].captured == captured
    shares: list[Quota] = []
    admission.admit("next", 20.0, shares.append)
    assert shares[-1].fps == pytest.approx(5)


def test_a_camera_whose_library_does_not_return_is_begun_anew_by_another_thread(clock: ManualClock) -> None:
    """Again and again, but not for ever: each leaves a thread behind, which ends if the library ever returns."""
    said: list[object] = []
    seqs: list[int] = []
    inside, free = threading.Semaphore(0), threading.Event()

    class Board(FrameBoard):
        def put(self, frame: Frame, *, give_up: GiveUp | None = None, hold_ns: int = 0) -> bool:
            seqs.append(frame.info.seq)
            return True

    def hang() -> None:
        inside.release()
        assert free.wait(120)

    def make(config: SourceConfig, seq: int) -> Capture:
        source = ScriptedSource([0, 1, None], plays_once=True)
        source.live = True
        reads = itertools.count()
        source.on_read = lambda: hang() if next(reads) == 2 else None
        sources.append(source)
        return capture_of(config, source, sinks, clock, ReconnectConfig(), seq)

    def announce(*args: object, **_: object) -> None:
        said.append(args[2])

    sources: list[ScriptedSource] = []
    ledger = Ledger(["cam"])
    sinks = CaptureSinks(
        Board(["cam"], ledger, clock, BoardRules(depth=None, max_age_ns=10**9)), ledger, announce, Admission()
    )
    capture = make(SyntheticConfig(id="cam"), 0)
    group = CaptureThreads([capture], 0, ThreadContext(clock, pytest.fail, lambda: None))
    group.start()
    for left in range(4):
        assert inside.acquire(timeout=60)
        for seconds, hung in ((2.5, False), (29.0, False), (2.0, True)):
            clock.advance(seconds)
            assert capture.check_stalled(2.0) == hung
        by = group.take_over(capture, make)
        assert (by is None) == (left == 3)
        if by:
            group.add(by)
        capture = by or capture
    assert seqs == list(range(8))
    assert said == [*["connecting", "up", "stalled", "down"] * 3, "connecting", "up", "stalled"]
    threads = group.threads
    free.set()
    for thread in threads:
        thread.join(60)
    assert (said[11:], len(seqs), ledger.counts()["cam"].captured) == (
        ["down", "connecting", "up", "stalled", "ended"],
        8,
        8,
    )
    assert [source.closed for source in sources] == [1] * 4


def test_a_thread_that_dies_says_so(clock: ManualClock) -> None:
    """It would be a source that never comes again, in a daemon that looks healthy."""

    def announce(*_: object, **__: object) -> None:
        raise RuntimeError("no room for a word")

    config, ledger = SyntheticConfig(id="cam"), Ledger(["cam"])
    board = FrameBoard(["cam"], ledger, clock, BoardRules(depth=None, max_age_ns=10**9))
    sinks = CaptureSinks(board, ledger, announce, Admission())
    capture = capture_of(config, ScriptedSource(), sinks, clock, ReconnectConfig())
    reasons: list[str] = []
    thread_of([capture], clock, reasons.append).run()
    assert reasons == ["capture-cam failed: RuntimeError: no room for a word"]
