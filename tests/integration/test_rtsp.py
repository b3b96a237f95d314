"""Two real RTSP servers, killed and frozen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from time import time_ns
from typing import Literal

import pytest

from daemon.bench.result import read
from daemon.cli import invoke
from daemon.config.sources import AvConfig
from daemon.errors import SourceError
from daemon.redact import Secret, Url
from daemon.sources.ffmpeg import AvSource
from daemon.sources.port import next_picture
from lookout.messages import Detections, Message, Metrics, Status
from tests.support import clips
from tests.support.daemon import Lookout, all_of, has_seen, is_state, lost, receive_until, wait_until
from tests.support.hardware import FakeGpu
from tests.support.rtsp import RtspServer

pytestmark = [pytest.mark.needs("ffmpeg", "rtsp"), pytest.mark.slow(10)]
_FAST = {"initial_s": 0.1, "max_s": 0.3}
_KILLS = int(os.environ.get("LOOKOUT_KILLS", "12"))


@pytest.fixture
def servers(long_clip: Path) -> Iterator[tuple[RtspServer, RtspServer]]:
    first, second = RtspServer({"cam": long_clip}), RtspServer({"cam": long_clip})
    yield first, second
    first.kill()
    second.kill()


def _config(servers: tuple[RtspServer, RtspServer], **more: object) -> dict[str, object]:
    sources = [{"id": name, "type": "av", "url": server.url("cam")} for name, server in zip("ab", servers)]
    return {"sources": sources, "model": {"path": "none", "backend": "fake"}, **more}


def test_a_killed_server_comes_back_and_its_neighbour_feels_nothing(
    servers: tuple[RtspServer, RtspServer], tmp_path: Path
) -> None:
    """Ten seconds of outage: the source is tried again every 4 s at least, and is up as soon as its server answers.
    Of the other source no picture is missing. How many seconds that takes: tests/speed."""
    with Lookout(tmp_path, _config(servers)) as lookout, lookout.subscribe() as subscriber:
        receive_until(subscriber, all_of(is_state("a", "up"), is_state("b", "up")))
        servers[0].kill()
        messages = receive_until(subscriber, is_state("a", "down"))
        messages += receive_until(subscriber, has_seen(150, "b"))
        servers[0].start()
        answers_at = time_ns()
        messages += receive_until(subscriber, is_state("a", "up"))
        messages += receive_until(subscriber, has_seen(15, "a", "b"))
        assert lookout.stop() == 0
        assert "Traceback" not in lookout.log()
    downs = [message for message in messages if isinstance(message, Status) and message.state == "down"]
    assert {status.source for status in downs} == {"a"}
    assert max(status.retry_in_s or 0 for status in downs) <= 4
    assert sum(status.at > answers_at for status in downs) <= 1  # a try may have begun before
    assert lost(messages, "b") == 0
    frames = [message for message in messages if isinstance(message, Detections) and message.source == "b"]
    times = [(frame.pts, frame.seq) for frame in frames if frame.pts is not None]
    assert len(times) >= len(frames) - 1  # the first picture of a camera has no time yet
    for (pts, seq), (next_pts, next_seq) in pairwise(times):
        assert round((next_pts - pts) * 15 / 1e9) == next_seq - seq


@pytest.mark.long
def test_kills_leave_nothing_behind(servers: tuple[RtspServer, RtspServer], tmp_path: Path) -> None:
    """Threads, descriptors and memory are where they were. LOOKOUT_KILLS=50 kills as often."""
    config = _config(servers, reconnect=_FAST)
    with Lookout(tmp_path, config) as lookout, lookout.subscribe("status", sources=("a",)) as status:
        receive_until(status, is_state("a", "up"))

        def kill() -> None:
            servers[0].kill()
            receive_until(status, is_state("a", "down"))
            servers[0].start()
            receive_until(status, is_state("a", "up"))

        for _ in range(12):  # FFmpeg and malloc take what they keep, and then no more
            kill()
        looks = [(_resources(lookout), status.receive(0.1)) for _ in range(20)]
        threads, files, memory = map(min, zip(*(used for used, _ in looks)))
        for _ in range(_KILLS):
            kill()
        wait_until(lambda: lookout.inspect.num_threads() <= threads, "threads end")
        wait_until(lambda: lookout.inspect.num_fds() <= files, "files are closed")
        assert lookout.inspect.memory_info().rss <= memory * 1.02


@pytest.mark.parametrize("processes", [pytest.param(0, marks=pytest.mark.long), 2])
def test_a_frozen_server_is_stalled_then_down(
    servers: tuple[RtspServer, RtspServer], tmp_path: Path, processes: int
) -> None:
    """A server that goes silent without closing anything is noticed, named, and connected to anew."""
    config = _config(servers, monitor={"stall_after_s": 1.0}, reconnect=_FAST, capture_processes=processes)
    config["sources"][0]["read_timeout_s"] = 3  # type: ignore[index]
    with Lookout(tmp_path, config) as lookout, lookout.subscribe("status", sources=("a",)) as status:
        receive_until(status, is_state("a", "up"))
        servers[0].freeze()
        receive_until(status, is_state("a", "stalled"))
        down = receive_until(status, is_state("a", "down"))[-1]
        assert "no data" in (down.reason or "")  # type: ignore[union-attr]
        servers[0].kill()
        servers[0].start()
        receive_until(status, is_state("a", "up"))


@pytest.mark.parametrize("processes", [pytest.param(0, marks=pytest.mark.long), 2])
def test_a_camera_that_sends_reports_but_no_pictures_is_connected_to_anew(
    servers: tuple[RtspServer, RtspServer], tmp_path: Path, processes: int
) -> None:
    """Its encoder hangs: whoever reads from it waits for ever, for something comes all the time."""
    config = _config(servers, monitor={"stall_after_s": 1.0}, reconnect=_FAST, capture_processes=processes)
    config["sources"][0]["read_timeout_s"] = 9  # type: ignore[index]
    with Lookout(tmp_path, config) as lookout, lookout.subscribe(sources=("a",)) as subscriber:
        receive_until(subscriber, is_state("a", "up"))
        servers[0].mute()
        messages = receive_until(subscriber, is_state("a", "down"))
        assert messages[-1].reason == "left behind: it was blocked while reading"  # type: ignore[union-attr]
        messages += receive_until(subscriber, is_state("a", "up"))
        messages += receive_until(subscriber, lambda message: isinstance(message, Detections))
        frames = [message for message in messages if isinstance(message, Detections)]
        assert all(one.seq < next_one.seq for one, next_one in pairwise(frames))
        assert [message.index - frames[0].index for message in frames] == list(range(len(frames)))
        assert len({message.session for message in frames}) == 2
        assert lookout.stop() == 0
        assert "Traceback" not in lookout.log()


def test_wrong_password_is_told_without_the_password(long_clip: Path, tmp_path: Path) -> None:
    """Neither log nor message holds it; the right one works."""
    server = RtspServer({"cam": long_clip}, auth="operator:right-one")
    try:
        config: dict[str, object] = {
            "sources": [
                {"id": "wrong", "type": "av", "url": server.url("cam", "operator:wr0ng-one")},
                {"id": "right", "type": "av", "url": server.url("cam", "operator:right-one")},
            ]
        }
        with Lookout(tmp_path, config) as lookout, lookout.subscribe("status") as status:
            # A busy machine may have another reason first.
            messages = receive_until(status, lambda one: is_state("wrong", "down")(one) and "401" in str(one))
            if not any(is_state("right", "up")(message) for message in messages):
                messages += receive_until(status, is_state("right", "up"))
            assert lookout.stop() == 0
            for secret in ("wr0ng-one", "right-one", "operator"):
                assert secret not in str(messages)
                assert secret not in lookout.log()
    finally:
        server.kill()


def _in_flight(metrics: Metrics) -> int:
    return sum(row.in_flight for row in metrics.sources.values())


@pytest.mark.parametrize("processes", [0, 2])
def test_every_frame_of_a_camera_is_accounted_for(
    servers: tuple[RtspServer, RtspServer], tmp_path: Path, processes: int
) -> None:
    """When it stops, captured = published + dropped for each camera, and what was published has arrived here."""
    with Lookout(tmp_path, _config(servers, capture_processes=processes)) as lookout, lookout.subscribe() as subscriber:
        found = receive_until(subscriber, lambda message: isinstance(message, Detections) and message.seq >= 60)
        assert lookout.stop() == 0
        found += receive_until(subscriber, lambda message: isinstance(message, Metrics) and not _in_flight(message))
        while (message := subscriber.receive(2.0)) is not None:
            found.append(message)
    last = [message for message in found if isinstance(message, Metrics)][-1]
    for source, figures in last.sources.items():
        indices = [m.index for m in found if isinstance(m, Detections) and m.source == source]
        assert figures.in_flight == 0
        assert figures.published == indices[-1] + 1
        assert indices == list(range(indices[0], indices[-1] + 1))


@pytest.mark.parametrize("processes", [0, 2])
def test_frames_carry_the_cameras_own_time(
    servers: tuple[RtspServer, RtspServer], tmp_path: Path, processes: int
) -> None:
    """From the camera's second RTCP report on: `ntp`, and as far from the time of arrival as the error says."""
    seen_at: list[int] = []
    kinds: list[str] = []

    def is_enough(message: Message) -> bool:
        assert isinstance(message, Detections)
        seen_at.append(time_ns())
        kinds.append(message.clock.kind)
        return kinds.count("ntp") == 30

    with (
        Lookout(tmp_path, _config(servers, capture_processes=processes)) as lookout,
        lookout.subscribe("detections", sources=("a",)) as subscriber,
    ):
        told = receive_until(subscriber, is_enough)
    assert [kind for kind, _ in groupby(kinds)] == ["arrival", "ntp"]
    frames = [message for message in told if isinstance(message, Detections)][-30:]
    # Server and daemon share a clock: what lies between is the server's own delay and ours, of which the least counts.
    errors = [message.clock.error or 0 for message in frames]
    reports = [message.captured_at - (message.pts or 0) for message in frames]
    for (one, other), (before, after) in zip(pairwise(reports), pairwise(errors)):
        assert after <= before or abs(other - one) > 10_000_000  # a report that moves the times begins anew
    for at, message, error in zip(seen_at[-30:], frames, errors):
        assert at - message.captured_at > error - 1_000_000
    times = [message.captured_at for message in frames]
    paced = [later - earlier for earlier, later in pairwise(times)]
    pts = [(later.pts or 0) - (earlier.pts or 0) for earlier, later in pairwise(frames)]
    # As regular as the camera took them, whatever the network did; each new report may move the time a little.
    assert median(abs(one - other) for one, other in zip(paced, pts)) < 5e6


