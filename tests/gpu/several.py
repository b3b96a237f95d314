"""Several GPUs of one host, one daemon each, like `lookout@N`: each must be as fast together as alone.

    python -m tests.gpu.several MODEL.onnx --labels coco --clip CLIP --cache DIR --out DIR [--gpus 0 1] [--backend cpu]

Each daemon sees its own GPU only (CUDA_VISIBLE_DEVICES=N) and has its own MPS service. Together they must reach 0.98 of
the sum of their rates alone, and decode on their own GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

_SHARE = 0.98


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--labels")
    parser.add_argument("--clip", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpus", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--sources", default="28")
    parser.add_argument("--seconds", default="15")
    parser.add_argument("--backend", default="trt", choices=["trt", "cpu"], help="cpu: for a trial of the command")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "daemon", "bench", "run", str(args.clip), "--model", str(args.model)]
    command += ["--repeats", "1", "--sources", args.sources, "--seconds", args.seconds, "--cache", str(args.cache)]
    command += ["--backend", args.backend, *(["--labels", args.labels] if args.labels else [])]
    alone = [run_on(command, [gpu], args.out, f"alone-{gpu}")[0] for gpu in args.gpus]
    together = run_on(command, args.gpus, args.out, "together")
    expected, found = sum(row["fps"] for row in alone), sum(row["fps"] for row in together)
    for gpu, one, beside in zip(args.gpus, alone, together):
        sys.stdout.write(
            f"GPU {gpu}: {one['fps']:.0f} frames/s alone, {beside['fps']:.0f} beside; {beside['decoders']}\n"
        )
    met = found >= _SHARE * expected and all(row["received_share"] == 1 for row in together)
    if args.backend == "trt" and any(set(row["decoders"]) != {"nvdec"} for row in [*alone, *together]):
        raise SystemExit(f"NOT MET: not every source was decoded on a GPU; see {args.out}")
    sys.stdout.write(f"{'met' if met else 'NOT MET'}: together {found / expected:.3f} of {expected:.0f} frames/s\n")
    return int(not met)


def run_on(command: Sequence[str], gpus: Sequence[int], out: Path, name: str) -> list[dict[str, Any]]:
    """Run a daemon on each GPU concurrently; returns their figures."""
    files = [out / f"{name}-on-{gpu}.json" for gpu in gpus]
    with ExitStack() as stack:
        running = []
        for gpu, file in zip(gpus, files):
            file.unlink(missing_ok=True)
            log = stack.enter_context(file.with_suffix(".log").open("w"))
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)}
            running.append(
                subprocess.Popen([*command, "--json", str(file)], stdout=log, stderr=subprocess.STDOUT, env=environment)
            )
        codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit(f"{name}: exit codes {codes}; see {out}")
    return [json.loads(file.read_text())["cases"][0]["repeats"][0][0] for file in files]


if __name__ == "__main__":
    sys.exit(main())
