"""How good a model is, by labels where there are some, otherwise by what its float original sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import cv2
import numpy as np

from calibration.agreement import Agreement, Difference, compare, threshold
from calibration.evaluate import Evaluation, evaluate, photos_of
from calibration.frames import Bgr
from detectors.detections import Detections
from detectors.port import Detector, DetectorError, HostImage, Options, Wanted

Open = Callable[[Options], Detector]
_LEAST_AP = 0.02  # below it the float model itself sees nothing of what the labels say


@dataclass(frozen=True)
class Score:
    """Attributes:
    value: what is compared with the budget: AP, or the share that agrees.
    accuracy: None without labels.
    agreement: with the float model; None if there was too little to see.
    """

    value: float
    accuracy: Evaluation | None
    agreement: Agreement | None


@dataclass(frozen=True)
class Look:
    """What a model sees on each frame, and where that is not what the float model sees."""

    found: list[Detections]
    differences: list[Difference] = field(default_factory=list)


class Judge:
    """Scores models that one backend opens, by the same engines that will run, one frame at a time.

    Attributes:
        measure: what `Score.value` is.
        reference, true: of the float model.
        least: that a model must reach.

    Args:
        open_model: the backend.
        reference: the float model.
        frames: held-out frames, where there are no labels.
        labelled: a folder of photos and their annotations, or None.
        budget: the AP that may be lost, or the share that must agree.
        confidence: that the user runs with.

    Raises:
        DetectorError: the float model cannot be judged: other classes, other photos, nothing to see.
    """

    def __init__(
        self,
        open_model: Open,
        reference: Options,
        frames: Sequence[Bgr],
        labelled: tuple[Path, Path] | None,
        budget: float,
        confidence: float,
    ) -> None:
        self._open, self._labelled, self._confidence = open_model, labelled, confidence
        self.measure: Literal["AP", "agreement"] = "AP" if labelled else "agreement"
        self.frames = [_photo(path) for path in photos_of(*labelled)] if labelled else list(frames)
        self.true = Look(self._look(reference))
        self.reference = self.judge(reference)[0]
        if labelled and self.reference.value < _LEAST_AP:
            raise DetectorError(
                f"the float model itself has an AP of {self.reference.value:.4f} on these photos: are the labels "
                "those of its classes, and the annotations of these photos?"
            )
        self.least = round(self.reference.value - budget, 4) if labelled else budget

    def value(self, options: Options) -> float:
        """A score's value alone."""
        if self._labelled:
            return self._accuracy(options).ap
        return compare(self.true.found, self._look(options), self._confidence)[0].share

    def judge(self, options: Options) -> tuple[Score, Look]:
        """Everything."""
        accuracy = self._accuracy(options) if self._labelled else None
        found = self._look(options)
        try:
            agreement, differences = compare(self.true.found, found, self._confidence)
        except DetectorError:
            if accuracy is None:
                raise
            agreement, differences = None, []
        value = accuracy.ap if accuracy else agreement.share if agreement else 0.0
        return Score(value, accuracy, agreement), Look(found, differences)

    def _accuracy(self, options: Options) -> Evaluation:
        if self._labelled is None:
            raise ValueError("there are no labels")
        wanted = Wanted(0.001, 0.65, 300, multi_label=True)  # as COCO counts
        with closing(self._open(replace(options, wanted=wanted))) as detector:
            return evaluate(detector, *self._labelled)

    def _look(self, options: Options) -> list[Detections]:
        wanted = Wanted(threshold(self._confidence))
        with closing(self._open(replace(options, wanted=wanted))) as detector, closing(detector.lane()) as lane:
            return [lane.detect([HostImage(frame)])[0][0] for frame in self.frames]


def _photo(path: Path) -> Bgr:
    picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if picture is None:
        raise DetectorError(f"photo {path} cannot be read: is --images the right folder?")
    return np.asarray(picture, np.uint8)