@pytest.mark.parametrize("transport", ["tcp", "udp"])
@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_a_camera_through_the_gpus_decoder(
    codec: str, transport: Literal["tcp", "udp"], long_clip: Path, tmp_path: Path
) -> None:
    """With a stand-in for it, and B-frames in HEVC: every picture, in order, at its own time."""
    if codec == "h265":
        long_clip = clips.pattern(tmp_path / "long.mkv", seconds=8, codec="libx265")
    server = RtspServer({"cam": long_clip}, codec=codec)
    config = AvConfig(id="s", url=Url(server.url("cam")), transport=transport, decode="nvdec")
    try:
        with closing(AvSource(config, FakeGpu().pool).open()) as reader:
            pictures = [picture for picture in (next_picture(reader) for _ in range(60)) if picture]
            assert reader.format.decoder == "nvdec"
            assert (reader.format.width, reader.format.height) == (320, 180)
            assert pictures[-1].load().width == 320
    finally:
        server.kill()
    times = [picture.pts for picture in pictures if picture.pts is not None]
    steps = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) >= 59
    assert all(step == pytest.approx(1e9 / 15, rel=0.1) for step in steps)


def test_a_server_that_has_udp_alone(long_clip: Path) -> None:
    """It is found, and said; who asks for TCP is told what to do."""
    server = RtspServer({"cam": long_clip}, udp_alone=True)
    url = Url(server.url("cam"))
    try:
        with closing(AvSource(AvConfig(id="s", url=url)).open()) as reader:
            assert next_picture(reader) is not None
            assert reader.format.notes == ("its server does not offer TCP: UDP is used, where packets may be lost",)
        with pytest.raises(SourceError, match="the server does not offer TCP: set transport: udp"):
            AvSource(AvConfig(id="s", url=url, transport="tcp")).open()
    finally:
        server.kill()


