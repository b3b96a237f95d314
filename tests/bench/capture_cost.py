"""`python -m tests.bench capture`: the CPU of a frame in a capture process, over a stand-in of the GPU's driver.

Recordings are read, decoded, and sent over the socket, by the classes of a capture process. The stand-in decodes
nothing, and its pictures are small, so what remains is Lookout's own work, and the calls of the driver. The figure is
for comparison with another version, in turns on one machine.
"""

from __future__ import annotations

import cProfile
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time

import msgspec

from daemon.capture.processes.channel import Channel, pair
from daemon.capture.processes.forwarder import FrameForwarder
from daemon.capture.processes.protocol import DeviceFrame, FromCapture, Returned
from daemon.capture.processes.sender import FrameSender
from daemon.capture.recordings import RecordingCapture
from daemon.capture.sinks import CaptureSinks
from daemon.clock import SystemClock
from daemon.config.sources import AvConfig, ReconnectConfig
from daemon.redact import Url
from daemon.sources.ffmpeg import AvSource
from daemon.system.tuning import configure_gc_and_switch_interval
from tests.support.driver import built

_SURFACES, _DEPTH, _WARM_UP = 8, 4, 100


class CaptureCost(msgspec.Struct, frozen=True):
    """
    Attributes:
        us: CPU of a frame, each round; of all threads, the one that receives included.
    """

    sources: int
    frames: int
    us: list[float]

    @property
    def middle(self) -> float:
        return median(self.us)


@dataclass(frozen=True)
class CaptureOptions:
    """See `python -m tests.bench capture --help`."""

    clip: Path
    sources: int = 8
    frames: int = 3000
    rounds: int = 5
    profile: Path | None = None


def capture_cost(options: CaptureOptions) -> CaptureCost:
    """Measure in a process of its own, which loads the stand-ins."""
    with tempfile.TemporaryDirectory() as folder:
        libraries = built(Path(folder), "cuda", "nvcuvid")
        environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "LOOKOUT_HOST_FOLDER": folder}
        profile = str(options.profile.absolute()) if options.profile else ""
        wanted = [str(options.clip.absolute()), *map(str, (options.sources, options.frames, options.rounds)), profile]
        command = [sys.executable, "-m", __spec__.name, *wanted]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=CaptureCost)


class _Daemon(threading.Thread):
    """The daemon's end: returns each slot at once."""

    def __init__(self, channel: Channel, sender: FrameSender) -> None:
        super().__init__(daemon=True)
        self._channel, self._sender = channel, sender
        self.frames = 0

    def run(self) -> None:
        while received := self._channel.receive():
            messages, fd = received
            if fd is not None:
                os.close(fd)
            slots = [(row.memory, row.offset) for row in messages if isinstance(row, DeviceFrame)]
            self.frames += len(slots)
            if slots:
                self._sender.on_returned(Returned(slots))


def _measure(clip: Path, sources: int, frames: int, rounds: int, profile: str) -> CaptureCost:
    from daemon.sources.nvdec.backend import NvdecBackend
    from daemon.sources.nvdec.session import Engines

    configure_gc_and_switch_interval()
    pool = NvdecBackend(0, Engines(0).capability(), _SURFACES, 1 << 33).open(1.0)
    clock, (mine, theirs) = SystemClock(), pair()
    mine.setblocking(True)
    sender = FrameSender(Channel(theirs, object), pool, clock, live=True)
    daemon = _Daemon(Channel(mine, FromCapture), sender)
    captures = []
    for number in range(sources):
        config = AvConfig(id=f"s{number}", url=Url(str(clip)), loop=True, pace="fast", decode="nvdec")
        feed = FrameForwarder(number, sender, live=False, depth=_DEPTH, slots=4, has_admission=False)
        sinks = CaptureSinks(feed, feed, feed.announce, feed, packets=feed)
        captures.append(RecordingCapture(config, AvSource(config, pool), sinks, clock, ReconnectConfig()))
    for capture in captures:
        capture.serve_by(lambda: None, None)
    threading.Thread(target=sender.run, daemon=True).start()
    daemon.start()
    pool.make_current()
    _read(captures, daemon, _WARM_UP * sources)
    profiler = cProfile.Profile() if profile else None
    us = []
    for _ in range(rounds):
        begun, count = process_time(), daemon.frames
        if profiler:
            profiler.enable()
        _read(captures, daemon, frames)
        if profiler:
            profiler.disable()
        us.append((process_time() - begun) * 1e6 / (daemon.frames - count))
    if profiler:
        profiler.dump_stats(profile)
    return CaptureCost(sources, frames, us)


def _read(captures: Sequence[RecordingCapture], daemon: _Daemon, frames: int) -> None:
    """Let the captures take steps in turns until so many frames have come."""
    until = daemon.frames + frames
    while daemon.frames < until:
        for capture in captures:
            capture.step()


if __name__ == "__main__":
    sources, frames, rounds = map(int, sys.argv[2:5])
    found = _measure(Path(sys.argv[1]), sources, frames, rounds, sys.argv[5])
    sys.stdout.buffer.write(msgspec.json.encode(found))
    sys.stdout.flush()
    os._exit(0)
