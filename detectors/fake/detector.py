"""A detector without a model: one box per picture, in a configurable time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from detectors.detections import Detections
from detectors.host_input import HostCutter
from detectors.port import (
    Fetch,
    HostImage,
    Image,
    ModelInfo,
    Options,
    PreparedImage,
    Size,
    StageTimes,
    fetched,
    on_host,
)

LABELS = ("dark", "bright")


class FakeDetector:
    """Classifies each picture as dark or bright, with a box over its middle half.

    Args:
        service_s: seconds per batch of any size.
        sleep: lets that time pass.
    """

    def __init__(self, options: Options, service_s: float = 0.0, sleep: Callable[[float], None] = time.sleep) -> None:
        self._options, self._service_s, self._sleep = options, service_s, sleep
        self.info = ModelInfo(
            name="fake",
            digest="0" * 12,
            precision="none",
            backend="fake",
            head="none" if options.head == "auto" else options.head,
            input_size=(1, 1),
            labels=LABELS,
            max_batch=options.max_batch,
            lanes=options.lanes,
            further_sizes=options.further_sizes,
        )

    def lane(self) -> FakeLane:
        return FakeLane(self._options.wanted.confidence, self._service_s, self._sleep)

    def cutter(self, room: int) -> HostCutter:  # noqa: ARG002 - each part has memory of its own
        return HostCutter()

    def sample(self, width: int, height: int) -> HostImage:
        return HostImage(np.full((height, width, 3), 114, np.uint8))

    def close(self) -> None:
        """Holds nothing."""


class FakeLane:
    """See `detectors.port.Lane`."""

    def __init__(self, confidence: float, service_s: float, sleep: Callable[[float], None]) -> None:
        self._confidence, self._service_s, self._sleep = confidence, service_s, sleep

    def detect(self, images: Sequence[Image | PreparedImage]) -> tuple[list[Detections], StageTimes]:
        if self._service_s:
            self._sleep(self._service_s)
        return [self._one(on_host(image)) for image in images], StageTimes(0, round(self._service_s * 1e9), 0)

    def fetch(self, image: Image) -> Fetch:
        return fetched(image)

    def at(self, size: Size) -> FakeLane:  # noqa: ARG002 - it sees no pixels of an input
        return self

    def close(self) -> None:
        """Holds nothing."""

    def _one(self, image: HostImage) -> Detections:
        width, height = image.width, image.height
        bright = float(image.bgr[height // 2, width // 2].mean()) / 255.0
        confidence = np.array([max(bright, 1.0 - bright)], dtype=np.float32)
        box = np.array([[width / 4, height / 4, width * 3 / 4, height * 3 / 4]], dtype=np.float32)
        found = Detections(box, confidence, np.array([int(bright >= 0.5)], dtype=np.int32))
        return found[found.confidence >= self._confidence]
