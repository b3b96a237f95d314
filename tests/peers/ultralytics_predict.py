"""Ultralytics' `predict` over one recording as many sources; prints frames per second and how it ran, as JSON.

Self-contained, so that any interpreter with ultralytics can run it:

    PYTHON ultralytics_predict.py CLIP --sources 10 --runtime engine --model yolov8n.yaml --weights yolov8n.onnx

`--model` is anything that Ultralytics takes. One that ends in .yaml has random weights, unless `--weights` names an
export of it to take them from. `--runtime engine` and `onnx` export the model by Ultralytics' own `export` first, for
batches of all sources.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

_WARM_S = 3.0
_WARM_UP_FRAMES = 20  # of each source


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("clip", type=Path)
    parser.add_argument("--sources", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20.0, help="In steady state.")
    parser.add_argument("--runtime", choices=["torch", "engine", "onnx"], default="torch")
    parser.add_argument("--model", default="yolov8n.yaml")
    parser.add_argument("--weights", type=Path)
    args = parser.parse_args()

    import torch
    import ultralytics

    gpu = torch.cuda.is_available()
    if args.runtime == "engine" and not gpu:
        raise SystemExit("a TensorRT engine needs a GPU, and torch sees none")
    clip, weights = args.clip.resolve(), args.weights and args.weights.resolve()
    device = "0" if gpu else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # for exported files
        model = ultralytics.YOLO(args.model)
        if weights:
            _take_weights(model.model, weights)
        half = gpu and args.runtime != "onnx"
        if args.runtime != "torch":
            made = model.export(format=args.runtime, batch=args.sources, half=half, imgsz=640, device=device)
            model = ultralytics.YOLO(made, task="detect")
        listed = Path("clips.streams")
        listed.write_text(f"{clip}\n" * args.sources)
        results = model.predict(
            str(listed),
            stream=True,
            stream_buffer=True,  # every frame
            half=half,
            device=device,
            imgsz=640,
            batch=args.sources,
            verbose=False,
        )
        fps = _rate(results, args.sources, args.seconds)
    runtime = {"torch": f"torch {torch.__version__}", "engine": "its TensorRT engine", "onnx": "onnxruntime"}
    words = f"Ultralytics {ultralytics.__version__} predict on {runtime[args.runtime]}, {'GPU' if gpu else 'CPU'}"
    how = f"{words}, {'FP16' if half else 'FP32'}, every frame, batches of all sources"
    sys.stdout.write(json.dumps({"fps": fps, "how": how}) + "\n")
    return 0


def _rate(results: Any, sources: int, seconds: float) -> float:
    """Frames per second after the warm-up."""
    frames, counted, start, begun = 0, 0, None, perf_counter()
    for _ in results:
        frames += 1
        now = perf_counter()
        if start is None and now - begun >= _WARM_S and frames >= _WARM_UP_FRAMES * sources:
            start, counted = now, frames
        if start is not None and now - start >= seconds:
            break
    if start is None or frames == counted:
        raise SystemExit(f"the clip is too short: {frames} frames of {sources} sources")
    return round((frames - counted) / (perf_counter() - start), 1)


def _take_weights(network: Any, exported: Path) -> None:
    """Load the file's weights; normalisation layers are folded into them."""
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
