"""Capture processes that die, linger, are poisoned, or answer late."""

from __future__ import annotations

import os
import signal
import socket
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from daemon.capture.processes.channel import Channel, pair
from daemon.capture.processes.forwarder import FrameForwarder
from daemon.capture.processes.protocol import (
    AdmissionReply,
    Failed,
    FromCapture,
    Heartbeat,
    NewMemory,
    QuotaChanged,
    StopAll,
    ToCapture,
)
from daemon.capture.processes.sender import FrameSender
from daemon.capture.sinks import UNLIMITED, Quota
from daemon.clock import SystemClock
from daemon.config.model import ModelConfig
from daemon.config.root import Config
from daemon.config.sources import AvConfig, SourceConfig
from daemon.daemon import Daemon
from daemon.errors import PoisonedError, SourceError
from daemon.redact import Url
from daemon.sources.decode import NoHardwareDecoder
from daemon.sources.nvdec.pool import NvdecPool
from daemon.sources.nvdec.port import LoadablePicture
from daemon.system.time_limits import Limits
from lookout.client import Subscriber
from lookout.messages import Status, VideoFormat
from tests.lifetimes.cameras import Clip, HeldMaker, camera
from tests.lifetimes.rig import wait_until
from tests.lifetimes.running import STREET, edit, only, running, state_of, wait_up, warned
from tests.support import clips
from tests.support.daemon import is_state, receive_until
from tests.support.descriptors import no_descriptors
from tests.support.hardware import FakeBackend, FakeGpu, FakeSession
from tests.support.seeing import SeeingDetector

FORMAT = VideoFormat("h264", 16, 16, 30.0, "cpu")


def test_a_process_that_takes_long_to_end_holds_up_no_other(tmp_path: Path) -> None:
    """D7: its socket is closed and it goes on, as in a driver. Frames of the other process come in meanwhile."""
    two = {"capture_processes": 2}
    with running(tmp_path, camera("lingers"), camera("other"), config=two, limits=Limits(worker_exit=2.0)) as app:
        wait_up(app, "lingers", "other")
        pids = app.sources.pids
        (tmp_path / "LINGER").touch()
        wait_until((tmp_path / "LINGERING").exists, "its socket is closed")
        wait_until(lambda: len(app.sources.pids) == 1, "that is noticed")
        (gone,) = {*pids} - {*app.sources.pids}
        before = app.ledger.counts()["other"].captured
        wait_until(lambda: app.ledger.counts()["other"].captured >= before + 10, "the other's frames come in")
        assert psutil.pid_exists(gone), "the other's frames only came when the process had ended"
        assert state_of(app, "lingers") == "up"  # it is not known to be dead yet
        (tmp_path / "LINGER").unlink()
        wait_until(lambda: state_of(app, "lingers") != "up", "it is given up")
        wait_up(app, "lingers", "other")


def test_what_is_ordered_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle pool wakes now and then; new work does not wait for that."""
    for module in ("pool", "worker"):
        monkeypatch.setattr(f"daemon.capture.processes.{module}._IDLE_MS", 3_600_000)
    with running(tmp_path, camera("cam"), config={"capture_processes": 1}, limits=Limits(remove=60.0)) as app:
        wait_up(app, "cam")
        (tmp_path / "HANG-cam").touch()  # no frames: nothing wakes the pool but what is ordered
        wait_until((tmp_path / "HANG-cam-reached").exists, "it gives no more frames")
        for _ in range(3):
            only(app, camera("cam"), camera("more"))
            wait_until(lambda: state_of(app, "more") == "up", "it is up")
            only(app, camera("cam"))
            assert [capture.id for capture in app.sources.captures] == ["cam"]
        (tmp_path / "HANG-cam").unlink()


class Paused(SystemClock):
    """The machine's clock; a test simulates a pause by moving it."""

    def __init__(self) -> None:
        self.paused_ns = 0

    def monotonic_ns(self) -> int:
        return SystemClock.monotonic_ns() + self.paused_ns


