"""The part of the daemon that has the process of a store."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from daemon.clock import SystemClock, boottime_ns
from daemon.config.root import LogConfig
from daemon.recording.absence import Absence
from daemon.recording.clips import Claim
from daemon.recording.index import IndexReader
from daemon.recording.process import store_process
from daemon.recording.process.main import RecorderOrder
from daemon.recording.process.protocol import ClipTold
from daemon.recording.process.store_process import StoreProcess
from daemon.recording.recorder import StorePlace
from daemon.recording.ring import Ring, RingWriter
from daemon.recording.store import Store
from daemon.sources.port import PacketInfo
from tests.recording.rig import DAY, EVERYTHING, SECOND
from tests.support.daemon import wait_until
from tests.support.recorded import Clip, clip
from tests.support.runtime import runtime_of
from tests.support.stored import Stored


@contextmanager
def _running(folder: Path, told: Callable[[object], None] = lambda _: None) -> Iterator[StoreProcess]:
    order = RecorderOrder(StorePlace(str(folder), False, DAY), "run", LogConfig())
    with closing(Ring("tracks", 4 << 20)) as tracks:
        process = StoreProcess("main", order, told, tracks, runtime_of(SystemClock()))
        process.start()
        try:
            yield process
        finally:
            process.stop(10)


def _put(ring: Ring, camera: Clip) -> None:
    """All of a clip, which comes at once."""
    writer, stream, now = RingWriter(ring.fd), camera.stream, SystemClock().utc_ns()
    with closing(writer):
        for sample in camera.samples:
            info = PacketInfo(
                stream.codec, stream.extradata, stream.time_base, stream.width, stream.height, stream.turns,
                sample.pts, sample.dts, sample.key,
            )  # fmt: skip
            assert writer.put_packet("aaaa", info, sample.data, boot=boottime_ns(), utc=now)


def test_a_source_that_is_switched_off_while_its_recorder_is_down_is_off_since_then(
    tmp_path: Path, clips: Path
) -> None:
    """And what was in memory is written."""
    camera, stored = clip(clips, "h264"), Stored(tmp_path / "store")
    with _running(stored.folder) as process, closing(Ring("door", 4 << 20)) as ring:
        process.record("door", EVERYTHING, ring)
        wait_until(lambda: process.figures.accounts and process.figures.cause is None, "it records")
        (pid,) = process.pids
        os.kill(pid, signal.SIGSTOP)
        _put(ring, camera)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pid not in process.pids, "it is down")
        at = SystemClock().utc_ns() + 3 * SECOND  # as the clip is longer than it took to come
        process.forget("door", "off", "it was switched off", at)
        wait_until(lambda: [gap.cause for gap in stored.gaps("door")[-1:]] == ["off"], "it has begun again")
    (files,) = stored.packets("door").values()
    assert len(files) == len(camera.samples)
    (*_, last) = stored.gaps("door")
    assert (last.cause, last.detail) == ("off", "it was switched off")


def test_no_event_is_lost_with_the_process_that_was_told_of_it(tmp_path: Path, clips: Path) -> None:
    """One more than a process is told at once, which hangs."""
    told = list[object]()
    with _running(tmp_path / "store", told.append) as process, closing(Ring("door", 4 << 20)) as ring:
        process.record("door", EVERYTHING, ring)
        wait_until(lambda: process.figures.accounts and process.figures.cause is None, "it records")
        _put(ring, clip(clips, "h264"))
        (pid,) = process.pids
        os.kill(pid, signal.SIGSTOP)
        names = [f"e{number}" for number in range(store_process._MAX_UNHEARD + 1)]
        for name in names:
            assert process.claim("door", Claim(name, None, None, SystemClock().utc_ns()))
        os.kill(pid, signal.SIGKILL)
        with closing(Store.open(tmp_path / "store")) as store, closing(IndexReader(store)) as index:
            wait_until(lambda: index.claim("door", names[-1]), "the last one is known")
            known = {event for (event,) in index._ask("SELECT event FROM claims")}
        wait_until(lambda: "ready" in [row.state for row in told if isinstance(row, ClipTold)], "its clip is ready")
    assert known == set(names)


def test_sources_come_and_go_however_many_events_wait_for_a_process_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events without end are refused; what was taken of a source that goes is told before that."""
    monkeypatch.setattr(store_process, "_MAX_WAITING", 20)
    monkeypatch.setattr(store_process, "_MAX_UNHEARD", 10)
    with (
        _running(tmp_path / "store") as process,
        closing(Ring("door", 4 << 20)) as door,
        closing(Ring("gate", 4 << 20)) as gate,
    ):
        process.record("door", EVERYTHING, door)
        wait_until(lambda: process.figures.accounts and process.figures.cause is None, "it records")
        (pid,) = process.pids
        os.kill(pid, signal.SIGSTOP)
        taken = list[str]()
        while process.claim("door", Claim(f"e{len(taken)}", None, None, SystemClock().utc_ns())):
            taken.append(f"e{len(taken)}")
        process.record("gate", EVERYTHING, gate)
        process.forget("door", "off", "it was switched off", SystemClock().utc_ns())
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: [row.source for row in process.figures.accounts] == ["gate"], "it records the other one")
        with closing(Store.open(tmp_path / "store")) as store, closing(IndexReader(store)) as index:
            assert {event for (event,) in index._ask("SELECT event FROM claims")} == set(taken)


def test_a_process_that_begins_again_knows_what_it_does_not_record(tmp_path: Path, clips: Path) -> None:
    camera, stored = clip(clips, "h264"), Stored(tmp_path / "store")
    with _running(stored.folder) as process, closing(Ring("door", 4 << 20)) as ring:
        process.record("door", EVERYTHING, ring)
        wait_until(lambda: process.figures.accounts and process.figures.cause is None, "it records")
        _put(ring, camera)
    with _running(stored.folder) as process:
        wait_until(lambda: process.figures.cause is None, "it has begun")
        (pid,) = process.pids
        os.kill(pid, signal.SIGSTOP)
        process.explain(Absence(SystemClock().utc_ns(), frozenset(), frozenset(), in_fleet=False))
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: stored.gaps("door")[-1].cause == "off", "it has begun again")
