"""Classifiers: a score for each class of the whole picture, (b, c).

Files of ultralytics give probabilities, for a square from the middle of the picture. Other files give logits, as those
of torchvision do: 224 of 256 pixels from the middle, with ImageNet's mean and standard deviation. An embedding looks
the same, so a file without a task must be called a classifier (`model.head: classify`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections
from detectors.heads.layout import Floats, ModelFacts, Outputs, Task
from detectors.letterbox import IMAGENET, InputSpec, Letterbox
from detectors.port import PostprocessParams

TOP = 5
_SUM = 1e-2  # how far the sum of FP16 probabilities is from 1


@dataclass(frozen=True)
class ClassifyHead:
    """Implements `Head`: the strongest classes, each with the picture for a box."""

    classes: int
    spec: InputSpec
    output: str
    task: Task = "classify"
    constants: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "classify"

    def detections(self, outputs: Outputs, box: Letterbox, wanted: PostprocessParams) -> Detections:
        return self.batch_detections({self.output: outputs[self.output][None]}, [box], wanted)[0]

    def batch_detections(
        self, outputs: Outputs, boxes: Sequence[Letterbox], wanted: PostprocessParams
    ) -> list[Detections]:
        """See `Head`. All pictures at once, because a second stage gives hundreds a second."""
        scores = _probabilities(outputs[self.output][: len(boxes)].reshape(len(boxes), -1))
        count = min(TOP, wanted.max_detections)
        best = scores.argmax(1)[:, None] if count == 1 else np.argsort(-scores, axis=1, kind="stable")[:, :count]
        strength = np.take_along_axis(scores, best, 1)
        kept = (strength >= wanted.confidence).sum(1).tolist()
        xyxy = np.zeros((*best.shape, 4), np.float32)
        xyxy[..., 2:] = np.array([box.source for box in boxes], np.float32)[:, None]
        classes = best.astype(np.int32)
        return [Detections(xyxy[n, :found], strength[n, :found], classes[n, :found]) for n, found in enumerate(kept)]

    def scores(self, outputs: Outputs) -> Floats:
        """Probabilities. Logits become probabilities by a softmax."""
        values: Floats = _probabilities(outputs[self.output].reshape(1, -1))[0]
        return values


def _probabilities(values: Floats) -> Floats:
    """Probabilities of each row, (b, c): a softmax of the rows that are logits."""
    logits = (values.min(1) < 0) | ~(np.abs(values.sum(1) - 1) < _SUM)  # a row with NaN is one, and stays NaN
    if not logits.any():
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        powers = np.exp(values - values.max(1, keepdims=True))
        return np.where(logits[:, None], powers / powers.sum(1, keepdims=True), values)


@dataclass(frozen=True)
class ClassifyLayout:
    """Implements `Layout`."""

    name: str = "classify"
    looks: str = "(b, c)"

    def match(self, facts: ModelFacts, task: Task | None) -> ClassifyHead | None:
        if len(facts.outputs) != 1 or facts.inputs or task not in (None, "classify"):
            return None
        name, shape = facts.outputs[0]
        if len(shape) not in (2, 4) or shape[2:] not in ((), (1, 1)) or shape[1] < 2:
            return None
        own = InputSpec(*facts.size, fit="cover")
        return ClassifyHead(shape[1], own if task else replace(own, crop=0.875, **IMAGENET), name)