def test_user_and_password_of_any_signs(long_clip: Path) -> None:
    """Beside the URL; and in it, unescaped, as people write them."""
    user, password = "viewer@home", "p@ss#1/ü?%"
    server = RtspServer({"cam": long_clip}, auth=f"{user}:{password}")
    bare, full = Url(server.url("cam")), Url(server.url("cam", f"{user}:{password}"))
    try:
        for config in (
            AvConfig(id="s", url=bare, user=Secret(user), password=Secret(password)),
            AvConfig(id="s", url=full),
        ):
            with closing(AvSource(config).open()) as reader:
                assert next_picture(reader) is not None
        with pytest.raises(SourceError, match="check user name and password"):
            AvSource(AvConfig(id="s", url=bare, user=Secret(user), password=Secret("wrong"))).open()
    finally:
        server.kill()


def test_a_benchmark_of_cameras_keeps_the_password_to_itself(long_clip: Path, tmp_path: Path) -> None:
    """It connects as often as it is asked to, and is refused where it would have to go at its own speed."""
    server, out = RtspServer({"cam": long_clip}, auth="operator:right-one"), tmp_path / "out"
    load = [
        "bench",
        "run",
        server.url("cam", "operator:right-one"),
        "--sources",
        "3",
        "--backend",
        "cpu",
        "--threads",
        "1",
    ]
    load += ["--seconds", "2", "--warm-up", "0", "--repeats", "1", "--out", str(out)]
    try:
        assert invoke(load) == 2
        assert invoke([*load, "--paced"]) == 0
    finally:
        server.kill()
    (run,) = read(out / "run.json").cases[0].repeats[0]
    assert (run.up, run.unaccounted, run.received_share) == (3, 0, 1.0)
    assert run.published > 0
    for file in out.iterdir():
        assert "right-one" not in file.read_text()


def _resources(lookout: Lookout) -> tuple[int, int, int]:
    """Threads, descriptors, bytes of memory."""
    return lookout.inspect.num_threads(), lookout.inspect.num_fds(), lookout.inspect.memory_info().rss
