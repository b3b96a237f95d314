"""Classifiers: a score for each class of the whole picture, (b, c).

Files of ultralytics give probabilities, for a square from the middle of the picture. Other files give logits, or
probabilities of each class for itself, and do not state the mean and the deviation of their colours. They show 224 of
256 pixels from the middle, as those of torchvision do. An embedding looks the same, so a file without a task must be
called a classifier (`model.head: classify`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections
from detectors.heads.layout import Ambiguity, Floats, HeadBase, Outputs, Task, coloured, refuse
from detectors.heads.queries import probabilities, shares_of
from detectors.letterbox import InputSpec, Letterbox
from detectors.port import DetectorError, PostprocessParams
from detectors.semantics import NOTHING_KNOWN, SOFTMAX, Semantics

TOP = 5
_TOLERANCE = 1e-3  # of a probability, for FP16 rounding
_PER_CENT = 100


@dataclass(frozen=True)
class ClassifyHead(HeadBase):
    """Implements `Head`: the strongest classes, each with the picture for a box."""

    classes: int
    spec: InputSpec
    output: str
    task: Task = "classify"
    constants: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    semantics: Semantics = NOTHING_KNOWN
    ambiguity: Ambiguity | None = None

    @property
    def name(self) -> str:
        return "classify"

    @property
    def is_raw(self) -> bool:
        return True

    def interpreted(self, semantics: Semantics) -> ClassifyHead:
        """See `Head`."""
        refuse(self.name, semantics, "activation")
        known = Semantics(activation=semantics.activation) | self.semantics
        return replace(self, spec=coloured(self.spec, semantics), semantics=known)

    def shown(self, pictures: Iterable[Outputs]) -> Semantics:
        """The activation. Values of 0 to 1 are probabilities, whatever their sum: of one class, or of each class for
        itself.

        Raises:
            DetectorError: they are per cent.
        """
        if self.semantics.activation is not None:
            return NOTHING_KNOWN
        values = [raw[self.output] for raw in pictures]
        if all(one.min() >= 0 and abs(float(one.sum()) - _PER_CENT) < 1 for one in values):
            raise DetectorError(f"{self.output} has per cent, not probabilities: export the model without the factor")
        low, high = min(float(one.min()) for one in values), max(float(one.max()) for one in values)
        return Semantics(activation="none") if low >= -_TOLERANCE and high <= 1 + _TOLERANCE else SOFTMAX

    def detections(self, outputs: Outputs, box: Letterbox, wanted: PostprocessParams) -> Detections:
        return self.batch_detections({self.output: outputs[self.output][None]}, [box], wanted)[0]

    def batch_detections(
        self, outputs: Outputs, boxes: Sequence[Letterbox], wanted: PostprocessParams
    ) -> list[Detections]:
        """See `Head`. All pictures at once, because a second stage gives hundreds a second."""
        scores = self._probabilities(outputs[self.output][: len(boxes)].reshape(len(boxes), -1))
        count = min(TOP, wanted.max_detections)
        best = scores.argmax(1)[:, None] if count == 1 else np.argsort(-scores, axis=1, kind="stable")[:, :count]
        strength = np.take_along_axis(scores, best, 1)
        kept = (strength >= wanted.confidence).sum(1).tolist()
        xyxy = np.zeros((*best.shape, 4), np.float32)
        xyxy[..., 2:] = np.array([box.source for box in boxes], np.float32)[:, None]
        classes = best.astype(np.int32)
        return [Detections(xyxy[n, :found], strength[n, :found], classes[n, :found]) for n, found in enumerate(kept)]

    def scores(self, outputs: Outputs) -> Floats:
        """Probabilities."""
        values: Floats = self._probabilities(outputs[self.output].reshape(1, -1))[0]
        return values

    def _probabilities(self, values: Floats) -> Floats:
        """Probabilities of each row, (b, c)."""
        if self.semantics.activation == "none":
            return values
        return probabilities(values) if self.semantics.activation == "sigmoid" else shares_of(values)
