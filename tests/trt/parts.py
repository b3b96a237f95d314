"""Pictures on the stub of a GPU, and fast detectors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from detectors.cuda import DeviceBuffer, Event, Stream
from detectors.port import DeviceImage, HostImage, Options, PostprocessParams
from detectors.trt.detector import TrtDetector
from detectors.trt.lane import TrtLane
from detectors.trt.library import load
from detectors.trt.products import Name
from tests.support.kernels import Nv12

BACKEND: Name = "trt-rtx" if os.environ.get("LOOKOUT_TEST_TENSORRT", "").startswith("rtx-") else "trt"
SIZES = ((64, 48), (63, 47), (1, 1), (200, 120))  # of host pictures; the last exceeds the reserved memory


def options_of(model: Path, folder: Path, **more: Any) -> Options:
    return replace(
        Options(model, wanted=PostprocessParams(0.3), max_batch=4, cache=folder, frame_size=(100, 100)), **more
    )


def open_trt(options: Options) -> TrtDetector:
    """With the TensorRT of this process."""
    return TrtDetector(options, load(BACKEND))


@contextmanager
def opened(model: Path, folder: Path, **more: Any) -> Iterator[tuple[TrtDetector, TrtLane]]:
    with closing(open_trt(options_of(model, folder, **more))) as detector, closing(detector.lane()) as lane:
        yield detector, lane


def host_pictures(count: int, sizes: tuple[tuple[int, int], ...] = SIZES[:3]) -> list[HostImage]:
    rng = np.random.default_rng(count)
    return [
        HostImage(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for width, height in (sizes[number % len(sizes)] for number in range(count))
    ]


@contextmanager
def on_device(picture: Nv12) -> Iterator[DeviceImage]:
    """A decoder's picture: its copy is under way, and an event marks its end."""
    pitch = picture.luma.strides[0]
    rows = np.zeros((picture.luma.shape[0] + picture.chroma.shape[0], pitch), np.uint8)
    rows[: len(picture.luma), : picture.luma.shape[1]] = picture.luma
    rows[len(picture.luma) :, : picture.chroma.shape[1]] = picture.chroma
    with ExitStack() as stack:
        stream, event = stack.enter_context(closing(Stream())), stack.enter_context(closing(Event()))
        memory = stack.enter_context(closing(DeviceBuffer(rows.nbytes)))
        memory.upload(rows, stream)
        event.record(stream)
        chroma = memory.pointer + pitch * len(picture.luma)
        width, height = picture.size
        yield DeviceImage(memory.pointer, chroma, pitch, width, height, picture.bt709, picture.full_range, event.handle,
                          object(), picture.turns)  # fmt: skip
