"""Stores that hang, are full or lose their index, under a daemon that records real streams."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
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
from daemon.recording.records import FileFacts
from daemon.recording.tracks.activity import activity_at_end
from daemon.redact import Url
from daemon.seams import Seams
from detectors.fake.detector import FakeDetector
from lookout.client import Subscriber
from lookout.messages import Detections, Message, Store
from tests.support import clips
from tests.support.daemon import all_of, has_seen, is_state, lost, receive_until, wait_until
from tests.support.recorded import SECOND, encoded
from tests.support.rtsp import RtspServer
from tests.support.small_disk import small_disk
from tests.support.stored import Stored

pytestmark = [pytest.mark.needs("ffmpeg", "rtsp"), pytest.mark.slow(3)]
_LEAST_MIB = 8  # of a ring
_FILES = int(os.environ.get("LOOKOUT_FILES", "400"))  # takes half an hour


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
@pytest.mark.long
@pytest.mark.parametrize("more", [0, 800])
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


@pytest.mark.needs("loop mounts")
@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("mib", "files"), [(24, 2), (64, _FILES)])
def test_a_store_on_a_loop_mount_is_small(tmp_path: Path, urls: Mapping[str, str], mib: int, files: int) -> None:
    """The oldest goes, and what is locked stays, so that there is always room; only when others have taken it, nothing
    is recorded for a while, which is one gap. LOOKOUT_FILES=100 ends after so many files have gone."""
    with small_disk(tmp_path, mib) as disk, _recording(urls, main=_store(disk.folder)) as app:
        stored = Stored(disk.folder)
        with Subscriber(app.endpoint, kinds=["status", "stores"]) as subscriber:
            _are_up(subscriber)
            wait_until(lambda: any(row.reason for row in stored.files("heavy")), "a file is whole")
            first = stored.files("heavy")[0]
            lock = _lock(stored, first)
            gone: set[str] = set()
            known = {row.id for row in stored.files("heavy")}

            def has_lost(count: int) -> bool:
                there = {row.id for row in stored.files("heavy")}
                known.update(there)
                gone.update(known - there)
                return len(gone) >= count

            wait_until(lambda: has_lost(files), "the oldest go", 60 + 10 * files)
            assert first.id not in gone
            there = stored.files("heavy")
            assert min(row.end for row in there if row.id != first.id) > first.end
            while message := subscriber.receive(0):
                assert not _is_told("main", "disk_full")(message)
            foreign = disk.folder / "foreign"
            with foreign.open("ab", buffering=0) as file:

                def is_full() -> bool:
                    with suppress(OSError):
                        while file.write(bytes(1 << 18)):
                            pass
                    return _lost_packets(app, "heavy", "main") > 0

                wait_until(is_full, "nothing more can go")
            receive_until(subscriber, _is_told("main", "disk_full"))
            foreign.unlink()
            freed = time_ns()
            receive_until(subscriber, _is_told("main", None))
            wait_until(lambda: stored.files("heavy")[-1].end > freed + SECOND, "it is recorded again")
            assert app.stop() == 0
        for source in ("light", "heavy"):
            stored.check_whole(source)
            full = [gap for gap in stored.gaps(source) if gap.cause == "disk_full"]
            assert len(full) <= 1, full
        assert {gap.cause for gap in stored.gaps("heavy")} == {"source_down", "expired", "disk_full", "daemon_down"}
        assert [row["id"] for row in stored.told("list", "--locks")] == [lock]
        assert first in stored.files("heavy")
        stored.check_sound()


def _lock(stored: Stored, facts: FileFacts) -> str:
    begin, end = (_words(at) for at in (facts.begin + SECOND // 10, facts.end - SECOND // 10))
    told = stored.told("lock", facts.source, "--from", begin, "--to", end, "--reason", "theft")
    return str(told["id"])


def _has_all_boxes(video: Path) -> bool:
    """Whether the last record of its boxes says that no more come."""
    with suppress(FileNotFoundError), video.with_suffix(".trk").open("rb") as file:
        return activity_at_end(file.fileno()) is not None
    return True


def _words(utc: int) -> str:
    return datetime.fromtimestamp(utc / SECOND, timezone.utc).isoformat()


@pytest.mark.long
def test_a_lost_index_is_made_anew(tmp_path: Path, urls: Mapping[str, str]) -> None:
    """While it is recorded: spans, gaps and locks are those of before, to the byte."""
    folder = tmp_path / "store"
    stored = Stored(folder)
    with _recording(urls, main=_store(folder)) as app, Subscriber(app.endpoint, kinds=["status"]) as subscriber:
        _are_up(subscriber)
        wait_until(lambda: sum(bool(row.reason) for row in stored.files("heavy")) > 1, "files are whole")
        lock = _lock(stored, stored.files("heavy")[0])
        *old, last = stored.files("heavy")
        until = _words(last.begin)
        wait_until(lambda: all(_has_all_boxes(folder / row.path) for row in old), "boxes of whole files are whole")
        rows = [("list", "heavy"), ("gaps", "heavy"), ("gaps", "light")]  # a file of `light` grows meanwhile
        looks = [("list", "--locks"), *((*row, "--to", until) for row in rows)]
        before = [stored.run(*words, "--json") for words in looks]
        for name in folder.glob("index.sqlite*"):
            name.unlink()
        stored.run("rebuild")
        assert [stored.run(*words, "--json") for words in looks] == before
        known = len(stored.files("heavy"))
        wait_until(lambda: len(stored.files("heavy")) > known, "it goes on")
        assert app.stop() == 0
    assert lock in before[0]
    before = [stored.run(*words[:2], "--json") for words in looks]
    stored.run("rebuild")
    assert [stored.run(*words[:2], "--json") for words in looks] == before
    stored.check_sound()
