"""The layouts of outputs that Lookout decodes, recognised by their names and shapes.

`queries`, `rows` and `classify` decode them. Each is loaded for a model that has one of its layouts.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from detectors.heads.candidates import STRIDES, TWO_STRIDES, count_cells
from detectors.heads.layout import Ambiguity, Layout, ModelFacts, QueryLayout, RowLayout, Shape, Task, yolox_input
from detectors.letterbox import IMAGENET, InputSpec
from detectors.metadata import is_ultralytics
from detectors.onnx_graph import OnnxGraph
from detectors.semantics import CHOSEN, SIGMOID, SOFTMAX, Semantics

if TYPE_CHECKING:
    from detectors.heads.classify import ClassifyHead
    from detectors.heads.queries import QueryHead
    from detectors.heads.rows import RowHead

_SIZES = ("orig_target_sizes", "orig_sizes", "target_sizes")  # width and height; of the others the order is not known
_KINDS = {
    "pred_boxes": "boxes", "dets": "boxes", "boxes": "boxes",
    "pred_logits": "labels", "logits": "labels", "labels": "labels",
}  # fmt: skip
_FAMILIES = Ambiguity(
    frozenset(("mean", "std", "activation")),
    "logits and pred_boxes are the outputs of several families, which differ in mean, std and activation: set "
    "model.head: rtdetr (RT-DETR, D-FINE, DEIM), rfdetr (RF-DETR, LW-DETR, Conditional and Deformable DETR) or detr "
    "(DETR, YOLOS, Table Transformer); or model.mean, model.std and model.activation, as preprocessor_config.json has "
    "them",
)
_COLOURS_OF_DETR = Ambiguity(
    frozenset(("mean", "std")),
    "the file does not state which colours the model reads: set model.mean and model.std, [0, 0, 0] and [1, 1, 1] for "
    "RT-DETR, D-FINE and DEIM, ImageNet's [0.485, 0.456, 0.406] and [0.229, 0.224, 0.225] for DEIMv2 S to X",
)
_CHOSEN_BOXES = Ambiguity(
    frozenset(("mean", "std", "box_units", "first_class")),
    "labels, boxes and scores are the outputs of several families, and the file states none: set model.mean and "
    "model.std, model.box_units (pixels or shares) and model.first_class (0 or 1)",
)
_OTHER_ROWS = Ambiguity(
    frozenset(("mean", "std", "box_units", "first_class")),
    "rows of six columns are those of several families, and the file states none: set model.head: end2end for a YOLO "
    "with its NMS inside (x1, y1, x2, y2 in pixels, confidence, class from 0), or for another family model.mean, "
    "model.std, model.box_units and model.first_class",
)
_COLOURS_OF_CLASSIFIERS = Ambiguity(
    frozenset(("mean", "std")),
    "the file does not state which colours the classifier reads: set model.mean and model.std, such as "
    "[0.485, 0.456, 0.406] and [0.229, 0.224, 0.225] for those of torchvision, or [0, 0, 0] and [1, 1, 1] for colours "
    "as they are",
)


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
        from detectors.heads.queries import QueryHead

        ambiguity = None if of_roboflow or _has_hybrid_encoder(facts.graph) else _FAMILIES
        activation = SOFTMAX if self.name == "detr" else SIGMOID
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
        from detectors.heads.queries import QueryHead

        constants = {name: np.array(facts.size, np.int64) for name in inputs}
        is_convolutional = facts.graph is not None and bool(facts.graph.stem) and not facts.graph.reads_patches
        ambiguity = _CHOSEN_BOXES if not inputs else None if is_convolutional else _COLOURS_OF_DETR
        spec = InputSpec(*facts.size, fit="stretch")
        return QueryHead(
            self.name, None, spec, names["boxes"], names["labels"], "scores", constants, semantics=CHOSEN,
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
        from detectors.heads.queries import QueryHead

        spec = InputSpec(*facts.size, fit="stretch")
        return QueryHead(self.name, None if facts.metadata.get("head") else shape[2] - 4, spec, name)


@dataclass(frozen=True)
class RowLayoutFamily:
    """Implements `Layout`."""

    name: RowLayout
    looks: str

    def match(self, facts: ModelFacts, task: Task | None) -> RowHead | None:
        outputs = without_raw_grids(facts)
        rows = [(name, shape) for name, shape in outputs if len(shape) == 3]
        maps = [(name, shape) for name, shape in outputs if len(shape) == 4]
        if len(rows) != 1 or len(maps) > 1 or len(rows) + len(maps) != len(outputs) or facts.inputs:
            return None
        task = task or ("segment" if maps else "detect")
        protos = maps[0] if maps else None
        if (task == "segment") != (protos is not None) or (self.name in ("yolox", "deepstream") and task != "detect"):
            return None
        if self.name == "deepstream":
            return self._indexed(facts, *rows[0])
        return self._head(facts, task, *rows[0], protos)

    def _head(
        self, facts: ModelFacts, task: Task, output: str, shape: Shape, protos: tuple[str, Shape] | None
    ) -> RowHead | None:
        columns = self._columns(shape, facts.size)
        extras = _extras_of(task, facts, protos[1] if protos else None)
        if columns is None or extras is None:
            return None
        classes, points = columns - extras, _key_points(facts.metadata)[0] if task == "pose" else 0
        if classes < (1 if self.name != "end2end" else 0) or (self.name == "end2end" and classes):
            return None
        kind = _row_head(has_masks=protos is not None)
        name = protos[0] if protos else None
        head = kind(self.name, task, classes or None, self._input(facts), output, extras, points, name)
        if self.name != "end2end":
            return head
        return replace(head, semantics=CHOSEN, ambiguity=None if is_ultralytics(facts.metadata) else _OTHER_ROWS)

    def _indexed(self, facts: ModelFacts, output: str, shape: Shape) -> RowHead | None:
        """Only a name asks for it: the shapes are those of other layouts, too, and values tell them apart."""
        cells = [count_cells(facts.size, strides) for strides in STRIDES]
        if shape[2] not in (6, 7) or shape[1] not in [*cells, *(3 * count for count in cells)]:
            return None
        return _row_head()("deepstream", "detect", None, self._input(facts), output, extras=shape[2] - 6)

    def _input(self, facts: ModelFacts) -> InputSpec:
        return yolox_input(facts.size) if self.name == "yolox" else InputSpec(*facts.size)

    def _columns(self, shape: Shape, size: tuple[int, int]) -> int | None:
        """Number of columns for classes and extras; None if the shape is another layout's."""
        cells = [count_cells(size, strides) for strides in STRIDES]
        if self.name == "end2end":
            return shape[2] - 6 if shape[2] >= 6 else None
        if self.name == "yolox":
            return shape[2] - 5 if shape[1] in cells else None
        cells += [count_cells(size, strides) for strides in TWO_STRIDES]
        if self.name == "yolov8":
            return shape[1] - 4 if shape[2] in cells else None
        return shape[2] - 5 if shape[1] in [3 * count for count in cells] else None


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
        from detectors.heads.classify import ClassifyHead

        spec = InputSpec(*facts.size, fit="cover")
        if task and is_ultralytics(facts.metadata):
            return ClassifyHead(shape[1], spec, name, semantics=Semantics(activation="none"))
        return ClassifyHead(shape[1], replace(spec, crop=0.875), name, ambiguity=_COLOURS_OF_CLASSIFIERS)


