"""YOLO's heads: rows or columns of boxes and scores, and of what a task keeps beside them.

| layout  | output                | row or column                                         | input            |
|---------|-----------------------|-------------------------------------------------------|------------------|
| yolov5  | (b, 3 * n, 5 + c + e) | cx, cy, w, h in pixels, objectness, classes, extras   | RGB/255, centred |
| yolov8  | (b, 4 + c + e, n)     | cx, cy, w, h in pixels, classes, extras               | RGB/255, centred |
| end2end | (b, k, 6 + e)         | x1, y1, x2, y2 in pixels, confidence, class, extras   | RGB/255, centred |
| yolox   | (b, n, 5 + c)         | offsets to the grid, objectness, classes              | BGR, top-left    |

n is the number of grid cells, c the number of classes. The extras of a task are its key points (pose), an angle (obb)
or the coefficients of a mask (segment). Boxes of obb are cx, cy, w, h in every layout.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import pi
from typing import Literal

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections, nothing
from detectors.heads.layout import Floats, ModelFacts, OneByOne, Outputs, Shape, Task
from detectors.heads.masks import filled, masks_of
from detectors.heads.nms import MOST_CANDIDATES, nms, rotated_nms
from detectors.letterbox import InputSpec, Letterbox
from detectors.port import PostprocessParams

_STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32))

Indices = npt.NDArray[np.intp]
RowLayout = Literal["yolov5", "yolov8", "yolox", "end2end"]


@dataclass(frozen=True)
class Candidates:
    """Boxes above the threshold.

    Attributes:
        boxes: (n, 4) corners in input pixels; centre and size for rotated boxes.
        rows: (n,) row of the raw output.
    """

    boxes: Floats
    scores: Floats
    classes: Indices
    rows: Indices


@dataclass(frozen=True)
class RowHead(OneByOne):
    """Implements `Head`.

    Attributes:
        output: name of the output with rows.
        extras: values that a row has for its task.
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

    @property
    def name(self) -> str:
        return self.layout if self.task == "detect" else f"{self.layout}-{self.task}"

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
        if self.layout == "end2end":
            return raw[:, 4]
        return raw[:, 4 : raw.shape[1] - self.extras]

    def _candidates(self, raw: Floats, wanted: PostprocessParams) -> Candidates:
        if self.layout == "yolov8":
            return _columns(raw, self.extras, wanted, rotated=self.task == "obb")
        if self.layout == "end2end":
            return _ready(raw, wanted)
        if self.layout == "yolov5":
            return _anchored(raw, self.extras, wanted, rotated=self.task == "obb")
        return _gridded(raw, wanted, (self.spec.width, self.spec.height))

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
        rows = [(name, shape) for name, shape in facts.outputs if len(shape) == 3]
        maps = [(name, shape) for name, shape in facts.outputs if len(shape) == 4]
        if len(rows) != 1 or len(maps) > 1 or len(rows) + len(maps) != len(facts.outputs) or facts.inputs:
            return None
        task = task or ("segment" if maps else "detect")
        (output, shape), protos = rows[0], maps[0] if maps else None
        if (task == "segment") != (protos is not None) or (self.name == "yolox" and task != "detect"):
            return None
        columns = self._columns(shape, facts.size)
        extras = _extras_of(task, facts, protos[1] if protos else None)
        if columns is None or extras is None:
            return None
        classes = columns - extras
        if self.name == "end2end":
            if classes != 0:
                return None
        elif classes < 1:
            return None
        spec = (
            InputSpec(*facts.size)
            if self.name != "yolox"
            else InputSpec(*facts.size, fit="corner", rgb=False, scale=(1.0, 1.0, 1.0))
        )
        points = _key_points(facts.metadata)[0] if task == "pose" else 0
        return RowHead(self.name, task, classes or None, spec, output, extras, points, protos[0] if protos else None)

    def _columns(self, shape: Shape, size: tuple[int, int]) -> int | None:
        """Number of columns for classes and extras; None if the shape is another layout's."""
        cells = [_cells(size, strides) for strides in _STRIDES]
        if self.name == "yolov8":
            return shape[1] - 4 if shape[2] in cells else None
        if self.name == "end2end":
            return shape[2] - 6 if shape[2] >= 6 else None
        if self.name == "yolov5":
            cells = [3 * count for count in cells]
        return shape[2] - 5 if shape[1] in cells else None


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


