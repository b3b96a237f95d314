"""Parts of decoded pictures: a model sees them as it sees regions, surfaces go back soon, and slots go round."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from detectors.detections import Detections
from detectors.port import DeviceImage, HostImage, Part, PreparedImage, Region
from detectors.trt.detector import TrtDetector
from detectors.trt.lane import TrtLane
from tests.support import stubbed_cuda as cuda
from tests.support.kernels import noise_nv12
from tests.trt.parts import on_device, opened

_MODEL = Path(__file__).resolve().parents[1] / "data" / "heads" / "yolov8-cls.onnx"
_WAITS = {"cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemFreeHost", "cuStreamSynchronize", "cuEventSynchronize"}
_BOXES = [(0, 0, 47, 47), (1, 3, 30, 18), (46, 46, 47, 47), (7, 0, 9, 47), (13, 22, 44, 23)]


class _Lease:
    """A decoder's lease."""


@contextmanager
def _classifier(engines: Path) -> Iterator[tuple[TrtDetector, TrtLane]]:
    with opened(_MODEL, engines, head="classify", fit="stretch", builder_level=0) as both:
        yield both


def _region(image: DeviceImage, box: tuple[int, int, int, int]) -> DeviceImage:
    left, top, right, bottom = box
    return image.cropped(Region(left, top, right - left, bottom - top))


def _same(given: Sequence[Detections], expected: Sequence[Detections]) -> None:
    assert len(given) == len(expected)
    for one, other in zip(given, expected):
        np.testing.assert_array_equal(one.class_id, other.class_id)
        np.testing.assert_array_equal(one.confidence, other.confidence)


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("size", [(63, 47), (47, 63), (64, 48)])
def test_a_part_is_seen_as_the_region_is(engines: Path, size: tuple[int, int], turns: int) -> None:
    picture = noise_nv12(size, bt709=True, full_range=False, turns=turns)
    with _classifier(engines) as (detector, lane), on_device(picture) as image, closing(detector.cutter(8)) as cutter:
        parts = cutter.cut([Part(image, box) for box in _BOXES])
        for box, part in zip(_BOXES, parts):
            assert isinstance(part, PreparedImage)
            _same(lane.detect([part])[0], lane.detect([_region(image, box)])[0])


def test_parts_and_pictures_in_one_batch(engines: Path) -> None:
    """Results have the order of the images."""
    picture = noise_nv12((64, 48), bt709=True, full_range=False)
    host = HostImage(np.random.default_rng(1).integers(0, 256, (40, 50, 3), np.uint8))
    with _classifier(engines) as (detector, lane), on_device(picture) as image, closing(detector.cutter(8)) as cutter:
        first, of_host, last = cutter.cut([Part(image, _BOXES[0]), Part(host, (3, 4, 30, 20)), Part(image, _BOXES[1])])
        assert first is not None
        assert of_host is not None
        assert last is not None
        for images in ([first, of_host, image, last], [last, first], [of_host, last, first], [image, first, of_host]):
            _same(lane.detect(images)[0], [lane.detect([one])[0][0] for one in images])


def test_a_cut_waits_for_nothing(engines: Path) -> None:
    picture = noise_nv12((64, 48), bt709=True, full_range=False)
    with _classifier(engines) as (detector, _), on_device(picture) as image, closing(detector.cutter(8)) as cutter:
        cutter.cut([Part(image, (0, 0, 30, 30))])
        cuda.calm()
        cutter.cut([Part(image, box) for box in _BOXES])
        cutter.release_done()
        assert _WAITS & set(cuda.calls()) == set()


def test_a_surface_is_leased_until_its_parts_are_taken(engines: Path) -> None:
    """Not until the classifier has looked: it may hang, and the decoder needs its surfaces."""
    picture = noise_nv12((64, 48), bt709=True, full_range=False)
    with _classifier(engines) as (detector, _), on_device(picture) as image, closing(detector.cutter(8)) as cutter:
        lease = _Lease()
        held = weakref.ref(lease)
        parts = cutter.cut([Part(structs.replace(image, lease=lease), (0, 0, 30, 30))])
        del lease
        gc.collect()
        assert held() is not None
        for _ in range(5):  # the stub's streams advance when queried
            cutter.release_done()
        gc.collect()
        assert held() is None
        assert parts[0] is not None


def test_slots_go_round(engines: Path) -> None:
    """Parts that are held for a while keep their content, and what finds no slot says so."""
    rng = np.random.default_rng(0)
    picture = noise_nv12((64, 48), bt709=True, full_range=False)
    with _classifier(engines) as (detector, lane), on_device(picture) as image, closing(detector.cutter(3)) as cutter:
        expected = [lane.detect([_region(image, box)])[0] for box in _BOXES]
        held: list[tuple[int, PreparedImage]] = []
        full = taken = 0
        for _ in range(150):
            numbers = rng.integers(0, len(_BOXES), rng.integers(1, 4)).tolist()
            parts = cutter.cut([Part(image, _BOXES[number]) for number in numbers])
            fresh = [(number, part) for number, part in zip(numbers, parts) if isinstance(part, PreparedImage)]
            held += fresh
            taken, full = taken + len(fresh), full + len(parts) - len(fresh)
            del parts, fresh
            assert len({part.pointer for _, part in held}) == len(held)
            if held and rng.random() < 0.7:
                number, part = held.pop(int(rng.integers(0, len(held))))
                _same(lane.detect([part])[0], expected[number])
                del part
        assert full > 20
        assert taken > 60