def test_a_daemon_that_was_paused_takes_no_process_for_stuck(tmp_path: Path) -> None:
    """A debugger, a migrated virtual machine, a sleeping laptop: messages of the processes have not been read yet."""
    clock = Paused()
    with running(tmp_path, camera("cam"), config={"capture_processes": 1}, clock=clock) as app:
        wait_up(app, "cam")
        before = app.sources.pids
        clock.paused_ns = 3600 * 10**9
        wait_up(app, "cam")
        assert app.sources.pids == before


def test_a_process_that_does_not_begin_is_ended(tmp_path: Path) -> None:
    """As where a driver hangs. Silence before the first message does not count."""
    (tmp_path / "HANG-start").touch()
    limits = Limits(worker_start=2.0, worker_silence=0.001)
    more: dict[str, Any] = {"make_source": HeldMaker(tmp_path), "limits": limits}
    with (
        running(tmp_path, camera("cam"), config={"capture_processes": 1}, **more) as app,
        Subscriber(app.endpoint, kinds=["status"]) as subscriber,
    ):
        *_, told = receive_until(subscriber, is_state("cam", "down"))
        assert isinstance(told, Status)
        assert "no sign of life for 2 s" in str(told.reason)


class Poisoned(FakeSession):
    """Decodes a few packets, then fails every call, as CUDA does after an illegal address."""

    def __init__(self, *args: Any, file: Path, **more: Any) -> None:
        super().__init__(*args, **more)
        self._file, self._packets = file, 0

    def decode(self, address: int, size: int, time: int | None) -> list[LoadablePicture]:
        self._packets += 1
        if self._packets > 5 and self._file.exists():
            raise PoisonedError("CUDA_ERROR_ILLEGAL_ADDRESS")
        return super().decode(address, size, time)


class PoisonedGpu(FakeGpu):
    def __init__(self, surfaces: int, file: Path) -> None:
        super().__init__(surfaces)
        self._file = file

    def open_session(self, codec: str, low_latency: bool) -> Poisoned:
        return Poisoned(codec, low_latency, self.surfaces, file=self._file)


@dataclass(frozen=True)
class PoisonedBackend(FakeBackend):
    """A GPU that is poisoned in a process while the file exists."""

    file: Path = Path()

    def open(self, part: float | None = None) -> NvdecPool:
        return PoisonedGpu(self.surfaces, self.file).pool


@pytest.mark.needs("ffmpeg")
def test_a_poisoned_gpu_ends_its_process_and_the_next_goes_on(tmp_path: Path) -> None:
    """A sticky CUDA error: that process cannot use the GPU any more, and no retry helps."""
    clip = clips.pattern(tmp_path / "clip.mkv", seconds=3)
    source = AvConfig(id="clip", url=Url(str(clip)), loop=True)
    file = tmp_path / "POISONED"
    with running(
        tmp_path,
        source,
        open_detector=lambda _, options: SeeingDetector(options),
        find_hardware=lambda _config, _info: PoisonedBackend(6, file=file),
        make_source=_real,
        limits=Limits(worker_pause=0.05),
    ) as app:
        wait_up(app, "clip")
        (pid,) = app.sources.pids
        file.touch()
        wait_until(lambda: not psutil.pid_exists(pid), "the process ends")
        file.unlink()
        wait_up(app, "clip")
        assert app.sources.formats["clip"].decoder == "nvdec"


def _real(config: Any, hardware: Any) -> Any:
    from daemon.sources.factory import make_source

    return make_source(config, hardware)


