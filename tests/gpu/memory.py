"""The memory plan of each head's model against the driver's figure.

    python -m tests.gpu.memory --cache DIR [--lanes 2] [--max-batch 8] [NAME or MODEL ...]

NAME is a tiny model of tests/data/heads, MODEL an ONNX file. Each is opened in a process of its own, because a process
has one CUDA context, which is part of the plan. Nothing else may use the GPU meanwhile. The plan must be within 5 %.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pynvml
import structlog

from detectors.port import HostImage, Options, PostprocessParams
from detectors.trt.detector import TrtDetector
from tests.support.heads import FOLDER, options_of

_MIB = 1 << 20
_CLOSE = 0.05


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--builder-level", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--max-batch", type=int, default=8)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--here", action="store_true", help="measure the one model in this process")
    args = parser.parse_args()
    if args.here:
        return _measure(args)
    names = args.names or sorted(path.stem for path in FOLDER.glob("*.onnx"))
    sys.stdout.write(f"{'model':28} {'planned':>9} {'NVML':>9} {'ratio':>7}\n")
    sys.stdout.flush()
    keys = "cache", "builder-level", "lanes", "max-batch"
    settings = [f"--{key}={getattr(args, key.replace('-', '_'))}" for key in keys]
    codes = [
        subprocess.run(
            [sys.executable, "-m", "tests.gpu.memory", "--here", *settings, f"--precision={args.precision}", name],
            check=False,
        ).returncode
        for name in names
    ]
    return max(codes)


def _measure(args: argparse.Namespace) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    (name,) = args.names
    options = _options(name, args)
    pynvml.nvmlInit()
    before = _used()
    with ExitStack() as stack:
        detector = stack.enter_context(closing(TrtDetector(options)))
        picture = HostImage(np.full((1080, 1920, 3), 114, np.uint8))
        for _ in range(options.lanes):
            stack.enter_context(closing(detector.lane())).detect([picture] * detector.info.max_batch)
        planned, used = sum(size for _, size in detector.info.memory) / _MIB, (_used() - before) / _MIB
        good = abs(planned / used - 1) <= _CLOSE
        mark = "" if good else " (!)"
        sys.stdout.write(f"{name[-28:]:28} {planned:7.0f} M {used:7.0f} M {planned / used:7.3f}{mark}\n")
        if not good:
            sys.stdout.writelines(f"    {row}: {size / _MIB:.1f} MiB\n" for row, size in detector.info.memory)
    return int(not good)


def _options(name: str, args: argparse.Namespace) -> Options:
    more = {
        "max_batch": args.max_batch,
        "lanes": args.lanes,
        "precision": args.precision,
        "builder_level": args.builder_level,
        "cache": args.cache,
    }
    if Path(name).suffix == ".onnx":
        return Options(Path(name), labels="coco", wanted=PostprocessParams(0.25), **more)
    return options_of(name, args.cache, **more)


def _used() -> int:
    """Used GPU memory, of all processes."""
    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)


if __name__ == "__main__":
    sys.exit(main())
