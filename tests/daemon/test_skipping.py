"""When pictures are left out undecoded, on a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import av
import pytest
from av.video.stream import VideoStream

from daemon.sources.bitstream import Bitstream
from daemon.sources.port import DecodeBudget
from daemon.sources.skipping import FrameSkipper, SkipCause
from tests.support import clips
from tests.support.clock import ManualClock

pytestmark = pytest.mark.needs("ffmpeg")
_MS = 1_000_000
_RATE = 15


class Source:
    """A clip's packets over and over, as a reader asks about them."""

    def __init__(self, path: Path, clock: ManualClock | None = None) -> None:
        self.path, self.clock = path, clock or ManualClock()
        container = av.open(str(path))
        stream: VideoStream = container.streams.video[0]
        self.packets = [packet for packet in container.demux(stream) if packet.size]
        self.skipper = FrameSkipper(stream, self.clock.monotonic_ns)
        self.bitstream = Bitstream(stream.codec_context.name, stream.codec_context.extradata)
        self.container = container
        self.read = 0
        self.causes: set[SkipCause | None] = set()

    def close(self) -> None:
        self.container.close()

    def left_out(
        self, seconds: float, *, late_ms: int, every_ms: int, waited_ms: int = 0, skip_ratio: float = 0
    ) -> list[bool]:
        """Of the pictures read in some seconds, from the clip's first: which were left out."""
        count = round(1000 * seconds / every_ms)
        self.read = 0
        rows = []
        for _ in range(count):
            self.clock.advance(every_ms / 1e3)
            rows.append(self.skip_cause(late_ms / 1e3, waited_ms, skip_ratio))
        return rows

    def skip_cause(self, late_s: float, waited_ms: int = 0, skip_ratio: float = 0) -> bool:
        """The next."""
        packet = self.packets[self.read % len(self.packets)]
        self.read += 1
        cause = self.skipper.skip_cause(packet, DecodeBudget(round(late_s * 1e9), skip_ratio), waited_ms * _MS)
        self.causes.add(cause)
        return cause is not None

    def is_disposable(self, number: int) -> bool:
        """Whether no other picture needs one of those read."""
        return self.bitstream.is_disposable(bytes(self.packets[number % len(self.packets)]))

    def longest_gap(self, rows: list[bool]) -> int:
        """Pictures in a row that had to go because what they need was left out; nothing that needs it is decoded."""
        longest = gap = 0
        for number, row in enumerate(rows):
            if self.packets[number % len(self.packets)].is_keyframe:
                assert not row
                gap = 0
            assert row or not gap
            gap += row and (gap > 0 or not self.is_disposable(number))
            longest = max(longest, gap)
        return longest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


@pytest.fixture
def bframes(folder: Path) -> Iterator[Source]:
    path = folder / "b.mp4"
    source = Source(path if path.exists() else clips.bframes(path))
    yield source
    source.close()


@pytest.fixture
def camera(folder: Path) -> Iterator[Source]:
    """No picture that no other needs; a key picture a second."""
    path = folder / "camera.mp4"
    source = Source(path if path.exists() else clips.pattern(path, seconds=3, fps=_RATE))
    yield source
    source.close()


@pytest.fixture
def long_camera(folder: Path) -> Iterator[Source]:
    """The same for 14 seconds."""
    path = folder / "long.mp4"
    source = Source(path if path.exists() else clips.pattern(path, seconds=14, fps=_RATE))
    yield source
    source.close()


def test_a_burst_after_a_pause_of_the_network_is_read_whole(bframes: Source) -> None:
    assert not any(bframes.left_out(0.19, late_ms=400, every_ms=2))


def test_where_packets_must_be_waited_for_nothing_has_piled_up(bframes: Source, camera: Source) -> None:
    """A network that has become slower by so much stays late for ever, and leaving out would not help."""
    for source in (bframes, camera):
        assert not any(source.left_out(10, late_ms=1500, every_ms=66, waited_ms=40))


@pytest.mark.parametrize(("every_ms", "seconds"), [(2, 7.2), (60, 1.0)])
def test_what_has_piled_up_is_skipped_as_far_as_it_is_there(long_camera: Source, every_ms: int, seconds: float) -> None:
    """Eight seconds late: to the first key picture that is not, or, where packets come no faster than that, to the
    next, for the picture to move at all."""
    rows = long_camera.left_out(2.2, late_ms=8000, every_ms=66)
    assert not any(rows[:30])
    begun = rows.index(True)
    while rows[-1] and long_camera.read < len(long_camera.packets):
        long_camera.clock.advance(every_ms / 1e3)
        rows.append(long_camera.skip_cause(8.0))
    assert not rows[-1]
    assert long_camera.packets[len(rows) - 1].is_keyframe
    assert (len(rows) - 1 - begun) / _RATE == pytest.approx(seconds, abs=1.0)
    assert long_camera.causes == {None, "late"}