def _cells(size: tuple[int, int], strides: Sequence[int]) -> int:
    return sum((size[0] // stride) * (size[1] // stride) for stride in strides)


def _anchored(output: Floats, extras: int, wanted: PostprocessParams, *, rotated: bool) -> Candidates:
    strong = np.flatnonzero(output[:, 4] >= wanted.confidence)
    rows = output[strong]
    reached, scores, classes = pick(rows[:, 5 : rows.shape[1] - extras] * rows[:, 4:5], wanted)
    boxes = rows[reached, :4]
    return Candidates(boxes if rotated else corners(boxes), scores, classes, strong[reached])


def _columns(output: Floats, extras: int, wanted: PostprocessParams, *, rotated: bool) -> Candidates:
    end = len(output) - extras
    strong = np.flatnonzero(output[4:end].max(axis=0) >= wanted.confidence)
    columns = output[:end, strong]
    reached, scores, classes = pick(columns[4:].T, wanted)
    boxes = columns[:4, reached].T
    return Candidates(boxes if rotated else corners(boxes), scores, classes, strong[reached])


def _ready(output: Floats, wanted: PostprocessParams) -> Candidates:
    strong = np.flatnonzero(output[:, 4] >= wanted.confidence)
    rows = output[strong]
    return Candidates(rows[:, :4], rows[:, 4], whole(rows[:, 5]), strong)


def _gridded(output: Floats, wanted: PostprocessParams, size: tuple[int, int]) -> Candidates:
    cells = np.flatnonzero(output[:, 4] >= wanted.confidence)
    rows = output[cells]
    reached, scores, classes = pick(rows[:, 5:] * rows[:, 4:5], wanted)
    rows, cells = rows[reached], cells[reached]
    grid, stride = _grid(size, len(output))
    centres = (rows[:, :2] + grid[cells]) * stride[cells]
    sizes = np.exp(rows[:, 2:4]) * stride[cells]
    return Candidates(corners(np.concatenate((centres, sizes), axis=1)), scores, classes, cells)


def whole(classes: Floats) -> Indices:
    """Class ids among floats; -1 for what is none."""
    return np.where(np.abs(classes) < 1 << 24, classes, -1).astype(np.intp)  # float32 is exact up to there


def pick(scores: Floats, wanted: PostprocessParams) -> tuple[Indices, Floats, Indices]:
    """Row, score and class of each score (n, c) above the threshold. A row with a NaN is left out."""
    reached = scores.max(axis=1) >= wanted.confidence
    if wanted.multi_label:
        rows, classes = np.nonzero((scores >= wanted.confidence) & reached[:, None])
    else:
        rows = np.flatnonzero(reached)
        classes = scores[rows].argmax(axis=1)
    return rows, scores[rows, classes], classes


def corners(boxes: Floats) -> Floats:
    """cx, cy, w, h to x1, y1, x2, y2."""
    half = boxes[:, 2:] * np.float32(0.5)
    return np.concatenate((boxes[:, :2] - half, boxes[:, :2] + half), axis=1)


def hulls(boxes: Floats, size: tuple[int, int]) -> Floats:
    """The upright boxes (n, 4) around rotated ones (n, 5), clipped to the picture."""
    cos, sin = np.abs(np.cos(boxes[:, 4])), np.abs(np.sin(boxes[:, 4]))
    half = np.stack(
        (boxes[:, 2] * cos + boxes[:, 3] * sin, boxes[:, 2] * sin + boxes[:, 3] * cos), axis=1
    ) * np.float32(0.5)
    limit = np.array(size * 2, np.float32)
    around = np.concatenate((boxes[:, :2] - half, boxes[:, :2] + half), axis=1)
    return np.asarray(np.clip(around, np.float32(0), limit), np.float32)


def regular(boxes: Floats) -> Floats:
    """Rotated boxes (n, 5) with angles from 0 to 90 degrees, in radians; width and height change places for that."""
    angle = np.mod(boxes[:, 4], np.float32(pi))
    swap = angle >= np.float32(pi / 2)
    width, height = np.where(swap, boxes[:, 3], boxes[:, 2]), np.where(swap, boxes[:, 2], boxes[:, 3])
    angle = np.mod(angle, np.float32(pi / 2))
    return np.stack((boxes[:, 0], boxes[:, 1], width, height, angle), axis=1).astype(np.float32)


@lru_cache(maxsize=8)
def _grid(size: tuple[int, int], rows: int) -> tuple[Floats, Floats]:
    """Cell (n, 2) and stride (n, 1) of each row of a YOLOX output, in order of strides."""
    strides = next(strides for strides in _STRIDES if _cells(size, strides) == rows)
    cells, scale = [], []
    for stride in strides:
        x, y = np.meshgrid(np.arange(size[0] // stride), np.arange(size[1] // stride))
        cells.append(np.stack((x.ravel(), y.ravel()), axis=1))
        scale.append(np.full((x.size, 1), stride))
    return np.concatenate(cells).astype(np.float32), np.concatenate(scale).astype(np.float32)


# In order of matching; end2end is last, because its six columns also match one-class rows of the others.
ROW_LAYOUTS = (
    RowLayoutFamily("yolov5", "(b, 3n, 5+c)"),
    RowLayoutFamily("yolov8", "(b, 4+c, n)"),
    RowLayoutFamily("yolox", "(b, n, 5+c)"),
    RowLayoutFamily("end2end", "(b, k, 6)"),
)
