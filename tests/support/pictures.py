"""Random pictures drawn from a number: the same on every machine, so that no test stores them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

SMALLEST, LARGEST = 40, 400


@lru_cache(maxsize=256)
def picture(number: int) -> npt.NDArray[np.uint8]:
    """A picture of smooth blobs, rectangles and noise, (h, w, 3) BGR; each side has 40 to 400 pixels.
    It is kept, so it cannot be written to.

    RandomState never changes between versions of numpy, and the rest is sums and products, which all machines round
    alike.
    """
    random = np.random.RandomState(number)
    width, height = (int(side) for side in random.randint(SMALLEST, LARGEST + 1, 2))
    x = (np.arange(width, dtype=np.float64) + 0.5) / width
    y = (np.arange(height, dtype=np.float64)[:, None] + 0.5) / height
    canvas = np.empty((height, width, 3), np.float64)
    canvas[:] = random.uniform(30, 200, 3)
    for _ in range(random.randint(3, 8)):
        across, down, radius = random.uniform(0, 1), random.uniform(0, 1), random.uniform(0.1, 0.6)
        near = np.maximum(1 - ((x - across) * (x - across) + (y - down) * (y - down)) / (radius * radius), 0)
        canvas += (near * near)[..., None] * random.uniform(-120, 120, 3)
    for _ in range(random.randint(4, 11)):
        left, top = random.randint(0, width - 8), random.randint(0, height - 8)
        right, bottom = random.randint(left + 4, width + 1), random.randint(top + 4, height + 1)
        canvas[top:bottom, left:right] = random.uniform(0, 255, 3) * 0.7 + canvas[top:bottom, left:right] * 0.3
    canvas += random.uniform(-1, 1, canvas.shape) * random.uniform(4, 14)
    pixels = np.clip(np.rint(canvas), 0, 255).astype(np.uint8)
    pixels.flags.writeable = False
    return pixels


def digest(pictures: Iterable[npt.NDArray[np.uint8]]) -> str:
    """The SHA-256 of pictures and their sizes: whether two machines draw the same."""
    total = hashlib.sha256()
    for pixels in pictures:
        total.update(repr(pixels.shape).encode())
        total.update(pixels.tobytes())
    return total.hexdigest()
