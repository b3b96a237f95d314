"""A live source whose decoder waits for its turn begins with its newest key picture; sessions serve again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from av.packet import Packet

from daemon.config.sources import AvConfig
from daemon.errors import SourceError
from daemon.monitoring.pace import PaceSetter
from daemon.pipeline.ledger import ROW
from daemon.redact import Url
from daemon.sources.bitstream import Bitstream
from daemon.sources.ffmpeg import AvReader, AvSource
from daemon.sources.held_packets import Held, HeldPackets
from daemon.sources.nvdec.costs import decoder_bytes
from daemon.sources.pending import MarkedTimes
from daemon.sources.port import Skipped
from daemon.system.turns import HostLateness, Pace, Turns
from tests.support import clips
from tests.support.clock import ManualClock
from tests.support.daemon import ROOT
from tests.support.driver import built
from tests.support.hardware import FakeGpu, bgr_of
from tests.support.rtsp_camera import Camera, Picture, RtspCamera, at_rate, pictures_of

FPS = 15  # with a key picture a second
MS = 1_000_000  # ns
BITSTREAM = Bitstream("h264", None)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Picture]:
    """Four seconds of a camera."""
    return at_rate(pictures_of(clips.pattern(tmp_path_factory.mktemp("clips") / "a.mkv", seconds=4)), FPS)


def watched(reader: AvReader, count: int) -> list[int | None]:
    """For so many pictures the number of each that is shown, None for one that is passed over."""
    seen: list[int | None] = []
    first: int | None = None
    while len(seen) < count:
        picture = reader.read()
        assert picture is not None
        if isinstance(picture, Skipped):
            assert picture.cause == "late"
            seen.append(None)
            continue
        assert bgr_of(picture.load()).any()
        if picture.pts is None:  # FFmpeg does not know the first time of RTSP
            seen.append(len(seen))
            continue
        first = picture.pts - len(seen) * 1_000_000_000 // FPS if first is None else first
        seen.append(round((picture.pts - first) * FPS / 1e9))
    return seen


def turns_from(call: int) -> Callable[[], bool]:
    """Whether a turn is free: from this call on."""
    calls = iter(range(1, 1_000_000))
    return lambda: next(calls) >= call


@pytest.mark.needs("ffmpeg")
@pytest.mark.parametrize(("call", "key"), [(1, 0), (5, 0), (20, 15), (40, 30)])
def test_it_begins_with_the_newest_key_picture_and_counts_the_others(
    pictures: list[Picture], call: int, key: int
) -> None:
    """Each picture is shown or counted, once and in order; one decoder is opened."""
    gpu = FakeGpu(has_turn=turns_from(call))
    with RtspCamera(Camera(pictures, ends=True)) as server:
        config = AvConfig(id="s", url=Url(server.url()), decode="nvdec")
        with closing(AvSource(config, gpu.pool).open()) as reader:
            seen = watched(reader, len(pictures))
    begin = next(at for at, number in enumerate(seen) if number is not None)
    assert begin >= key  # on a slow machine what is held is too old to be shown
    assert seen[begin:] == [None if number is None else at for at, number in enumerate(seen)][begin:]
    assert None not in seen[max(begin, call + 1) :]
    assert gpu.opened == 1


@pytest.mark.needs("ffmpeg")
def test_a_recording_waits_and_loses_nothing(tmp_path: Path) -> None:
    clip = clips.pattern(tmp_path / "a.mp4", seconds=2)
    gpu = FakeGpu(has_turn=lambda: False)
    with closing(AvSource(AvConfig(id="s", url=Url(str(clip)), decode="nvdec"), gpu.pool).open()) as reader:
        assert watched(reader, 30) == list(range(30))


@pytest.mark.needs("ffmpeg")
def test_whoever_reads_hears_of_a_camera_while_it_waits(pictures: list[Picture]) -> None:
    """Its next key picture may be long in coming. Each picture is shown or counted once."""
    slow = [replace(picture, wait=0.1) for picture in pictures[:12]]
    more = [replace(slow[-1], at=slow[-1].at + number / FPS) for number in range(1, 100)]
    with RtspCamera(Camera([*slow, *more])) as server:
        config = AvConfig(id="s", url=Url(server.url()), decode="nvdec")
        with closing(AvSource(config, FakeGpu(has_turn=lambda: False).pool).open()) as reader:
            packets: list[int] = []
            reader.set_tap(lambda packet: packets.append(packet.size))
            assert watched(reader, 5) == [None] * 5
            assert 5 < len(packets) < len(slow + more)
    gpu = FakeGpu(has_turn=turns_from(10))
    with RtspCamera(Camera(slow, ends=True)) as server:
        config = AvConfig(id="s", url=Url(server.url()), decode="nvdec")
        with closing(AvSource(config, gpu.pool).open()) as reader:
            seen = watched(reader, 12)
            with pytest.raises(SourceError, match="closed by its server"):
                reader.read()
    assert None not in seen[-2:]


@pytest.mark.needs("ffmpeg")
def test_a_camera_that_leaves_while_it_waits_leaves_nothing_behind(pictures: list[Picture]) -> None:
    gpu = FakeGpu(has_turn=lambda: False)
    with RtspCamera(Camera(pictures, ends=True)) as server:
        config = AvConfig(id="s", url=Url(server.url()), decode="nvdec")
        with closing(AvSource(config, gpu.pool).open()) as reader:
            assert watched(reader, len(pictures)) == [None] * len(pictures)
            for _ in range(2):
                with pytest.raises(SourceError, match="closed by its server"):
                    reader.read()
    assert (gpu.pool.memory, gpu.opened) == (0, 0)
    gpu.pool.close()
    assert all(session.closed for session in gpu.sessions)


def packet(pts: int, size: int = 100, *, key: bool = False) -> Packet[Any]:
    found: Packet[Any] = Packet(b"\0\0\0\1\x41" + bytes(size))
    found.pts, found.is_keyframe = pts, key
    return found


def held(*rows: Held) -> HeldPackets:
    found = HeldPackets()
    for row in rows:
        found.add(row, BITSTREAM)
    return found


def test_what_waited_for_long_is_not_shown() -> None:
    """It is decoded, because later pictures refer to it. Pictures come in their own order."""
    packets = held(*(Held(packet(number, key=not number), 1, 100 * MS * number) for number in range(4)))
    assert packets.passed_over == 1
    rows = [packets.pop(350 * MS) for _ in range(4)]
    assert [row.packet.pts for row in rows] == [0, 1, 2, 3]
    assert [row.is_stale for row in rows] == [True, True, False, False]
    assert packets.passed_over == 2
    stale = MarkedTimes()
    for pts in (0, 3, None):
        stale.add(pts)
    assert [stale.has(pts) for pts in (0, 1, None, 2, 3, 4, 3)] == [True, False, False, False, True, False, False]


def test_what_is_passed_over_in_time_is_counted_once() -> None:
    """Whether it is decoded later, or makes room for a key picture. A packet that the decoder does not take is the same
    when it comes again."""
    packets = held(*(Held(packet(number, key=not number), 1, 100 * MS * number) for number in range(4)))
    packets.put_back(packets.pop(250 * MS))
    assert packets.passed_over == 1
    packets.add(Held(packet(4), 1, 400 * MS), BITSTREAM)
    assert packets.passed_over == 2
    packets.add(Held(packet(5, key=True), 1, 450 * MS), BITSTREAM)
    assert packets.passed_over == 5
    assert packets.pop(450 * MS).packet.pts == 5


def test_parameters_before_a_key_picture_stay_with_it() -> None:
    def row(number: int, pictures: int, *, key: bool = False) -> Held:
        return Held(packet(number, key=key), pictures, 0)

    packets = held(row(0, 1), row(1, 0), row(2, 1, key=True), row(3, 1), row(4, 0), row(5, 1, key=True), row(6, 1))
    assert [packets.pop(0).packet.pts for _ in range(3)] == [4, 5, 6]
    assert not packets
    assert packets.passed_over == 3


def test_of_a_camera_without_key_pictures_little_is_held() -> None:
    """What is beyond it is passed over until one comes."""
    packets = held(*(Held(packet(number, 1 << 20, key=number == 0), 1, 0) for number in range(20)))
    assert packets
    assert not packets.has_picture
    assert packets.passed_over == 20
    assert [packets.take_passed_over() for _ in range(21)] == [True] * 20 + [False]
    packets.add(Held(packet(20, key=True), 1, 0), BITSTREAM)
    assert packets.pop(0).packet.pts == 20


def test_a_key_picture_waits_whatever_its_size() -> None:
    """The newest, with what refers to it."""
    packets = held(*(Held(packet(number, 5 << 20, key=True), 1, 0) for number in range(3)), Held(packet(3), 1, 0))
    assert packets.passed_over == 2
    assert packets.has_picture
    assert [packets.pop(0).packet.pts for _ in range(2)] == [2, 3]


def test_packets_without_a_picture_do_not_pile_up() -> None:
    rows = [Held(packet(number, 1 << 20), 0, 0) for number in range(18)]
    packets = held(*rows, Held(packet(20, key=True), 1, 0))
    kept = [packets.pop(0).packet.pts]
    while packets:
        kept.append(packets.pop(0).packet.pts)
    assert 1 < len(kept) <= 5
    assert kept[-1] == 20
    assert packets.passed_over == 0


# --- turns that are asked for -------------------------------------------------------------------------------------


def test_a_turn_is_had_or_refused_at_once(tmp_path: Path) -> None:
    one, other = Turns(tmp_path, Pace(abreast=1)), Turns(tmp_path, Pace(abreast=1))
    turn = one.taken_if_free()
    assert turn is not None
    assert one.taken_if_free() is None
    assert other.taken_if_free() is None
    with turn as has_turn:
        assert has_turn
    with other.taken() as has_turn:
        assert has_turn
        assert one.taken_if_free() is None
    again = one.taken_if_free()
    assert again is not None
    with again:
        pass


def test_who_asks_in_vain_for_long_goes_on_without_a_turn(clock: ManualClock, tmp_path: Path) -> None:
    """As long as others get on it is not in vain."""
    pace = Pace(abreast=1, patience_s=5.0)
    one, other = Turns(tmp_path, pace, clock), Turns(tmp_path, pace, clock)
    for _ in range(3):
        with other.taken():
            assert one.taken_if_free() is None
            clock.advance(4.0)
            assert one.taken_if_free() is None
    with other.taken():
        assert one.taken_if_free() is None
        clock.advance(6.0)
        alone = one.taken_if_free()
        assert alone is not None
        with alone as has_turn:
            assert not has_turn


def test_where_there_are_no_turns_nobody_waits(tmp_path: Path) -> None:
    turn = Turns(tmp_path / "none").taken_if_free()
    assert turn is not None
    with turn as has_turn:
        assert not has_turn


# --- sessions that serve again ------------------------------------------------------------------------------------


def pool_source(path: Path, gpu: FakeGpu) -> AvSource:
    return AvSource(AvConfig(id="s", url=Url(str(path)), decode="nvdec"), gpu.pool)


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sizes")
    forms = {"small": ("160x96", "libx264"), "large": ("320x192", "libx264"), "other": ("160x96", "libx265")}
    found = {}
    for name, (size, codec) in forms.items():
        found[name] = folder / f"{name}.mp4"
        source = ["-f", "lavfi", "-i", f"testsrc2=size={size}:rate={FPS}:duration=1"]
        clips.ffmpeg(*source, "-c:v", codec, "-preset", "ultrafast", "-pix_fmt", "yuv420p", found[name])
    return found


@pytest.mark.needs("ffmpeg")
@pytest.mark.parametrize(
    ("first", "then", "opened"), [("large", "small", 1), ("small", "large", 2), ("large", "other", 2)]
)
def test_a_session_whose_source_left_serves_the_next_that_fits(
    sizes: dict[str, Path], first: str, then: str, opened: int
) -> None:
    gpu = FakeGpu()
    for name in (first, then, then):
        with closing(pool_source(sizes[name], gpu).open()) as reader:
            assert watched(reader, 10) == list(range(10))
    assert gpu.opened == opened
    assert sum(not session.closed for session in gpu.sessions) == 1  # as many as there were sources at once
    assert gpu.pool.memory == 0


@pytest.mark.needs("ffmpeg")
def test_a_large_session_is_not_taken_where_memory_is_short(sizes: dict[str, Path]) -> None:
    small = decoder_bytes("h264", 160, 96, 4, low_latency=False)
    large = decoder_bytes("h264", 320, 192, 4, low_latency=False)
    limit = large + small - 1  # not for both
    gpu = FakeGpu(limit=limit)
    with closing(pool_source(sizes["large"], gpu).open()) as reader:
        watched(reader, 5)
    with closing(pool_source(sizes["small"], gpu).open()) as one:
        watched(one, 5)
        assert gpu.opened == 1
        assert small < gpu.pool.memory < large
    gpu = FakeGpu(limit=limit)
    with closing(pool_source(sizes["large"], gpu).open()) as reader:
        watched(reader, 5)
    with ExitStack() as stack:
        for _ in range(2):
            watched(stack.enter_context(closing(pool_source(sizes["small"], gpu).open())), 5)
        assert gpu.pool.memory <= limit


@pytest.mark.needs("ffmpeg")
def test_a_session_that_nobody_wants_is_closed_after_two_minutes(sizes: dict[str, Path], clock: ManualClock) -> None:
    gpu = FakeGpu(clock=clock)
    with ExitStack() as stack:
        for _ in range(2):
            watched(stack.enter_context(closing(pool_source(sizes["small"], gpu).open())), 5)
    for minutes, left in ((1.0, 2), (1.1, 1), (0.0, 0), (0.0, 0)):
        clock.advance(60 * minutes)
        gpu.pool.tidy()
        assert sum(not session.closed for session in gpu.sessions) == left


@pytest.mark.needs("ffmpeg")
def test_an_idle_session_gives_way_where_the_driver_has_no_room(sizes: dict[str, Path]) -> None:
    """It is of another codec, so it cannot serve itself."""
    gpu = FakeGpu(room=1)
    with closing(pool_source(sizes["large"], gpu).open()) as reader:
        watched(reader, 5)
    with closing(pool_source(sizes["other"], gpu).open()) as reader:
        assert watched(reader, 10) == list(range(10))
        with closing(pool_source(sizes["small"], gpu).open()) as refused, pytest.raises(SourceError, match="no room"):
            watched(refused, 1)


@pytest.mark.needs("ffmpeg")
def test_a_camera_that_no_idle_session_serves_is_read_while_it_waits(
    pictures: list[Picture], sizes: dict[str, Path]
) -> None:
    """The driver does not change the session's decoder. So a new one waits for its turn, with the first packet."""
    calls = count(1)
    gpu = FakeGpu(has_turn=lambda: next(calls) not in range(2, 12), changes=False)
    other = at_rate(pictures_of(sizes["small"]), FPS)
    for items in (pictures, other):
        with RtspCamera(Camera(items, ends=True)) as server:
            config = AvConfig(id="s", url=Url(server.url()), decode="nvdec")
            with closing(AvSource(config, gpu.pool).open()) as reader:
                seen = watched(reader, len(other))
    assert None not in seen[12:]
    assert (next(calls), gpu.opened) == (14, 2)
    assert sum(not session.closed for session in gpu.sessions) == 1