def test_late_for_a_while_leaves_out_what_no_other_needs_and_ends_when_it_has_caught_up(bframes: Source) -> None:
    rows = bframes.left_out(3, late_ms=80, every_ms=66)
    assert not any(rows[:3])
    assert 15 <= sum(rows) <= 35
    needed = [packet.is_keyframe for packet, row in zip(bframes.packets, rows) if row]
    assert not any(needed)
    assert not any(bframes.left_out(3, late_ms=5, every_ms=66)[10:])
    assert not any(bframes.left_out(3, late_ms=45, every_ms=66))


def test_what_the_decoder_has_no_time_for_is_left_out_before_it_is_late(bframes: Source) -> None:
    """As much as was asked for, of those that nobody needs; whether there are packets to be waited for or not."""
    for skip_ratio in (0.1, 0.25):
        rows = bframes.left_out(20, late_ms=0, every_ms=66, waited_ms=40, skip_ratio=skip_ratio)
        assert sum(rows) == pytest.approx(skip_ratio * len(rows), rel=0.1)
        assert all(bframes.is_disposable(number) for number, row in enumerate(rows) if row)
    assert not bframes.left_out(1, late_ms=0, every_ms=66)[-1]


def test_where_every_picture_is_whole_in_itself_any_may_go(folder: Path) -> None:
    with closing(Source(clips.pattern(folder / "jpeg.mkv", seconds=1, codec="mjpeg"))) as source:
        rows = source.left_out(20, late_ms=0, every_ms=66, skip_ratio=0.25)
    assert sum(rows) == pytest.approx(0.25 * len(rows), rel=0.1)
    assert all(sum(rows[number : number + 8]) == 2 for number in range(8, len(rows) - 8))


def test_where_there_are_too_few_of_those_the_last_before_key_pictures_go(bframes: Source, camera: Source) -> None:
    """As much as was asked for, in gaps no longer than they must be."""
    for source, skip_ratio in ((camera, 0.1), (camera, 0.3), (bframes, 0.75)):
        source.left_out(2, late_ms=0, every_ms=66)
        rows = source.left_out(40, late_ms=0, every_ms=66, skip_ratio=skip_ratio)
        assert sum(rows) == pytest.approx(skip_ratio * len(rows), rel=0.1)
        assert source.longest_gap(rows) <= skip_ratio * _RATE + 1


def test_key_pictures_that_come_irregularly_leave_the_share_right(camera: Source) -> None:
    """And the gap too: a period that was short does not make the next one end early."""
    whole = camera.packets
    camera.packets = [*whole[:15], *whole[:3], *whole[15:30], *whole[:11]]
    rows = camera.left_out(60, late_ms=0, every_ms=66, skip_ratio=0.2)
    assert sum(rows) == pytest.approx(0.2 * len(rows), rel=0.15)
    assert camera.longest_gap(rows) <= 2 * 0.2 * _RATE


def test_a_gap_that_has_begun_ends_at_a_key_picture_though_there_is_time_again(camera: Source) -> None:
    rows = camera.left_out(5, late_ms=0, every_ms=66, skip_ratio=0.5)
    while not rows[-1]:
        rows.append(camera.skip_cause(0, skip_ratio=0.5))
    rows += [camera.skip_cause(0) for _ in range(_RATE)]
    camera.longest_gap(rows)
    assert not rows[-1]


def test_the_cause_is_what_asks_for_more(bframes: Source) -> None:
    bframes.left_out(10, late_ms=0, every_ms=66, skip_ratio=0.1)
    assert bframes.causes == {None, "rate_limit"}
    bframes.left_out(1, late_ms=80, every_ms=66)
    bframes.causes.clear()
    bframes.left_out(10, late_ms=80, every_ms=66, skip_ratio=0.1)
    assert bframes.causes == {None, "late"}


def test_the_later_the_more_are_left_out(bframes: Source) -> None:
    counts = [sum(bframes.left_out(10, late_ms=late, every_ms=66)) for late in (80, 40, 25, 10)]
    assert counts[1] == pytest.approx(counts[0], abs=5)
    assert counts[2] == pytest.approx(counts[0] / 2, abs=5)
    assert counts[3] <= 5


