"""The TensorRT backend on a real GPU against the CPU's: the same boxes, the same every time, AP, and how fast.

    python -m tests.gpu.detector --cache DIR --level 1 MODEL.onnx ... [--coco IMAGES ANNOTATIONS]

MODEL.onnx:LABELS names labels for a model without. A table comes last.
"""

from __future__ import annotations

import argparse
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import structlog

from calibration.evaluate import evaluate
from daemon.sources.scene import Scene
from detectors.cpu.detector import CpuDetector
from detectors.detections import Detections
from detectors.matching import match
from detectors.port import Detector, HostImage, Options, Precision, Wanted
from detectors.trt.detector import TrtDetector

_IMAGES = [
    HostImage(Scene(width, height, seed=seed).draw(7))
    for seed, (width, height) in enumerate([(640, 360), (1, 1), (333, 777), (1920, 1080), (2560, 1440)])
]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--level", type=int, default=1)
    parser.add_argument("--precision", nargs="+", default=["fp32", "fp16"])
    parser.add_argument("--coco", nargs=2, type=Path)
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(20))
    lines: list[str] = []
    for model in args.models:
        path, _, labels = model.partition(":")
        for precision in args.precision:
            lines.append(_one(Path(path), labels or None, precision, args))
            sys.stdout.write(lines[-1] + "\n")
    sys.stdout.write("\n".join(["", *lines]) + "\n")
    return 0


def _one(path: Path, labels: str | None, precision: Precision, args: argparse.Namespace) -> str:
    here = Options(path, labels=labels, wanted=Wanted(0.4), max_batch=16)
    there = replace(here, precision=precision, builder_level=args.level, cache=args.cache)
    begun = perf_counter()
    with closing(TrtDetector(there)) as gpu:
        ready = perf_counter() - begun
        with closing(CpuDetector(here)) as cpu:
            found = _agreement(cpu, gpu)
        speeds = " ".join(f"{batch}:{_speed(gpu, batch):.0f}" for batch in (1, 8, 16))
        _lanes_agree(gpu)
    accuracy = ""
    if args.coco:
        strict = Wanted(0.001, 0.65, 300, multi_label=True)
        with closing(CpuDetector(replace(here, wanted=strict, max_batch=1))) as detector:
            accuracy = f", AP cpu {evaluate(detector, *args.coco).ap:.4f}"
        with closing(TrtDetector(replace(there, wanted=strict))) as detector:
            accuracy += f" trt {evaluate(detector, *args.coco).ap:.4f}"
    return f"{path.stem} {precision}: ready in {ready:.1f} s, {found}{accuracy}, 1080p BGR images/s by batch {speeds}"


def _agreement(cpu: Detector, gpu: Detector) -> str:
    """Boxes of the CPU that the GPU has too; and a batch that is one by one to the bit."""
    with closing(cpu.lane()) as one, closing(gpu.lane()) as other:
        expected, _ = one.detect(_IMAGES)
        given, _ = other.detect(_IMAGES)
        pairs = sum(_pairs(a, b) for a, b in zip(expected, given))
        alone = [other.detect([image])[0][0] for image in _IMAGES]
        equal = all(np.array_equal(a.xyxy, b.xyxy) for a, b in zip(alone, given))
    return f"{pairs} of {sum(map(len, expected))} boxes agree, batch {'equals' if equal else 'differs from'} one by one"


def _pairs(a: Detections, b: Detections) -> int:
    return len(match(a.xyxy, a.class_id, b.xyxy, b.class_id, 0.95))


def _lanes_agree(gpu: Detector) -> None:
    """1,000 batches over 4 lanes at once, to the bit."""
    results: set[bytes] = set()

    def work() -> None:
        with closing(gpu.lane()) as lane:
            for _ in range(250):
                found, _ = lane.detect(_IMAGES)
                results.add(b"".join(one.xyxy.tobytes() + one.confidence.tobytes() for one in found))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 1, f"{len(results)} different results"


def _speed(gpu: Detector, batch: int) -> float:
    """Images a second of one lane, copies from host memory included."""
    images = [HostImage(Scene(1920, 1080, seed=seed).draw(7)) for seed in range(batch)]
    with closing(gpu.lane()) as lane:
        for _ in range(10):
            lane.detect(images)
        begun = perf_counter()
        for _ in range(50):
            lane.detect(images)
        return 50 * batch / (perf_counter() - begun)


if __name__ == "__main__":
    sys.exit(main())
