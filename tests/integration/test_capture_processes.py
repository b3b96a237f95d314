"""Capture in processes of its own: the same frames as without, and what happens when one dies."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from daemon.build import build
from daemon.capture.processes.run import PROGRAM
from daemon.config.model import ModelConfig
from daemon.config.publisher import PublisherConfig
from daemon.config.root import BoardConfig, Config, check
from daemon.config.sources import AvConfig
from daemon.daemon import Daemon
from daemon.pipeline.ledger import Counts
from daemon.redact import Url
from daemon.seams import Seams
from daemon.system.time_limits import Limits
from detectors.detections import Detections as Found
from detectors.port import Image, StageTimes
from lookout.client import Subscriber
from lookout.messages import Detections, Message, Status
from tests.support import clips
from tests.support.daemon import PATIENCE_S, Lookout, all_of, has_seen, is_state, receive_until, wait_until
from tests.support.hardware import FakeBackend
from tests.support.seeing import SeeingDetector, SeeingLane

pytestmark = pytest.mark.needs("ffmpeg")


@pytest.fixture(scope="module")
def reordered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds with B-frames."""
    path = tmp_path_factory.mktemp("clips") / "reordered.mp4"
    source = "testsrc2=size=320x192:rate=30:duration=2"
    clips.ffmpeg("-f", "lavfi", "-i", source, "-c:v", "libx264", "-bf", "3", "-g", "30", "-pix_fmt", "yuv420p", path)
    return path


class _Slow(SeeingDetector):
    """Five frames a second and lane."""

    def lane(self) -> _SlowLane:
        return _SlowLane()


class _SlowLane(SeeingLane):
    def detect(self, images: Sequence[Image]) -> tuple[list[Found], StageTimes]:
        threading.Event().wait(0.2 * len(images))
        return super().detect(images)


def _config(clip: Path, processes: int, *, sources: int = 4, mode: str = "lossless", **wishes: Any) -> Config:
    return check(
        Config(
            model=ModelConfig(path=Path("none"), max_batch=8),
            capture_processes=processes,
            lanes=2,
            sources=[AvConfig(id=f"clip-{number}", url=Url(str(clip)), **wishes) for number in range(sources)],
            board=BoardConfig(mode=mode, depth=4),  # type: ignore[arg-type]
            publisher=PublisherConfig(endpoint="tcp://127.0.0.1:*", wait_for_subscriber_s=20, high_water_mark=10_000),
        )
    )


def _app(config: Config, *, on_gpu: bool, limits: Limits | None = None) -> Daemon:
    """With the stand-in for the GPU's decoder, or with FFmpeg."""
    seams = Seams(limits=limits or Limits(), open_detector=lambda _, options: SeeingDetector(options))
    return build(config, replace(seams, find_hardware=lambda _, __: FakeBackend(6)) if on_gpu else seams)


def _run(config: Config, *, on_gpu: bool) -> dict[tuple[str, int], tuple[int | None, object]]:
    """Of every frame, its time and what was seen in it."""
    app = _app(config, on_gpu=on_gpu)
    found: dict[tuple[str, int], tuple[int | None, object]] = {}
    with Subscriber(app.endpoint, high_water_mark=10_000) as subscriber:
        assert app.run() == 0
        for message in receive_until(subscriber, has_seen(60, *(source.id for source in config.sources))):
            assert isinstance(message, Detections)
            found[message.source, message.seq] = (message.pts, message.detections[0].box)
    assert all(count.in_flight == 0 for count in app.ledger.counts().values())
    assert app.sources.failures == {}
    return found


@pytest.mark.parametrize("on_gpu", [False, True], ids=["host", "device"])
def test_the_same_frames_as_in_one_process(reordered: Path, on_gpu: bool) -> None:
    """Times, pixels and order; B-frames, so that times must be given to the right pictures."""
    alone = _run(_config(reordered, 0, pace="fast", decode="auto"), on_gpu=on_gpu)
    shared = _run(_config(reordered, 3, pace="fast", decode="auto"), on_gpu=on_gpu)
    assert len(alone) == 4 * 60
    assert shared == alone
    times = [alone["clip-0", seq][0] for seq in range(60)]
    assert times == sorted(times)  # type: ignore[type-var]
    assert len({box for _, box in alone.values()}) > 50


