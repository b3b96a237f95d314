"""The CPU backend's preprocess by OpenCV, compared with the reference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from detectors.letterbox import preprocess
from detectors.ort.detector import OrtDetector
from detectors.port import HostImage, Options
from tests.support.daemon import DEMO_MODEL


@pytest.fixture(scope="module")
def detector() -> Iterator[OrtDetector]:
    with closing(OrtDetector(Options(DEMO_MODEL, max_batch=1))) as detector:
        yield detector


@pytest.mark.parametrize(
    "size",
    [
        (1, 1),
        (96, 54),
        (576, 324),
        (768, 432),
        (800, 450),
        (960, 540),
        (961, 541),
        (1000, 563),
        (1284, 720),
        (1600, 900),
        (1920, 1080),
        (2240, 1260),
        (3840, 2160),
        (333, 777),
        (600, 2),
        (1280, 3),
        (3000, 2),
    ],
)
def test_preprocess_agrees_with_the_reference(detector: OrtDetector, size: tuple[int, int]) -> None:
    """Noise of sizes whose cells OpenCV averages in each way, partial ones included. Each step rounds: up to two grey
    levels."""
    spec, (width, height) = detector.head.spec, size
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    with closing(detector.lane()) as lane:
        (given,) = lane.preprocess([HostImage(image)])
        np.testing.assert_allclose(given, preprocess(image, spec), atol=2 * max(spec.scale), rtol=0)
