"""The drawn street: the same for the same seed, and made without much memory."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from daemon.sources.scene import Scene

_WIDTH, _HEIGHT = 1024, 1000
_PICTURE = _WIDTH * _HEIGHT * 3


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 200), (63, 64), (64, 65), (160, 96), (641, 129)])
def test_the_ground_is_the_sum_of_tones_grain_and_marks(width: int, height: int) -> None:
    """As it is written down here, in one step and in types that hold every value: clips and models depend on it."""
    for seed in (0, 7):
        assert np.array_equal(Scene(width, height, seed=seed, objects=0).draw(0), _ground(seed, width, height))


def _ground(seed: int, width: int, height: int) -> npt.NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    coarse = (rng.integers(60, 150, (6, 8, 1)) + rng.integers(-12, 13, (6, 8, 3))).astype(np.float32)
    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR).reshape(height, width, 3)
    image: npt.NDArray[np.uint8] = np.clip(smooth + rng.integers(-12, 13, (height, width, 1)), 0, 255).astype(np.uint8)
    for _ in range(6):
        x, y, tone = int(rng.integers(width)), int(rng.integers(height)), int(rng.integers(90, 200))
        cv2.line(image, (x, y), (x + width // 12, y), (tone, tone, tone), max(1, height // 240))
    return image


def test_a_scene_takes_little_more_than_its_picture() -> None:
    """Five times as much while it is made; each byte of a channel was a number of eight before."""
    assert _peak(lambda: Scene(_WIDTH, _HEIGHT)) < 6 * _PICTURE


def test_scenes_are_made_one_after_the_other() -> None:
    """Those that are made at once by several threads take what one takes, and their pictures."""
    begin = threading.Barrier(8)

    def make(seed: int) -> Scene:
        begin.wait()
        return Scene(_WIDTH, _HEIGHT, seed=seed)

    def make_all() -> list[Scene]:
        with ThreadPoolExecutor(8) as threads:
            return [*threads.map(make, range(8))]

    assert _peak(make_all) < (5 + 8 + 1) * _PICTURE


def _peak(work: Callable[[], object]) -> int:
    """The most memory that was held at once, bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
