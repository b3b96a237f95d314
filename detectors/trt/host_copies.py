"""Host pictures on their way to the device: pinned buffers, and threads that fill them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from itertools import pairwise

import numpy as np

from detectors.cuda import Device, DeviceBuffer, PinnedBuffer, Stream
from detectors.port import HostImage

_MIN_PART_BYTES = 1 << 20  # a smaller part is copied before another thread is awake


class Slot:
    """Buffers of one host picture: pinned memory, and memory on the device."""

    def __init__(self, size: int) -> None:
        self._undo = ExitStack()
        self._allocate(size)

    def grow(self, size: int) -> None:
        self.close()
        self._allocate(size)

    def copy(self, image: HostImage, rows: slice, stream: Stream) -> None:
        """Copy rows of a picture into pinned memory, and enqueue their copy to the device."""
        part = image.bgr[rows]
        begin = rows.start * image.width * 3
        np.copyto(self._bytes[begin : begin + part.nbytes].reshape(part.shape), part)
        self.device.mirror(self.pinned, begin, part.nbytes, stream)

    def close(self) -> None:
        self._undo.close()

    def _allocate(self, size: int) -> None:
        with ExitStack() as undo:
            self.pinned = PinnedBuffer(size)
            undo.callback(self.pinned.close)
            self.device = DeviceBuffer(size)
            undo.callback(self.device.close)
            self._undo = undo.pop_all()
        self._bytes = self.pinned.view((size,), np.uint8)


class HostCopyPool:
    """Threads that copy host pictures into pinned memory, shared by all lanes: one thread is slower than the bus.

    Args:
        threads: their number.
    """

    def __init__(self, device: Device, threads: int) -> None:
        self._device, self._threads = device, threads
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="copy")
        self._own = threading.local()

    def close(self) -> None:
        self._executor.shutdown()

    def copy(self, staged: Sequence[tuple[Slot, HostImage]], stream: Stream) -> None:
        """Copy all pictures; each part travels to the device while the next is copied. If a part fails, all others have
        ended before the error is raised, so that buffers may be freed."""
        pieces = [(slot, image, part) for slot, image in staged for part in self._parts(image, len(staged))]
        if len(pieces) == 1:
            slot, image, rows = pieces[0]
            slot.copy(image, rows, stream)
        else:
            futures = [self._executor.submit(self._copy, *piece, stream) for piece in pieces]
            wait(futures)
            for future in futures:
                future.result()

    def _copy(self, slot: Slot, image: HostImage, part: slice, stream: Stream) -> None:
        if not hasattr(self._own, "ready"):
            self._device.make_current()
            self._own.ready = True
        slot.copy(image, part, stream)

    def _parts(self, image: HostImage, count: int) -> list[slice]:
        """Rows of a picture, one of `count`, so that every thread has a part of a useful size."""
        parts = max(1, min(self._threads // count, image.bgr.nbytes // _MIN_PART_BYTES, image.height))
        bounds = [image.height * part // parts for part in range(parts + 1)]
        return [slice(*bound) for bound in pairwise(bounds)]
