"""Several input sizes on the GPU: one engine with a profile for each, beside engines of one size.

    python -m tests.gpu.sizes yolov8n.onnx --cache DIR [--photos DIR] [--sizes 640x640 1280x736] [--seconds 3]

The file may have a fixed size: it is made dynamic, with the same weights, if it is YOLOv8's. Three parts:

- agreement: the boxes at each size against those of an engine of that size alone, with IoU >= 0.99 and scores within
  0.01. Tactics of two engines may differ, so FP16 rounds otherwise; 99 % of strong boxes must be found.
- memory: the plan against NVML, for two lanes.
- throughput: full batches from two lanes, in turns with the engine of one size. At the own size it must keep 97 %. Then
  nine batches of the own size and one of another, as sources would give them.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

import cv2
import numpy as np
import structlog

from daemon.sources.scene import Scene
from detectors.detections import Detections
from detectors.matching import iou_matrix
from detectors.port import HostImage, Image, Lane, Options, PostprocessParams, Size
from detectors.trt.detector import TrtDetector
from detectors.trt.lane import TrtLane
from tests.support.dynamic_model import with_dynamic_size

_MIB, _LANES, _TURNS = 1 << 20, 2, 5
_THRESHOLD, _MARGIN = 0.25, 0.03  # a box near the threshold may be on either side of it
_KEPT, _FOUND = 0.97, 0.99


def main() -> int:
    args = _arguments()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    args.cache.mkdir(parents=True, exist_ok=True)
    own, *further = args.sizes
    path = with_dynamic_size(args.model, args.cache / f"{args.model.stem}-dynamic.onnx") if args.fixed else args.model
    options = Options(
        path,
        labels="coco",
        wanted=PostprocessParams(_THRESHOLD),
        input_size=own,
        max_batch=args.max_batch,
        builder_level=args.builder_level,
        cache=args.cache,
        lanes=_LANES,
    )
    several = replace(options, further_sizes=tuple(further))
    alone = [replace(options, input_size=size) for size in args.sizes]
    for each in (several, *alone):
        began = perf_counter()
        with closing(TrtDetector(each)) as detector:
            sizes = (detector.info.input_size, *detector.info.further_sizes)
            _say(f"engine of {', '.join(map(_text, sizes))}: open in {perf_counter() - began:.1f} s, "
                 f"plan file {detector.needs.weights / _MIB:.1f} MiB")  # fmt: skip
    met = _memory(several) if args.nvml else True
    for one in alone:
        met &= _agreement(several, one, args.photos)
    met &= _throughput(several, alone, args.seconds)
    return int(not met)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--builder-level", type=int, default=1)
    parser.add_argument("--max-batch", type=int, default=16)
    parser.add_argument("--sizes", type=_size, nargs="+", default=[(640, 640), (1280, 736)])
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--dynamic", dest="fixed", action="store_false", help="the file is dynamic already")
    parser.add_argument("--no-nvml", dest="nvml", action="store_false", help="for a run over stand-ins")
    return parser.parse_args()


def _agreement(several: Options, alone: Options, photos: Path | None) -> bool:
    """Whether the boxes at a size are those of an engine of that size."""
    size = alone.input_size
    assert size is not None
    images, boxes, found, worst = _pictures(photos), 0, 0, 0.0
    with ExitStack() as stack:
        lanes = []
        for options in (several, alone):
            detector = stack.enter_context(closing(TrtDetector(options)))
            lanes.append(stack.enter_context(closing(detector.lane())))
        for begin in range(0, len(images), several.max_batch):
            batch = images[begin : begin + several.max_batch]
            for one, other in zip(lanes[1].detect(batch)[0], lanes[0].at(size).detect(batch)[0]):
                strong, same, apart = _compare(one, other)
                boxes, found, worst = boxes + strong, found + same, max(worst, apart)
    good = boxes > 0 and found >= _FOUND * boxes
    _say(f"agreement at {_text(size)}: {found} of {boxes} boxes of {len(images)} pictures, scores differ by "
         f"{worst:.4f} at most{'' if good else ' (!)'}")  # fmt: skip
    return good


def _compare(here: Detections, there: Detections) -> tuple[int, int, float]:
    """Strong boxes, those that the other side has, and the largest difference of scores."""
    strong = here[here.confidence > _THRESHOLD + _MARGIN]
    close = (iou_matrix(strong.xyxy, there.xyxy) >= 0.99) & (strong.class_id[:, None] == there.class_id)
    apart = np.where(close, np.abs(strong.confidence[:, None] - there.confidence), np.inf).min(axis=1, initial=np.inf)
    same = apart <= 0.01
    return len(strong), int(same.sum()), float(apart[same].max(initial=0.0))


def _memory(several: Options) -> bool:
    """Whether the plan is within 5 % of what NVML says."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    before = pynvml.nvmlDeviceGetMemoryInfo(handle).used
    with ExitStack() as stack:
        detector = stack.enter_context(closing(TrtDetector(several)))
        lanes = [stack.enter_context(closing(detector.lane())) for _ in range(_LANES)]
        for lane, size in ((lane, size) for lane in lanes for size in _sizes_of(several)):
            lane.at(size).detect(_pictures(None)[: several.max_batch])
        used, planned = pynvml.nvmlDeviceGetMemoryInfo(handle).used - before, detector.info.memory_bytes
        for name, bytes_ in detector.info.memory:
            _say(f"  {name}: {bytes_ / _MIB:.0f} MiB")
    good = 0.95 <= planned / used <= 1.05
    _say(f"memory: planned {planned / _MIB:.0f} MiB, NVML says {used / _MIB:.0f} MiB: {planned / used:.3f} of it"
         f"{'' if good else ' (!)'}")  # fmt: skip
    return bool(good)


