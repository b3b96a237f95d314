"""The usual first script: one thread reads a frame of each source with OpenCV, letterboxes them, runs onnxruntime on
the batch, then NMS, and repeats.

    python -m tests.peers.plain_loop CLIP --sources 10 --seconds 20 [--model MODEL.onnx] [--labels coco]
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from pathlib import Path
from time import perf_counter

import cv2

from daemon.system.paths import demo_model
from detectors.factory import open_detector
from detectors.port import DetectorError, HostImage, Options


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("clip", type=Path)
    parser.add_argument("--sources", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--labels")
    args = parser.parse_args()
    captures = [cv2.VideoCapture(str(args.clip)) for _ in range(args.sources)]
    if not all(capture.isOpened() for capture in captures):
        raise SystemExit(f"{args.clip} cannot be opened by OpenCV")
    try:
        options = Options(args.model or demo_model(), labels=args.labels, max_batch=args.sources)
        detector = open_detector("cpu", options)
    except DetectorError as error:
        raise SystemExit(str(error)) from error
    limit = detector.info.max_batch  # smaller for a model with a fixed batch
    with closing(detector), closing(detector.lane()) as lane:
        lane.detect([_read(capture, args.clip) for capture in captures[:limit]])
        frames, began = 0, perf_counter()
        while (passed := perf_counter() - began) < args.seconds:
            batch = [_read(capture, args.clip) for capture in captures]
            for first in range(0, len(batch), limit):
                lane.detect(batch[first : first + limit])
            frames += len(batch)
    how = f"one thread: VideoCapture of each source, letterbox, onnxruntime on the CPU in batches of {limit}, NMS"
    sys.stdout.write(json.dumps({"fps": round(frames / passed, 2), "how": how}) + "\n")
    return 0


def _read(capture: cv2.VideoCapture, clip: Path) -> HostImage:
    """The next picture; the first again after the last."""
    for _ in range(2):
        found, picture = capture.read()
        if found:
            return HostImage(picture)  # type: ignore[arg-type]
        capture.set(cv2.CAP_PROP_POS_FRAMES, 0)
    raise SystemExit(f"{clip} cannot be read by OpenCV")


if __name__ == "__main__":
    sys.exit(main())
