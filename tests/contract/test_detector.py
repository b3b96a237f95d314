"""What every detector promises, run over every backend this machine can run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from daemon.sources.scene import Scene
from detectors.detections import Detections
from detectors.factory import availability, open_detector
from detectors.matching import iou_matrix
from detectors.port import (
    BackendUnavailableError,
    Detector,
    DetectorUnavailableError,
    HostImage,
    Lane,
    Options,
    PostprocessParams,
    Region,
    lane_at,
)
from detectors.views import Limits, Tiling, detect
from tests.support.daemon import DEMO_MODEL, PATIENCE_S
from tests.support.tritonserver import FLOATS, TritonServer

if TYPE_CHECKING:
    from detectors.factory import Backend

OPTIONS = Options(
    DEMO_MODEL, wanted=PostprocessParams(0.4), max_batch=4, threads=1, builder_level=0
)  # an engine takes long enough to build


def _open(name: str, options: Options) -> Detector:
    """On a backend, or on OpenVINO."""
    if name == "openvino":
        return open_detector("ort", replace(options, provider=name))
    return open_detector(cast("Backend", name), options)


def _has_openvino() -> bool:
    """Where this Python's onnxruntime has it: see tests/detectors/test_providers.py."""
    try:
        _open("openvino", OPTIONS).close()
    except BackendUnavailableError:
        return False
    return True