def _throughput(several: Options, alone: Sequence[Options], seconds: float) -> bool:
    """Pictures a second at each size, in turns; whether those at the own size are kept."""
    sizes = _sizes_of(several)
    with ExitStack() as stack:
        detectors = [stack.enter_context(closing(TrtDetector(options))) for options in (several, *alone)]
        images = [detector.sample(1920, 1080) for detector in detectors]
        lanes = [[stack.enter_context(closing(each.lane())) for _ in range(_LANES)] for each in detectors]
        shares = []
        for number, size in enumerate(sizes):
            sized, other, both = [lane.at(size) for lane in lanes[0]], number + 1, list[float]()
            single = list[float]()
            for _ in range(_TURNS):
                both.append(_rate(detectors[0], sized, images[0], seconds))
                single.append(_rate(detectors[other], lanes[other], images[other], seconds))
            shares.append(median(both) / median(single))
            _say(f"throughput at {_text(size)}: {median(both):.0f} pictures/s with several sizes, {median(single):.0f} "
                 f"alone: {shares[-1]:.3f}")  # fmt: skip
        mixed = _mixed(detectors[0], lanes[0], images[0], sizes, seconds)
        _say(f"nine batches at {_text(sizes[0])} and one at {_text(sizes[-1])}: {mixed:.0f} pictures/s")
    good = shares[0] >= _KEPT
    _say(f"the own size keeps {shares[0]:.3f} of its throughput{'' if good else ' (!)'}")
    return good


def _rate(detector: TrtDetector, lanes: Sequence[Lane], image: Image, seconds: float) -> float:
    batch = [image] * detector.info.max_batch
    return _measure([(detector, lambda lane=lane: lane.detect(batch)) for lane in lanes], seconds) * len(batch)  # type: ignore[misc]


def _mixed(
    detector: TrtDetector, lanes: Sequence[TrtLane], image: Image, sizes: Sequence[Size], seconds: float
) -> float:
    batch = [image] * detector.info.max_batch

    def ten(lane: TrtLane) -> None:
        for number in range(10):
            lane.at(sizes[-1] if number == 9 else sizes[0]).detect(batch)

    return _measure([(detector, lambda lane=lane: ten(lane)) for lane in lanes], seconds) * len(batch) * 10  # type: ignore[misc]


def _measure(work: Sequence[tuple[TrtDetector, Callable[[], object]]], seconds: float) -> float:
    """Calls a second of several threads."""
    done = [0] * len(work)
    until = perf_counter() + seconds

    def run(number: int) -> None:
        detector, call = work[number]
        detector.device.make_current()
        while perf_counter() < until:
            call()
            done[number] += 1

    began = perf_counter()
    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (perf_counter() - began)


def _pictures(photos: Path | None) -> list[HostImage]:
    """Photos, or drawn streets."""
    paths = sorted(photos.glob("*.jpg"))[:64] if photos else []
    found = [HostImage(np.ascontiguousarray(image, np.uint8)) for path in paths
             if (image := cv2.imread(str(path))) is not None]  # fmt: skip
    return found or [HostImage(Scene(1920, 1080, seed=seed).draw(seed)) for seed in range(16)]


def _sizes_of(options: Options) -> tuple[Size, ...]:
    assert options.input_size is not None
    return (options.input_size, *options.further_sizes)


def _size(text: str) -> Size:
    width, _, height = text.partition("x")
    return int(width), int(height or width)


def _text(size: Size) -> str:
    return f"{size[0]}x{size[1]}"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
