"""Viewers behind slow links: what they get is fresh, however little it is. The links are simulated, byte for byte."""

from __future__ import annotations

import heapq
import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import pytest

from daemon.dashboard.flow_control import FlowControl
from daemon.dashboard.muxer import Fragment, Init
from daemon.dashboard.viewer_queue import Progress, ViewerQueue
from daemon.dashboard.viewers import ClientMessage, Viewer
from daemon.lateness import Lateness
from tests.support.clock import ManualClock

_STEP_S = 0.01
_SAY_S, _MUCH, _EAGER = 0.25, 32 << 10, 20  # how a browser reports what has come
_FPS = 25
_INIT = Init("video/mp4", "s", 0, 640, 360, 0, b"init")


@dataclass
class Link:
    """A network that holds whatever is sent, and delivers so many bytes a second."""

    clock: ManualClock
    rate: float
    delay_s: float
    _busy_until: float = 0.0
    _under_way: list[tuple[float, int, bytes | str]] = field(default_factory=list)
    _number: Iterator[int] = field(default_factory=itertools.count)

    def send(self, message: bytes | str) -> None:
        self._busy_until = max(self._busy_until, self.clock.monotonic_ns() / 1e9) + len(message) / self.rate
        heapq.heappush(self._under_way, (self._busy_until + self.delay_s, next(self._number), message))

    def receive(self) -> Iterator[bytes | str]:
        now = self.clock.monotonic_ns() / 1e9
        while self._under_way and self._under_way[0][0] <= now:
            yield heapq.heappop(self._under_way)[2]


@dataclass
class Reporter:
    """When a browser reports what has come, as live.js and feed.js do."""

    got: int = 0
    _bytes: int = 0
    _reported: int = 0
    _at: float = 0.0

    def receive(self, size: int) -> None:
        self.got += 1
        self._bytes += size

    def is_due(self, now: float) -> bool:
        wait_s = 0 if self.got <= _EAGER else _SAY_S if self._bytes >= _MUCH else 2 * _SAY_S
        if self.got == self._reported or now - self._at < wait_s:
            return False
        self._reported, self._bytes, self._at = self.got, 0, now
        return True


@dataclass
class Watched:
    """What a viewer saw.

    Attributes:
        ages: of the shown picture, s, at each step.
        bytes: of pictures.
        told: messages in words.
    """

    ages: list[float] = field(default_factory=list)
    bytes: int = 0
    told: list[str] = field(default_factory=list)


def _watch(rate: float, seconds: float, *, picture: int, key: int, gop: int = 50, delay_s: float = 0.02) -> Watched:
    """Watch a camera of so many bytes a picture over a link of so many bytes a second."""
    clock, found = ManualClock(), Watched()
    link, queue, newest_ns, reporter = Link(clock, rate, delay_s), ViewerQueue(("here", "cam"), clock), 0, Reporter()
    queue.begin(_INIT)
    for step in range(round(seconds / _STEP_S)):
        clock.advance(_STEP_S)
        if step % round(1 / _FPS / _STEP_S) == 0:
            number = step // round(1 / _FPS / _STEP_S)
            is_key = number % gop == 0
            queue.show(Fragment(b"x" * (key if is_key else picture), is_key, clock.monotonic_ns()))
        while (message := queue.poll()) is not None:
            link.send(message)
        for message in link.receive():
            reporter.receive(len(message))
            if isinstance(message, str):
                found.told.append(message)
            else:
                newest_ns = round(struct.unpack(">d", message[:8])[0] * 1e6)
                found.bytes += len(message) - 8
        if newest_ns:
            found.ages.append((clock.monotonic_ns() - newest_ns) / 1e9)
        if reporter.is_due(clock.monotonic_ns() / 1e9):
            queue.report(Progress(reporter.got))
    return found


