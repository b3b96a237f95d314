"""Classifiers: a score for each class of the whole picture, (b, c).

Files of ultralytics give probabilities, for a square from the middle of the picture. Other files give logits, as those
of torchvision do: 224 of 256 pixels from the middle, with ImageNet's mean and standard deviation. An embedding looks
the same, so a file without a task must be called a classifier (`model.head: classify`).
"""

from __future__ import annotations

from collections.abc import Mapping
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
        scores = self.scores(outputs)
        best = np.argsort(-scores, kind="stable")[: min(TOP, wanted.max_detections)]
        best = best[scores[best] >= wanted.confidence]
        xyxy = np.tile(np.array([0, 0, *box.source], np.float32), (len(best), 1))
        return Detections(xyxy, scores[best], best.astype(np.int32))

    def scores(self, outputs: Outputs) -> Floats:
        """Probabilities. Logits become probabilities by a softmax."""
        values = outputs[self.output].reshape(-1)
        if values.min() >= 0 and abs(float(values.sum()) - 1) < _SUM:
            return values
        with np.errstate(over="ignore", invalid="ignore"):
            powers = np.exp(values - values.max())
            return np.asarray(powers / powers.sum(), np.float32)


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
