"""The placement search of `lookout calibrate` alone, with ranges from a folder of photos; a table comes last.

    python -m tests.gpu.placement MODEL.onnx PHOTOS --labels coco --cache DIR --out DIR [--builder-level 3]

Engines stay in the cache, so an interrupted search can be repeated quickly. The fastest file is left in --out.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import onnx
import structlog

from calibration.placement_search import PlacementSearch
from calibration.quantize import load, quantize
from detectors.factory import open_detector
from detectors.port import Options
from tests.gpu.ranges import seen_ranges


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--labels")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--builder-level", type=int, default=3)
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--most", type=int, default=64, help="photos")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    options = Options(args.model, labels=args.labels, max_batch=args.max_batch, builder_level=args.builder_level)
    options = replace(options, cache=args.cache)
    model, ranges = load(args.model), seen_ranges(args.model, args.photos, args.labels, args.most)
    quantised, made = quantize(model, ranges), args.out / f"{args.model.stem}.int8.onnx"
    begun = perf_counter()

    def tell() -> None:
        sys.stdout.write(f"{perf_counter() - begun:.0f} s: an engine was built and timed\n")
        sys.stdout.flush()

    placing = PlacementSearch(lambda wanted: open_detector("trt", wanted), model, options, made, tell)
    tried = placing.search(quantised)
    onnx.save(tried[0].placement.of(quantised), str(made))
    half = placing.half_ms or 0.0
    lines = [f"{'FP16':40} {half:.3f} ms a batch of {args.max_batch}"]
    for row in tried:
        what = f"{row.placement.kind}, {len(row.placement.floats)} layers in float"
        lines.append(f"{what:40} {row.milliseconds:.3f} ms, {half / (row.milliseconds or 1):.3f} times as fast as FP16")
    floats = ", ".join(sorted(tried[0].placement.floats))
    sys.stdout.write("\n".join(["", *lines, f"faster in float: {floats}"]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
