"""Misbehaving sources for capture processes, chosen by their ids; capture processes import this module by name."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daemon.capture.processes.run import PROGRAM
from daemon.config.sources import AvConfig, SourceConfig
from daemon.redact import Url
from daemon.sources.decode import DecoderPool
from daemon.sources.factory import make_source
from daemon.sources.port import DecodeBudget, Picture, Source
from detectors.port import HostImage
from lookout.messages import FrameClock, VideoFormat
from tests.lifetimes.parts import Camera

IN_WORKER = sys.argv[0] == PROGRAM


def camera(id: str) -> AvConfig:
    """A source for capture processes."""
    return AvConfig(id=id, url=Url("rtsp://192.0.2.1/x"), decode="cpu")


def make(config: SourceConfig, hardware: DecoderPool, folder: Path) -> Source:
    """By id: `unmade` cannot be made in a capture process; `heir` leaves its process's socket to another, until the
    file HEIR goes; `lingers` closes it, and goes on, when the file LINGER is there; others are held as long as the
    file HANG-ID is there."""
    if not isinstance(config, AvConfig):
        return make_source(config, hardware)
    if config.id == "unmade" and IN_WORKER:
        raise RuntimeError("this source cannot be made here")
    if config.id == "heir":
        return Camera(lambda: _leave_an_heir(folder / "HEIR"))
    if config.id == "lingers":
        return Camera(lambda: _linger(folder))
    if config.id.startswith("clip"):
        return Clip(folder / f"HANG-{config.id}")
    return Camera(lambda: _hang(folder / f"HANG-{config.id}"))


@dataclass(frozen=True)
class HeldMaker:
    """With this in its configuration a capture process does not start while the file HANG-start exists."""

    folder: Path

    def __call__(self, config: SourceConfig, hardware: DecoderPool) -> Source:
        return make(config, hardware, self.folder)

    def __reduce__(self) -> tuple[Callable[[Path], HeldMaker], tuple[Path]]:
        return _made_when_free, (self.folder,)


def _made_when_free(folder: Path) -> HeldMaker:
    _hang(folder / "HANG-start")
    return HeldMaker(folder)


def _hang(file: Path) -> None:
    pause = threading.Event()
    hung = file.with_name(f"{file.name}-reached")
    while file.exists():
        hung.touch()
        pause.wait(0.005)


def _leave_an_heir(file: Path) -> None:
    """Fork once: the child holds everything that this process holds, and does nothing."""
    if file.exists():
        return
    file.touch()
    if os.fork() == 0:
        while file.exists():
            time.sleep(0.01)
        os._exit(0)


def _linger(folder: Path) -> None:
    """Close the socket before the process ends, as when a driver takes long to release it."""
    if (folder / "LINGER").exists():
        (folder / "LINGERING").touch()
        os.close(int(sys.argv[1]))
        os.kill(os.getpid(), signal.SIGSTOP)


class Clip:
    """Ten pictures at once, each of another brightness. The end is delayed while the file exists."""

    plays_once, live, realtime, has_next, clock = True, False, False, False, FrameClock("file", 0)
    FRAMES = 10

    def __init__(self, held: Path) -> None:
        self._held = held

    def open(self, budget: DecodeBudget | None = None) -> _ClipReader:
        return _ClipReader(self.FRAMES, self._held)


class _ClipReader:
    format = VideoFormat("clip", 64, 64, 25.0, "none")

    def __init__(self, frames: int, held: Path) -> None:
        self._frames, self._held, self._number = frames, held, 0

    def read(self) -> Picture | None:
        number = self._number
        self._number += 1
        if number >= self._frames:
            _hang(self._held)
            return None
        return Picture(number * 40_000_000, 0, lambda: HostImage(np.full((64, 64, 3), 20 * number, np.uint8)))

    def close(self) -> None:
        """Nothing is held."""
