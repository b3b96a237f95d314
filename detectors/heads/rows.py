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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections, nothing
from detectors.heads.candidates import (
    MOST_CANDIDATES,
    STRIDES,
    Candidates,
    anchored,
    columns_of,
    count_cells,
    gridded,
    hulls,
    indexed,
    nms,
    ready,
    regular,
    rotated_nms,
    whole,
)
from detectors.heads.layout import (
    Ambiguity,
    Floats,
    Indices,
    OneByOne,
    Outputs,
    RowLayout,
    Task,
    coloured,
    refuse,
    yolox_input,
)
from detectors.heads.values import (
    MAX_SHARE,
    TOLERANCE,
    are_indexed,
    are_never_negative,
    has_pixels,
    is_whole,
    kind_of_boxes,
)
from detectors.letterbox import InputSpec, Letterbox
from detectors.port import PostprocessParams
from detectors.semantics import NOTHING_KNOWN, Semantics

_SURE = 0.9  # of a score
_CROWDED = 0.5  # share of the places in which no detector is sure of objects of one class
_DEEPSTREAM = Ambiguity(
    frozenset(("mean", "std")),
    "rows of a box, a score and a class for each grid cell are those of DeepStream-Yolo's export scripts, and the file "
    "does not state which colours the model reads: set model.mean and model.std, [0, 0, 0] and [1, 1, 1] for YOLOv8, "
    "YOLOv9 and YOLO11; or model.head: deepstream for that",
)


