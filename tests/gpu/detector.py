"""The TensorRT backend against the CPU backend: equal boxes, reproducible results, and AP.

    python -m tests.gpu.detector --cache DIR --builder-level 1 MODEL.onnx ... [--coco IMAGES ANNOTATIONS]

MODEL.onnx:LABELS sets labels for a model without. A table comes last.
"""

from __future__ import annotations

import argparse
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import cv2
import numpy as np
import structlog

from calibration.coco import Truth, measure
from daemon.sources.scene import Scene
from detectors.matching import match
from detectors.ort.detector import OrtDetector
from detectors.port import Detector, HostImage, Options, PostprocessParams, Precision
from detectors.trt.detector import TrtDetector

_SIZES = [(640, 360), (1, 1), (333, 777), (1920, 1080), (2560, 1440)]
_STRONG = 0.5


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--builder-level", type=int, default=1)
    parser.add_argument("--precision", nargs="+", default=["fp32", "fp16"])
    parser.add_argument("--max-batch", type=int, default=16)
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
    here = Options(path, labels=labels, wanted=PostprocessParams(0.25), max_batch=args.max_batch)
    there = replace(here, precision=precision, builder_level=args.builder_level, cache=args.cache)
    images = [HostImage(Scene(width, height, seed=seed).draw(7)) for seed, (width, height) in enumerate(_SIZES)]
    if args.coco:
        images += [_photo(photo) for photo in sorted(args.coco[0].iterdir())[:32]]
    begun = perf_counter()
    with closing(TrtDetector(there)) as gpu:
        ready = perf_counter() - begun
        with closing(OrtDetector(here)) as cpu:
            found = _agreement(cpu, gpu, images)
        _lanes_agree(gpu, images[:16])
    accuracy = ""
    if args.coco:
        strict = PostprocessParams(0.001, 0.65, 300, multi_label=True)
        truth = Truth(*args.coco)
        with closing(OrtDetector(replace(here, wanted=strict, max_batch=1))) as detector:
            ap = measure(detector, truth)[0].ap
        with closing(TrtDetector(replace(there, wanted=strict))) as detector:
            same = measure(detector, truth)[0].ap
        assert abs(same - ap) < (0.002 if precision == "fp32" else 0.005), (ap, same)
        accuracy = f", AP cpu {ap:.4f} trt {same:.4f}"
    return f"{path.stem} {precision}: ready in {ready:.1f} s, {found}{accuracy}"


def _photo(path: Path) -> HostImage:
    picture = cv2.imread(str(path))
    assert picture is not None
    return HostImage(np.asarray(picture, np.uint8))


def _agreement(cpu: Detector, gpu: Detector, images: list[HostImage]) -> str:
    """Share of the CPU's strong boxes that the GPU finds; checks batches against single pictures, bit for bit."""
    strong = pairs = 0
    with closing(cpu.lane()) as one, closing(gpu.lane()) as other:
        for start in range(0, len(images), 16):
            batch = images[start : start + 16]
            given, _ = other.detect(batch)
            for image, found in zip(batch, given):
                alone = other.detect([image])[0][0]
                assert np.array_equal(alone.xyxy, found.xyxy)
                assert np.array_equal(alone.confidence, found.confidence)
                expected = one.detect([image])[0][0]
                expected = expected[expected.confidence > _STRONG]
                strong += len(expected)
                pairs += len(match(expected.xyxy, expected.class_id, found.xyxy, found.class_id, 0.95))
    return f"{pairs} of {strong} boxes over {_STRONG} with IoU >= 0.95, batches equal one by one"


def _lanes_agree(gpu: Detector, images: list[HostImage]) -> None:
    """Check 1,000 batches over 4 concurrent lanes, bit for bit."""
    results: set[bytes] = set()

    def work() -> None:
        with closing(gpu.lane()) as lane:
            for _ in range(250):
                found, _ = lane.detect(images)
                results.add(b"".join(one.xyxy.tobytes() + one.confidence.tobytes() for one in found))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 1, f"{len(results)} different results"


if __name__ == "__main__":
    sys.exit(main())
