"""Ultralytics' `predict` over one recording as many sources: frames a second, as one line of JSON.

Stands alone, so that any interpreter that has ultralytics can run it:

    PYTHON ultralytics_predict.py CLIP --sources 10 --seconds 20 --model yolov8n.yaml --weights yolov8n.onnx

`--model` is anything that Ultralytics takes. One that ends in .yaml has random weights, unless `--weights` names an
export of it to take them from.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

_WARM_S = 3.0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("clip", type=Path)
    parser.add_argument("--sources", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20.0, help="In steady state.")
    parser.add_argument("--model", default="yolov8n.yaml")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--half", action="store_true", help="FP16.")
    parser.add_argument("--auto", action="store_true", help="The first GPU and FP16, or the CPU if there is none.")
    parser.add_argument("--newest", action="store_true", help="Skip what came while it was busy, which is its default.")
    parser.add_argument("--device", default="0", help="Or cpu.")
    args = parser.parse_args()

    import torch
    import ultralytics

    if args.auto:
        args.half = torch.cuda.is_available()
        args.device = "0" if args.half else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "clips.streams"
        listed.write_text(f"{args.clip.resolve()}\n" * args.sources)
        model = ultralytics.YOLO(args.model)
        if args.weights:
            _take_weights(model.model, args.weights)
        results = model.predict(
            str(listed),
            stream=True,
            stream_buffer=not args.newest,
            half=args.half,
            device=args.device,
            imgsz=640,
            batch=args.sources,
            verbose=False,
        )
        start: float | None = None
        frames, counted, begun = 0, 0, perf_counter()
        boxes = 0
        for result in results:
            frames += 1
            boxes += len(result.boxes)
            now = perf_counter()
            if start is None and now - begun >= _WARM_S and frames >= 20 * args.sources:
                start, counted = now, frames
            if start is not None and now - start >= args.seconds:
                break
        if start is None:
            raise SystemExit(f"the clip is too short: {frames} frames of {args.sources} sources")
        seconds = perf_counter() - start
    figures = {
        "sources": args.sources,
        "frames": frames - counted,
        "seconds": round(seconds, 3),
        "fps": round((frames - counted) / seconds, 1),
        "boxes_per_frame": round(boxes / frames, 2),
        "half": args.half,
        "newest": args.newest,
        "ultralytics": ultralytics.__version__,
        "torch": torch.__version__,
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0


def _take_weights(network: Any, exported: Path) -> None:
    """Names in the file are those of the network with its normalisation folded in."""
    import onnx
    import torch

    network.fuse(verbose=False)
    found = {
        item.name: torch.from_numpy(onnx.numpy_helper.to_array(item).copy())
        for item in onnx.load(str(exported)).graph.initializer
    }
    wanted = network.state_dict()
    missing = [name for name in wanted if name.startswith("model.") and name not in found]
    if missing:
        raise SystemExit(f"{exported} is of another model: it lacks {missing[0]}")
    network.load_state_dict({name: found[name] for name in wanted})


if __name__ == "__main__":
    sys.exit(main())