# --- processes over the driver's stand-in -----------------------------------------------------------------------------

# Reads cameras again and again as a capture process does, one connection after the other, and says what becomes of
# each picture.
_READER = """
import sys
from contextlib import closing
from daemon.config.sources import AvConfig
from daemon.redact import Url
from daemon.sources.ffmpeg import AvSource
from daemon.sources.nvdec.backend import NvdecBackend
from daemon.sources.nvdec.session import Engines
from daemon.sources.port import Skipped
pool = NvdecBackend(0, Engines(0).capability(), 3, 1 << 32).open()
print("ready", flush=True)
sys.stdin.readline()
count, times, *urls = sys.argv[1:]
for _ in range(int(times)):
    for url in urls:
        with closing(AvSource(AvConfig(id="s", url=Url(url), decode="nvdec"), pool).open()) as reader:
            for _ in range(int(count)):
                picture = reader.read()
                late = isinstance(picture, Skipped)
                print(picture.cause if late else picture.load().width, flush=True)
                picture = None
pool.close()
"""
# Opens decoders as fast as it may, once it is told to.
_OPENER = """
import sys, av
from daemon.sources.nvdec.session import Engines
engines, packet = Engines(0), av.Packet(b"p" * 100)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[1])):
    session = engines.session("h264", low_latency=True, surfaces=2)
    session.decode(packet.buffer_ptr, packet.buffer_size, None)
"""


