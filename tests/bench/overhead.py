"""`python -m tests.bench python`: the cost of a frame in Python, without decoding and inference.

Capture threads, board, lanes, outbox, publisher and socket are real, with a subscriber in a process of its own.
Pictures are constant, and so are the detector's boxes, unless they are tracked: then they move. The rest is Lookout's
own cost, which bounds the rate of a process on any GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, process_time, sleep

import numpy as np

from daemon.bench.listener import MESSAGES, listening
from daemon.bench.load import four_rules
from daemon.build import build
from daemon.config.model import ModelConfig
from daemon.config.publisher import PublisherConfig
from daemon.config.root import BoardConfig, Config, LogConfig, MonitorConfig
from daemon.config.sources import SourceConfig, SyntheticConfig, TrackingConfig
from daemon.log import logging
from daemon.seams import Seams
from daemon.sources.port import DecodeBudget, Picture
from detectors.detections import Detections
from detectors.port import Fetch, HostImage, Image, ModelInfo, Options, StageTimes, fetched
from lookout.messages import Encoding, FrameClock, VideoFormat
from tests.bench.moving import HEIGHT, WIDTH, MovingObjects

_LABELS = tuple(f"label_{number}" for number in range(80))
_SCENES, _SCENE_FRAMES, _FPS = 16, 600, 30


@dataclass(frozen=True)
class OverheadOptions:
    """Options of the measurement; see `python -m tests.bench python --help`."""

    sources: int = 150
    frames: int = 150_000
    lanes: int = 2
    max_batch: int = 32
    boxes: int = 10
    encoding: Encoding = "json"
    analytics: bool = False
    fps: float = 0.0  # of each source; 0: as fast as lanes take them


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


Beside = Callable[[str], AbstractContextManager[object]]
"""What runs while a daemon publishes at an endpoint."""


def overhead(options: OverheadOptions, beside: Beside = nullcontext) -> Overhead:
    """Run and measure."""
    each = options.frames // options.sources
    rules = four_rules() if options.analytics else []
    config = Config(
        model=ModelConfig(path=Path("none"), backend="fake", max_batch=options.max_batch),
        sources=[
            SyntheticConfig(id=f"cam-{number}", frames=each, pace="fast", rules=rules)
            for number in range(options.sources)
        ],
        tracking=TrackingConfig(enabled=options.analytics),
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
        daemon = build(
            config,
            Seams(
                open_detector=lambda _, detector_options: _Detector(detector_options, _boxes(options, each)),
                make_source=lambda source, _: _Source(source, options.fps),
            ),
        )
        with listening(daemon.endpoint) as listener, beside(daemon.endpoint):
            began, cpu = monotonic(), process_time()
            daemon.start()
            daemon.wait()
            daemon.stop()
            seconds, cpu = monotonic() - began, process_time() - cpu
            received = len(listener.stamps([source.id for source in config.active]))
    published = sum(count.published for count in daemon.ledger.counts().values())
    return Overhead(
        sources=options.sources,
        published=published,
        received=received,
        fps=round(published / seconds, 1),
        cpu_us_per_frame=round(cpu / published * 1e6, 1),
        wall_us_per_frame=round(seconds / published * 1e6, 1),
    )


def _boxes(options: OverheadOptions, frames: int) -> list[list[Detections]]:
    """The boxes of each scene by frame; one scene with one frame where they do not move."""
    if options.analytics:
        scenes = [MovingObjects(np.random.default_rng(seed), options.boxes) for seed in range(_SCENES)]
        return [[scene.boxes(number / _FPS) for number in range(min(frames, _SCENE_FRAMES))] for scene in scenes]
    corners = np.linspace(0.5, 60, options.boxes * 4, dtype=np.float32).reshape(-1, 4)
    confidence, classes = (
        np.linspace(0.9, 0.3, options.boxes, dtype=np.float32),
        np.arange(options.boxes, dtype=np.int32),
    )
    return [[Detections(corners, confidence, classes, checked=True)]]  # as the GPU's detector gives them


@dataclass(frozen=True, slots=True)
class _NumberedImage(HostImage):
    """A picture without content, of a frame of a scene."""

    scene: int
    number: int

    @property
    def width(self) -> int:
        return WIDTH

    @property
    def height(self) -> int:
        return HEIGHT


class _Source:
    """A recording that is free to read."""

    plays_once, live, realtime, has_next, clock = True, False, False, False, FrameClock("file", 0)

    def __init__(self, config: SourceConfig, fps: float) -> None:
        self._fps = fps
        self._frames = (config.frames if isinstance(config, SyntheticConfig) else None) or 0
        self._scene = int(config.id.rpartition("-")[2]) % _SCENES

    def open(self, budget: DecodeBudget | None = None) -> _Reader:
        return _Reader(self._frames, self._scene, self._fps)


class _Reader:
    format = VideoFormat("none", WIDTH, HEIGHT, float(_FPS), "none")

    def __init__(self, frames: int, scene: int, fps: float) -> None:
        self._frames, self._scene, self._next = frames, scene, 0
        self._fps, self._began = fps, monotonic()
        self._bgr = np.zeros((1, 1, 3), np.uint8)

    def read(self) -> Picture | None:
        number, self._next = self._next, self._next + 1
        if number >= self._frames:
            return None
        if self._fps:
            sleep(max(0.0, self._began + number / self._fps - monotonic()))
        return Picture(number * 1_000_000_000 // _FPS, 0, lambda: _NumberedImage(self._bgr, self._scene, number))

    def close(self) -> None:
        """Holds nothing."""


class _Detector:
    """Returns the boxes of each picture's scene."""

    def __init__(self, options: Options, scenes: Sequence[Sequence[Detections]]) -> None:
        batch, lanes = options.max_batch, options.lanes
        self.info = ModelInfo("none", "0" * 12, "none", "none", "none", (1, 1), _LABELS, batch, lanes=lanes)
        self._scenes = scenes

    def lane(self) -> _Detector:
        return self

    def detect(self, images: Sequence[Image]) -> tuple[list[Detections], StageTimes]:
        return [self._found(image) for image in images], StageTimes(0, 0, 0)

    def _found(self, image: Image) -> Detections:
        scene, number = (image.scene, image.number) if isinstance(image, _NumberedImage) else (0, 0)
        frames = self._scenes[scene % len(self._scenes)]
        return frames[number % len(frames)]

    def fetch(self, image: Image) -> Fetch:
        return fetched(image)

    def sample(self, width: int, height: int) -> HostImage:
        return HostImage(np.zeros((height, width, 3), np.uint8))

    def close(self) -> None:
        """Holds nothing."""
