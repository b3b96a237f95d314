"""The tiny models of the frameworks' exporters, opened by TensorRT: what kernels decode, and what the reference finds
in the same raw outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from detectors.detections import Detections, plausible
from detectors.letterbox import fit
from detectors.port import Image, Options, PostprocessParams
from detectors.trt.detector import TrtDetector
from detectors.trt.lane import TrtLane
from tests.frameworks.expected import load
from tests.frameworks.runtime import Session, head_of

FOLDER = Path(__file__).resolve().parents[1] / "data" / "heads"
THRESHOLD = 0.25


def options_of(name: str, folder: Path, **more: Any) -> Options:
    """Options for a tiny model.

    Args:
        folder: for a file of labels, where the model has none.
        more: further options.
    """
    path, expected = FOLDER / f"{name}.onnx", load(FOLDER / f"{name}.npz")
    session = Session(path)
    head = head_of(session, expected)
    options = Options(
        path,
        head="classify" if head.task == "classify" else "auto",
        labels=None if session.metadata else str(_labels(folder, head.classes or 5)),
        wanted=PostprocessParams(THRESHOLD),
        input_size=(expected.placing.width, expected.placing.height),
    )
    return replace(options, **more)


def _labels(folder: Path, count: int) -> Path:
    """Labels for models without."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"labels-{count}.txt"
    path.write_text("".join(f"class {number}\n" for number in range(count)))
    return path


def reference_of(detector: TrtDetector, lane: TrtLane, images: Sequence[Image]) -> list[Detections]:
    """What the head finds in numpy, in the raw outputs of the engine for each picture."""
    head, wanted = detector.head, detector.options.wanted
    boxes = [fit(image.width, image.height, head.spec) for image in images]
    found = [head.detections(lane.raw(image), box, wanted) for image, box in zip(images, boxes)]
    return [*plausible(found, len(detector.info.labels))[0]]


def differences(given: Detections, expected: Detections) -> list[str]:
    """What differs, a line each; none if kernels and reference agree."""
    found = []
    if given.class_id.tolist() != expected.class_id.tolist():
        return [f"{len(given)} boxes of classes {given.class_id.tolist()}, not {expected.class_id.tolist()}"]
    if given.left_out != expected.left_out:
        found.append(f"{given.left_out} are left out, not {expected.left_out}")
    columns = (
        ("scores", given.confidence, expected.confidence, 1e-6),
        ("boxes", given.xyxy, expected.xyxy, 1e-2),
    )
    for name, one, other, near in columns:
        if (worst := float(np.abs(one - other).max(initial=0.0))) > near:
            found.append(f"{name} differ by {worst:.2g}")
    return found