@pytest.mark.parametrize(
    ("rate", "delay_s", "worst_s", "usual_s"),
    [
        (60e3, 0.02, 4.0, 2.5),
        (60e3, 0.4, 4.5, 3.0),
        (30e3, 0.02, 7.0, 4.5),
        (100e3, 0.02, 3.5, 1.5),
    ],
)
def test_a_slow_link_shows_fewer_pictures_and_no_old_ones(
    rate: float, delay_s: float, worst_s: float, usual_s: float
) -> None:
    """A camera of 110 kB/s with a key picture every two seconds."""
    found = _watch(rate, 120, picture=3500, key=50_000, delay_s=delay_s)
    ages = sorted(found.ages[1000:])
    assert ages[-1] < worst_s
    assert ages[len(ages) // 2] < usual_s
    assert any("skipped" in text for text in found.told)


def test_a_fast_link_shows_every_picture_from_the_first() -> None:
    found = _watch(12e6, 20, picture=20_000, key=400_000, gop=250, delay_s=0.005)
    assert not any("skipped" in text for text in found.told)
    assert max(found.ages[100:]) < 0.3
    assert found.bytes == 500 * 20_000 + 2 * 380_000


def test_a_viewer_far_away_gets_everything() -> None:
    """0.6 s there and back: what is under way is no queue."""
    found = _watch(2e6, 60, picture=4000, key=60_000, delay_s=0.3)
    assert max(found.ages[3000:]) < 1.0
    assert sum("skipped" in text for text in found.told) <= 2


def test_boxes_and_states_are_fresh_or_left_out() -> None:
    """400 kB of detections a second over a link of 60: those that wait are left out, and a state is not late."""
    clock = ManualClock()
    link, viewer, reporter, number = Link(clock, 60e3, 0.02), Viewer(clock), Reporter(), 0
    ages: dict[str, list[float]] = {"box": [], "state": []}
    lost = 0
    for step in range(6000):
        clock.advance(_STEP_S)
        now = clock.monotonic_ns() / 1e9
        for _ in range(4):
            viewer.put(msgspec.json.encode({"kind": "box", "at": now, "boxes": "x" * 1000}), perishable=True)
        if step % 100 == 0:
            number += 1
            viewer.put(msgspec.json.encode({"kind": "state", "at": now}))
        if step % 3 == 0 and (text := viewer.poll()):
            link.send(text)
        for message in link.receive():
            reporter.receive(len(message))
            for row in msgspec.json.decode(message):
                if row["kind"] == "skipped":
                    lost += row["lost"]
                else:
                    ages[row["kind"]].append(now - row["at"])
        if reporter.is_due(clock.monotonic_ns() / 1e9):
            viewer.report(ClientMessage(got=reporter.got))
    assert len(ages["state"]) >= number - 5
    assert lost == 0
    assert max(ages["state"]) < 5
    assert max(ages["box"][500:]) < 5
    assert len(ages["box"]) > 2000  # the link is used


def test_a_viewer_that_says_nothing_or_nonsense_hurts_nobody() -> None:
    flow = FlowControl(ManualClock())
    for size in (100_000, 100_000):
        flow.sent(size)
    assert flow.room == 0
    for count in (-1, 0):
        flow.acknowledge(count)
        assert flow.room == 0
    flow.acknowledge(1 << 62)
    assert flow.room > 0
    flow.sent(100)
    assert flow.room > 0


def _late(*rows: tuple[float, float]) -> list[float]:
    """How late packets are that have these times and come at those, s."""
    lateness = Lateness()
    return [round(lateness.add(round(time * 1e9), round(now * 1e9)) / 1e9, 3) for time, now in rows]


def test_what_waited_during_a_stall_is_old_when_it_comes() -> None:
    steady = [(0.04 * number, 100 + 0.04 * number) for number in range(50)]
    assert set(_late(*steady)) == {0}
    # Nothing for 15 s; then what had waited, eight times as fast as it was made.
    burst = [(2 + 0.04 * number, 117 + 0.005 * number) for number in range(600)]
    late = _late(*steady, *burst)[50:]
    assert late[0] == pytest.approx(15, abs=0.1)
    assert late == sorted(late, reverse=True)
    assert late[-1] == 0
    # A camera that sends nothing and goes on with a picture of now is not late.
    assert _late(*steady, (17, 117), (17.04, 117.04))[-2:] == [0, 0]


def test_a_clock_that_is_wrong_is_not_lateness() -> None:
    for rate in (0.5, 0.9, 1.1, 2):
        assert set(_late(*((0.04 * number * rate, 0.04 * number) for number in range(3000)))) == {0}
    backwards = [*((number, number) for number in range(5)), (-1000, 6), (-999, 7)]
    assert set(_late(*backwards)) == {0}
    # A camera whose own clock stood still while it sent nothing: it is believed again after half a minute.
    paused = [(1, 1), (1.04, 16), *((1.04 + 0.5 * number, 16 + 0.5 * number) for number in range(100))]
    assert _late(*paused)[1] > 14
    assert _late(*paused)[-1] == 0
