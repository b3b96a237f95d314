"""`lookout bench part python`: the cost of a frame in Python, without decoding and inference.

Capture threads, board, lanes, outbox, publisher and socket are real, with a subscriber in a process of its own.
Pictures are constant, and the detector returns ten constant boxes. The rest is Lookout's own cost, which bounds the
rate of a process on any GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, process_time

import numpy as np

from daemon.app import App
from daemon.bench.listener import MESSAGES, listening
from daemon.config import BoardConfig, Config, LogConfig, ModelConfig, MonitorConfig, PublisherConfig, SyntheticConfig
from daemon.log import logging
from daemon.messages import Encoding, FrameClock, VideoFormat
from daemon.sources.port import DecodeBudget, Picture
from detectors.detections import Detections
from detectors.port import Fetch, HostImage, Image, ModelInfo, Options, StageTimes, fetched

_LABELS = tuple(f"label_{number}" for number in range(80))


@dataclass(frozen=True)
class OverheadOptions:
    """Options of the measurement; see `lookout bench part python --help`."""

    sources: int = 150
    frames: int = 150_000
    lanes: int = 2
    max_batch: int = 32
    boxes: int = 10
    encoding: Encoding = "json"


@dataclass(frozen=True)
class Overhead:
    """The figures of one run.

    Attributes:
        fps: published frames over the time from the first to the last.
        cpu_us_per_frame: of the whole process, including ZeroMQ's thread.
        wall_us_per_frame: wall time, 1e6 / fps.
        received: messages received by the subscriber.
    """

    sources: int
    published: int
    received: int
    fps: float
    cpu_us_per_frame: float
    wall_us_per_frame: float


def overhead(options: OverheadOptions) -> Overhead:
    """Run and measure."""
    each = options.frames // options.sources
    config = Config(
        model=ModelConfig(path=Path("none"), backend="fake", max_batch=options.max_batch),
        sources=[SyntheticConfig(id=f"cam-{number}", frames=each, pace="fast") for number in range(options.sources)],
        lanes=options.lanes,
        board=BoardConfig(mode="lossless", depth=16),
        publisher=PublisherConfig(
            endpoint="tcp://127.0.0.1:*",
            encoding=options.encoding,
            high_water_mark=MESSAGES,
            wait_for_subscriber_s=20,
        ),
        monitor=MonitorConfig(interval_s=60),
    )
    with logging(LogConfig(level="error", format="console")):
        app = App(
            config,
            open_detector=lambda _, detector_options: _Detector(detector_options, options.boxes),
            make_source=lambda source, _: _Source(source.frames if isinstance(source, SyntheticConfig) else None),
        )
        with listening(app.endpoint) as listener:
            began, cpu = monotonic(), process_time()
            app.start()
            app.wait()
            app.stop()
            seconds, cpu = monotonic() - began, process_time() - cpu
            received = len(listener.stamps([source.id for source in config.active]))
    published = sum(count.published for count in app.ledger.counts().values())
    return Overhead(
        sources=options.sources,
        published=published,
        received=received,
        fps=round(published / seconds, 1),
        cpu_us_per_frame=round(cpu / published * 1e6, 1),
        wall_us_per_frame=round(seconds / published * 1e6, 1),
    )


class _Source:
    """A recording of one repeated picture, free to read."""

    plays_once, live, realtime, has_next, clock = True, False, False, False, FrameClock("file", 0)

    def __init__(self, frames: int | None) -> None:
        self._frames = frames or 0

    def open(self, budget: DecodeBudget | None = None) -> _Reader:  # noqa: ARG002
        return _Reader(self._frames)


class _Reader:
    format = VideoFormat("none", 64, 36, 30.0, "none")

    def __init__(self, frames: int) -> None:
        self._left = frames
        self._image = HostImage(np.zeros((36, 64, 3), np.uint8))

    def read(self) -> Picture | None:
        self._left -= 1
        return Picture(self._left * 33_333_333, 0, self._load) if self._left >= 0 else None

    def close(self) -> None:
        """Holds nothing."""

    def _load(self) -> Image:
        return self._image


class _Detector:
    """Returns the same boxes for every picture."""

    def __init__(self, options: Options, boxes: int) -> None:
        batch, lanes = options.max_batch, options.lanes
        self.info = ModelInfo("none", "0" * 12, "none", "none", "none", (1, 1), _LABELS, batch, lanes=lanes)
        corners = np.linspace(0.5, 60, boxes * 4, dtype=np.float32).reshape(-1, 4)
        confidence, classes = np.linspace(0.9, 0.3, boxes, dtype=np.float32), np.arange(boxes, dtype=np.int32)
        self._found = Detections(corners, confidence, classes, checked=True)  # as the GPU's detector gives them

    def lane(self) -> _Detector:
        return self

    def detect(self, images: Sequence[Image]) -> tuple[list[Detections], StageTimes]:
        return [self._found] * len(images), StageTimes(0, 0, 0)

    def fetch(self, image: Image) -> Fetch:
        return fetched(image)

    def sample(self, width: int, height: int) -> HostImage:
        return HostImage(np.zeros((height, width, 3), np.uint8))

    def close(self) -> None:
        """Holds nothing."""
