"""The tiny models of the frameworks' exporters, opened by TensorRT: what kernels decode, and what the reference finds
in the same raw outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections, Masks, plausible
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
        head=expected.head,
        semantics=expected.semantics_beside(session.metadata),
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


def compared(detector: TrtDetector, lane: TrtLane, images: Sequence[Image]) -> list[tuple[Detections, Detections]]:
    """For each picture what the lane finds, and what the head finds in numpy in the engine's raw outputs."""
    head, wanted, labels = detector.head, detector.options.wanted, len(detector.info.labels)
    boxes = [fit(image.width, image.height, head.spec) for image in images]
    expected = [head.detections(lane.raw(image), box, wanted) for image, box in zip(images, boxes)]
    found = [lane.detect([image])[0][0] for image in images]
    return [*zip(plausible(found, labels)[0], plausible(expected, labels)[0])]


def differences(given: Detections, expected: Detections) -> list[str]:
    """What differs, a line each; none if kernels and reference agree."""
    if given.class_id.tolist() != expected.class_id.tolist():
        return [f"{len(given)} boxes of classes {given.class_id.tolist()}, not {expected.class_id.tolist()}"]
    found = [f"{given.left_out} are left out, not {expected.left_out}"] if given.left_out != expected.left_out else []
    for name, near in _NEAR.items():
        one, other = getattr(given, name), getattr(expected, name)
        if (one is None) != (other is None):
            found.append(f"{name} are {one}, not {other}")
        elif one is not None and len(given) and (worst := _distance(one, other)) > near:
            found.append(f"{name} differ by {worst:.2g}")
    return found


# How much may differ: rounding of scores, pixels and radians, and the share of bits whose sum is nearly 0.
_NEAR = {"confidence": 1e-6, "xyxy": 1e-2, "keypoints": 1e-2, "obb": 1e-2, "masks": 1e-3}


def _distance(one: npt.NDArray[np.float32] | Masks, other: npt.NDArray[np.float32] | Masks) -> float:
    if isinstance(one, Masks) or isinstance(other, Masks):
        assert isinstance(one, Masks)
        assert isinstance(other, Masks)
        assert (one.width, one.origin, one.scale) == (other.width, other.origin, other.scale)
        return float((one.unpacked() != other.unpacked()).mean())
    return float(np.abs(one - other).max())