class Asking:
    """A feed whose questions go to a socket that the test answers."""

    def __init__(self) -> None:
        mine, theirs = pair()
        self.channel = Channel(mine, FromCapture)
        self.sender = FrameSender(Channel(theirs, ToCapture), NoHardwareDecoder("none"), SystemClock(), live=True)
        self.feed = FrameForwarder(7, self.sender, live=True, depth=1, slots=4, has_admission=True)
        self.shares: list[Quota] = []

    def enter(self) -> Future[None]:
        return self.feed.admit("cam", 30.0, self.shares.append, FORMAT)


def test_an_answer_to_an_earlier_connection_counts_no_more() -> None:
    """The source does not block: `admit` returns at once, and a thread with forty other sources goes on."""
    asking = Asking()
    first = asking.enter()
    asking.feed.release("cam")
    second = asking.enter()
    assert not first.done()
    assert not second.done()
    asking.feed.on_admission_reply(AdmissionReply(7, 1, None))  # late, and to the first
    assert not second.done()
    asking.feed.on_admission_reply(AdmissionReply(7, 2, "no room"))
    with pytest.raises(SourceError, match="no room"):
        second.result(0)
    asking.feed.on_quota_changed(QuotaChanged(7, 1, Quota(fps=5.0)))
    assert asking.shares == []
    asking.feed.on_quota_changed(QuotaChanged(7, 2, UNLIMITED))
    assert asking.shares == [UNLIMITED]


def test_any_thread_of_a_capture_process_may_send() -> None:
    """The socket takes a packet whole. One thread may say that the process gives up while another sends frames, or has
    said that a descriptor follows."""
    mine, theirs = pair()
    mine.setblocking(True)
    mine.settimeout(30)
    theirs.setblocking(True)
    there, here = Channel(theirs, ToCapture), Channel(mine, FromCapture)

    def send(number: int) -> None:
        for count in range(200):
            there.send([Heartbeat(number * 1000 + count)] * 20)

    def send_blocks() -> None:
        with open(os.devnull) as file:
            for count in range(200):
                there.send([NewMemory(count, 1, device=False)], file.fileno())

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    threads.append(threading.Thread(target=send_blocks))
    for thread in threads:
        thread.start()
    heard: dict[int, list[int]] = {number: [] for number in range(4)}
    blocks = []
    for _ in range(5 * 200):
        received = here.receive()
        assert received is not None
        messages, fd = received
        if isinstance(messages[0], NewMemory):
            assert fd is not None
            os.close(fd)
            blocks.append(messages[0].number)
            continue
        assert len(messages) == 20
        assert len({*messages}) == 1
        memory = messages[0].memory  # type: ignore[attr-defined]
        heard[memory // 1000].append(memory % 1000)
    for thread in threads:
        thread.join(30)
    assert heard == {number: list(range(200)) for number in range(4)}
    assert blocks == list(range(200))
    mine.close()
    theirs.close()


class _Reset(socket.socket):
    """The other end closes, with unread data, between the peek and the removal of a packet with a descriptor."""

    def recvmsg_into(self, *args: Any) -> Any:
        found = super().recvmsg_into(*args)
        for other in others:
            other.close()
        others.clear()
        return found


others: list[socket.socket] = []


def test_what_a_process_said_before_its_end_is_heard() -> None:
    mine, theirs = pair()
    end = _Reset(fileno=mine.detach())
    end.setblocking(False)
    channel, process = Channel(end, FromCapture), Channel(theirs, ToCapture)
    with open(os.devnull) as file:
        process.send([NewMemory(1, 1, device=False)], file.fileno())
    process.send([Failed("the reason")])
    channel.send([StopAll()])  # unread
    others.append(theirs)
    heard: list[object] = []
    while (received := channel.receive()) is not None:
        heard += received[0]
        if received[1] is not None:
            os.close(received[1])
    assert heard == [NewMemory(1, 1, device=False), Failed("the reason")]
    channel.close()


def test_a_dead_process_whose_socket_stays_open_is_replaced(tmp_path: Path) -> None:
    """A child process of a library keeps it open, as a thread in the kernel would."""
    limits = Limits(worker_silence=1.0, worker_exit=0.2, worker_pause=0.02)
    with running(tmp_path, camera("heir"), config={"capture_processes": 1}, limits=limits) as app:
        wait_until((tmp_path / "HEIR").exists, "its socket has an heir")
        (before,) = app.sources.pids
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: before not in app.sources.pids, "it is found dead")
        wait_up(app, "heir")
    (tmp_path / "HEIR").unlink()  # not before the end, or the next connection leaves another one


