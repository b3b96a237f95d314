"""Time of `lookout run` from its start to the first detections, with and without a cached engine.

    python -m tests.gpu.startup MODEL.onnx --cache DIR [--cold] [--precision fp16 --max-batch 32 --builder-level 3]

--cold uses an empty cache folder, so that everything is built; both list the steps.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from lookout.messages import Detections
from tests.support.daemon import Lookout, receive_until


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--builder-level", type=int, default=1)
    parser.add_argument("--max-batch", type=int, default=8)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as empty:
        if args.cold:
            _start(args, Path(empty), "cold")
            _start(args, Path(empty), "warm")
        for turn in range(0 if args.cold else args.turns):
            _start(args, args.cache, f"warm, turn {turn + 1}")
    return 0


def _start(args: argparse.Namespace, cache: Path, name: str) -> None:
    model = {
        "path": str(args.model.resolve()),
        "backend": "trt",
        "labels": None if "demo" in args.model.name else "coco",
    }
    model |= {"precision": args.precision, "builder_level": args.builder_level, "max_batch": args.max_batch}
    model |= {"cache": str(cache.resolve())}
    sources = [{"id": "street", "type": "synthetic", "width": 1920, "height": 1080}]
    config: dict[str, object] = {"model": model, "sources": sources, "lanes": 2}
    with tempfile.TemporaryDirectory() as folder, Lookout(Path(folder), config) as lookout:
        with lookout.subscribe("detections") as subscriber:
            receive_until(subscriber, lambda message: isinstance(message, Detections), 500)
            receive_until(subscriber, lambda _: "first detections published" in lookout.log())
        lookout.stop()
        log = [json.loads(line) for line in lookout.log().splitlines() if line.startswith("{")]
    opened = next(line for line in log if line["event"] == "model opened")
    parts = {key: value for key, value in opened.items() if key not in ("at", "level", "event")}
    ready = next(line["seconds_since_start"] for line in log if line["event"] == "ready")
    first = next(line["seconds_since_start"] for line in log if line["event"] == "first detections published")
    sys.stdout.write(f"{name}: ready {ready} s after the process began, first detections {first} s; of it {parts}\n")


if __name__ == "__main__":
    sys.exit(main())
