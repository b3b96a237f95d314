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


def test_objects_in_bands_of_their_own_are_whole() -> None:
    """They are drawn as one after the other, in any order."""
    scene = Scene(320, 200, seed=3, objects=6)
    for number in (0, 100, 1000):
        assert [box.visible for box in scene.truth(number)] == [1.0] * 6
        assert [box.id for box in scene.truth(number)] == [1, 2, 3, 4, 5, 6]


def test_as_many_bands_as_objects_change_nothing() -> None:
    plain, banded = Scene(320, 200, seed=3, objects=6), Scene(320, 200, seed=3, objects=6, bands=6)
    assert np.array_equal(plain.draw(7), banded.draw(7))
    assert plain.truth(7) == banded.truth(7)


def test_the_nearer_object_hides_the_other() -> None:
    """A little below its middle each object has one colour from the left to the right."""
    scene = Scene(320, 200, seed=3, objects=6, bands=2)
    hidden = 0
    for number in range(0, 600, 5):
        picture, boxes = scene.draw(number), scene.truth(number)
        rows = {}
        for box in boxes:
            x0, y0, x1, y1 = box.xyxy
            rows[box.id] = np.ptp(picture[y0 + (y1 - y0) * 55 // 100, x0:x1], axis=0).max()
        assert [rows[box.id] for box in boxes if box.visible == 1.0] == [0] * sum(box.visible == 1.0 for box in boxes)
        hidden += sum(box.visible < 0.5 and rows[box.id] > 0 for box in boxes)
    assert hidden > 20


def test_what_is_visible_is_what_no_nearer_box_covers() -> None:
    scene = Scene(320, 200, seed=3, objects=12, bands=1)
    boxes = scene.truth(40)
    order = np.full((200, 320), 0)
    for box in sorted(boxes, key=lambda box: (box.xyxy[3], box.id)):
        x0, y0, x1, y1 = box.xyxy
        order[y0:y1, x0:x1] = box.id
    for box in boxes:
        x0, y0, x1, y1 = box.xyxy
        assert box.visible == pytest.approx(float(np.mean(order[y0:y1, x0:x1] == box.id)))
    assert min(box.visible for box in boxes) < 0.3
