"""Windows, on a screen that remembers what it shows."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest

from daemon.errors import LookoutError
from daemon.pipeline.drawing import Picture
from daemon.pipeline.frames import Frame
from daemon.system.children import spawn
from daemon.viewing import window as showing
from daemon.viewing.window import HEADER, MAX_WINDOWS, ShownPictures, WindowProcess, check_can_show
from daemon.viewing.window_process import serve
from detectors.detections import Detections
from detectors.fake.detector import FakeLane
from detectors.port import HostImage
from tests.support.clock import ManualClock
from tests.support.daemon import PATIENCE_S
from tests.support.events import frame, logged, runtime
from tests.support.remembering_screen import DIES, PERSON_CLOSES

NOTHING = Detections(np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.int32))
_SCREEN = "tests.support.remembering_screen"


@dataclass
class Screen:
    """Implements `daemon.viewing.window_process.Screen`."""

    shown: list[tuple[str, tuple[int, ...], int]] = field(default_factory=list)
    closes_after: int = 1_000_000

    def show(self, name: str, picture: Picture) -> None:
        self.shown.append((name, picture.shape, int(picture[0, 0, 0])))

    def was_closed(self) -> bool:
        return len(self.shown) >= self.closes_after


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Iterator[WindowProcess]:
    """A real process, which a person closes when a picture is so dark."""
    for name in ("_OPEN_S", "_SEND_S"):
        monkeypatch.setattr(showing, name, PATIENCE_S)  # a busy machine
    monkeypatch.setattr(showing, "spawn", partial(spawn, begin_s=PATIENCE_S))
    with closing(WindowProcess(_SCREEN)) as opened:
        yield opened


def _result(seq: int, source: str, grey: int, size: tuple[int, int] = (90, 160)) -> tuple[Frame, Detections]:
    return Frame(frame(seq, source), HostImage(np.full((*size, 3), grey, np.uint8))), NOTHING


def test_pictures_arrive_whole_and_large_ones_smaller() -> None:
    ours, theirs = socket.socketpair()
    screen = Screen(closes_after=2)
    with ours, theirs:
        thread = threading.Thread(target=serve, args=(theirs, screen))
        thread.start()
        assert ours.recv(5) == b"ready"
        for grey in (5, 9):
            ours.sendall(HEADER.pack(len("door"), 160, 90) + b"door" + bytes([grey]) * (160 * 90 * 3))
        assert ours.recv(6) == b"closed"
        thread.join()
    assert screen.shown == [("door", (90, 160, 3), 5), ("door", (90, 160, 3), 9)]


def test_a_window_that_a_person_closes_ends_the_daemon(window: WindowProcess, clock: ManualClock) -> None:
    """Lanes wait for nothing: of many frames the newest is shown."""
    ended = threading.Event()
    part = ShownPictures(window, ended.set, runtime(clock))
    lane = FakeLane(0.0, 0.0, lambda _: None)
    for seq in range(20):
        part.on_result(*_result(seq, "door", 100, (1440, 2560)), lane, ())
    part.run_once()
    assert not window.is_closed
    part.on_result(*_result(21, "yard", PERSON_CLOSES), lane, ())
    part.start()
    assert ended.wait(PATIENCE_S)
    assert part.stop(PATIENCE_S) == ()


def test_a_window_that_is_closed_while_it_is_sent_a_picture_ends_the_daemon(
    window: WindowProcess, clock: ManualClock
) -> None:
    """Nobody takes the second picture."""
    ended = threading.Event()
    part = ShownPictures(window, ended.set, runtime(clock))
    lane = FakeLane(0.0, 0.0, lambda _: None)
    part.on_result(*_result(1, "door", PERSON_CLOSES), lane, ())
    part.on_result(*_result(2, "yard", 100, (1440, 2560)), lane, ())
    with logged() as lines:
        part.start()
        assert ended.wait(PATIENCE_S)
        assert part.stop(PATIENCE_S) == ()
    assert [line["event"] for line in lines] == ["a window was closed: this ends Lookout"]


def test_a_process_of_windows_that_dies_does_not_end_the_daemon(window: WindowProcess, clock: ManualClock) -> None:
    part = ShownPictures(window, lambda: pytest.fail("nobody has closed it"), runtime(clock))
    part.on_result(*_result(1, "door", DIES), FakeLane(0.0, 0.0, lambda _: None), ())
    with logged() as lines:
        part.start()
        assert part.join(PATIENCE_S) == ()
    (line,) = lines
    assert line["event"] == "the window has failed: all else goes on without"
    assert line["reason"] == "its process has died"


def test_a_window_that_dies_costs_the_window_alone(window: WindowProcess, clock: ManualClock) -> None:
    part = ShownPictures(window, lambda: pytest.fail("nobody has closed it"), runtime(clock))
    assert part.stop(PATIENCE_S) == ()
    with pytest.raises(OSError):  # noqa: PT011 - whichever comes first
        window.show("door", np.zeros((9, 9, 3), np.uint8))


def test_no_window_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":99999")
    with pytest.raises(LookoutError, match="no window can be opened on this display"):
        WindowProcess("tests.support.no_screen")


def test_a_display_a_library_and_few_sources_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(LookoutError, match="DISPLAY is not set"):
        check_can_show(1)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("cv2.getBuildInformation", lambda: "  GUI:                           QT5\n")
    check_can_show(MAX_WINDOWS)
    with pytest.raises(LookoutError, match="9 at most"):
        check_can_show(MAX_WINDOWS + 1)
    monkeypatch.setattr("cv2.getBuildInformation", lambda: "  GUI:                           NONE\n")
    with pytest.raises(LookoutError, match="opencv-python-headless has none"):
        check_can_show(1)
