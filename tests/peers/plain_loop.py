"""`lookout bench loop`: the script that many begin with. One thread reads each source in turns with OpenCV, runs
onnxruntime on a batch of one frame of each, and goes on.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from time import perf_counter

import cv2

from daemon.errors import LookoutError
from daemon.paths import demo_model
from detectors.factory import open_detector
from detectors.port import HostImage, Options

_MOST_BATCH = 8


@dataclass(frozen=True)
class LoopRate:
    """Frames a second of all sources together."""

    sources: int
    frames: int
    seconds: float
    fps: float


def loop(clip: Path, sources: int, seconds: float, model: Path | None, labels: str | None) -> LoopRate:
    """Run it.

    Raises:
        LookoutError: the recording cannot be read.
        DetectorError: the model cannot be used.
    """
    captures = [cv2.VideoCapture(str(clip)) for _ in range(min(sources, _MOST_BATCH))]
    if not all(capture.isOpened() for capture in captures):
        raise LookoutError(f"{clip} cannot be opened by OpenCV")
    detector = open_detector("cpu", Options(model or demo_model(), labels=labels, max_batch=len(captures)))
    turns = cycle(captures)
    with closing(detector), closing(detector.lane()) as lane:
        lane.detect([_read(capture, clip) for capture in captures])
        frames, began = 0, perf_counter()
        while (passed := perf_counter() - began) < seconds:
            batch = [_read(next(turns), clip) for _ in captures]
            lane.detect(batch)
            frames += len(batch)
    for capture in captures:
        capture.release()
    return LoopRate(sources, frames, round(passed, 3), round(frames / passed, 2))


def _read(capture: cv2.VideoCapture, clip: Path) -> HostImage:
    """The next picture, from the beginning again after the last."""
    for _ in range(2):
        found, picture = capture.read()
        if found:
            return HostImage(picture)  # type: ignore[arg-type]
        capture.set(cv2.CAP_PROP_POS_FRAMES, 0)
    raise LookoutError(f"{clip} cannot be read by OpenCV")
