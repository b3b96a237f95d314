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
from typing import Literal

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections
from detectors.heads.candidates import Indices, corners, pick, whole
from detectors.heads.layout import Ambiguity, Floats, ModelFacts, OneByOne, Outputs, Task, coloured, refuse
from detectors.letterbox import IMAGENET, InputSpec, Letterbox
from detectors.onnx_graph import OnnxGraph
from detectors.port import DetectorError, PostprocessParams
from detectors.semantics import NOTHING_KNOWN, Semantics

QueryLayout = Literal["rtdetr", "rfdetr", "detr", "detr-decoded", "detr-rows"]
_LOGITS = ("rtdetr", "rfdetr", "detr")
_SIZES = ("orig_target_sizes", "orig_sizes", "target_sizes")  # width and height; of the others the order is not known
_SIGMOID, _SOFTMAX = Semantics(activation="sigmoid"), Semantics(activation="softmax")
_CHOSEN = Semantics(box_units="pixels", first_class=0)
_FAMILIES = Ambiguity(
    frozenset(("mean", "std", "activation")),
    "logits and pred_boxes are the outputs of several families, which differ in mean, std and activation: set "
    "model.head: rtdetr (RT-DETR, D-FINE, DEIM), rfdetr (RF-DETR, LW-DETR, Conditional and Deformable DETR) or detr "
    "(DETR, YOLOS, Table Transformer); or model.mean, model.std and model.activation, as preprocessor_config.json has "
    "them",
)
_COLOURS = Ambiguity(
    frozenset(("mean", "std")),
    "the file does not state which colours the model reads: set model.mean and model.std, [0, 0, 0] and [1, 1, 1] for "
    "RT-DETR, D-FINE and DEIM, ImageNet's [0.485, 0.456, 0.406] and [0.229, 0.224, 0.225] for DEIMv2 S to X",
)
_CHOSEN_BOXES = Ambiguity(
    frozenset(("mean", "std", "box_units", "first_class")),
    "labels, boxes and scores are the outputs of several families, and the file states none: set model.mean and "
    "model.std, model.box_units (pixels or shares) and model.first_class (0 or 1)",
)


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
            return replace(self, layout="rtdetr", classes=classes, semantics=_SIGMOID)
        classes = None if self.classes is None else self.classes - 1
        if not classes:
            raise DetectorError(f"model.activation is softmax, and {self.labels} have no class beside no object")
        known = self.ambiguity and self.ambiguity.without(frozenset(("mean", "std")))
        spec = replace(self.spec, **IMAGENET)
        return replace(self, layout="detr", classes=classes, spec=spec, semantics=_SOFTMAX, ambiguity=known)

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


@dataclass(frozen=True)
class QueryLayoutFamily:
    """Implements `Layout`."""

    name: QueryLayout
    looks: str

    def match(self, facts: ModelFacts, task: Task | None) -> QueryHead | None:
        if task not in (None, "detect"):
            return None
        if self.name == "detr-rows":
            return self._rows(facts)
        names = {kind: name for name, _ in facts.outputs for kind in [_KINDS.get(name)] if kind}
        shapes = dict(facts.outputs)
        boxes, labels = shapes.get(names.get("boxes", "")), shapes.get(names.get("labels", ""))
        if not boxes or not labels or len(boxes) != 3 or boxes[2] != 4 or boxes[1] != labels[1]:
            return None
        if self.name == "detr-decoded":
            return self._decoded(facts, names)
        others = [name for name in shapes if _KINDS.get(name) is None and not name.endswith("hidden_state")]
        if others or len(labels) != 3 or facts.inputs:
            return None
        return self._logits(facts, names, labels[2])

    def _logits(self, facts: ModelFacts, names: Mapping[str, str], classes: int) -> QueryHead | None:
        spec = InputSpec(*facts.size, fit="stretch")
        of_roboflow = names["boxes"] == "dets"
        if of_roboflow and self.name != "rfdetr":
            return None
        if self.name == "detr":
            if classes < 2:
                return None
            spec, classes = replace(spec, **IMAGENET), classes - 1
        elif self.name == "rfdetr":
            spec = replace(spec, **IMAGENET)
        ambiguity = None if of_roboflow or _has_hybrid_encoder(facts.graph) else _FAMILIES
        activation = _SOFTMAX if self.name == "detr" else _SIGMOID
        return QueryHead(
            self.name, classes, spec, names["boxes"], names["labels"], semantics=activation, ambiguity=ambiguity
        )

    def _decoded(self, facts: ModelFacts, names: Mapping[str, str]) -> QueryHead | None:
        labels, scores = facts.shape(names["labels"]), facts.shape("scores")
        width, height = facts.size
        inputs = [name for name in facts.inputs if name in (_SIZES if width == height else _SIZES[:1])]
        if labels is None or len(labels) != 2 or scores != labels or len(facts.outputs) != 3:
            return None
        if len(inputs) != len(facts.inputs):
            return None
        constants = {name: np.array(facts.size, np.int64) for name in inputs}
        is_convolutional = facts.graph is not None and bool(facts.graph.stem) and not facts.graph.reads_patches
        ambiguity = _CHOSEN_BOXES if not inputs else None if is_convolutional else _COLOURS
        spec = InputSpec(*facts.size, fit="stretch")
        return QueryHead(
            self.name, None, spec, names["boxes"], names["labels"], "scores", constants, semantics=_CHOSEN,
            ambiguity=ambiguity,
        )  # fmt: skip

    def _rows(self, facts: ModelFacts) -> QueryHead | None:
        """Ultralytics names the family in its metadata; the shape alone says nothing."""
        text = facts.metadata.get("head", "") + facts.metadata.get("description", "")
        if "rtdetr" not in text.lower() or len(facts.outputs) != 1:
            return None
        name, shape = facts.outputs[0]
        if len(shape) != 3 or shape[2] < 5:
            return None
        spec = InputSpec(*facts.size, fit="stretch")
        return QueryHead(self.name, None if facts.metadata.get("head") else shape[2] - 4, spec, name)


def _has_hybrid_encoder(graph: OnnxGraph | None) -> bool:
    """Whether a graph is that of RT-DETR, RT-DETRv2, D-FINE or DEIM, none of which normalises its colours.

    They have a stem of small kernels, maps of features that are enlarged, a choice of queries, and samples taken from
    the maps. The first convolution of DETR and its kind has a kernel of 7, and vision transformers read patches.
    """
    if graph is None or not graph.stem:
        return False
    small = all(width == 3 and stride == 2 for width, stride in graph.stem)
    return small and graph.count("Resize") > 1 and graph.count("TopK") > 0 and graph.count("GridSample") > 0


_KINDS = {
    "pred_boxes": "boxes", "dets": "boxes", "boxes": "boxes",
    "pred_logits": "labels", "logits": "labels", "labels": "labels",
}  # fmt: skip

QUERY_LAYOUTS = (
    QueryLayoutFamily("rtdetr", "logits (b, q, c) and pred_boxes (b, q, 4)"),
    QueryLayoutFamily("rfdetr", "labels (b, q, c) and dets (b, q, 4)"),
    QueryLayoutFamily("detr", "logits (b, q, c + 1) and pred_boxes (b, q, 4)"),
    QueryLayoutFamily("detr-decoded", "labels (b, k), boxes (b, k, 4) and scores (b, k)"),
    QueryLayoutFamily("detr-rows", "(b, k, 6) of ultralytics' RT-DETR"),
)
