"""Stand-ins at the daemon's ports that a test can hold: a detector, a GPU probe, sources here and in workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.packet import Packet

from daemon.config.sources import AvConfig, SourceConfig, SyntheticConfig
from daemon.sources.decode import DecoderPool
from daemon.sources.factory import make_source
from daemon.sources.port import DecodeBudget, PacketInfo, PacketReader, PacketTap, Picture, Source
from daemon.system.stop_token import StopToken
from detectors.detections import Detections
from detectors.fake.detector import FakeDetector, FakeLane
from detectors.port import DetectorError, HostImage, Image, Options, PreparedImage, StageTimes
from lookout.messages import FrameClock, GpuMetrics, State, VideoFormat
from tests.lifetimes.gate import Gate

_PERIOD_S = 0.02
_PICTURE = np.zeros((8, 8, 3), np.uint8)


class Detector(FakeDetector):
    """The fake, with gates where lanes open and detect.

    Args:
        fails: when it is set, no lane detects any more.

    Attributes:
        closed: how often it was.
        inside: lanes that are detecting.
    """

    def __init__(self, options: Options, opening: Gate, detecting: Gate, fails: StopToken) -> None:
        super().__init__(options)
        self._opening, self._detecting, self.fails = opening, detecting, fails
        self.closed = self.inside = 0
        self.closed_under_a_lane = False

    def lane(self) -> _Lane:
        self._opening()
        return _Lane(self, self._detecting, self._options.wanted.confidence)

    def close(self) -> None:
        self.closed += 1
        self.closed_under_a_lane |= self.inside > 0


class _Lane(FakeLane):
    def __init__(self, detector: Detector, gate: Gate, confidence: float) -> None:
        super().__init__(confidence, 0.0, lambda _: None)
        self._detector, self._gate = detector, gate

    def detect(self, images: Sequence[Image | PreparedImage]) -> tuple[list[Detections], StageTimes]:
        self._detector.inside += 1
        try:
            self._gate()
            if self._detector.fails.is_set:
                raise DetectorError("out of memory")
            return super().detect(images)
        finally:
            self._detector.inside -= 1


class Probe:
    """A GPU probe that answers when its gate is open."""

    reason: str | None = None

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def read(self) -> list[GpuMetrics]:
        self._gate()
        nothing = dict.fromkeys(
            ("memory_used_bytes", "memory_total_bytes", "process_memory_bytes", "utilisation", "decoder_utilisation")
        )
        return [GpuMetrics(name="stand-in", power_w=None, energy_j=None, reasons={}, **nothing)]

    def close(self) -> None:
        """Nothing is held."""


def open_probe(gate: Gate) -> Callable[[Callable[[], Iterable[int]]], Probe]:
    """Arguments of `App`."""
    return lambda _pids: Probe(gate)


class Announcements:
    """Status messages of a source."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def __call__(
        self,
        source: str,
        session: str | None,
        state: State,
        reason: str | None,
        retry_in_s: float | None,
        format: VideoFormat | None,
    ) -> None:
        self.states.append(state)


class Camera:
    """Fifty pictures a second, for ever or `frames` of them; its library may be held.

    Args:
        hold: called at each picture; it may not return for long.
        live: it has no end.
    """

    clock = FrameClock("arrival")
    realtime = False
    has_next = False

    def __init__(self, hold: Callable[[], None], frames: int | None = None) -> None:
        self._hold, self._frames = hold, frames
        self.live = frames is None
        self.plays_once = not self.live

    def open(self, budget: DecodeBudget | None = None) -> _Reader:
        return _Reader(self._hold, self._frames)


class _Reader(PacketReader):
    """Each picture comes in a packet of a few bytes."""

    format = VideoFormat("ticks", 8, 8, 1 / _PERIOD_S, "none")

    def __init__(self, hold: Callable[[], None], frames: int | None) -> None:
        self._hold, self._left = hold, frames
        self._tap: PacketTap | None = None
        self._pause = threading.Event()

    def read(self) -> Picture | None:
        self._pause.wait(_PERIOD_S)
        self._hold()
        if tap := self._tap:
            tap(self.packet())
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                return None
        return Picture(None, 0, lambda: HostImage(_PICTURE))

    awaits_decoder = False

    def set_tap(self, tap: PacketTap | None) -> None:
        self._tap = tap

    def packet(self) -> Packet[Any]:
        return Packet(b"picture")

    def take_passed_over(self) -> Mapping[str, int]:
        return {}

    def describe(self, packet: Packet[Any]) -> PacketInfo:
        return PacketInfo("ticks", b"", (1, 50), 8, 8, 0, None, None, True)

    def close(self) -> None:
        """Nothing is held."""


class EncodedCamera(Camera):
    """Its packets are H.264, all of them key pictures."""

    def open(self, budget: DecodeBudget | None = None) -> _EncodedReader:
        return _EncodedReader(self._hold, self._frames)


class _EncodedReader(_Reader):
    def __init__(self, hold: Callable[[], None], frames: int | None) -> None:
        super().__init__(hold, frames)
        self._number, (self._extradata, self._data) = 0, key_picture()

    def read(self) -> Picture | None:
        self._number += 1
        return super().read()

    def packet(self) -> Packet[Any]:
        return Packet(self._data)

    def describe(self, packet: Packet[Any]) -> PacketInfo:
        at = round(self._number * _PERIOD_S * 1e9)
        return PacketInfo("h264", self._extradata, (1, 50), 16, 16, 0, at, at, True)


@cache
def key_picture() -> tuple[bytes, bytes]:
    """Parameter sets, and a picture of 16 x 16 with them."""
    encoder = av.CodecContext.create("libx264", "w")
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.width = encoder.height = 16
    encoder.pix_fmt, encoder.time_base, encoder.options = "yuv420p", Fraction(1, 50), {"tune": "zerolatency"}
    (packet,) = [*encoder.encode(av.VideoFrame(16, 16, "yuv420p")), *encoder.encode(None)]
    return bytes(encoder.extradata or b""), bytes(packet)


class Maker:
    """Makes sources: in this process with gates, in capture processes, which import this module, without."""

    def __init__(self, folder: Path, making: Gate | None = None, library: Gate | None = None) -> None:
        self._folder, self._making, self._library = folder, making, library

    def __reduce__(self) -> tuple[type[Maker], tuple[Path]]:
        return Maker, (self._folder,)

    def __call__(self, config: SourceConfig, hardware: DecoderPool) -> Source:
        if self._making:
            self._making()
        if self._library and _is_library(config):
            return Camera(self._library)
        return _remote_source(config, hardware, self._folder)


def _remote_source(config: SourceConfig, hardware: DecoderPool, folder: Path) -> Source:
    """In a capture process: a camera that blocks while the file HANG-ID exists."""
    if not isinstance(config, AvConfig):
        return make_source(config, hardware)
    kind = EncodedCamera if config.id.startswith("rec") else Camera
    return kind(lambda: _wait_while(folder / f"HANG-{config.id}"))


def _wait_while(file: Path) -> None:
    pause = threading.Event()
    while file.exists():
        pause.wait(0.005)


def _is_library(config: SourceConfig) -> bool:
    """A source of this process whose library can be held."""
    return isinstance(config, SyntheticConfig) and config.id.startswith("lib")
