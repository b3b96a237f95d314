"""Every head on the GPU against the CPU, on the tiny models of the frameworks' exporters in tests/data/heads.

    python -m tests.gpu.heads --cache DIR --builder-level 1 [--precision fp32 fp16] [NAME ...]

The CPU's results agree with the frameworks' own (tests/detectors/test_parity.py). Pictures have a size that is
not resampled, so that both backends see the same: random weights make much of what a resampling rounds.

A row for each model and precision: strong boxes of the CPU, the share that the GPU finds with IoU >= 0.99 and scores
within 0.001, and the worst distances. FP32 must find 99 % of them.

The last columns compare kernels with the reference in numpy, on the same raw outputs of the engine: rows that the
kernels keep, and pictures whose rows, order or extras are others. There must be none, in any precision. Classifiers
have no kernels.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

import cv2
import numpy as np
import structlog

from detectors.detections import Detections
from detectors.matching import iou_matrix
from detectors.ort.detector import OrtDetector
from detectors.port import HostImage, Precision
from detectors.trt.detector import TrtDetector
from tests.frameworks.expected import load
from tests.support.heads import FOLDER, THRESHOLD, compared, differences, options_of
from tests.support.pictures import picture

_PICTURES, _BATCH = 60, 4
_MARGIN = 0.02  # a box near the threshold may be on either side of it
_REQUIRED = 0.99
_OVERLAP, _NEAR = 0.99, 0.25  # IoU, pixels


@dataclass
class Agreement:
    """Attributes:
    boxes: strong boxes of the CPU.
    found: how many of them the GPU has.
    points, angles, masks: worst differences of key points (pixels), of angles (degrees), and smallest IoU of masks.
    rows: that kernels keep; None for a head without kernels.
    unlike: pictures in which kernels and reference differ.
    first: how they differ in the first one.
    """

    boxes: int = 0
    found: int = 0
    scores: list[float] = field(default_factory=list)
    points: float = 0.0
    angles: float = 0.0
    masks: float = 1.0
    rows: int | None = None
    unlike: int = 0
    first: str = ""

    def add(self, here: Detections, there: Detections) -> None:
        """Compare the results for one picture."""
        close = iou_matrix(here.xyxy, there.xyxy) >= _OVERLAP
        close |= np.abs(here.xyxy[:, None] - there.xyxy[None]).max(axis=2) < _NEAR  # boxes of no area
        for row in np.flatnonzero(here.confidence > THRESHOLD + _MARGIN):
            self.boxes += 1
            same = (there.class_id == here.class_id[row]) & close[row]
            apart = np.where(same, np.abs(there.confidence - here.confidence[row]), np.inf)
            if not same.any():
                continue
            other = int(apart.argmin())
            self.scores.append(float(apart[other]))
            self.found += apart[other] <= 1e-3
            self._add_extras(here[row : row + 1], there[other : other + 1])

    def add_kernels(self, pairs: Sequence[tuple[Detections, Detections]]) -> None:
        """What kernels and reference find in the same raw outputs."""
        for given, expected in pairs:
            self.rows = (self.rows or 0) + len(given)
            found = differences(given, expected)
            self.unlike += bool(found)
            self.first = self.first or "; ".join(found)

    def _add_extras(self, here: Detections, there: Detections) -> None:
        if here.keypoints is not None and there.keypoints is not None:
            self.points = max(self.points, float(np.abs(here.keypoints - there.keypoints)[..., :2].max()))
        if here.obb is not None and there.obb is not None:
            turn = (here.obb[0, 4] - there.obb[0, 4] + np.pi / 4) % (np.pi / 2) - np.pi / 4
            self.angles = max(self.angles, abs(float(np.degrees(turn))))
        if here.masks is not None and there.masks is not None:
            one, other = here.masks.unpacked()[0], there.masks.unpacked()[0]
            union = (one | other).sum()
            self.masks = min(self.masks, float((one & other).sum() / union) if union else 1.0)

    def __str__(self) -> str:
        worst = max(self.scores, default=0.0)
        return (
            f"{self.boxes:6} {self.found / max(1, self.boxes):8.4f} {worst:9.5f} {self.points:8.3f}"
            f" {self.angles:8.3f} {self.masks:6.3f} {'-' if self.rows is None else self.rows:>6} {self.unlike:6}"
            f"{self.first and '  ' + self.first[:120]}"
        )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=sorted(path.stem for path in FOLDER.glob("*.onnx")))
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--builder-level", type=int, default=1)
    parser.add_argument("--precision", nargs="+", default=["fp32"])
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    met = True
    columns = f"{'points':>8} {'angle':>8} {'mask':>6} {'rows':>6} {'unlike':>6}"
    lines = [f"{'model':28} {'boxes':>6} {'found':>8} {'score':>9} {columns}"]
    for name in args.names:
        for precision in args.precision:
            began = perf_counter()
            try:
                agreement = _compare(name, precision, args)
                good = precision != "fp32" or (agreement.boxes and agreement.found >= _REQUIRED * agreement.boxes)
                good = good and not agreement.unlike
                result = f"{agreement}{'' if good else ' (!)'}"
            except Exception:  # noqa: BLE001 - the other models are compared
                traceback.print_exc()
                good, result = False, f"failed: {traceback.format_exc().strip().splitlines()[-1][:120]} (!)"
            met &= bool(good)
            lines.append(f"{name} {precision}".ljust(28) + f" {result}  {perf_counter() - began:.0f} s")
            sys.stdout.write(lines[-1] + "\n")
            sys.stdout.flush()
    sys.stdout.write("\n".join(["", *lines]) + "\n")
    return int(not met)


def _compare(name: str, precision: Precision, args: argparse.Namespace) -> Agreement:
    here = options_of(name, args.cache, max_batch=1)
    there = replace(here, max_batch=_BATCH, precision=precision, builder_level=args.builder_level, cache=args.cache)
    agreement = Agreement()
    with (
        closing(OrtDetector(here)) as cpu,
        closing(TrtDetector(there)) as gpu,
        closing(cpu.lane()) as one,
        closing(gpu.lane()) as other,
    ):
        batch, size = gpu.info.max_batch, _picture_size(name)
        for begin in range(0, _PICTURES, batch):
            images = [_resized(number, size) for number in range(begin, begin + batch)]
            found, _ = other.detect(images)
            for image, seen in zip(images, found):
                agreement.add(one.detect([image])[0][0], seen)
            if gpu.decoding:
                agreement.add_kernels(compared(gpu, other, images))
    return agreement


def _picture_size(name: str) -> tuple[int, int]:
    """The size at which the model sees each pixel as it is."""
    placing = load(FOLDER / f"{name}.npz").placing
    return (placing.shorter, placing.shorter) if placing.geometry == "crop" else (placing.width, placing.height)


def _resized(number: int, size: tuple[int, int]) -> HostImage:
    return HostImage(np.ascontiguousarray(cv2.resize(picture(number), size), np.uint8))


if __name__ == "__main__":
    sys.exit(main())
