"""Pictures of the frames on which a model and its float original differ most."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from calibration.agreement import Difference
from calibration.frames import Bgr
from detectors.detections import Detections
from detectors.port import DetectorError

_WIDTH = 640
_GREY, _RED, _ORANGE = (160, 160, 160), (60, 50, 220), (40, 140, 250)


def save_worst(
    folder: Path,
    precision: str,
    frames: Sequence[Bgr],
    sides: tuple[Sequence[Detections], Sequence[Detections]],
    differences: Sequence[Difference],
    confidence: float,
    limit: int = 6,
) -> list[str]:
    """Write pictures, the worst first; returns file names.

    Left: the float model, with boxes missed by the other in red. Right: the other, with its extra boxes in orange.

    Raises:
        DetectorError: they cannot be written.
    """
    worst = sorted(differences, key=lambda row: (-len(row.missed) - len(row.new), row.frame))
    names = []
    for row in worst[:limit]:
        if not row.missed and not row.new:
            break
        left = _draw(frames[row.frame], sides[0][row.frame], set(row.missed), _RED, confidence)
        right = _draw(frames[row.frame], sides[1][row.frame], set(row.new), _ORANGE, confidence)
        name = f"{precision}-{row.frame:04}.jpg"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(cv2.imencode(".jpg", np.hstack((left, right)))[1].tobytes())
        except OSError as error:
            raise DetectorError(f"{folder / name} cannot be written: {error.strerror}") from error
        names.append(name)
    return names


def _draw(frame: Bgr, boxes: Detections, odd: set[int], colour: tuple[int, int, int], confidence: float) -> Bgr:
    scale = _WIDTH / frame.shape[1]
    picture = cv2.resize(frame, (_WIDTH, max(1, round(frame.shape[0] * scale))), interpolation=cv2.INTER_AREA)
    for number, (x0, y0, x1, y1) in enumerate((boxes.xyxy * scale).round().astype(int).tolist()):
        if number in odd or boxes.confidence[number] >= confidence:
            is_odd = number in odd
            cv2.rectangle(picture, (x0, y0), (x1, y1), colour if is_odd else _GREY, 3 if is_odd else 1)
    return np.asarray(picture, np.uint8)
