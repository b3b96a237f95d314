"""A window for each source, in a process of its own: libraries of windows want the main thread, and may crash."""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

import cv2
import numpy as np
import structlog

from daemon.clock import Bell
from daemon.errors import LookoutError
from daemon.lifecycle import ThreadPart
from daemon.pipeline.drawing import Picture
from daemon.pipeline.frames import Frame
from daemon.system.children import Child, finish, spawn
from daemon.system.runtime import Runtime
from daemon.system.watchdog import Pulse
from daemon.viewing.picture import SeenPicture, seen
from detectors.detections import Detections
from detectors.port import DetectorError, Lane

log = structlog.get_logger(__name__)
HEADER = struct.Struct("=HII")  # bytes of the name, width, height; the name and the pixels follow
MAX_WINDOWS = 9
READY, CLOSED = b"ready", b"closed"
_WIDEST = 1280  # larger pictures are made smaller
_OPEN_S = 20.0
_END_S = 2.0
_IDLE_S = 0.2
_SEND_S = 2.0  # a window that takes nothing for so long hangs


def check_can_show(sources: int) -> None:
    """
    Raises:
        LookoutError: there is no display, the OpenCV that is installed opens no windows, or there are too many sources.
    """
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise LookoutError("--show needs a display, and DISPLAY is not set: use --save-video FILE.mp4, or --dashboard")
    if "GUI:                           NONE" in cv2.getBuildInformation():
        raise LookoutError(
            "--show needs an OpenCV with windows, and opencv-python-headless has none: pip uninstall "
            "opencv-python-headless && pip install opencv-python; or use --dashboard"
        )
    if sources > MAX_WINDOWS:
        raise LookoutError(f"--show opens a window for each source, {MAX_WINDOWS} at most: --dashboard shows more")


class WindowProcess:
    """A process that shows what it is sent. One thread calls it.

    Args:
        module: whose `main` it runs.

    Raises:
        LookoutError: it opens no window.
    """

    def __init__(self, module: str = "daemon.viewing.window_process") -> None:
        self._end, theirs = socket.socketpair()
        try:
            with theirs:
                self._process: Child = spawn(module, None, [theirs.fileno()])
        except OSError as error:
            self._end.close()
            raise LookoutError(f"--show: no process can be started: {error.strerror}") from error
        self._end.settimeout(_OPEN_S)
        if self._received(len(READY)) != READY:
            self.close()
            raise LookoutError("--show: no window can be opened on this display: use --dashboard, or --save-video")
        self._end.settimeout(_SEND_S)

    @property
    def is_closed(self) -> bool:
        """A person has closed a window.

        Raises:
            OSError: the process has died.
        """
        readable, _, _ = select.select([self._end], [], [], 0)
        if not readable:
            return False
        if self._received(len(CLOSED)) != CLOSED:
            raise BrokenPipeError("its process has died")
        return True

    def show(self, name: str, picture: Picture) -> None:
        """
        Raises:
            OSError: it takes no more.
        """
        title = name.encode()
        high, wide = picture.shape[:2]
        self._end.sendall(HEADER.pack(len(title), wide, high) + title)
        self._end.sendall(np.ascontiguousarray(picture).data)

    def close(self) -> None:
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)  # the process ends when this end is closed
        finish(self._process, _END_S)
        self._end.close()

    def _received(self, count: int) -> bytes:
        try:
            return self._end.recv(count)
        except OSError:
            return b""


class ShownPictures(ThreadPart):
    """Shows the newest picture of each source. Implements `daemon.pipeline.lane.Observer`.

    Args:
        on_closed: called once, when a person closes a window.

    Attributes:
        is_waiting: it wants pictures.
    """

    def __init__(self, window: WindowProcess, on_closed: Callable[[], None], runtime: Runtime) -> None:
        super().__init__("show", runtime, is_vital=False)
        self._window, self._on_closed = window, on_closed
        self._newest: dict[str, SeenPicture] = {}
        self._bell = Bell()
        self.is_waiting = True

    def on_result(self, frame: Frame, found: Detections, lane: Lane, labels: tuple[str, ...]) -> None:
        """Called by lanes."""
        with suppress(DetectorError):
            self._newest[frame.info.source] = seen(frame, found, lane, labels)
            self._bell.ring()

    def work(self, pulse: Pulse) -> None:
        while not self.ending.is_set:
            pulse.rest()
            self._clock.wait(self._bell, _IDLE_S)
            pulse.beat()
            if not self._shows():
                log.info("a window was closed: this ends Lookout")
                self._on_closed()
                return

    def _shows(self) -> bool:
        """Show the pictures that wait; False when a person has closed a window.

        Raises:
            OSError: the process has died, or takes no more.
        """
        if self._window.is_closed:
            return False
        try:
            self.run_once()
        except OSError:  # the process has ended while it was sent a picture
            if self._window.is_closed:
                return False
            raise
        return True

    def run_once(self) -> None:
        """Show the pictures that wait.

        Raises:
            OSError: the process takes no more.
        """
        for source in [*self._newest]:
            picture = self._newest.pop(source)
            with suppress(DetectorError):
                self._window.show(source, _at_most(picture.drawn()))

    def close(self) -> None:
        self.is_waiting = False
        self._newest.clear()
        self._window.close()

    def on_error(self, error: Exception) -> None:
        log.warning("the window has failed: all else goes on without", reason=str(error))


def _at_most(picture: Picture) -> Picture:
    high, wide = picture.shape[:2]
    if wide <= _WIDEST:
        return picture
    size = (_WIDEST, max(1, round(high * _WIDEST / wide)))
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)