class Served:
    """Eight sources at 30 frames/s, served in turns by what decodes 200 a second: all are late, whoever is asked.

    Attributes:
        seen: decoded pictures of each after the first seconds.
        late: s by which 99 of 100 of them were late at most.
    """

    def __init__(self, path: Path, skip_ratio: float = 0) -> None:
        clock, period = ManualClock(), 1 / 30
        sources = [Source(path, clock) for _ in range(8)]
        due = [number * 1.1 / len(sources) for number in range(len(sources))]
        self.seen, late, lates = [0] * len(sources), [0.0] * len(sources), []
        while (now := clock.monotonic_ns() / 1e9) < 40:
            turn = min(range(len(sources)), key=lambda number: due[number])
            clock.advance(max(0.0, due[turn] - now))
            while sources[turn].skip_cause(late[turn], skip_ratio=skip_ratio):
                due[turn] += period
            clock.advance(1 / 200)
            late[turn] = max(0.0, clock.monotonic_ns() / 1e9 - due[turn])
            due[turn] += period
            if now > 10:
                lates.append(late[turn])
                self.seen[turn] += 1
        for source in sources:
            source.close()
        self.late = sorted(lates)[round(0.99 * len(lates))]


def test_sources_of_one_thread_stay_fresh_and_lose_as_much(bframes: Source) -> None:
    served = Served(bframes.path)
    assert sum(served.seen) == pytest.approx(200 * 30, rel=0.02)
    assert min(served.seen) >= 0.97 * max(served.seen)
    assert served.late < 0.05


def test_so_do_those_of_which_every_picture_is_needed_if_that_is_known_beforehand(camera: Source) -> None:
    surprised, prepared = Served(camera.path), Served(camera.path, skip_ratio=0.22)
    assert sum(prepared.seen) == pytest.approx(240 * 30 * 0.78, rel=0.02)
    assert min(prepared.seen) >= 0.97 * max(prepared.seen)
    assert prepared.late < 0.2 * surprised.late


def test_where_there_are_none_everything_up_to_a_key_picture_is(camera: Source) -> None:
    assert not any(camera.left_out(4, late_ms=900, every_ms=66))
    rows = camera.left_out(4, late_ms=1200, every_ms=66)
    first, last = rows.index(True), len(rows) - rows[::-1].index(True)
    assert first * 66 >= 2000
    assert last % _RATE == 0
    assert all(rows[first:last])
    assert not any(rows[last:])


class Live:
    """A camera that sends a picture at its time, and a reader that has too little time for all of them, or enough.

    Attributes:
        seconds: of the camera, at the picture that is read next.
    """

    def __init__(self, source: Source) -> None:
        self.source, self.seconds = source, 0.0
        self._begun, self._late, self._number = source.clock.monotonic_ns(), 0.0, 0
        self._is_left_out = False
        self._step = (source.packets[1].pts or 0) - (source.packets[0].pts or 0)

    def play(
        self, seconds: float, *, decode_ms: float, read_ms: float = 1, skip_ms: float = 1, delay_s: float = 0.0
    ) -> list[tuple[bool, float]]:
        """For each picture of some seconds of the camera: whether it was left out, and how late the source was, s.

        Args:
            decode_ms: of a picture that is not left out.
            read_ms, skip_ms: of a packet that has arrived, after one that was decoded, or left out.
            delay_s: from the camera to this machine.
        """
        clock, rows, until = self.source.clock, list[tuple[bool, float]](), self.seconds + seconds
        while self.seconds < until:
            packet = self.source.packets[self._number % len(self.source.packets)]
            packet.pts = self._number * self._step
            waited = max((skip_ms if self._is_left_out else read_ms) / 1e3, self.seconds + delay_s - self._now)
            clock.advance(waited)
            budget = DecodeBudget(round(self._late * 1e9))
            cause = self.source.skipper.skip_cause(packet, budget, round(waited * 1e9))
            assert cause in (None, "late")
            if not cause:
                clock.advance(decode_ms / 1e3)
                self._late = self._now - self.seconds
            self._is_left_out = cause is not None
            rows.append((self._is_left_out, self._late))
            self._number, self.seconds = self._number + 1, self.seconds + 1 / _RATE
        return rows

    def play_until(self, *, left_out: bool, decode_ms: float, read_ms: float, skip_ms: float = 1) -> None:
        """Up to a picture that is left out, or one that is not."""
        end = self.seconds + 30
        while self._is_left_out != left_out:
            assert self.seconds < end
            self.play(0.5 / _RATE, decode_ms=decode_ms, read_ms=read_ms, skip_ms=skip_ms)

    @property
    def _now(self) -> float:
        return (self.source.clock.monotonic_ns() - self._begun) / 1e9


