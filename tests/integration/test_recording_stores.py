"""Stores that hang, are full or lose their index, under a daemon that records real streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import time_ns

import psutil
import pytest

from daemon.build import build
from daemon.config.model import ModelConfig
from daemon.config.publisher import PublisherConfig
from daemon.config.recording import RecordConfig, StoreConfig
from daemon.config.root import Config, check
from daemon.config.sources import AvConfig, ReconnectConfig, SourceRecord
from daemon.daemon import Daemon
from daemon.recording.causes import Cause
from daemon.redact import Url
from daemon.seams import Seams
from detectors.fake.detector import FakeDetector
from lookoutd.client import Subscriber
from lookoutd.messages import Detections, Message, Store
from tests.support import clips
from tests.support.daemon import all_of, has_seen, is_state, lost, receive_until, wait_until
from tests.support.recorded import SECOND, encoded
from tests.support.rtsp import RtspServer
from tests.support.small_disk import small_disk
from tests.support.stored import Stored

pytestmark = [pytest.mark.needs("ffmpeg", "rtsp"), pytest.mark.slow(3)]
_LEAST_MIB = 8  # of a ring


@pytest.fixture(scope="module")
def urls(folder_of_all: Path) -> Iterator[Mapping[str, str]]:
    """A camera of some kB/s, and one of some MB/s."""
    videos = {"light": encoded(folder_of_all, "h264", seconds=60)}
    videos["heavy"] = clips.once(folder_of_all, "heavy.mkv", _heavy)
    server = RtspServer(videos)
    yield {name: server.url(name) for name in videos}
    server.kill()


def _heavy(path: Path) -> None:
    """Three megabytes a second of noise."""
    clips.ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=15:duration=4,noise=alls=100:allf=t", "-c:v", "libx264",
        "-preset", "ultrafast", "-tune", "zerolatency", "-qp", "1", "-g", "15", "-pix_fmt", "yuv420p", path,
    )  # fmt: skip


@contextmanager
def _recording(urls: Mapping[str, str], **stores: StoreConfig) -> Iterator[Daemon]:
    """`light` is recorded as it is analysed, `heavy` by another stream."""
    light = AvConfig(id="light", url=Url(urls["light"]), decode="cpu")
    heavy = AvConfig(id="heavy", url=light.url, decode="cpu", record=SourceRecord(url=Url(urls["heavy"])))
    config = Config(
        model=ModelConfig(path=Path("none"), backend="fake"),
        sources=[light, heavy],
        reconnect=ReconnectConfig(initial_s=0.05, max_s=0.2),
        publisher=PublisherConfig(endpoint="tcp://127.0.0.1:*", high_water_mark=100_000),
        record=RecordConfig(stores=stores, mode="continuous", memory_mib=_LEAST_MIB),
    )
    app = build(check(config), Seams(open_detector=lambda _, options: FakeDetector(options)))
    try:
        app.start()
        yield app
    finally:
        app.stop()


def _store(folder: Path) -> StoreConfig:
    return StoreConfig(path=folder, min_free_gib=0)


def _are_up(subscriber: Subscriber) -> list[Message]:
    return receive_until(subscriber, all_of(is_state("light", "up"), is_state("heavy", "up")))


def _is_told(store: str, cause: Cause | None) -> Callable[[Message], bool]:
    return lambda message: isinstance(message, Store) and (message.store, message.cause) == (store, cause)


def _lost_packets(app: Daemon, source: str, store: str) -> int:
    assert app.parts.recording is not None
    ring = app.parts.recording.packets.ring(source, store)
    assert ring is not None
    return ring.account.lost_packets


@pytest.mark.needs("loop mounts")
@pytest.mark.parametrize("more", [0, pytest.param(800, marks=pytest.mark.long)])
def test_a_store_on_a_loop_mount_hangs(tmp_path: Path, urls: Mapping[str, str], more: int) -> None:
    """Detection and the other store go on as if nothing were; what the ring could hold comes later, and the rest is
    one gap. A stop does not wait for it."""
    folder = tmp_path / "other"
    with small_disk(tmp_path, 64) as disk:
        hung, other = Stored(disk.folder), Stored(folder)
        with _recording(urls, hung=_store(disk.folder), other=_store(folder)) as app:
            children = psutil.Process().children(recursive=True)
            with Subscriber(app.endpoint, kinds=["detections", "status", "stores"]) as subscriber:
                messages = _are_up(subscriber)
                wait_until(lambda: min(map(hung.recorded_s, ("light", "heavy"))) > 1, "it is recorded")
                disk.freeze()
                messages += receive_until(subscriber, _is_told("hung", "store_hung"))
                wait_until(lambda: _lost_packets(app, "heavy", "hung") > 0, "the ring is full")
                messages += receive_until(subscriber, has_seen(15 + more, "light"))
                disk.thaw()
                thawed = time_ns()
                messages += receive_until(subscriber, _is_told("hung", None))
                wait_until(lambda: hung.files("heavy")[-1].end > thawed + SECOND, "it is recorded again")
                disk.freeze()
                messages += receive_until(subscriber, has_seen(15, "light"))
                assert app.stop() == 0  # while it hangs
                disk.thaw()
            wait_until(lambda: not any(row.is_running() and _is_recorder(row) for row in children), "processes end")
        assert lost(messages, "light") == 0
        frames = [row for row in messages if isinstance(row, Detections) and row.source == "light"]
        assert more or len({row.session for row in frames}) == 1
        usual = {"source_down", "daemon_down"}
        for source in ("light", "heavy"):
            assert {gap.cause for gap in other.gaps(source)} <= usual
            other.check_whole(source)
        hung.run("rebuild")
        for source in ("light", "heavy"):
            hung.check_whole(source)
        assert {gap.cause for gap in hung.gaps("light")} <= usual

        (gap,) = [gap for gap in hung.gaps("heavy") if gap.cause not in usual]
        assert gap.cause == "store_hung"
        hung.check_sound()
        other.check_sound()


def _is_recorder(process: psutil.Process) -> bool:
    return "daemon.recording.process.main" in process.cmdline()
