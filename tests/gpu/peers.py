"""Lookout's engine and all others on one model, in one table:

    python -m tests.gpu.peers MODEL.onnx --cache DIR [--labels coco] [--builder-level 3] [--max-batch 32] \\
        [--peer-python PYTHON] [--peer-python torch-tensorrt=PYTHON] [--server http://HOST:PORT/MODEL]

It runs `python -m tests.bench engine MODEL --peer all`. onnxruntime-gpu 1.31 loads TensorRT 10 and torch-tensorrt 2.14
loads TensorRT 11, so each has an environment of its own:

    python3 -m venv ort && ort/bin/pip install 'onnxruntime-gpu[cuda,cudnn]' 'tensorrt-cu13<11'
    python3 -m venv torch && torch/bin/pip install torch torch-tensorrt onnx2torch

It fails if Lookout's engine does not run, or if the outputs of an engine that runs are further than 5 % of the largest
value from those of onnxruntime on the CPU. An engine that does not run is named with its reason.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from daemon.cli import invoke
from tests.bench.__main__ import bench

_SHARE = 0.05  # of FP16, for which logarithms of sizes differ most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--builder-level", default="3")
    args, more = parser.parse_known_args()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "rates.json"
        options = ["--cache", str(args.cache), "--builder-level", args.builder_level, "--json", str(file)]
        if code := invoke(["engine", str(args.model), "--peer", "all", *options, *more], bench):
            return code
        own, *others = json.loads(file.read_text())["engines"]
    faults = [] if own["images_per_s"] else [f"{own['engine']} did not run"]
    for row in (own, *others):
        if row["images_per_s"] and (row["relative"] is None or row["relative"] > _SHARE):
            faults.append(f"{row['engine']} has other outputs: they differ by {row['relative']} of the largest value")
    sys.stdout.write("".join(f"FAILED: {fault}\n" for fault in faults) or "all engines that ran agree\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
