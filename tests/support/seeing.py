"""A detector that reports the brightness of pictures of the fake GPU decoder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detectors.detections import Detections
from detectors.port import Fetch, HostImage, Image, ModelInfo, Options, StageTimes
from tests.support.hardware import bgr_of


class SeeingDetector:
    """Gives one box for a picture; its coordinates are means of pixels, so different pictures have different boxes."""

    def __init__(self, options: Options) -> None:
        self.info = ModelInfo(
            "seeing",
            "0" * 12,
            "none",
            "fake",
            "none",
            (1, 1),
            ("thing",),
            options.max_batch,
            lanes=options.lanes,
            gpu=0,
        )

    def lane(self) -> SeeingLane:
        return SeeingLane()

    def sample(self, width: int, height: int) -> HostImage:
        return HostImage(np.full((height, width, 3), 114, np.uint8))

    def close(self) -> None:
        """Nothing is held."""


class SeeingLane:
    """See `detectors.port.Lane`."""

    def detect(self, images: Sequence[Image]) -> tuple[list[Detections], StageTimes]:
        return [self._one(image) for image in images], StageTimes(0, 0, 0)

    def fetch(self, image: Image) -> Fetch:
        picture = HostImage(bgr_of(image))
        return lambda: picture

    def close(self) -> None:
        """Nothing is held."""

    def _one(self, image: Image) -> Detections:
        bgr = bgr_of(image)
        height, width = bgr.shape[:2]
        left, right = bgr[:, : width // 2].mean(), bgr[:, width // 2 :].mean()
        box = np.array([[left, bgr[: height // 2].mean(), 256 + right, 512]], dtype=np.float32)
        return Detections(box, np.array([0.9], np.float32), np.array([0], np.int32))
