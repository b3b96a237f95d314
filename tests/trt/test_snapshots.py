"""Fetching decoded pictures from the GPU to host memory: colours, and independence of the lane."""

from __future__ import annotations

import gc
import weakref
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from detectors.port import DetectorError
from tests.support import stubbed_cuda as cuda
from tests.support.kernels import NV12_SIZES, bgr_of, noise_nv12
from tests.trt.parts import host_pictures, on_device, opened

_PICTURE = noise_nv12((64, 48), bt709=True, full_range=False)
_WAITS = {"cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemFreeHost", "cuStreamSynchronize", "cuEventSynchronize"}


class _Lease:
    """A decoder's lease."""


@pytest.mark.parametrize(("bt709", "full_range"), [*product((False, True), repeat=2)])
def test_a_fetched_picture_has_its_colours(toy: Path, engines: Path, bt709: bool, full_range: bool) -> None:
    """G5: every matrix, range, size and rotation, within rounding."""
    with opened(toy, engines) as (_, lane):
        for size, turns in product(NV12_SIZES, range(4)):
            picture = noise_nv12(size, bt709=bt709, full_range=full_range, turns=turns)
            with on_device(picture) as image:
                given = lane.fetch(image)().bgr
            assert np.abs(given - bgr_of(picture)).max() <= 0.55


def test_a_fetch_does_not_block_the_lane(toy: Path, engines: Path) -> None:
    """G5: freeing memory would wait for all work of the GPU."""
    with opened(toy, engines) as (_, lane), on_device(_PICTURE) as image:
        lane.fetch(image)()  # allocates the buffers
        cuda.calm()
        fetch = lane.fetch(image)
        assert _WAITS & set(cuda.calls()) == set()
        lane.detect(host_pictures(2))
        fetch()
        assert _WAITS & set(cuda.calls()) == {"cuEventSynchronize"}


def test_a_lease_is_held_until_the_copy_is_made(toy: Path, engines: Path) -> None:
    """The lease is released after the copy, even if nobody waits for the picture."""

    with opened(toy, engines) as (_, lane), on_device(_PICTURE) as image:
        lease = _Lease()
        held = weakref.ref(lease)
        fetch = lane.fetch(structs.replace(image, lease=lease))
        del lease
        gc.collect()
        assert held() is not None
        del fetch
        for _ in range(5):  # the stub's streams advance when queried
            lane.detect(host_pictures(1))
        gc.collect()
        assert held() is None


def test_concurrent_fetches_use_separate_buffers(toy: Path, engines: Path) -> None:
    pictures = [noise_nv12((64, 48), bt709=True, full_range=False, seed=seed) for seed in range(3)]
    with opened(toy, engines) as (_, lane), ExitStack() as stack:
        first, second, third = (stack.enter_context(on_device(picture)) for picture in pictures)
        fetches = [lane.fetch(image) for image in (first, second, third)]
        for picture, fetch in reversed([*zip(pictures, fetches)]):
            assert np.abs(fetch().bgr - bgr_of(picture)).max() <= 0.55
        taken = cuda.alive()
        again = [lane.fetch(image)().bgr for image in (first, second, third)]
        assert cuda.alive() == taken
        for picture, given, fetch in zip(pictures, again, fetches):
            np.testing.assert_array_equal(given, fetch().bgr)  # a second call returns the same
            assert np.abs(given - bgr_of(picture)).max() <= 0.55


def test_a_fetch_after_close_is_an_error(toy: Path, engines: Path) -> None:
    with opened(toy, engines) as (_, lane), on_device(_PICTURE) as image:
        arrived, late = lane.fetch(image), lane.fetch(image)
        arrived()
        lane.close()
        assert arrived().bgr.shape == (48, 64, 3)
        with pytest.raises(DetectorError, match="try again"):
            late()
