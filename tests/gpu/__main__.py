"""All GPU tests in one command, in under eight minutes with engines of level 1:

    python -m tests.gpu --data DIR --cache DIR --out DIR
    python -m tests.gpu --data DIR --cache DIR --out DIR --builder-level 3 --only heads swap precisions placement

DIR of --data has real models, clips and photos (`LOOKOUT_TEST_DATA`). Logs go to --out, a table comes last. The second
line builds some twenty engines, minutes each at level 3 without cached timings, and sixty tiny ones; it was not run
completely on a GPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from time import monotonic

_SHORT = ("kernels", "contract", "detector", "decoder", "startup", "replay", "corrupt", "speed", "failures", "deaths")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--builder-level", default="1")
    parser.add_argument("--only", nargs="+", help=f"parts to run; default: {' '.join(_SHORT)}")
    args = parser.parse_args()
    failed = False
    rows = []
    for name, command in _parts(args).items():
        if name not in (args.only or _SHORT):
            continue
        began = monotonic()
        log = args.out / f"{name}.log"
        environment = {**os.environ, "CACHE_DIRECTORY": str(args.cache), "LOOKOUT_TEST_DATA": str(args.data)}
        with log.open("w") as file:
            code = subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, env=environment, check=False
            ).returncode
        failed |= code != 0
        rows.append(f"{name:12} {'ok' if code == 0 else f'FAILED ({code})':12} {monotonic() - began:6.0f} s")
        output = [line for line in log.read_text().splitlines() if not line.startswith(("{", "20"))]
        sys.stdout.write(f"--- {rows[-1]}\n" + "\n".join(output[-40:]) + "\n")
        sys.stdout.flush()
    sys.stdout.write("\n".join(["", *rows]) + "\n")
    return int(failed)


def _parts(args: argparse.Namespace) -> dict[str, list[str]]:
    models, clips = args.data / "models", sorted((args.data / "videos").glob("*.mp4"))
    coco = ["--coco", str(args.data / "images" / "val"), str(args.data / "images" / "val.json")]
    built = ["--cache", str(args.cache), "--builder-level", args.builder_level]
    yolov8n, every = str(models / "yolov8n.onnx"), list(map(str, sorted(models.glob("yolo*.onnx"))))
    calibration, labels = args.data / "images" / "calibration", ["--labels", "coco"]
    out = ["--out", str(args.out)]
    photos = ["--photos", str(calibration), *labels]

    def module(name: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", f"tests.gpu.{name}", *arguments]

    return {
        "kernels": module("kernels", "--short"),
        "contract": [sys.executable, "-m", "pytest", "tests/contract/test_detector.py"],
        "detector": module("detector", *built, "--precision", "fp16", *coco, "--", f"{yolov8n}:coco"),
        "decoder": module("decoder", *map(str, clips)),
        "startup": module("startup", *built, "--max-batch", "16", yolov8n),
        "heads": module("heads", *built, "--precision", "fp32", "fp16"),
        "views": module("views", yolov8n, str(calibration), *labels, *built),
        "memory": module("memory", *built),
        "replay": module("replay", *built, yolov8n, *map(str, clips)),
        "corrupt": module("corrupt", *built, yolov8n),
        "speed": module("speed", *built, "--max-batch", "16", "--seconds", "0.7", "--growth", "20000", yolov8n),
        "sizes": module("sizes", *built, "--photos", str(calibration), yolov8n),
        "failures": module("failures", "--cache", str(args.cache)),
        "deaths": module("deaths", str(clips[0]), "--cache", str(args.cache)),
        "swap": module("swap", *built, *labels, yolov8n, str(models / "yolov5n.onnx"), str(clips[0])),
        "precisions": module("precisions", *built, *photos, *out, "--resnet50", "--jobs", "2", *every),
        "resnet": module("resnet", *built, *out),
        "peers": module("peers", *built, *labels, yolov8n),
        "placement": module("placement", *built, *labels, *out, yolov8n, str(calibration)),
    }


if __name__ == "__main__":
    sys.exit(main())
