"""Roboflow's `InferencePipeline` over one recording as many sources; prints frames per second and how it ran, as JSON.

Self-contained, so that any interpreter with `inference` can run it:

    PYTHON roboflow_pipeline.py CLIP --sources 10 --seconds 20 --weights yolov8n.onnx

The weights replace a downloaded model: no key is needed, and nothing is fetched.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

_WARM_S = 3.0
_MODEL = "peers/1"


class _Counter:
    """Counts frames with predictions, and ends the pipeline after some seconds in steady state."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._begun = seconds, perf_counter()
        self._start: float | None = None
        self._frames = 0
        self.pipeline: Any = None
        self.fps: float | None = None

    def __call__(self, predictions: Any, _: Any) -> None:
        now = perf_counter()
        if self._start is None:
            self._start = now if now - self._begun >= _WARM_S else None
            return
        found = predictions if isinstance(predictions, list) else [predictions]
        self._frames += sum(prediction is not None for prediction in found)
        self.fps = self._frames / (now - self._start)
        if now - self._start >= self._seconds:
            self.pipeline.terminate()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("clip", type=Path)
    parser.add_argument("--sources", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--weights", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"MODEL_CACHE_DIR": cache, "METRICS_ENABLED": "False", "TELEMETRY_OPT_OUT": "True"}
        size, batch = _install(args.weights, Path(cache) / _MODEL)

        import onnxruntime
        from inference import InferencePipeline

        counter = _Counter(args.seconds)
        clips: Any = [str(args.clip)] * args.sources if args.sources > 1 else str(args.clip)
        counter.pipeline = InferencePipeline.init(
            video_reference=clips, model_id=_MODEL, api_key="none", on_prediction=counter
        )
        counter.pipeline.start()
        counter.pipeline.join()
    if counter.fps is None:
        raise SystemExit(f"the clip is too short: it ends within {_WARM_S:.0f} s")
    on = onnxruntime.get_device()
    how = f"Roboflow inference {version('inference')}, InferencePipeline on onnxruntime ({on}), {size}, {batch}"
    sys.stdout.write(json.dumps({"fps": round(counter.fps, 1), "how": how}) + "\n")
    return 0


def _install(weights: Path, folder: Path) -> tuple[str, str]:
    """Write the files that a download would leave; returns the model's input and its batch size."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(weights), providers=["CPUExecutionProvider"])
    batch, _, height, width = session.get_inputs()[0].shape
    if not isinstance(height, int) or not isinstance(width, int):
        height = width = 640
    classes = session.get_outputs()[0].shape[1] - 4  # (batch, box and classes, places): YOLOv8's head
    folder.mkdir(parents=True)
    shutil.copy(weights, folder / "weights.onnx")
    (folder / "class_names.txt").write_text("\n".join(map(str, range(classes))))
    resize = {"enabled": True, "width": width, "height": height, "format": "Fit (grey edges) in"}
    (folder / "environment.json").write_text(json.dumps({"PREPROCESSING": {"resize": resize}}))
    kind = {"project_task_type": "object-detection", "model_type": "yolov8n"}
    (folder / "model_type.json").write_text(json.dumps(kind))
    return f"{width}x{height}", "one picture at once" if batch == 1 else "batches as it makes them"


if __name__ == "__main__":
    sys.exit(main())
