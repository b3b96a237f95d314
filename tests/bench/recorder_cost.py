"""`python -m tests.bench recorder`: what a packet costs in the process of a store, and how much of it is the disk.

Packets lie in their rings before each turn, so that nothing but the recorder's own work is counted: reading,
assembling, the chain of hashes, writing, the index, retention; and boxes beside the video.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from time import process_time

from daemon.recording.process.main import TURN_NS
from daemon.recording.recorder import Recorder, StorePlace
from daemon.recording.retention import Rules
from daemon.recording.ring import UNIT_BYTES, Ring, RingWriter
from daemon.recording.source_recorder import Settings
from daemon.recording.tracks.tap import TrackTap
from daemon.sources.port import PacketInfo
from tests.bench.track_cost import SERVED, TracksOptions, batches
from tests.support.clock import ManualClock
from tests.support.recorded import clip

_FPS, _WARM_UP_S = 30, 2.0
_SESSION = "5e551071"
_RING_BYTES = (16 << 20) // UNIT_BYTES * UNIT_BYTES
_LONG_NS = 10**18
_SETTINGS = Settings(continuous=True, pre=5 * 10**9, post=5 * 10**9, longest=300 * 10**9)


@dataclass(frozen=True)
class RecorderOptions:
    """Options of the measurement; see `python -m tests.bench recorder --help`."""

    sources: int = 40
    packet_bytes: int = 17_000
    seconds: float = 10.0
    boxes: int = 0
    batch: int = 16
    folder: Path | None = None


@dataclass(frozen=True)
class RecorderFound:
    """
    Attributes:
        us: CPU of a packet.
        packets: that were counted.
        core_of_240: share of a core for 240 cameras of 30 packets a second.
    """

    us: float
    packets: int
    core_of_240: float


def recorder(options: RecorderOptions) -> RecorderFound:
    """Run and measure."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        camera = clip(folder, "h264", seconds=1)
        stream = camera.stream
        rules = Rules(continuous_ns=_LONG_NS, events_ns=_LONG_NS)
        place = StorePlace(str(folder / "store"), must_be_mount=False, rules=rules)
        clock = ManualClock()
        tested = Recorder(place, "5e551071", clock, lambda *_: None, clock.monotonic_ns)
        stack.callback(tested.finish)
        names = [f"camera-{number}" for number in range(options.sources)]
        rings = [stack.enter_context(closing(Ring(name, _RING_BYTES))) for name in names]
        writers = [stack.enter_context(closing(RingWriter(ring.fd))) for ring in rings]
        for name, ring in zip(names, rings):
            tested.record(name, _SETTINGS, ring.fd)
        boxes = _Boxes(names, options, clock)
        stack.callback(boxes.close)
        tested.use_tracks(boxes.ring.fd)
        other, key_picture = (next(row.data for row in camera.samples if row.key == key) for key in (False, True))
        pictures = [_longer(bytes(data), options.packet_bytes) for data in (other, key_picture)]
        begin, used, counted, number = clock.monotonic_ns(), 0.0, 0, 0
        while number < (options.seconds + _WARM_UP_S) * _FPS:
            is_warm = number >= _WARM_UP_S * _FPS
            clock.advance(TURN_NS / 1e9)
            while (at := number * 1_000_000_000 // _FPS) < clock.monotonic_ns() - begin:
                key = number % _FPS == 0
                info = PacketInfo("h264", stream.extradata, (1, 90_000), stream.width, stream.height, 0, at, at, key)
                _put(writers, info, pictures[key], clock)
                boxes.put()
                number += 1
                counted += is_warm * options.sources
            begun = process_time()
            tested.turn()
            used += is_warm * (process_time() - begun)
    us = used / counted * 1e6
    return RecorderFound(us, counted, us * 240 * _FPS / 1e6)


def _put(writers: Sequence[RingWriter], info: PacketInfo, data: bytes, clock: ManualClock) -> None:
    for writer in writers:
        writer.put_packet(_SESSION, info, data, boot=clock.monotonic_ns(), utc=clock.utc_ns())


class _Boxes:
    """What the lanes hand over, of moving objects.

    Attributes:
        ring: to the recorder.
    """

    def __init__(self, names: Sequence[str], options: RecorderOptions, clock: ManualClock) -> None:
        self.ring = Ring("tracks", _RING_BYTES)
        self._tap = TrackTap({"main": self.ring}, clock, clock.monotonic_ns)
        self._tap.use({"main": {*names} if options.boxes else set()})
        self._sources = [
            batches(
                TracksOptions(options.boxes, seconds=options.seconds + _WARM_UP_S + 1, fps=_FPS),
                names[first : first + options.batch],
                _SESSION,
            )
            for first in range(0, len(names) if options.boxes else 0, options.batch)
        ]

    def put(self) -> None:
        """A picture of each source."""
        for source in self._sources:
            self._tap.on_batch(*next(source), SERVED)

    def close(self) -> None:
        self._tap.close()
        self.ring.close()


def _longer(picture: bytes, size: int) -> bytes:
    """A picture whose last unit goes on with bytes that mean nothing."""
    chance = random.Random(size)
    return picture + bytes(chance.randrange(1, 256) for _ in range(size - len(picture)))
