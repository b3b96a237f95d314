"""What every cutter promises: parts of pictures that a second model sees as if they were pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from daemon.sources.scene import Scene
from detectors.factory import availability, open_classifier
from detectors.port import HostImage, Options, Part, PostprocessParams, SecondDetector

BACKENDS = [row.backend for row in availability() if row.available] + ["fake"]
MODEL = Path(__file__).resolve().parents[1] / "data" / "heads" / "yolov8-cls.onnx"
BOXES = [(0, 0, 640, 360), (3, 5, 4, 6), (101, 33, 300, 359), (639, 359, 640, 360), (0, 7, 48, 200)]


@pytest.fixture(params=BACKENDS)
def detector(request: pytest.FixtureRequest) -> Iterator[SecondDetector]:
    options = Options(MODEL, head="classify", wanted=PostprocessParams(0.0), builder_level=0, fit="stretch")
    with closing(open_classifier(request.param, options)) as detector:
        yield detector


@pytest.fixture
def picture() -> HostImage:
    return HostImage(Scene(640, 360, seed=3).draw(7))


def test_a_part_is_classified_as_the_same_picture_is(detector: SecondDetector, picture: HostImage) -> None:
    with closing(detector.lane()) as lane, closing(detector.cutter(8)) as cutter:
        whole = [HostImage(picture.bgr[top:bottom, left:right].copy()) for left, top, right, bottom in BOXES]
        expected, _ = lane.detect(whole)
        parts = cutter.cut([Part(picture, box) for box in BOXES])
        given, _ = lane.detect([part for part in parts if part is not None])
    assert len(given) == len(BOXES)
    for one, other in zip(given, expected):
        assert one.class_id.tolist() == other.class_id.tolist()
        np.testing.assert_allclose(one.confidence, other.confidence, atol=1e-3)


def test_a_part_outlives_its_picture(detector: SecondDetector, picture: HostImage) -> None:
    with closing(detector.lane()) as lane, closing(detector.cutter(8)) as cutter:
        (expected,), _ = lane.detect([HostImage(picture.bgr[10:90, 20:200].copy())])
        (part,) = cutter.cut([Part(picture, (20, 10, 200, 90))])
        picture.bgr[:] = 0
        assert part is not None
        (found,), _ = lane.detect([part])
    assert found.class_id.tolist() == expected.class_id.tolist()


def test_the_strongest_class_comes_first(detector: SecondDetector, picture: HostImage) -> None:
    with closing(detector.lane()) as lane:
        (found,), _ = lane.detect([picture])
    assert len(found) > 0
    assert (np.diff(found.confidence) <= 0).all()


def test_closing_twice_is_fine(detector: SecondDetector) -> None:
    cutter = detector.cutter(2)
    cutter.release_done()
    cutter.close()
    cutter.close()