def test_sources_beyond_the_gpus_sessions_have_processes_of_their_own(reordered: Path) -> None:
    """It is said why, they are brought to the GPU all the same, and who insists on the decoder has it."""
    config = _config(reordered, 2, mode="live", loop=True, decode="auto")
    *others, last = config.sources
    insisting = msgspec.structs.replace(last, decode="nvdec")
    config = check(msgspec.structs.replace(config, sources=[*others, insisting]))
    app = build(
        config,
        Seams(open_detector=lambda _, o: SeeingDetector(o), find_hardware=lambda _, __: FakeBackend(6, sessions=2)),
    )
    with Subscriber(app.endpoint, kinds=["detections", "status"], high_water_mark=10_000) as subscriber:
        app.start()
        with closing(_Stopping(app)):
            left = {source.id for source in config.sources}
            receive_until(subscriber, lambda message: _is_seen(message, left))
            formats, pids = app.sources.formats, app.parts.pids
            nice = sorted(psutil.Process(pid).nice() for pid in pids)
            app.sources.add([app.sources.make(msgspec.structs.replace(others[0], id="late"))])
            receive_until(subscriber, is_state("late", "up"))
            late = app.sources.formats["late"]
    full = "the GPU has room for 2 decoder sessions, which others have"
    assert {id: (format.decoder, format.decoder_reason) for id, format in formats.items()} == {
        "clip-0": ("nvdec", None), "clip-1": ("cpu", full), "clip-2": ("cpu", full), "clip-3": ("nvdec", None),
    }  # fmt: skip
    assert len(pids) == 1 + 2 + 1
    assert nice[3] > nice[2] == nice[0]  # lanes and the GPU's decoder have the cores first
    assert (late.decoder, late.decoder_reason) == ("cpu", full)


def _is_seen(message: Message, left: set[str]) -> bool:
    """Whether the last of these has been."""
    if isinstance(message, Detections):
        left.discard(message.source)
    return not left


def test_a_process_that_dies_costs_its_sources_a_pause_and_the_others_nothing(reordered: Path) -> None:
    """It is said why; a new one goes on with the numbers where they were; every frame is accounted for."""
    app = _app(_config(reordered, 2, mode="live", loop=True, decode="auto"), on_gpu=True)
    messages: list[Message] = []
    with Subscriber(app.endpoint, kinds=["detections", "status"], high_water_mark=10_000) as subscriber:

        def until(wanted: Callable[[Message], bool]) -> None:
            messages.extend(receive_until(subscriber, wanted))

        app.start()
        with closing(_Stopping(app)):
            until(lambda message: isinstance(message, Detections) and message.seq >= 10)
            os.kill(app.parts.pids[1], signal.SIGKILL)
            until(lambda message: isinstance(message, Status) and "SIGKILL" in (message.reason or ""))
            until(is_state("clip-2", "up"))
            until(lambda message: isinstance(message, Detections) and message.source == "clip-2")
            pids = app.parts.pids
        while (message := subscriber.receive(0.5)) is not None:
            messages.append(message)
    assert not any(psutil.pid_exists(pid) for pid in pids[1:])
    down = {message.source for message in messages if isinstance(message, Status) and message.state == "down"}
    assert down == {"clip-0", "clip-2"}  # those of the process that was killed
    for source, count in app.ledger.counts().items():
        seqs = [message.seq for message in messages if isinstance(message, Detections) and message.source == source]
        assert seqs == sorted(set(seqs)), source
        assert count.in_flight == 0
        if source not in down:  # a crowded machine may drop a frame, and says so
            assert seqs[-1] + 1 - len(seqs) <= count.dropped.superseded + count.dropped.stale + count.dropped.late


@pytest.mark.slow
def test_a_process_that_hangs_is_replaced(reordered: Path) -> None:
    limits = Limits(worker_silence=5.0)
    app = _app(_config(reordered, 1, sources=1, mode="live", loop=True, decode="auto"), on_gpu=True, limits=limits)
    with Subscriber(app.endpoint, kinds=["status"]) as subscriber:
        app.start()
        with closing(_Stopping(app)):
            receive_until(subscriber, is_state("clip-0", "up"))
            os.kill(app.parts.pids[1], signal.SIGSTOP)
            told = receive_until(subscriber, is_state("clip-0", "down"))
            assert "no sign of life for 5 s" in str(told[-1].reason)  # type: ignore[union-attr]
            receive_until(subscriber, is_state("clip-0", "up"))


@pytest.mark.slow
def test_a_process_that_hangs_does_not_outlive_the_daemon(reordered: Path) -> None:
    app = _app(_config(reordered, 2, mode="live", loop=True, decode="auto"), on_gpu=True)
    with Subscriber(app.endpoint, kinds=["detections"]) as subscriber:
        app.start()
        with closing(_Stopping(app)):
            receive_until(subscriber, lambda message: isinstance(message, Detections) and message.seq >= 10)
            pids = app.parts.pids[1:]
            os.kill(pids[0], signal.SIGSTOP)
    # The thread that reaps it may still be at it.
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids), "its processes are gone")


def _has_ended(message: Message, left: set[str]) -> bool:
    """Whether the last of some sources has ended."""
    if isinstance(message, Status) and message.state == "ended":
        left.discard(message.source)
    return not left


class _Stopping:
    """Ends a running Daemon at the end of a block, whatever happens in it."""

    def __init__(self, app: Daemon) -> None:
        self._app = app

    def close(self) -> None:
        self._app.stop()


def test_a_recording_whose_process_died_is_not_played_again(reordered: Path) -> None:
    """Its beginning is published already."""
    app = _app(_config(reordered, 1, sources=1, decode="auto"), on_gpu=True)
    with Subscriber(app.endpoint, kinds=["detections", "status"]) as subscriber:
        app.start()
        with closing(_Stopping(app)):
            receive_until(subscriber, lambda message: isinstance(message, Detections) and message.seq > 3)
            os.kill(app.parts.pids[1], signal.SIGKILL)
            receive_until(subscriber, is_state("clip-0", "ended"))
            app.wait()
    assert "SIGKILL" in app.sources.failures["clip-0"]


