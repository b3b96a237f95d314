"""Recordings end after their last message, however slow the lanes are; cut recordings are counted and reported."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import psutil
import pytest

from daemon.build import build
from daemon.config.events import EventsConfig
from daemon.config.model import ModelConfig
from daemon.config.publisher import PublisherConfig
from daemon.config.root import BoardConfig, Config
from daemon.config.sources import SourceConfig, TrackingConfig
from daemon.daemon import Daemon
from daemon.rule_config import ObjectConfig
from daemon.seams import Seams
from daemon.system.stop_token import StopToken
from daemon.system.time_limits import Limits
from detectors.fake.detector import FakeDetector
from detectors.port import HostImage, Options
from lookout.client import Subscriber
from lookout.messages import Detections, Event, Message, Status
from tests.lifetimes.cameras import Clip, camera, make
from tests.lifetimes.gate import Gate
from tests.lifetimes.parts import Detector
from tests.lifetimes.rig import wait_until
from tests.support.daemon import is_state, receive_until


def _config(*sources: SourceConfig, mode: str = "lossless", processes: int = 1) -> Config:
    return Config(
        model=ModelConfig(path=Path("none"), backend="fake", max_batch=1),
        sources=list(sources),
        capture_processes=processes,
        board=BoardConfig(mode=mode, depth=16),  # type: ignore[arg-type]
        publisher=PublisherConfig(endpoint="tcp://127.0.0.1:*", wait_for_subscriber_s=30),
    )


def _played(app: Daemon) -> tuple[int, list[Message]]:
    """Exit code, and all published messages up to the end of the clip."""
    with Subscriber(app.endpoint, kinds=["detections", "status"]) as subscriber:
        return app.run(), receive_until(subscriber, is_state("clip", "ended"))


@pytest.mark.parametrize("processes", [0, 1], ids=["here", "in-a-worker"])
def test_a_detector_that_takes_long_gets_every_frame(tmp_path: Path, processes: int) -> None:
    """D1, D2, U3: the recording is read at once, and its pictures are looked at for seconds after that. Its memory
    stays as long, every frame is published, and `ended` comes after the last."""
    app = build(
        _config(camera("clip"), processes=processes),
        Seams(open_detector=lambda _, options: FakeDetector(options, 0.35), make_source=partial(make, folder=tmp_path)),
    )
    code, messages = _played(app)
    assert code == 0
    found = [message for message in messages if isinstance(message, Detections)]
    assert [message.seq for message in found] == list(range(Clip.FRAMES))
    brightness = [message.detections[0].label for message in found]  # of memory that is still what it was
    assert brightness == ["dark"] * 7 + ["bright"] * 3
    last = messages[-1]
    assert isinstance(last, Status)
    assert (last.source, last.state, last.reason) == ("clip", "ended", None)


def test_a_process_of_rules_that_is_behind_gets_the_time_for_its_last_events(tmp_path: Path) -> None:
    """More than a stop would have."""
    clip = msgspec.structs.replace(camera("clip"), rules=[ObjectConfig(name="all")])
    config = msgspec.structs.replace(
        _config(clip, processes=0),
        tracking=TrackingConfig(enabled=True),
        events=EventsConfig(journal="off", own_process=True),
    )
    app = build(
        config,
        Seams(
            open_detector=lambda _, options: FakeDetector(options),
            make_source=partial(make, folder=tmp_path),
            limits=Limits(stop=0.5),
        ),
    )
    with Subscriber(app.endpoint, kinds=["events", "status"]) as subscriber:
        (child,) = set(app.parts.pids) - {os.getpid()}
        os.kill(child, signal.SIGSTOP)
        running = threading.Thread(target=app.run)
        running.start()
        wait_until(lambda: app.sources.finished, "the recording has ended")
        running.join(1.0)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGCONT)
        messages = receive_until(subscriber, is_state("clip", "ended"))
        running.join()
    phases = [message.phase for message in messages if isinstance(message, Event)]
    states = [message.state for message in messages if isinstance(message, Status)]
    assert (phases.count("appeared"), phases.count("left"), states[-1:]) == (2, 2, ["ended"])


def test_a_process_that_dies_takes_none_of_the_frames_along_that_it_gave(tmp_path: Path) -> None:
    """The recording breaks off, and reports that after its last frame."""
    (tmp_path / "HANG-clip").touch()
    detecting, opening = Gate(), Gate()
    detecting.close()
    app = build(
        _config(camera("clip")),
        Seams(
            open_detector=lambda _, options: Detector(options, opening, detecting, StopToken()),
            make_source=partial(make, folder=tmp_path),
        ),
    )

    def kill() -> None:
        wait_until(lambda: app.ledger.counts()["clip"].captured == Clip.FRAMES, "all is captured")
        (pid,) = app.sources.pids
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not app.sources.pids, "that is noticed")
        wait_until(lambda: not psutil.pid_exists(pid), "it is reaped")
        detecting.open()

    killer = threading.Thread(target=kill)
    killer.start()
    code, messages = _played(app)
    killer.join()
    assert code == 0
    found = [message.seq for message in messages if isinstance(message, Detections)]
    assert found == list(range(Clip.FRAMES))
    last = messages[-1]
    assert isinstance(last, Status)
    assert (last.source, last.state) == ("clip", "ended")
    assert "SIGKILL" in str(last.reason)


class Stubborn(FakeDetector):
    """Blocks when it is closed."""

    def __init__(self, options: Options, gate: Gate) -> None:
        super().__init__(options)
        self._gate = gate

    def close(self) -> None:
        self._gate()


def test_a_detector_that_does_not_close_keeps_no_message_back(tmp_path: Path) -> None:
    """All messages are sent, the last report included, before anything is closed."""
    gate = Gate()
    gate.close()
    app = build(
        _config(camera("clip"), processes=0),
        Seams(
            open_detector=lambda _, options: Stubborn(options, gate),
            make_source=partial(make, folder=tmp_path),
            limits=Limits(close=0.1),
        ),
    )
    code, messages = _played(app)
    gate.open()
    assert code == 0
    assert sum(isinstance(message, Detections) for message in messages) == Clip.FRAMES
    assert app.monitor.last is not None
    assert app.monitor.last.sources["clip"].published == Clip.FRAMES


class Held:
    """A lossless replay whose lane holds a frame."""

    def __init__(self, folder: Path, processes: int) -> None:
        self.detecting, opening = Gate(), Gate()
        self.detecting.close()
        self.app = build(
            _config(camera("clip"), processes=processes),
            Seams(
                limits=Limits(stop=1.5),
                open_detector=lambda _, options: Detector(options, opening, self.detecting, StopToken()),
                make_source=partial(make, folder=folder),
            ),
        )
        self.subscriber = Subscriber(self.app.endpoint, kinds=["detections", "status"])
        self.app.start()
        self.detecting.wait_for_one()

    def close(self) -> None:
        self.detecting.open()
        self.subscriber.close()


@pytest.mark.parametrize("processes", [0, 1], ids=["here", "in-a-worker"])
def test_what_is_cut_short_is_counted_and_said(tmp_path: Path, processes: int) -> None:
    """Told to end while a lane holds a frame: each frame is published or counted, that one too, and the exit code is
    not that of a replay that came to its end."""
    held = Held(tmp_path, processes)
    try:
        wait_until(lambda: held.app.ledger.counts()["clip"].captured == Clip.FRAMES, "all is captured")
        held.app.request_stop()
        assert held.app.stop() == 5
        counts = held.app.ledger.counts()["clip"]
        assert counts.in_flight == 0
        assert counts.dropped.shutdown == Clip.FRAMES
        held.detecting.open()
        wait_until(lambda: not any(row.name.startswith("lane") for row in threading.enumerate()), "the lane returns")
        assert held.app.ledger.counts()["clip"] == counts  # what it brought too late changes no account
    finally:
        held.close()


def test_no_picture_is_read_after_it_is_given_back() -> None:
    """The replay above relies on this: an image keeps its slot while it is referenced."""
    from collections import deque

    from daemon.sources.buffers import HostMemory, RemoteLease, view

    home: deque[tuple[int, int]] = deque()
    block = HostMemory(64)
    image = HostImage(view(block.pointer, (4, 4, 3), RemoteLease(home, 7, 0)))
    part = image.bgr[1:]
    del image
    assert not home
    del part
    assert list(home) == [(7, 0)]
    block.close()