def _has_hybrid_encoder(graph: OnnxGraph | None) -> bool:
    """Whether a graph is that of RT-DETR, RT-DETRv2, D-FINE or DEIM, none of which normalises its colours.

    They have a stem of small kernels, maps of features that are enlarged, a choice of queries, and samples taken from
    the maps. The first convolution of DETR and its kind has a kernel of 7, and vision transformers read patches.
    """
    if graph is None or not graph.stem:
        return False
    small = all(width == 3 and stride == 2 for width, stride in graph.stem)
    return small and graph.count("Resize") > 1 and graph.count("TopK") > 0 and graph.count("GridSample") > 0


def _row_head(*, has_masks: bool = False) -> type[RowHead]:
    """The class of heads that decode rows."""
    if has_masks:
        from detectors.heads.masks import MaskHead

        return MaskHead
    from detectors.heads.rows import RowHead

    return RowHead


def without_raw_grids(facts: ModelFacts) -> Sequence[tuple[str, Shape]]:
    """The outputs without the grids of each stride, which some exports keep beside the decoded ones."""
    width, height = facts.size
    cells = {(height // stride, width // stride) for stride in (8, 16, 32, 64)}
    grids = [name for name, shape in facts.outputs if len(shape) == 5 and shape[2:4] in cells]
    maps = [name for name, shape in facts.outputs if len(shape) == 4 and shape[2:] in cells]
    left_out = {*grids, *(maps if len(maps) > 1 else ())}
    return [(name, shape) for name, shape in facts.outputs if name not in left_out]


def _extras_of(task: Task, facts: ModelFacts, protos: Shape | None) -> int | None:
    if task == "detect":
        return 0
    if task == "obb":
        return 1
    if task == "segment":
        return protos[1] if protos else None
    points, values = _key_points(facts.metadata)
    return points * values or None if task == "pose" else None


def _key_points(metadata: Mapping[str, str]) -> tuple[int, int]:
    """Number of key points, and of values for each (2 or 3), from ultralytics' metadata; zeros without it."""
    try:
        points, values = ast.literal_eval(metadata.get("kpt_shape", "(0, 0)"))
        return (int(points), int(values)) if values in (2, 3) else (0, 0)
    except (ValueError, SyntaxError, TypeError):
        return 0, 0


def is_mistaken(facts: ModelFacts) -> bool:
    """Whether the outputs are those of a family that Lookout does not run, and that a layout would take for its own."""
    shapes = {name.lower(): shape for name, shape in facts.outputs}
    return bool(shapes) and (is_flat(facts, shapes) or is_nanodet(facts, shapes))


def is_flat(facts: ModelFacts, shapes: dict[str, Shape]) -> bool:
    """Rows of all pictures one after the other."""
    (shape, *others) = shapes.values()
    return not others and len(shape) == 2 and shape[1] == 7 and (shape[0] != facts.batch or facts.has_nms)


def is_nanodet(facts: ModelFacts, shapes: dict[str, Shape]) -> bool:
    """Scores and 8 bins for each side, for cells with strides of 8 to 64, rounded up."""
    width, height = facts.size
    cells = sum(-(-width // stride) * -(-height // stride) for stride in (8, 16, 32, 64))
    return any(len(shape) == 3 and shape[1] == cells and shape[2] > 4 * 8 for shape in shapes.values()) and (
        len(shapes) == 1 and "output" in shapes
    )


# In order of matching.
LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        QueryLayoutFamily("rtdetr", "logits (b, q, c) and pred_boxes (b, q, 4)"),
        QueryLayoutFamily("rfdetr", "labels (b, q, c) and dets (b, q, 4)"),
        QueryLayoutFamily("detr", "logits (b, q, c + 1) and pred_boxes (b, q, 4)"),
        QueryLayoutFamily("detr-decoded", "labels (b, k), boxes (b, k, 4) and scores (b, k)"),
        QueryLayoutFamily("detr-rows", "(b, k, 6) of ultralytics' RT-DETR"),
        RowLayoutFamily("yolov5", "(b, 3n, 5+c)"),
        RowLayoutFamily("yolov8", "(b, 4+c, n)"),
        RowLayoutFamily("yolox", "(b, n, 5+c)"),
        RowLayoutFamily("deepstream", "(b, n, 6) of DeepStream-Yolo"),
        RowLayoutFamily("end2end", "(b, k, 6)"),  # its six columns also match one-class rows of the others
        ClassifyLayout(),
    )
}