def _groups(rows: list[tuple[bool, float]]) -> int:
    """Gaps of pictures that were left out."""
    return sum(row and not before for (before, _), (row, _) in zip([(False, 0.0), *rows], rows))


def test_reads_that_are_slow_because_the_machine_is_busy_hide_no_backlog(camera: Source) -> None:
    """Two thirds of the pictures can be decoded, and a packet that has arrived is read after 15 ms. What is late stays
    bounded, and is fresh at once where there is time again."""
    live = Live(camera)
    live.play(10, decode_ms=20)
    overload = live.play(120, decode_ms=90, read_ms=15)
    assert max(late for _, late in overload[10 * _RATE :]) < 2.0
    assert sum(not row for row, _ in overload) > 0.5 * len(overload)
    after = live.play(10, decode_ms=20)
    assert max(late for _, late in after[3 * _RATE :]) < 0.1
    assert not any(row for row, _ in after[3 * _RATE :])


@pytest.mark.parametrize("decode_ms", [20, 58])
def test_a_network_that_has_become_slower_costs_a_group_of_pictures_at_most(camera: Source, decode_ms: float) -> None:
    """Whether the reader waits for most of the time or hardly; so does a camera whose clock stood still."""
    live = Live(camera)
    live.play(10, decode_ms=decode_ms)
    rows = live.play(120, decode_ms=decode_ms, delay_s=1.5)
    assert _groups(rows) <= (0 if decode_ms < 30 else 1)
    assert sum(row for row, _ in rows) <= _RATE


@pytest.mark.parametrize("skip_ms", [66, 100])
def test_a_moment_without_time_even_for_reading_is_no_slow_network(camera: Source, skip_ms: float) -> None:
    """For one gap packets that have arrived are read no faster than the camera makes them, or slower."""
    live = Live(camera)
    live.play(20, decode_ms=90, read_ms=15)
    live.play_until(left_out=False, decode_ms=90, read_ms=15)
    live.play_until(left_out=True, decode_ms=90, read_ms=15)
    live.play_until(left_out=False, decode_ms=90, read_ms=15, skip_ms=skip_ms)
    overload = live.play(20, decode_ms=90, read_ms=15)
    assert max(late for _, late in overload) < 2.4
    assert max(late for _, late in overload[5 * _RATE :]) < 1.6


def test_a_network_that_has_become_slower_after_a_backlog_costs_two_groups(camera: Source) -> None:
    live = Live(camera)
    live.play(10, decode_ms=58)
    camera.clock.advance(6)
    rows = live.play(60, decode_ms=58, delay_s=1.5)
    assert rows[-1][1] == pytest.approx(1.5, abs=0.2)
    assert _groups(rows) <= 2


def test_lateness_that_is_usual_hides_none_that_comes_on_top(camera: Source) -> None:
    live = Live(camera)
    live.play(60, decode_ms=58, delay_s=0.0)
    live.play(60, decode_ms=58, delay_s=1.5)
    overload = live.play(60, decode_ms=100, delay_s=1.5)
    assert max(late for _, late in overload[10 * _RATE :]) < 3.5


@pytest.mark.parametrize("decode_ms", [10, 90])
@pytest.mark.parametrize("stall_s", [1.0, 4.0, 10.0])
def test_a_burst_after_a_pause_is_read_whole_where_there_is_time(
    camera: Source, stall_s: float, decode_ms: float
) -> None:
    """Also some time after an overload."""
    live = Live(camera)
    live.play(20, decode_ms=decode_ms)
    live.play(15, decode_ms=10)
    camera.clock.advance(stall_s)
    rows = live.play(stall_s + 20, decode_ms=10)
    assert not any(row for row, _ in rows)
    assert rows[-1][1] < 0.1


def test_a_backlog_that_was_taken_for_usual_is_found_when_it_shrinks(camera: Source) -> None:
    """While a busy machine reads packets no faster than the camera makes them, a backlog looks like a slow network.
    Afterwards the reader is hardly faster than the camera: it would take minutes to catch up."""
    live = Live(camera)
    live.play(10, decode_ms=20)
    camera.clock.advance(8)
    rows = live.play(20, decode_ms=46, read_ms=20, skip_ms=66)
    assert 0 < _groups(rows) <= 2
    rows = live.play(60, decode_ms=62)
    assert rows[0][1] > 5
    assert max(late for _, late in rows[20 * _RATE :]) < 1.5