BACKENDS: list[str] = [*(row.backend for row in availability() if row.available), "fake", "triton"]
BACKENDS += ["openvino"] * _has_openvino()
HEADS = Path(__file__).resolve().parents[1] / "data" / "heads"
WIDTHS = ((96, 96), (160, 64))  # of inputs
SIZES = [(640, 360), (1, 1), (333, 777), (1920, 1080)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with closing(TritonServer(tmp_path_factory.mktemp("triton"), floats=FLOATS)) as server:
        yield server


_MARKS = {"triton": (pytest.mark.needs("triton"), pytest.mark.slow)}


@pytest.fixture(scope="module", params=[pytest.param(name, marks=_MARKS.get(name, ())) for name in BACKENDS])
def detector(request: pytest.FixtureRequest) -> Iterator[Detector]:
    options = OPTIONS
    if request.param == "triton":
        options = replace(options, path=Path(request.getfixturevalue("server").address("floats")))
    with closing(_open(request.param, options)) as detector:
        yield detector


@pytest.fixture(scope="module")
def images() -> list[HostImage]:
    return [HostImage(Scene(width, height, seed=seed).draw(7)) for seed, (width, height) in enumerate(SIZES)]


def test_a_batch_gives_what_one_by_one_gives(detector: Detector, images: list[HostImage]) -> None:
    """Bit for bit, whatever the mix of sizes and the place in the batch."""
    with closing(detector.lane()) as lane:
        together, _ = lane.detect(images)
        for turn in (images, images[::-1]):
            alone = [lane.detect([image])[0][0] for image in turn]
            for one, other in zip(alone if turn is images else alone[::-1], together):
                _same(one, other)


def test_a_region_gives_what_a_picture_of_it_gives(detector: Detector, images: list[HostImage]) -> None:
    """Bit for bit, at any origin: nothing beyond the region is seen."""
    picture = images[-1]
    regions = [Region(0, 0, 960, 540), Region(333, 77, 641, 359), Region(1919, 1079, 1, 1), Region(1, 0, 1919, 1080)]
    with closing(detector.lane()) as lane:
        cut, _ = lane.detect([picture.cropped(region) for region in regions])
        for found, (left, top, width, height) in zip(cut, regions):
            copied = HostImage(picture.bgr[top : top + height, left : left + width].copy())
            _same(lane.detect([copied])[0][0], found)


def test_tiles_find_what_the_whole_picture_shows(detector: Detector, images: list[HostImage]) -> None:
    """Boxes come back in the picture's coordinates, in as many batches as the views take."""
    picture = images[-1]
    regions = Tiling(2, 2).regions(Region(0, 0, picture.width, picture.height))
    limits = Limits(0.5, 300)
    with closing(detector.lane()) as lane:
        alone = lane.detect([picture])[0][0]
        (found, other), times = detect(lane, [picture, images[0]], [regions, ()], detector.info.max_batch, limits)
        _same(other, lane.detect([images[0]])[0][0])
    assert min(times.preprocess, times.infer, times.postprocess) >= 0
    assert (found.xyxy >= 0).all()
    assert (found.xyxy <= [picture.width, picture.height] * 2).all()
    assert (np.diff(found.confidence) <= 0).all()
    for box, kind in zip(alone.xyxy[:3], alone.class_id):
        assert iou_matrix(box[None], found.xyxy[found.class_id == kind]).max() > 0.5


def test_boxes_lie_in_the_picture_strongest_first(detector: Detector, images: list[HostImage]) -> None:
    with closing(detector.lane()) as lane:
        results, times = lane.detect(images)
    assert min(times.preprocess, times.infer, times.postprocess) >= 0
    for found, image in zip(results, images):
        assert (found.xyxy >= 0).all()
        assert (found.xyxy <= [image.width, image.height] * 2).all()
        assert (np.diff(found.confidence) <= 0).all()
        assert (found.confidence >= 0.4).all()
        assert (found.class_id < len(detector.info.labels)).all()
    assert len(results[0]) > 0


def _results(lane: Lane, images: list[HostImage]) -> list[Detections]:
    """Triton takes its model for dead where a busy machine gives it no turn for a second. Lanes ask again, too."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return lane.detect(images)[0]
        except DetectorUnavailableError:
            if threading.Event().wait(0.1) or time.monotonic() > until:
                raise


def test_lanes_in_threads_agree(detector: Detector, images: list[HostImage]) -> None:
    """Three lanes at once, over and over, give what one gives."""
    with closing(detector.lane()) as lane:
        expected, _ = lane.detect(images)
    wrong: list[str] = []

    def work() -> None:
        with closing(detector.lane()) as own:
            for _ in range(3):
                for one, other in zip(_results(own, images), expected):
                    if not np.array_equal(one.xyxy, other.xyxy) or not np.array_equal(one.confidence, other.confidence):
                        wrong.append("another box")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "triton"])
def test_boxes_at_a_size_are_those_of_a_detector_of_that_size(backend: str, images: list[HostImage]) -> None:
    """In any order of sizes, with regions, with and without masks. An engine for several sizes may take other kernels,
    which round otherwise."""
    images = [images[0], images[0].cropped(Region(33, 77, 341, 159))]
    for model in ("yolov8", "yolo11-seg"):
        options = replace(OPTIONS, path=HEADS / f"{model}.onnx", wanted=PostprocessParams(0.05), max_batch=2)
        expected = {}
        for size in WIDTHS:
            alone = replace(options, input_size=size)
            with closing(_open(backend, alone)) as detector, closing(detector.lane()) as lane:
                expected[size] = lane.detect(images)[0]
            assert any(map(len, expected[size]))
        several = replace(options, input_size=WIDTHS[0], further_sizes=WIDTHS)
        with closing(_open(backend, several)) as detector, closing(detector.lane()) as lane:
            assert detector.info.further_sizes == WIDTHS[1:] or backend == "fake"
            for size in (*WIDTHS, *WIDTHS[::-1]):
                for one, other in zip(lane_at(lane, size).detect(images)[0], expected[size]):
                    _alike(one, other)
                    _alike(other, one)


def test_what_is_opened_says_what_it_is(detector: Detector) -> None:
    info = detector.info
    assert info.backend in BACKENDS
    assert info.max_batch == 4
    assert len(info.digest) == 12


def test_closing_twice_is_fine(detector: Detector) -> None:
    lane = detector.lane()
    lane.close()
    lane.close()


def _alike(one: Detections, other: Detections) -> None:
    """Each box that is no matter of rounding is in the other as well."""
    sure = np.flatnonzero(one.confidence > 0.1)
    near = iou_matrix(one.xyxy[sure], other.xyxy) > 0.9
    near &= one.class_id[sure, None] == other.class_id[None]
    near &= np.abs(one.confidence[sure, None] - other.confidence[None]) < 0.03
    assert near.any(axis=1).all()
    assert (one.masks is None) == (other.masks is None)


def _same(one: Detections, other: Detections) -> None:
    for name in ("xyxy", "confidence", "class_id", "keypoints", "obb"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (one.masks is None) == (other.masks is None)
    if one.masks is not None and other.masks is not None:
        np.testing.assert_array_equal(one.masks.bits, other.masks.bits)