def _two_processes(clip: Path) -> dict[str, object]:
    """A source in each, without end."""
    sources = [{"id": f"s{n}", "type": "av", "url": str(clip), "loop": True} for n in range(2)]
    return {"capture_processes": 2, "sources": sources}


def test_nothing_is_left_when_the_daemon_is_killed(reordered: Path, tmp_path: Path) -> None:
    with Lookout(tmp_path, _two_processes(reordered)) as lookout, lookout.subscribe("status") as subscriber:
        receive_until(subscriber, is_state("s1", "up"))
        children = lookout.inspect.children(recursive=True)
        assert len(lookout.children(PROGRAM)) == 2
        lookout.process.kill()
        gone, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
        assert alive == []
        assert len(gone) == len(children)


def test_what_processes_are_forked_from_may_die(reordered: Path, tmp_path: Path) -> None:
    """They die with it, and their sources come back in others, which are forked from another."""
    with Lookout(tmp_path, _two_processes(reordered)) as lookout, lookout.subscribe("status") as subscriber:
        receive_until(subscriber, is_state("s1", "up"))
        for _ in range(2):
            (template,), captures = lookout.inspect.children(), lookout.children(PROGRAM)
            assert template.num_threads() == 1  # or it could not be forked safely
            template.kill()
            assert not psutil.wait_procs(captures, timeout=PATIENCE_S)[1]
            for state in ("down", "up"):
                receive_until(subscriber, all_of(is_state("s0", state), is_state("s1", state)))
        assert lookout.stop() == 0


def test_signals_for_all_are_for_the_daemon(reordered: Path, tmp_path: Path) -> None:
    """Ctrl-C and service managers signal every process of a group: the daemon's own order of stopping holds."""
    with Lookout(tmp_path, _two_processes(reordered)) as lookout, lookout.subscribe("status") as subscriber:
        receive_until(subscriber, is_state("s1", "up"))
        for process in [*lookout.inspect.children(recursive=True), lookout.inspect]:
            process.send_signal(signal.SIGTERM)
        left = {"s0", "s1"}  # in either order
        receive_until(subscriber, lambda message: _has_ended(message, left))
        assert lookout.process.wait(PATIENCE_S) == 0
        assert "capture process ended" not in lookout.log()


@pytest.mark.slow
def test_a_full_decoder_is_shared_over_capture_processes(reordered: Path) -> None:
    """Two that ask for all of it decode half of their pictures, as far as others do not need them, and say so."""
    config = _config(reordered, 2, sources=2, mode="live", loop=True, decode="auto")
    app = build(
        check(msgspec.structs.replace(config, admission="degrade")),
        Seams(open_detector=lambda _, o: SeeingDetector(o), find_hardware=lambda _, __: FakeBackend(6, share=0.94)),
    )

    def is_told(message: Message) -> bool:
        return isinstance(message, Status) and "has time for 50% of its pictures" in (message.reason or "")

    with Subscriber(app.endpoint, kinds=["detections", "status"], high_water_mark=10_000) as subscriber:
        app.start()
        with closing(_Stopping(app)):
            left = {"clip-0", "clip-1"}
            receive_until(subscriber, lambda message: is_told(message) and _is_seen_in(message, left))
            began = app.ledger.counts()
            wait_until(lambda: min(_limited(app, began)) > 30, "it is kept to")
            counts = app.ledger.counts()
    for id, before in began.items():
        captured = counts[id].captured - before.captured
        limited = counts[id].dropped.rate_limit - before.dropped.rate_limit
        late = counts[id].dropped.late - before.dropped.late
        # Half of those of this clip are needed by others. What a crowded machine is late for it leaves out anyway.
        assert limited < 0.55 * captured, id
        assert limited + late > 0.35 * captured, id


def _limited(app: Daemon, since: dict[str, Counts]) -> list[int]:
    """Pictures of each source left out by rate limit."""
    counts = app.ledger.counts()
    return [counts[id].dropped.rate_limit - before.dropped.rate_limit for id, before in since.items()]


def _is_seen_in(message: Message, left: set[str]) -> bool:
    if isinstance(message, Status):
        left.discard(message.source)
    return not left


def test_admission_reaches_capture_processes(reordered: Path) -> None:
    """A detector that does 10 frames a second has less for two sources of 30 each."""
    config = _config(reordered, 2, sources=2, mode="live", loop=True, decode="auto")
    slow = check(msgspec.structs.replace(config, admission="degrade"))
    app = build(slow, Seams(open_detector=lambda _, o: _Slow(o), find_hardware=lambda _, __: FakeBackend(6)))
    with Subscriber(app.endpoint, kinds=["status"]) as subscriber:
        app.start()
        with closing(_Stopping(app)):
            told = receive_until(
                subscriber,
                lambda message: isinstance(message, Status) and "limited to" in (message.reason or ""),
            )
    assert isinstance(told[-1], Status)
    assert told[-1].state == "up"