class Kept(NamedTuple):
    """The boxes of a picture that remain, strongest first.

    Attributes:
        boxes: (n, 4) corners in input pixels; centre and size for rotated boxes.
        classes: (n,).
        extras: (n, e) of each row.
    """

    boxes: Floats
    scores: Floats
    classes: npt.NDArray[np.int32]
    extras: Floats


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
            rows, left_out = found.rows[keep], max(0, len(found.scores) - max_candidates)
            classes = found.classes[keep].astype(np.int32)
            kept = Kept(found.boxes[keep], found.scores[keep], classes, self._extras(raw, rows))
            return self._placed(outputs, box, kept, left_out)

    def _placed(self, outputs: Outputs, box: Letterbox, kept: Kept, left_out: int) -> Detections:  # noqa: ARG002
        """The boxes that remain, as they lie in the picture.

        Args:
            outputs: for heads that have more than one.
        """
        columns = kept.scores, kept.classes, left_out
        if self.task == "obb":
            turned = box.rotated_to_source(np.concatenate((kept.boxes, kept.extras), axis=1))
            turned[:, 2:4] = np.abs(turned[:, 2:4])  # a negative side is the same rectangle
            return Detections(hulls(turned, box.source), *columns, obb=regular(turned))
        xyxy = box.to_source(kept.boxes)
        if self.task == "pose":
            points = kept.extras.reshape(len(kept.boxes), self.points, -1)
            return Detections(xyxy, *columns, keypoints=box.points_to_source(points))
        return Detections(xyxy, *columns)

    def scores(self, outputs: Outputs) -> Floats:
        raw = outputs[self.output]
        if self.layout == "yolov8":
            return raw[4 : len(raw) - self.extras]
        if self.layout in ("end2end", "deepstream"):
            return raw[:, 4]
        return raw[:, 4 : raw.shape[1] - self.extras]

    def has_score(self, outputs: Outputs) -> bool:
        if self.layout not in ("yolov5", "yolox"):
            return super().has_score(outputs)
        rows = outputs[self.output]
        return bool((rows[:, 4] * rows[:, 5 : rows.shape[1] - self.extras].max(axis=1) > 0).any())

    def chosen(self, outputs: Outputs) -> tuple[Floats, Indices]:
        rows = outputs[self.output]
        rows = rows[rows[:, 4] > 0]
        return rows[:, :4], whole(rows[:, 5])

    def other(self, pictures: Sequence[Outputs]) -> RowHead | None:
        """See `Head`."""
        if self.task == "detect" and self.layout == "yolov8":
            return self._transposed(pictures)
        if self.task != "detect" or self.layout not in ("yolov5", "yolox"):
            return None
        rows = np.concatenate([raw[self.output] for raw in pictures])
        if are_indexed(rows):
            extras = rows.shape[1] - 6
            is_anchored = self.layout == "yolov5"
            found = replace(self, layout="deepstream", classes=None, extras=extras, spec=_plain(self.spec))
            return replace(found, ambiguity=None if is_anchored else _DEEPSTREAM)
        if self.layout == "yolox" and has_pixels(rows) and (rows[:, 4] == 1).all():  # YOLOv6, Gold-YOLO
            return replace(self, layout="yolov5", spec=_plain(self.spec))
        return None

    def _transposed(self, pictures: Sequence[Outputs]) -> RowHead | None:
        """The layout of rows, of a small input that has as many cells as there could be columns."""
        size, (rows, columns) = (self.spec.width, self.spec.height), pictures[0][self.output].shape
        are_cells = rows in [count_cells(size, strides) for strides in STRIDES]
        if not are_cells or columns < 6 or all(raw[self.output][4:].max() <= 1 + TOLERANCE for raw in pictures):
            return None
        found = replace(self, layout="yolox", classes=columns - 5, spec=yolox_input(size))
        return found.other(pictures) or found

    def fault(self, outputs: Outputs) -> str | None:
        """See `Head`."""
        raw = outputs[self.output]
        rows = raw.T if self.layout == "yolov8" else raw
        size = self.spec.width, self.spec.height
        if self.layout == "yolox" and (fault := _fault_of_grid(rows)):
            return fault
        if self.is_raw and len(rows) > 1 and not np.ptp(rows[:, :4], axis=0).any():
            return "they are all the same box, as a quantisation that has lost them leaves them: quantise it anew"
        largest = float(np.abs(rows[:, :4]).max(initial=0.0))
        if self.is_raw and self.layout != "yolox" and 0 < largest <= MAX_SHARE < max(size) / 16:
            return "they are shares of the picture, not pixels: export the model with boxes in pixels"
        if self.layout in ("end2end", "deepstream") and not is_whole(np.maximum(rows[:, 5], 0)):
            return (
                "the sixth column has fractions, and classes are whole numbers; it is probably a model of another task"
            )
        if self.layout in ("yolov5", "yolov8") and self.task != "obb" and (kind := kind_of_boxes(rows[:, :4], size)):
            return f"they are {kind}: export the model with boxes as cx, cy, w, h in pixels"
        return self._fault_of_scores(rows) if self.classes else None

    def _fault_of_scores(self, rows: Floats) -> str | None:
        """The mistake in scores of which one class has high ones nearly everywhere."""
        scores = rows[:, 4 : rows.shape[1] - self.extras]
        scores = scores if self.layout == "yolov8" else scores[:, 1:] * scores[:, :1]
        share = (scores > _SURE).mean(axis=0)
        crowded = int(share.argmax())
        if share[crowded] <= _CROWDED:
            return None
        return (
            f"class {crowded} has a score above {_SURE} in {share[crowded]:.0%} of all places, as an objectness or the "
            "background of a softmax has: export the model without that column, and with scores of objects alone"
        )

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


def _fault_of_grid(rows: Floats) -> str | None:
    """The mistake in rows of YOLOX."""
    if has_pixels(rows):
        return (
            "widths are pixels, not logarithms, as in transposed YOLOv8, or YOLOX with decoding inside: export it "
            "without decoding, or in the layout of YOLOv8"
        )
    if are_never_negative(rows):
        return (
            "the first four columns are never negative, as shares of the picture, units of cells, or the scores of "
            "NanoDet are: it is another family. Wrap the model so that it gives one output (b, 4 + c, n) of cx, cy, "
            "w, h in pixels and c scores"
        )
    return None


def _plain(spec: InputSpec) -> InputSpec:
    return InputSpec(spec.width, spec.height)
