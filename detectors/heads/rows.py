"""YOLO's heads: rows or columns of boxes and scores, and of what a task keeps beside them.

| layout     | output                | row or column                                         | input            |
|------------|-----------------------|-------------------------------------------------------|------------------|
| yolov5     | (b, 3 * n, 5 + c + e) | cx, cy, w, h in pixels, objectness, classes, extras   | RGB/255, centred |
| yolov8     | (b, 4 + c + e, n)     | cx, cy, w, h in pixels, classes, extras               | RGB/255, centred |
| end2end    | (b, k, 6 + e)         | x1, y1, x2, y2 in pixels, confidence, class, extras   | RGB/255, centred |
| yolox      | (b, n, 5 + c)         | offsets to the grid, objectness, classes              | BGR, top-left    |
| deepstream | (b, n or 3 * n, 6)    | x1, y1, x2, y2 in pixels, confidence, class           | RGB/255, centred |
| deepstream | (b, 3 * n, 7)         | cx, cy, w, h in pixels, score, class, objectness      | RGB/255, centred |

n is the number of grid cells, c the number of classes. The extras of a task are its key points (pose), an angle (obb)
or the coefficients of a mask (segment). Boxes of obb are cx, cy, w, h in every layout. Rows of deepstream, which the
export scripts of DeepStream-Yolo make, are all places of the grid: NMS is left to the reader.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections, nothing
from detectors.heads.candidates import (
    STRIDES,
    TWO_STRIDES,
    Candidates,
    Indices,
    anchored,
    columns_of,
    count_cells,
    gridded,
    hulls,
    indexed,
    ready,
    regular,
)
from detectors.heads.layout import (
    Ambiguity,
    Floats,
    ModelFacts,
    OneByOne,
    Outputs,
    Shape,
    Task,
    coloured,
    refuse,
)
from detectors.heads.masks import filled, masks_of
from detectors.heads.nms import MOST_CANDIDATES, nms, rotated_nms
from detectors.letterbox import InputSpec, Letterbox
from detectors.metadata import is_ultralytics
from detectors.port import PostprocessParams, Size
from detectors.semantics import NOTHING_KNOWN, Semantics

RowLayout = Literal["yolov5", "yolov8", "yolox", "end2end", "deepstream"]
_CHOSEN = Semantics(box_units="pixels", first_class=0)
_OTHER_ROWS = Ambiguity(
    frozenset(("mean", "std", "box_units", "first_class")),
    "rows of six columns are those of several families, and the file states none: set model.head: end2end for a YOLO "
    "with its NMS inside (x1, y1, x2, y2 in pixels, confidence, class from 0), or for another family model.mean, "
    "model.std, model.box_units and model.first_class",
)


@dataclass(frozen=True)
class RowHead(OneByOne):
    """Implements `Head`.

    Attributes:
        output: name of the output with rows.
        extras: values that a row has for its task, or after its class.
        points: number of key points.
        protos: name of the output with the prototypes of masks, (p, h, w).
    """

    layout: RowLayout
    task: Task
    classes: int | None
    spec: InputSpec
    output: str
    extras: int = 0
    points: int = 0
    protos: str | None = None
    constants: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    semantics: Semantics = NOTHING_KNOWN
    ambiguity: Ambiguity | None = None

    @property
    def name(self) -> str:
        return self.layout if self.task == "detect" else f"{self.layout}-{self.task}"

    @property
    def is_raw(self) -> bool:
        return self.layout != "end2end"

    def interpreted(self, semantics: Semantics) -> RowHead:
        """See `Head`."""
        refuse(self.name, semantics, *(() if self.is_raw else ("box_units", "first_class")))
        known = Semantics(box_units=semantics.box_units, first_class=semantics.first_class)
        return replace(self, spec=coloured(self.spec, semantics), semantics=known | self.semantics)

    def detections(
        self, outputs: Outputs, box: Letterbox, wanted: PostprocessParams, max_candidates: int = MOST_CANDIDATES
    ) -> Detections:
        """See `Head`.

        Args:
            max_candidates: NMS considers the strongest ones only.
        """
        raw = outputs[self.output]
        with np.errstate(invalid="ignore", over="ignore"):  # a damaged model computes NaN
            found = self._candidates(raw, wanted)
            if len(found.scores) == 0:
                return nothing()
            keep = self._selected(raw, found, wanted, max_candidates)
            boxes, rows = found.boxes[keep], found.rows[keep]
            extras = self._extras(raw, rows)
            columns = (
                found.scores[keep],
                found.classes[keep].astype(np.int32),
                max(0, len(found.scores) - max_candidates),
            )
            if self.task == "obb":
                turned = box.rotated_to_source(np.concatenate((boxes, extras), axis=1))
                turned[:, 2:4] = np.abs(turned[:, 2:4])  # a negative side is the same rectangle
                return Detections(hulls(turned, box.source), *columns, obb=regular(turned))
            if self.protos:
                full = filled(extras, outputs[self.protos], boxes, self.spec)
                boxes, extras, columns = boxes[full], extras[full], (columns[0][full], columns[1][full], columns[2])
            xyxy = box.to_source(boxes)
            if self.task == "pose":
                return Detections(
                    xyxy, *columns, keypoints=box.points_to_source(extras.reshape(len(rows), self.points, -1))
                )
            if self.protos:
                return Detections(xyxy, *columns, masks=masks_of(extras, outputs[self.protos], boxes, self.spec, box))
            return Detections(xyxy, *columns)

    def scores(self, outputs: Outputs) -> Floats:
        raw = outputs[self.output]
        if self.layout == "yolov8":
            return raw[4 : len(raw) - self.extras]
        if self.layout in ("end2end", "deepstream"):
            return raw[:, 4]
        return raw[:, 4 : raw.shape[1] - self.extras]

    def _candidates(self, raw: Floats, wanted: PostprocessParams) -> Candidates:
        if self.layout == "yolov8":
            return columns_of(raw, self.extras, wanted, rotated=self.task == "obb")
        if self.layout == "end2end":
            return self._chosen(ready(raw, wanted))
        if self.layout == "deepstream":
            return indexed(raw, wanted)
        if self.layout == "yolov5":
            return anchored(raw, self.extras, wanted, rotated=self.task == "obb")
        return gridded(raw, wanted, (self.spec.width, self.spec.height))

    def _chosen(self, found: Candidates) -> Candidates:
        """Boxes that the model has chosen, in pixels, with classes from 0."""
        classes = found.classes - (self.semantics.first_class or 0)
        if self.semantics.box_units != "shares":
            return replace(found, classes=classes)
        size = np.array([self.spec.width, self.spec.height] * 2, np.float32)
        return replace(found, boxes=found.boxes * size, classes=classes)

    def _selected(self, raw: Floats, found: Candidates, wanted: PostprocessParams, max_candidates: int) -> Indices:
        """The candidates that remain, strongest first."""
        if self.layout == "end2end":
            return np.argsort(-found.scores, kind="stable")[: min(max_candidates, wanted.max_detections)]
        limits = wanted.iou, wanted.max_detections, max_candidates
        if self.task == "obb":
            boxes = np.concatenate((found.boxes, self._extras(raw, found.rows)), axis=1)
            return rotated_nms(boxes, found.scores, found.classes, *limits)
        return nms(found.boxes, found.scores, found.classes, *limits)

    def _extras(self, raw: Floats, rows: Indices) -> Floats:
        """(n, extras) of rows."""
        if self.layout == "yolov8":
            return np.asarray(raw[len(raw) - self.extras :, rows].T)
        return np.asarray(raw[rows, raw.shape[1] - self.extras :])


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
        name = protos[0] if protos else None
        head = RowHead(self.name, task, classes or None, self._input(facts), output, extras, points, name)
        if self.name != "end2end":
            return head
        return replace(head, semantics=_CHOSEN, ambiguity=None if is_ultralytics(facts.metadata) else _OTHER_ROWS)

    def _indexed(self, facts: ModelFacts, output: str, shape: Shape) -> RowHead | None:
        """Only a name asks for it: the shapes are those of other layouts, too, and values tell them apart."""
        cells = [count_cells(facts.size, strides) for strides in STRIDES]
        if shape[2] not in (6, 7) or shape[1] not in [*cells, *(3 * count for count in cells)]:
            return None
        return RowHead("deepstream", "detect", None, self._input(facts), output, extras=shape[2] - 6)

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


def yolox_input(size: Size) -> InputSpec:
    """The input of YOLOX: colours of 0 to 255, BGR."""
    return InputSpec(*size, fit="corner", rgb=False, scale=(1.0, 1.0, 1.0))


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


# In order of matching; end2end is last, because its six columns also match one-class rows of the others.
ROW_LAYOUTS = (
    RowLayoutFamily("yolov5", "(b, 3n, 5+c)"),
    RowLayoutFamily("yolov8", "(b, 4+c, n)"),
    RowLayoutFamily("yolox", "(b, n, 5+c)"),
    RowLayoutFamily("deepstream", "(b, n, 6) of DeepStream-Yolo"),
    RowLayoutFamily("end2end", "(b, k, 6)"),
)
