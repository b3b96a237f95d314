"""Recording while its processes are killed: nothing that came is lost, or a fragment at most if all of them are."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGKILL
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
from daemon.recording.ring_layout import account_of, mapped
from daemon.redact import Url
from daemon.seams import Seams
from daemon.system.time_limits import Limits
from detectors.fake.detector import FakeDetector
from lookout.client import Subscriber
from lookout.messages import Detections, Message
from tests.support.daemon import Lookout, all_of, has_seen, is_state, receive_until, wait_until
from tests.support.recorded import SECOND, encoded, pictures_of
from tests.support.rtsp import RtspServer
from tests.support.stored import Stored

pytestmark = [pytest.mark.needs("ffmpeg", "rtsp"), pytest.mark.slow(3)]
_KINDS = ("h264-b", "hevc")
_LIMITS = Limits(worker_pause=0.05, worker_lived=0.0)
_KILLS = int(os.environ.get("LOOKOUT_KILLS", "5"))
_MAX_LOST = 3 * 15  # packets: a fragment, and what waits for a turn on a busy machine
_REORDERED = 4  # pictures that others may come before
Pts = Mapping[str, Sequence[int]]


@pytest.fixture(scope="module")
def videos(folder_of_all: Path) -> Mapping[str, Path]:
    """Servers come to the end of theirs, and cameras are connected to anew."""
    return {kind: encoded(folder_of_all, kind, seconds=6) for kind in _KINDS}


@pytest.fixture
def urls(videos: Mapping[str, Path]) -> Iterator[Mapping[str, str]]:
    codecs = {"h264-b": "h264", "hevc": "h265"}
    servers = {kind: RtspServer({kind: path}, codec=codecs[kind]) for kind, path in videos.items()}
    yield {kind: server.url(kind) for kind, server in servers.items()}
    for server in servers.values():
        server.kill()


@contextmanager
def _running(folder: Path, urls: Mapping[str, str]) -> Iterator[Daemon]:
    """`cam` is recorded as it is analysed, `main` by another stream."""
    config = Config(
        model=ModelConfig(path=Path("none"), backend="fake"),
        sources=[
            AvConfig(id="cam", url=Url(urls["h264-b"]), decode="cpu"),
            AvConfig(id="main", url=Url(urls["h264-b"]), decode="cpu", record=SourceRecord(url=Url(urls["hevc"]))),
        ],
        capture_processes=1,
        reconnect=ReconnectConfig(initial_s=0.05, max_s=0.2),
        publisher=PublisherConfig(endpoint="tcp://127.0.0.1:*", high_water_mark=100_000),
        record=RecordConfig(stores={"main": StoreConfig(path=folder, min_free_gib=0)}, mode="continuous"),
    )
    app = build(check(config), Seams(limits=_LIMITS, open_detector=lambda _, options: FakeDetector(options)))
    try:
        app.start()
        yield app
    finally:
        app.stop()


def _kill(*pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, SIGKILL)


def _killers(app: Daemon) -> Mapping[str, Callable[[], None]]:
    """What kills processes that are there now."""
    recording = app.parts.recording
    assert recording is not None
    (store,), streams = recording._stores.values(), recording._streams

    def of(*pids: Callable[[], Sequence[int]]) -> Callable[[], None]:
        return lambda: _kill(*(pid for found in pids for pid in found()))

    captures = lambda: app.sources.pids  # noqa: E731
    recorder, main = lambda: store.pids, lambda: streams.pids
    return {
        "capture": of(captures),
        "recorder": of(recorder),
        "streams": of(main),
        "capture and recorder": of(captures, recorder),
        "all": of(recorder, main, captures),
    }


@pytest.mark.parametrize("kills", [_KILLS, pytest.param(100, marks=pytest.mark.long)])
def test_nothing_is_lost_when_processes_are_killed(
    tmp_path: Path, urls: Mapping[str, str], videos: Mapping[str, Path], kills: int
) -> None:
    """Every packet that came is in the files once, whoever is killed at whatever moment. LOOKOUT_KILLS=50 kills as
    often."""
    chance, stored = random.Random(50), Stored(tmp_path / "store")
    with _running(stored.folder, urls) as app, Subscriber(app.endpoint, kinds=["detections", "status"]) as subscriber:
        seen = receive_until(subscriber, all_of(is_state("cam", "up"), is_state("main", "up")))
        recording, killers = app.parts.recording, _killers(app)
        assert recording is not None
        rings = {source: recording.packets.of_store("main")[source] for source in ("cam", "main")}
        maps = {source: mapped(ring.fd) for source, ring in rings.items()}  # rings are closed in the end
        order = [*killers.values(), *chance.choices([*killers.values()], k=max(0, kills - len(killers)))]
        for kill in order[:kills]:
            kill()
            seen += receive_until(subscriber, has_seen(chance.randint(2, 20), "cam"))
        wait_until(lambda: stored.recorded_s("main") > 0.0 and bool(recording._streams.pids), "streams are recorded")
        assert app.stop() == 0
    came = {source: account_of(map, words) for source, (map, words, _) in maps.items()}
    assert {source: (account.lost_packets, account.lost_bytes) for source, account in came.items()} == {
        "cam": (0, 0), "main": (0, 0),
    }  # fmt: skip
    for source, kind in (("cam", "h264-b"), ("main", "hevc")):
        assert sum(facts.packets for facts in stored.files(source)) == came[source].packets
        _check_sessions(stored, source, pictures_of(videos[kind]))
        assert {gap.cause for gap in stored.gaps(source)} <= {"source_down", "daemon_down"}
        stored.check_whole(source)
    assert _lost(stored, seen) == {}
    stored.check_sound()


@pytest.mark.parametrize("deaths", [1, pytest.param(20, marks=pytest.mark.long)])
def test_a_fragment_is_lost_when_everything_is_killed(
    tmp_path: Path, urls: Mapping[str, str], videos: Mapping[str, Path], deaths: int
) -> None:
    """At most, and each gap has its cause."""
    cam = {"id": "cam", "type": "av", "url": urls["h264-b"]}
    config: dict[str, object] = {
        "model": {"path": "none", "backend": "fake"},
        "sources": [cam, {**cam, "id": "main", "record": {"url": urls["hevc"]}}],
        "capture_processes": 1,
        "reconnect": {"initial_s": 0.05, "max_s": 0.2},
        "record": {"stores": {"main": {"path": str(tmp_path / "store"), "min_free_gib": 0}}, "mode": "continuous"},
    }
    chance, stored, seen, killed_at = random.Random(20), Stored(tmp_path / "store"), list[Message](), list[int]()
    with Lookout(tmp_path, config) as lookout, lookout.subscribe("detections", "status") as subscriber:
        for _ in range(deaths):
            seen += receive_until(subscriber, all_of(is_state("cam", "up"), is_state("main", "up")))
            seen += receive_until(subscriber, has_seen(chance.randint(20, 50), "cam"))
            processes = [lookout.inspect, *lookout.inspect.children(recursive=True)]
            chance.shuffle(processes)
            killed_at.append(time_ns())
            _kill(*(process.pid for process in processes))
            lookout.process.wait(60)
            psutil.wait_procs(processes, 60)
            lookout.restart()
        seen += receive_until(subscriber, has_seen(20, "cam"))
        wait_until(lambda: stored.timeline("main")[-1].end > killed_at[-1] + SECOND, "it is recorded again")
        assert lookout.stop() == 0
        assert "Traceback" not in lookout.log()
    for source, kind in (("cam", "h264-b"), ("main", "hevc")):
        _check_sessions(stored, source, pictures_of(videos[kind]))
        stored.check_whole(source)
        gaps = stored.gaps(source)
        assert {gap.cause for gap in gaps} <= {"source_down", "daemon_down"}
        downs = [gap for gap in gaps if gap.cause == "daemon_down" and gap.detail is None]
        assert len(downs) == deaths, gaps
        assert all(gap.end > at for gap, at in zip(downs, killed_at))
    lost = _lost(stored, seen)
    assert len(lost) <= deaths
    assert all(count <= _MAX_LOST for count in lost.values()), lost
    stored.check_sound()


def _lost(stored: Stored, messages: Sequence[Message]) -> dict[str, int]:
    """Pictures that were analysed and are in no file, by session: those at its end alone may be lost."""
    written = {session: [packet.pts for packet in found] for session, found in stored.packets("cam").items()}
    lost = {}
    for session, published in _published(messages, "cam").items():
        there = written.get(session, [])
        missing = [pts for pts in published if not any(abs(pts - other) < SECOND // 1000 for other in there)]
        last = max(there, default=0) - _REORDERED * SECOND // 15
        assert all(pts > last for pts in missing), (session, missing)
        if missing:
            lost[session] = len(missing)
    return lost


def _check_sessions(stored: Stored, source: str, sent: Sequence[tuple[str, ...]]) -> None:
    """Each connection's packets are those that the server sends first, without a hole."""
    sessions = stored.packets(source)
    assert sessions
    for found in sessions.values():
        assert [packet.units for packet in found] == list(sent[: len(found)])


def _published(messages: Sequence[Message], source: str) -> Pts:
    """Times of the pictures that were analysed, by session."""
    found: dict[str, list[int]] = defaultdict(list)
    for message in messages:
        if isinstance(message, Detections) and message.source == source and message.pts is not None:
            found[message.session].append(message.pts)
    return found
