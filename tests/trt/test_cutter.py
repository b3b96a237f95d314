"""Parts of decoded pictures: their colours, the leases of their surfaces, and the room for them."""

from __future__ import annotations

import gc
import weakref
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from detectors.cuda import Device
from detectors.port import DeviceImage, Part
from detectors.trt.cutter import TrtCutter, in_planes
from tests.support import stubbed_cuda as cuda
from tests.support.kernels import Nv12, bgr_of, noise_nv12
from tests.trt.parts import on_device, opened

_WAITS = {"cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemFreeHost", "cuStreamSynchronize", "cuEventSynchronize"}
_BOXES = [(0, 0, 47, 47), (1, 3, 30, 18), (46, 46, 47, 47), (7, 0, 9, 47), (13, 22, 44, 23)]


class _Lease:
    """A decoder's lease."""


def _planes(picture: Nv12, image: DeviceImage, box: tuple[int, int, int, int]) -> Nv12:
    """The same part, from planes in host memory."""
    where = in_planes(image, box)
    luma = picture.luma[where.top : where.top + where.height, where.left : where.left + where.width]
    pairs = where.width + where.width % 2
    chroma = picture.chroma[where.top // 2 : where.top // 2 + where.chroma_rows, where.left : where.left + pairs]
    return Nv12(luma, chroma, picture.bt709, picture.full_range, picture.turns)


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("size", [(63, 47), (47, 63), (64, 48)])
def test_a_part_has_the_colours_of_its_picture(toy: Path, engines: Path, size: tuple[int, int], turns: int) -> None:
    """It begins at the box or at most one pixel beside it, whatever the rotation."""
    picture = noise_nv12(size, bt709=True, full_range=False, turns=turns)
    with opened(toy, engines) as (detector, lane), on_device(picture) as image, closing(detector.cutter(8)) as cutter:
        for box, part in zip(_BOXES, cutter.cut([Part(image, box) for box in _BOXES])):
            assert isinstance(part, DeviceImage)
            given = lane.fetch(part)().bgr
            assert np.abs(given - bgr_of(_planes(picture, image, box))).max() <= 0.55
            left, top, right, bottom = box
            assert right - left <= part.width <= right - left + 2
            assert bottom - top <= part.height <= bottom - top + 2
            assert _is_inside(given, bgr_of(picture), box)


def _is_inside(given: np.ndarray, whole: np.ndarray, box: tuple[int, int, int, int]) -> bool:
    """Whether the middle of a part is where its box says. Colours between samples differ at the edges."""
    left, top, right, bottom = box
    if right - left < 6 or bottom - top < 6:
        return True
    wanted = whole[top + 2 : bottom - 2, left + 2 : right - 2]
    places = [given[y : y + len(wanted), x : x + wanted.shape[1]] for y in range(1, 4) for x in range(1, 4)]
    return any(place.shape == wanted.shape and np.abs(place - wanted).max() <= 0.55 for place in places)


def test_a_cut_waits_for_nothing(toy: Path, engines: Path) -> None:
    picture = noise_nv12((64, 48), bt709=True, full_range=False)
    with opened(toy, engines) as (detector, _), on_device(picture) as image, closing(detector.cutter(8)) as cutter:
        cutter.cut([Part(image, (0, 0, 30, 30))])
        cuda.calm()
        cutter.cut([Part(image, box) for box in _BOXES])
        cutter.release_done()
        assert _WAITS & set(cuda.calls()) == set()


def test_a_surface_is_leased_until_it_is_copied(toy: Path, engines: Path) -> None:
    """Not until the classifier has looked: it may hang, and the decoder needs its surfaces."""
    picture = noise_nv12((64, 48), bt709=True, full_range=False)
    with opened(toy, engines) as (detector, _), on_device(picture) as image, closing(detector.cutter(8)) as cutter:
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


def test_memory_goes_round() -> None:
    """Parts of all sizes, held for a while, from a ring of few bytes: no two overlap, and what is full says so."""
    rng, device = np.random.default_rng(0), Device(0)
    picture = noise_nv12((64, 48), bt709=True, full_range=False)
    with closing(device), on_device(picture) as image, closing(TrtCutter(device, 20_000)) as cutter:
        held: list[DeviceImage] = []
        full = 0
        for _ in range(500):
            left, top = rng.integers(0, 60), rng.integers(0, 44)
            box = (int(left), int(top), int(rng.integers(left + 1, 65)), int(rng.integers(top + 1, 49)))
            (part,) = cutter.cut([Part(image, box)])
            if isinstance(part, DeviceImage):
                held.append(part)
            else:
                full += 1
            part = None
            _check_apart(held)
            held = held[int(rng.integers(0, 2)) if len(held) < 12 else 6 :]
        assert 0 < full < 450
        assert cutter.cut([Part(structs.replace(image, width=4000, height=4000), (0, 0, 4000, 4000))]) == [None]


def _check_apart(held: list[DeviceImage]) -> None:
    ranges = sorted((image.luma, image.chroma + image.pitch * ((image.height + 1) // 2)) for image in held)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ranges))
