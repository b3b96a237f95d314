"""Activation ranges from a folder of photos, by minimum and maximum; for measuring INT8's speed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import cv2
import numpy as np

from calibration.quantize import Ranges, load, observe
from detectors.ort.detector import OrtDetector
from detectors.port import HostImage, Options


def seen_ranges(model: Path, photos: Path, labels: str | None, limit: int) -> Ranges:
    """Args:
    limit: number of photos, the first by name.
    """
    options = Options(model, labels=labels, max_batch=1)
    with closing(OrtDetector(options)) as detector, closing(detector.lane()) as lane:
        images = [HostImage(np.asarray(cv2.imread(str(path)))) for path in sorted(photos.iterdir())[:limit]]
        return observe(load(model), (lane.preprocess([image]).copy() for image in images)).ranges("minmax")