def test_a_process_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    """The system has no descriptor: the source is down with the reason, and up when there is one."""
    with running(tmp_path, STREET, limits=Limits(worker_pause=0.05)) as app:
        wait_up(app, "street")
        with no_descriptors():
            edit(app, lambda rows: [*rows, camera("cam")]).result(60)
            wait_until(lambda: state_of(app, "cam") == "down", "it is down")
        wait_up(app, "cam", "street")


def test_cameras_that_come_later_get_the_gpus_decoder() -> None:
    """D17: a daemon that began with a drawn street asked for none, and cameras were then decoded by the CPU."""
    from daemon.control.decoders import decoder_backend_of
    from detectors.port import ModelInfo

    info = ModelInfo("m", "d", "fp16", "trt", "yolov8", (640, 640), ("a",), 8, gpu=99)
    config = Config(model=ModelConfig(path=Path("x")), sources=[STREET])
    found = decoder_backend_of(config, info)
    assert isinstance(found, NoHardwareDecoder)  # here; but it was asked for, and says what is wrong with it
    assert "no source asks" not in found.reason


def add(name: str, rows: list[SourceConfig]) -> list[SourceConfig]:
    return [*rows, camera(name)]


def has_come(app: Daemon, name: str) -> bool:
    return app.ledger.counts()[name].published > 0


def test_memory_is_taken_where_no_descriptor_is_left(tmp_path: Path) -> None:
    """A new camera's pictures need more memory: no other source suffers, however often it happens."""
    with running(tmp_path, camera("cam"), config={"capture_processes": 1}) as app:
        wait_up(app, "cam")
        before = app.sources.pids
        with no_descriptors():
            for number in range(6):
                name = f"clip-{number}"
                edit(app, partial(add, name)).result(60)
                wait_until(partial(has_come, app, name), "its pictures come")
        assert app.sources.pids == before


def test_a_process_that_dies_while_its_frames_wait_for_a_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end comes after a message that cannot be received."""
    monkeypatch.setattr("daemon.capture.processes.pool._SPARE", 0)
    with running(tmp_path, camera("cam"), config={"capture_processes": 1}) as app, warned() as lines:
        wait_up(app, "cam")
        (before,) = app.sources.pids
        with no_descriptors():
            edit(app, partial(add, "clip-more")).result(60)
            wait_until(lambda: any("descriptor" in row["event"] for row in lines), "its memory cannot be taken")
            os.kill(before, signal.SIGKILL)
            wait_until(lambda: state_of(app, "cam") == "down", "it is found dead")
        wait_until(partial(has_come, app, "clip-more"), "its pictures come")
        wait_up(app, "cam")


def test_frames_wait_for_a_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even the spare descriptors are gone: messages wait, and none is lost."""
    monkeypatch.setattr("daemon.capture.processes.pool._SPARE", 0)
    with running(tmp_path, camera("cam"), config={"capture_processes": 1}) as app, warned() as lines:
        wait_up(app, "cam")
        before = app.sources.pids
        with no_descriptors():
            edit(app, partial(add, "clip-more")).result(60)
            wait_until(lambda: any("descriptor" in row["event"] for row in lines), "its memory cannot be taken")
            assert app.ledger.counts()["clip-more"].captured == 0
        wait_until(lambda: app.ledger.counts()["clip-more"].captured == Clip.FRAMES, "its pictures come")
        wait_up(app, "cam")
        assert app.sources.pids == before
