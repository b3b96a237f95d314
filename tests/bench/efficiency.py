"""`python -m tests.bench python CLIP`: the daemon's cost compared with bare inference, on the CPU.

Three programs are interleaved, so that a slower machine slows all of them: the daemon's lossless replay (decode, board,
lane, NMS, messages, socket); a loop that letterboxes decoded frames and runs onnxruntime; and that loop over
letterboxed input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import numpy.typing as npt

from daemon.bench.load import Load
from daemon.bench.run import run
from daemon.config.sources import AvConfig
from daemon.errors import LookoutError
from daemon.redact import Url
from daemon.sources.ffmpeg import AvSource
from daemon.sources.port import next_picture
from daemon.system.paths import demo_model
from detectors.ort.detector import OrtDetector, OrtLane
from detectors.port import HostImage, Options, on_host


@dataclass(frozen=True)
class EfficiencyOptions:
    """See `python -m tests.bench python --help`."""

    clip: Path
    model: Path | None = None
    labels: str | None = None
    max_batch: int = 8
    threads: int = 0
    frames: int = 300
    rounds: int = 5


@dataclass(frozen=True)
class Efficiency:
    """Frames per second, medians of the rounds, and the daemon's share of each loop."""

    frames: int
    rounds: int
    lookout_fps: float
    bare_fps: float
    infer_only_fps: float
    ratio: float
    ratio_to_infer_only: float


def efficiency(options: EfficiencyOptions) -> Efficiency:
    """Measure.

    Raises:
        LookoutError, DetectorError: the clip or the model cannot be used.
    """
    model = options.model or demo_model()
    frames = decode(options.clip, options.frames)
    detector = OrtDetector(Options(model, labels=options.labels, max_batch=options.max_batch, threads=options.threads))
    load = Load(
        (options.clip,), 1, until_end=True, model=model, labels=options.labels, backend="cpu", threads=options.threads,
        lanes=1, max_batch=options.max_batch,
    )  # fmt: skip
    rates: dict[str, list[float]] = {"lookout": [], "bare": [], "infer": []}
    with closing(detector), closing(detector.lane()) as lane:
        inputs = lane.preprocess(frames[: options.max_batch]).copy()
        for _ in range(options.rounds):
            rates["bare"].append(_rate(lambda: _bare(detector, lane, frames, options.max_batch), len(frames)))
            rates["infer"].append(_rate(lambda: _infer(detector, inputs, len(frames)), len(frames)))
            rates["lookout"].append(run(load).fps)
    fps = {side: median(values) for side, values in rates.items()}
    return Efficiency(
        frames=len(frames),
        rounds=options.rounds,
        lookout_fps=round(fps["lookout"], 1),
        bare_fps=round(fps["bare"], 1),
        infer_only_fps=round(fps["infer"], 1),
        ratio=round(median(a / b for a, b in zip(rates["lookout"], rates["bare"])), 3),
        ratio_to_infer_only=round(median(a / b for a, b in zip(rates["lookout"], rates["infer"])), 3),
    )


def _rate(work: Callable[[], None], frames: int) -> float:
    started = perf_counter()
    work()
    return frames / (perf_counter() - started)


def _bare(detector: OrtDetector, lane: OrtLane, frames: list[HostImage], batch: int) -> None:
    for start in range(0, len(frames), batch):
        detector.run(lane.preprocess(frames[start : start + batch]))


def _infer(detector: OrtDetector, inputs: npt.NDArray[np.float32], frames: int) -> None:
    for _ in range(0, frames, len(inputs)):
        detector.run(inputs)


def decode(clip: Path, limit: int) -> list[HostImage]:
    """The first pictures of a recording.

    Raises:
        LookoutError: it has none.
    """
    config = AvConfig(id="clip", url=Url(str(clip)))
    with closing(AvSource(config).open()) as reader:

        def pictures() -> Iterator[HostImage]:
            while (picture := next_picture(reader)) is not None:
                yield on_host(picture.load())

        frames = [image for image, _ in zip(pictures(), range(limit))]
    if not frames:
        raise LookoutError(f"{clip} has no picture")
    return frames
