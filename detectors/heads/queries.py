"""DETR's heads: a box and a score for each query, without NMS.

| layout       | outputs                                        | input                          |
|--------------|------------------------------------------------|--------------------------------|
| rtdetr       | logits (b, q, c) and pred_boxes (b, q, 4)      | RGB/255, stretched             |
| rfdetr       | labels (b, q, c) and dets (b, q, 4)            | RGB, mean and std, stretched   |
| detr-decoded | labels (b, k), boxes (b, k, 4), scores (b, k)  | RGB/255, stretched             |
| detr-rows    | (b, k, 6) or (b, q, 4 + c)                     | RGB/255, stretched             |

Boxes are cx, cy, w, h as shares of the input; of detr-decoded x1, y1, x2, y2 in pixels of a size, a second input.
rtdetr is what transformers exports of RT-DETR, RT-DETRv2 and D-FINE, detr-decoded what their own repositories export,
and detr-rows RT-DETR of ultralytics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections
from detectors.heads.layout import Floats, ModelFacts, OneByOne, Outputs, Task
from detectors.heads.rows import Indices, corners, pick, whole
from detectors.letterbox import IMAGENET, InputSpec, Letterbox
from detectors.port import PostprocessParams

QueryLayout = Literal["rtdetr", "rfdetr", "detr-decoded", "detr-rows"]
_SIZES = ("orig_target_sizes", "orig_sizes", "target_sizes")


@dataclass(frozen=True)
class QueryHead(OneByOne):
    """Implements `Head`.

    Attributes:
        boxes, labels, scores_name: names of outputs. `labels` are logits, or class ids of detr-decoded.
    """

    layout: QueryLayout
    classes: int | None
    spec: InputSpec
    boxes: str
    labels: str = ""
    scores_name: str = ""
    constants: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    task: Task = "detect"

    @property
    def name(self) -> str:
        return self.layout

    def detections(self, outputs: Outputs, box: Letterbox, wanted: PostprocessParams) -> Detections:
        with np.errstate(invalid="ignore", over="ignore"):  # a damaged model computes NaN
            boxes, scores, classes = self._candidates(outputs, wanted)
            keep = np.argsort(-scores, kind="stable")[: wanted.max_detections]
            left_out = max(0, len(scores) - wanted.max_detections) if self._is_raw else 0
            return Detections(box.to_source(boxes[keep]), scores[keep], classes[keep].astype(np.int32), left_out)

    def scores(self, outputs: Outputs) -> Floats:
        if self.layout == "detr-decoded":
            return outputs[self.scores_name]
        if self.layout == "detr-rows":
            rows = outputs[self.boxes]
            return rows[:, 4:] if self.classes else rows[:, 4]
        return probabilities(outputs[self.labels])

    @property
    def has_logits(self) -> bool:
        """Whether the model gives logits, and not scores."""
        return self.layout in ("rtdetr", "rfdetr")

    @property
    def _is_raw(self) -> bool:
        """Whether the model leaves the choice of boxes to its caller."""
        return self.has_logits or (self.layout == "detr-rows" and self.classes is not None)

    def _candidates(self, outputs: Outputs, wanted: PostprocessParams) -> tuple[Floats, Floats, Indices]:
        """Boxes (n, 4) in input pixels, scores and classes above the threshold."""
        size = np.array([self.spec.width, self.spec.height] * 2, np.float32)
        boxes = outputs[self.boxes]
        if self.layout == "detr-decoded":
            scores = outputs[self.scores_name]
            strong = np.flatnonzero(scores >= wanted.confidence)
            return boxes[strong], scores[strong], whole(outputs[self.labels][strong])
        if self.layout == "detr-rows" and self.classes is None:
            strong = np.flatnonzero(boxes[:, 4] >= wanted.confidence)
            return corners(boxes[strong, :4]) * size, boxes[strong, 4], whole(boxes[strong, 5])
        if self.layout == "detr-rows":
            rows, scores, classes = pick(self.scores(outputs), wanted)
            return corners(boxes[rows, :4]) * size, scores, classes
        # A query may give several classes; as many boxes as queries. Logits have the order of scores, and do not round.
        logits = outputs[self.labels]
        strong = np.flatnonzero(logits >= least_logit(wanted.confidence))
        best = strong[np.argsort(-logits.flat[strong], kind="stable")[: len(logits)]]
        rows, classes = np.divmod(best, logits.shape[1])
        return corners(boxes[rows, :4]) * size, probabilities(logits[rows, classes]), classes


def probabilities(logits: Floats) -> Floats:
    """The scores that logits stand for, computed in double precision: so they are the same everywhere, and never fall
    where logits rise."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-logits.astype(np.float64))), np.float32)


