"""DETR's heads: a box and a score for each query, without NMS.

| layout       | outputs                                        | scores              | input                        |
|--------------|------------------------------------------------|---------------------|------------------------------|
| rtdetr       | logits (b, q, c) and pred_boxes (b, q, 4)      | sigmoid             | RGB/255, stretched           |
| rfdetr       | the same; or labels (b, q, c), dets (b, q, 4)  | sigmoid             | RGB, mean and std, stretched |
| detr         | logits (b, q, c + 1) and pred_boxes (b, q, 4)  | softmax, no object  | RGB, mean and std, stretched |
| detr-decoded | labels (b, k), boxes (b, k, 4), scores (b, k)  | as they are         | RGB/255, stretched           |
| detr-rows    | (b, k, 6) or (b, q, 4 + c)                     | as they are         | RGB/255, stretched           |

Boxes are cx, cy, w, h as shares of the input; of detr-decoded x1, y1, x2, y2 in pixels of a size, a second input. Mean
and std are ImageNet's. The last class of detr is "no object".

transformers exports rtdetr (RT-DETR, RT-DETRv2, D-FINE, DEIMv2), rfdetr (RF-DETR, LW-DETR, Conditional, Deformable and
DAB-DETR) and detr (DETR, YOLOS, Table Transformer) with the same names of outputs. The graph shows the first of them.
detr-decoded is what the repositories of RT-DETR, D-FINE and DEIM export, and detr-rows RT-DETR of ultralytics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections
from detectors.heads.candidates import corners, pick, whole
from detectors.heads.layout import (
    Ambiguity,
    Floats,
    Indices,
    OneByOne,
    Outputs,
    QueryLayout,
    Task,
    coloured,
    refuse,
)
from detectors.heads.values import MAX_SHARE
from detectors.letterbox import IMAGENET, InputSpec, Letterbox
from detectors.port import DetectorError, PostprocessParams
from detectors.semantics import NOTHING_KNOWN, SIGMOID, SOFTMAX, Semantics

_LOGITS = ("rtdetr", "rfdetr", "detr")
_MOSTLY, _OUTSIDE = 0.99, 0.25  # shares of the queries
_MARGIN = 0.1  # share of the picture
_MIN_QUERIES = 10


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
    semantics: Semantics = NOTHING_KNOWN
    ambiguity: Ambiguity | None = None

    @property
    def name(self) -> str:
        return self.layout

    def interpreted(self, semantics: Semantics) -> QueryHead:
        """See `Head`. Another activation makes another layout."""
        taken = ("activation",) if self.has_logits else ("box_units", "first_class")
        refuse(self.name, semantics, *(taken if self.layout != "detr-rows" else ()))
        head = self
        if self.has_logits and semantics.activation not in (None, self.semantics.activation):
            head = self._activated(semantics)
        known = Semantics(box_units=semantics.box_units, first_class=semantics.first_class)
        return replace(head, spec=coloured(head.spec, semantics), semantics=known | head.semantics)

    def _activated(self, semantics: Semantics) -> QueryHead:
        """The layout with the other activation. All models with a softmax read ImageNet's colours."""
        if semantics.activation == "none":
            raise DetectorError(f"model.activation is none, and {self.labels} are logits: set sigmoid or softmax")
        if semantics.activation == "sigmoid":
            classes = None if self.classes is None else self.classes + 1
            return replace(self, layout="rtdetr", classes=classes, semantics=SIGMOID)
        classes = None if self.classes is None else self.classes - 1
        if not classes:
            raise DetectorError(f"model.activation is softmax, and {self.labels} have no class beside no object")
        known = self.ambiguity and self.ambiguity.without(frozenset(("mean", "std")))
        spec = replace(self.spec, **IMAGENET)
        return replace(self, layout="detr", classes=classes, spec=spec, semantics=SOFTMAX, ambiguity=known)

    def detections(self, outputs: Outputs, box: Letterbox, wanted: PostprocessParams) -> Detections:
        with np.errstate(invalid="ignore", over="ignore"):  # a damaged model computes NaN
            boxes, scores, classes = self._candidates(outputs, wanted)
            keep = np.argsort(-scores, kind="stable")[: wanted.max_detections]
            left_out = max(0, len(scores) - wanted.max_detections) if self.is_raw else 0
            return Detections(box.to_source(boxes[keep]), scores[keep], classes[keep].astype(np.int32), left_out)

    def scores(self, outputs: Outputs) -> Floats:
        if self.layout == "detr-decoded":
            return outputs[self.scores_name]
        if self.layout == "detr-rows":
            rows = outputs[self.boxes]
            return rows[:, 4:] if self.classes else rows[:, 4]
        if self.layout == "detr":
            return shares_of(outputs[self.labels])[:, :-1]
        return probabilities(outputs[self.labels])

    def chosen(self, outputs: Outputs) -> tuple[Floats, Indices]:
        """See `Head`."""
        if self.layout != "detr-decoded":
            return super().chosen(outputs)
        strong = outputs[self.scores_name] > 0
        return outputs[self.boxes][strong], whole(outputs[self.labels][strong])

    def fault(self, outputs: Outputs) -> str | None:
        """The mistake in boxes, which are centre and size as shares, or in logits."""
        if not self.has_logits:
            return None
        boxes, logits = outputs[self.boxes], outputs[self.labels]
        if float(np.abs(boxes).max(initial=0.0)) > MAX_SHARE:
            return "they are pixels, not shares of the picture: export the model before its post-processing"
        first, last = boxes[:, :2], boxes[:, 2:]
        is_ordered = (last >= first).all(axis=1).mean() >= _MOSTLY
        outside = np.abs(first - 0.5) + last / 2 > 0.5 + _MARGIN
        if len(boxes) >= _MIN_QUERIES and is_ordered and outside.any(axis=1).mean() > _OUTSIDE:
            return "they are corners, not centre and size: export the model before its post-processing"
        if 0 <= logits.min() < logits.max() <= 1:
            return (
                f"{self.labels} are all from 0 to 1, as scores are, and not logits: export the model without its "
                "sigmoid"
            )
        return None

    @property
    def has_logits(self) -> bool:
        """Whether the model gives logits, and not scores."""
        return self.layout in _LOGITS

    @property
    def is_raw(self) -> bool:
        return self.has_logits or (self.layout == "detr-rows" and self.classes is not None)

    def _candidates(self, outputs: Outputs, wanted: PostprocessParams) -> tuple[Floats, Floats, Indices]:
        """Boxes (n, 4) in input pixels, scores and classes above the threshold."""
        size = np.array([self.spec.width, self.spec.height] * 2, np.float32)
        boxes = outputs[self.boxes]
        if self.layout == "detr-decoded":
            scores = outputs[self.scores_name]
            strong = np.flatnonzero(scores >= wanted.confidence)
            factor = size if self.semantics.box_units == "shares" else np.ones_like(size)
            classes = whole(outputs[self.labels][strong]) - (self.semantics.first_class or 0)
            return boxes[strong] * factor, scores[strong], classes
        if self.layout == "detr-rows" and self.classes is None:
            strong = np.flatnonzero(boxes[:, 4] >= wanted.confidence)
            return corners(boxes[strong, :4]) * size, boxes[strong, 4], whole(boxes[strong, 5])
        if self.layout in ("detr-rows", "detr"):
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


def shares_of(logits: Floats) -> Floats:
    """The softmax of each row, computed in double precision."""
    with np.errstate(over="ignore", invalid="ignore"):
        powers = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float32)


@lru_cache(maxsize=64)
def least_logit(confidence: float) -> float:
    """The smallest logit with a score of at least `confidence`."""
    if confidence <= 0:
        return -np.inf
    low, high = np.array([-104, 20], np.float32)[:, None]  # scores of 0 and 1
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (low, middle) if probabilities(middle) >= np.float32(confidence) else (middle, high)
    return float(high[0])
