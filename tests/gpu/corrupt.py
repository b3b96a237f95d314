"""Mutated recordings through the GPU's decoder: the daemon survives, nothing hangs, other sources are unaffected.

    python -m tests.gpu.corrupt MODEL.onnx --originals DIR --cache DIR --builder-level 1 --count 1000

DIR of --originals comes from `tests.support.mutants.originals`, which needs ffmpeg.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from time import monotonic

from tests.support.mutants import DIED, mutant, originals, play


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--originals", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--builder-level", type=int, default=1)
    parser.add_argument("--max-batch", type=int, default=16)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=50)
    args = parser.parse_args()
    if not args.originals and not shutil.which("ffmpeg"):
        parser.error("ffmpeg, which makes the originals, is missing: install it, or give --originals DIR")
    model: dict[str, object] = {
        "path": str(args.model.resolve()),
        "backend": "trt",
        "precision": "fp16",
        "labels": "coco",
        "builder_level": args.builder_level,
        "max_batch": args.max_batch,
        "cache": str(args.cache.resolve()),
    }
    died, failed, began = 0, 0, monotonic()
    with tempfile.TemporaryDirectory() as folder:
        made = sorted(args.originals.iterdir()) if args.originals else originals(Path(folder))
        end = args.first + args.count
        for first in range(args.first, end, args.at_once):
            numbers = range(first, min(first + args.at_once, end))
            try:
                output = play([mutant(number, made, Path(folder)) for number in numbers], Path(folder), model, "auto")
                died += sum(DIED in line for line in output)
                sys.stdout.writelines(f"{line}\n" for line in output)
            except AssertionError as error:
                failed += 1
                sys.stdout.write(f"{numbers}: {error}\n")
            sys.stdout.write(f"{numbers.stop} mutants, {monotonic() - began:.0f} s, {died} capture processes died\n")
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