@lru_cache(maxsize=64)
def least_logit(confidence: float) -> float:
    """The smallest logit with a score of at least `confidence`."""
    if confidence <= 0:
        return -np.inf
    low, high = np.array([-104, 20], np.float32)[:, None]  # scores of 0 and 1
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (low, middle) if probabilities(middle) >= np.float32(confidence) else (middle, high)
    return float(high[0])


@dataclass(frozen=True)
class QueryLayoutFamily:
    """Implements `Layout`."""

    name: QueryLayout
    looks: str

    def match(self, facts: ModelFacts, task: Task | None) -> QueryHead | None:  # noqa: PLR0911
        if task not in (None, "detect"):
            return None
        spec = InputSpec(*facts.size, fit="stretch")
        if self.name == "detr-rows":
            return self._rows(facts, spec)
        boxes = facts.shape("pred_boxes", "dets", "boxes")
        labels, scores = facts.shape("logits", "labels"), facts.shape("scores")
        if not boxes or not labels or len(boxes) != 3 or boxes[2] != 4 or boxes[1] != labels[1]:
            return None
        name_of = {kind: name for name, _ in facts.outputs for kind in [_KINDS.get(name)] if kind}
        if self.name == "detr-decoded":
            inputs = [name for name in facts.inputs if name in _SIZES]
            if len(labels) != 2 or scores != labels or len(facts.outputs) != 3 or len(inputs) != len(facts.inputs):
                return None
            constants = {name: np.array(facts.size, np.int64) for name in inputs}
            return QueryHead(self.name, None, spec, name_of["boxes"], name_of["labels"], "scores", constants)
        if len(facts.outputs) != 2 or len(labels) != 3 or facts.inputs:
            return None
        if (name_of["boxes"] == "dets") != (self.name == "rfdetr"):
            return None
        if self.name == "rfdetr":
            spec = InputSpec(*facts.size, fit="stretch", **IMAGENET)
            return QueryHead(self.name, labels[2], spec, name_of["boxes"], name_of["labels"])
        return QueryHead(self.name, labels[2], spec, name_of["boxes"], name_of["labels"])

    def _rows(self, facts: ModelFacts, spec: InputSpec) -> QueryHead | None:
        """Ultralytics names the family in its metadata; the shape alone says nothing."""
        text = facts.metadata.get("head", "") + facts.metadata.get("description", "")
        if "rtdetr" not in text.lower() or len(facts.outputs) != 1:
            return None
        name, shape = facts.outputs[0]
        if len(shape) != 3 or shape[2] < 5:
            return None
        return QueryHead(self.name, None if facts.metadata.get("head") else shape[2] - 4, spec, name)


_KINDS = {"pred_boxes": "boxes", "dets": "boxes", "boxes": "boxes", "logits": "labels", "labels": "labels"}

QUERY_LAYOUTS = (
    QueryLayoutFamily("rtdetr", "logits (b, q, c) and pred_boxes (b, q, 4)"),
    QueryLayoutFamily("rfdetr", "labels (b, q, c) and dets (b, q, 4)"),
    QueryLayoutFamily("detr-decoded", "labels (b, k), boxes (b, k, 4) and scores (b, k)"),
    QueryLayoutFamily("detr-rows", "(b, k, 6) of ultralytics' RT-DETR"),
)
