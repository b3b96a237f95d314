"""The way of packets from captures into rings, in the daemon's process and in capture processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import pytest

from daemon.capture.host import CaptureHost, HostedCapture
from daemon.capture.local_host import LocalHost
from daemon.capture.processes.host import ProcessHost
from daemon.capture.processes.main import WorkerConfig
from daemon.capture.sinks import DaemonSinks
from daemon.clock import SystemClock
from daemon.config.root import LogConfig
from daemon.config.sources import AvConfig, ReconnectConfig
from daemon.control.admission import Admission
from daemon.pipeline.board_rules import BoardRules
from daemon.pipeline.frame_board import FrameBoard
from daemon.pipeline.ledger import Ledger
from daemon.recording.directory import RingDirectory
from daemon.recording.records import PacketRecord, StreamRecord
from daemon.recording.ring import Ring, RingReader
from daemon.redact import Url
from daemon.sources.decode import NoHardwareDecoder
from daemon.sources.factory import make_source
from tests.lifetimes.parts import Announcements
from tests.lifetimes.rig import wait_until
from tests.support.runtime import runtime_of

pytestmark = pytest.mark.needs("ffmpeg")
_SIZE = 1 << 22


class Captured:
    """One source, `cam`, that plays a clip without end."""

    def __init__(self, kind: str, clip: Path, directory: RingDirectory) -> None:
        clock = SystemClock()
        self.config = AvConfig(id="cam", url=Url(str(clip)), loop=True, decode="cpu")
        self._ledger = Ledger(["cam"])
        self._board = board = FrameBoard(["cam"], self._ledger, clock, BoardRules(depth=None, max_age_ns=10**9))
        sinks = DaemonSinks(board, self._ledger, Announcements(), Admission(), lambda _: None, recorder=directory)
        runtime, reconnect = runtime_of(clock), ReconnectConfig()
        runtime = replace(runtime, limits=replace(runtime.limits, worker_pause=0.01, settle=0.05))
        self.host: CaptureHost[Any]
        if kind == "processes":
            config = WorkerConfig(
                make_source=make_source, backend=NoHardwareDecoder("none"), live=True, depth=2, slots=8,
                reconnect=reconnect, has_admission=True, stall_after_s=60, settle_s=0.1, log=LogConfig(),
            )  # fmt: skip
            self.host = ProcessHost(make_source, config, lambda _: 1, sinks, runtime)
        else:
            self.host = LocalHost(make_source, NoHardwareDecoder("none").open(), sinks, reconnect, runtime)
        self.captures: list[HostedCapture] = []

    def begin(self) -> None:
        capture = self.host.make(self.config)
        self.captures.append(capture)
        self.host.begin([capture])

    def end(self) -> None:
        self.captures[-1].request_end()
        wait_until(lambda: self.captures[-1].ended, "the source ends")

    @property
    def frames(self) -> int:
        return self._ledger.counts()["cam"].captured

    def wait_for_frames(self, more: int = 3) -> None:
        count = self.frames + more
        wait_until(lambda: self.frames >= count, "frames come")

    def close(self) -> None:
        self.host.request_stop()
        self.host.join(self.captures, 5)
        while (batch := self._board.take_batch(1, 0)).frames:  # they lie in the memory of a process
            assert self._board.claim(batch)
            self._board.release(batch)
        del batch
        self.host.close()


@pytest.fixture
def directory() -> Iterator[RingDirectory]:
    with closing(RingDirectory()) as directory:
        yield directory


@contextmanager
def captured(kind: str, clip: Path, directory: RingDirectory) -> Iterator[Captured]:
    with closing(Captured(kind, clip, directory)) as one:
        one.begin()
        yield one


def read(ring: Ring) -> list[tuple[str, list[bytes]]]:
    """The packets of each stream."""
    found: list[tuple[str, list[bytes]]] = []
    with closing(RingReader(ring.fd)) as reader:
        numbers = []
        for record in reader.read(0):
            if isinstance(record, StreamRecord):
                found.append((record.stream.session, []))
            elif isinstance(record, PacketRecord):
                found[-1][1].append(bytes(record.data))
                numbers.append(record.number)
        del record
    assert numbers == [*range(len(numbers))]
    return found


def packets_of(clip: Path) -> list[bytes]:
    with av.open(str(clip)) as container:
        return [bytes(packet) for packet in container.demux(video=0) if packet.size]


def has_packets(ring: Ring, count: int) -> Callable[[], bool]:
    until = ring.account.packets + count
    return lambda: ring.account.packets >= until


def assert_is_part(part: Sequence[bytes], clip: Path) -> None:
    """They come one after the other in the clip, which is played again and again."""
    passes = packets_of(clip)
    passes *= len(part) // len(passes) + 2
    begin = passes.index(part[0])
    assert [*part] == passes[begin : begin + len(part)]


@pytest.mark.parametrize("kind", ["local", "processes"])
def test_stores_come_and_go_while_a_source_plays(kind: str, clip: Path, directory: RingDirectory) -> None:
    """Each has every packet of its time, and the connection of the camera stays."""
    first = directory.keep("cam", "first", _SIZE)
    with captured(kind, clip, directory) as one:
        wait_until(has_packets(first, 3), "packets come")
        second = directory.keep("cam", "second", _SIZE)
        wait_until(has_packets(second, 3), "packets come for the second store")
        directory.drop("cam", "first")
        wait_until(has_packets(second, 3), "packets come for the second store alone")
        directory.drop("cam", "second")
        before = -1
        while second.account.packets > before:  # until the process has heard of it
            before = second.account.packets
            one.wait_for_frames()
        one.wait_for_frames()
        assert second.account.packets == before
        assert not directory.is_recorded("cam")
    ((session, early),), ((same, late),) = read(first), read(second)
    assert session == same
    assert early[:3] == packets_of(clip)[:3]
    for part in (early, late):
        assert_is_part(part, clip)


@pytest.mark.parametrize("kind", ["local", "processes"])
def test_a_source_that_is_made_anew_goes_on_in_its_ring(kind: str, clip: Path, directory: RingDirectory) -> None:
    ring = directory.keep("cam", "main", _SIZE)
    with captured(kind, clip, directory) as one:
        wait_until(has_packets(ring, 2), "packets come")
        one.end()
        one.begin()
        wait_until(has_packets(ring, 2), "packets come")
    (first, early), (second, late) = read(ring)
    assert first != second
    for part in (early, late):
        assert_is_part(part, clip)


def test_a_capture_process_that_is_killed_loses_nothing_that_it_had(clip: Path, directory: RingDirectory) -> None:
    ring = directory.keep("cam", "main", _SIZE)
    with captured("processes", clip, directory) as one:
        for _ in range(3):
            wait_until(has_packets(ring, 2), "packets come")
            (pid,) = one.host.pids
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: pid not in one.host.pids, "its end is seen")  # noqa: B023
        wait_until(has_packets(ring, 2), "packets come")
    sessions = read(ring)
    assert len({session for session, _ in sessions}) == len(sessions) >= 4
    for _, part in sessions:
        assert part[: len(packets_of(clip))] == packets_of(clip)[: len(part)]


def test_a_source_that_moves_between_processes_has_one_ring(clip: Path, directory: RingDirectory) -> None:
    """A recording is read here, and the same source as a camera in a process."""
    ring = directory.keep("cam", "main", _SIZE)
    with captured("local", clip, directory) as here, closing(Captured("processes", clip, directory)) as there:
        wait_until(has_packets(ring, 2), "packets come")
        here.end()
        there.begin()
        wait_until(has_packets(ring, 2), "packets come of the process")
        there.end()
        here.begin()
        wait_until(has_packets(ring, 2), "packets come")
    assert len(read(ring)) == 3


def test_rings_that_a_stream_feeds_are_not_for_captures(directory: RingDirectory) -> None:
    ring = directory.keep("cam", "main", _SIZE, feed="stream")
    assert not directory.is_recorded("cam")
    assert (directory.stream_rings, directory.rings) == ({"cam": (ring,)}, {})
    assert directory.keep("cam", "main", 2 * _SIZE) is ring
    assert directory.is_recorded("cam")
    assert (directory.stream_rings, directory.rings) == ({}, {"cam": (ring,)})
    before = directory.rings
    directory.keep("cam", "main", _SIZE)
    directory.drop("other")
    assert directory.rings is before
    assert directory.of_store("main") == {"cam": ring}
    assert directory.rings_of("cam") == (ring,)