@pytest.fixture
def host(tmp_path: Path) -> dict[str, str]:
    """The environment of a host with a stand-in driver, which notes what it opens."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(built(tmp_path, "cuda", "nvcuvid")),
        "LOOKOUT_HOST_FOLDER": str(tmp_path),
        "LOOKOUT_TEST_OPENINGS": str(tmp_path / "openings"),
    }


def started(host: dict[str, str], code: str, *arguments: str) -> subprocess.Popen[str]:
    command, pipe = [sys.executable, "-c", code, *arguments], subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=host, stdin=pipe, stdout=pipe, text=True)


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout
    assert process.stdout.readline() == "ready\n"


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()


def opened(host: dict[str, str]) -> list[int]:
    """For each decoder that was made, how many were being made at that moment."""
    file = Path(host["LOOKOUT_TEST_OPENINGS"])
    return [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.mark.needs("ffmpeg", "g++", "nvcuvid")
def test_a_camera_is_read_while_another_process_has_the_turns(
    pictures: list[Picture], host: dict[str, str], tmp_path: Path
) -> None:
    """Two seconds of it are passed over, and counted; then it begins."""
    with (
        RtspCamera(Camera(pictures, ends=True)) as server,
        started(host, _READER, str(len(pictures)), "1", server.url()) as reader,
    ):
        assert reader.stdout
        ready(reader)
        with ExitStack() as stack:
            turns = Turns(tmp_path)
            had = [stack.enter_context(turns.taken()) for _ in range(Pace().abreast)]
            assert all(had)
            go(reader)
            said = [reader.stdout.readline().strip() for _ in range(2 * FPS)]
            assert said == ["late"] * (2 * FPS)
            assert not (tmp_path / "openings").exists()
        rest = reader.stdout.read().split()
    assert reader.returncode == 0
    assert len(rest) == len(pictures) - 2 * FPS
    assert set(rest) <= {"late", "320"}
    assert len(opened(host)) <= 1  # none, if all had been read before the turn came


@pytest.mark.needs("ffmpeg", "g++", "nvcuvid")
def test_cameras_that_connect_again_and_again_open_no_decoder(
    pictures: list[Picture], sizes: dict[str, Path], host: dict[str, str]
) -> None:
    """Nor does a camera that takes the place of another, or sends other parameters."""
    other = at_rate(pictures_of(sizes["small"]), FPS)
    with ExitStack() as stack:
        urls = [stack.enter_context(RtspCamera(Camera(items, ends=True))).url() for items in (pictures, other)]
        reader = stack.enter_context(started(host, _READER, "5", "4", *urls))
        ready(reader)
        go(reader)
        said, _ = reader.communicate(timeout=100)
    assert reader.returncode == 0
    assert len(said.split()) == 40
    assert len(opened(host)) == 1


@pytest.mark.needs("g++", "nvcuvid")
def test_who_opens_leaves_time_to_a_daemon_whose_deadlines_are_missed(host: dict[str, str], tmp_path: Path) -> None:
    """One at a time, from the moment at which it finds itself later than usual."""

    def rows(ms: float) -> Any:
        found = np.zeros(200, ROW)
        found["total"] = ms * 1e6
        return found

    told = threading.Event()

    def tell() -> None:
        HostLateness(tmp_path).tell()
        told.set()

    watch = PaceSetter(tell)
    for _ in range(30):
        watch(rows(20.0))
    assert not told.is_set()
    with ExitStack() as stack:
        openers = [stack.enter_context(started(host, _OPENER, "6")) for _ in range(2)]
        for opener in openers:
            ready(opener)
        watch(rows(60.0))
        assert told.is_set()
        for opener in openers:
            go(opener)
        while any(opener.poll() is None for opener in openers):
            watch(rows(60.0))  # as long as others open, and it is late
            told.wait(0.2)
    assert [opener.returncode for opener in openers] == [0, 0]
    assert opened(host) == [1] * 12
