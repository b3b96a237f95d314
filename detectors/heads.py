"""Decoding of raw model output: layouts of heads, class-wise NMS. Pure numpy; the reference for every backend.

A head is recognised by the shapes of the model's outputs and its metadata, never by the file's name:

| head    | output            | row or column                                | input            |
|---------|-------------------|----------------------------------------------|------------------|
| yolov5  | (b, 3 * n, 5 + c) | cx, cy, w, h in pixels, objectness, classes  | RGB/255, centred |
| yolov8  | (b, 4 + c, n)     | cx, cy, w, h in pixels, classes              | RGB/255, centred |
| end2end | (b, k, 6)         | x1, y1, x2, y2 in pixels, confidence, class  | RGB/255, centred |
| yolox   | (b, n, 5 + c)     | offsets to the grid, objectness, classes     | BGR, top-left    |

n is the number of grid cells of strides 8, 16 and 32 (and 64 in the large variants), c the number of classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections, nothing
from detectors.letterbox import InputSpec, Letterbox
from detectors.port import DetectorError, PostprocessParams

Floats = npt.NDArray[np.float32]
Shape = tuple[int, ...]
_STRIDES = ((8, 16, 32), (8, 16, 32, 64))
MOST_CANDIDATES = 8192  # per picture, for NMS; reached only with a threshold near zero


@dataclass(frozen=True)
class Head:
    """A recognised head.

    Attributes:
        name: a name from the table above.
        classes: number of classes; None if the output does not show it (end2end).
        spec: the family's input.
    """

    name: str
    classes: int | None
    spec: InputSpec

    def detections(
        self, output: Floats, box: Letterbox, wanted: PostprocessParams, max_candidates: int = MOST_CANDIDATES
    ) -> Detections:
        """The boxes of one picture.

        Args:
            output: the picture's raw output, without the batch dimension.
            box: place of the picture in the input.
            max_candidates: NMS considers the strongest ones only.
        """
        layout = _LAYOUTS[self.name]
        with np.errstate(invalid="ignore", over="ignore"):  # a damaged model computes NaN
            boxes, scores, classes = layout.candidates(output, wanted, (self.spec.width, self.spec.height))
            if len(scores) == 0:
                return nothing()
            if layout.nms:
                keep = nms(boxes, scores, classes, wanted.iou, wanted.max_detections, max_candidates)
            else:
                keep = np.argsort(-scores, kind="stable")[: min(max_candidates, wanted.max_detections)]
            left_out = max(0, len(scores) - max_candidates)
            return Detections(box.to_source(boxes[keep]), scores[keep], classes[keep].astype(np.int32), left_out)

    def scores(self, output: Floats) -> Floats:
        """The scores in one picture's raw output; from 0 to 1."""
        return _LAYOUTS[self.name].scores(output)


def recognise(
    outputs: Sequence[tuple[str, Shape]],
    size: tuple[int, int],
    metadata: Mapping[str, str],
    override: str = "auto",
) -> Head:
    """The head of a model.

    Args:
        outputs: name and full shape, batch included, of each output.
        size: width and height of the model's input, pixels.
        metadata: the ONNX file's own key-value pairs.
        override: the name of a head, or "auto".

    Raises:
        DetectorError: no head matches; names the outputs and the supported layouts.
    """
    if override != "auto" and override not in _LAYOUTS:
        raise DetectorError(f"unknown head {override!r}: supported are auto, {', '.join(_LAYOUTS)}")
    task = metadata.get("task", "detect")
    if task != "detect":
        raise DetectorError(f"the model's task is {task!r}; Lookout runs detection models only")
    names = _LAYOUTS if override == "auto" else {override: _LAYOUTS[override]}
    if len(outputs) == 1:
        for name, layout in names.items():
            classes = layout.match(outputs[0][1], size)
            if classes is not None:
                spec = InputSpec(*size, centred=layout.centred, rgb=layout.rgb, scale=layout.scale)
                return Head(name, classes or None, spec)
    supported = "; ".join(f"{name} {layout.looks}" for name, layout in names.items())
    seen = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in outputs)
    raise DetectorError(
        f"head not recognised: outputs are {seen} for an input of {size[0]}x{size[1]}; "
        f"supported are {supported} (n grid cells, c classes)"
    )


def nms(
    boxes: Floats,
    scores: Floats,
    classes: npt.NDArray[np.intp],
    iou: float,
    limit: int,
    max_candidates: int = MOST_CANDIDATES,
) -> npt.NDArray[np.intp]:
    """Greedy class-wise non-maximum suppression.

    Equal scores keep their input order, so that the result is deterministic.

    Args:
        boxes: (n, 4) xyxy.
        scores: (n,).
        classes: (n,); boxes of different classes never suppress each other.
        iou: a box is removed if its IoU with a stronger one of its class is higher.
        limit: maximum number of kept boxes.
        max_candidates: only the strongest ones are considered.

    Returns:
        Indices of the kept boxes, strongest first.
    """
    order = np.argsort(-scores, kind="stable")[:max_candidates]
    left, top, right, bottom = boxes[order].T
    areas = (right - left) * (bottom - top)
    kinds = classes[order]
    rest = np.arange(len(order))
    kept: list[int] = []
    while len(rest) and len(kept) < limit:
        best, rest = rest[0], rest[1:]
        kept.append(int(order[best]))
        width = np.minimum(right[best], right[rest]) - np.maximum(left[best], left[rest])
        height = np.minimum(bottom[best], bottom[rest]) - np.maximum(top[best], top[rest])
        inter = np.maximum(width, 0) * np.maximum(height, 0)
        # Multiplied out to avoid dividing by zero for boxes without area.
        overlaps = inter > iou * (areas[best] + areas[rest] - inter)
        rest = rest[~(overlaps & (kinds[rest] == kinds[best]))]
    return np.array(kept, dtype=np.intp)


# --- layouts ---------------------------------------------------------------------------------------------

_Candidates = tuple[Floats, Floats, npt.NDArray[np.intp]]


@dataclass(frozen=True)
class _Layout:
    """`match` returns the number of classes, 0 if unknown, None if the shape does not match."""

    looks: str
    match: Callable[[Shape, tuple[int, int]], int | None]
    candidates: Callable[[Floats, PostprocessParams, tuple[int, int]], _Candidates]
    scores: Callable[[Floats], Floats]
    nms: bool = True
    centred: bool = True
    rgb: bool = True
    scale: float = 1.0 / 255.0


def _cells(size: tuple[int, int], strides: Sequence[int]) -> int:
    return sum((size[0] // stride) * (size[1] // stride) for stride in strides)


def _match_yolov5(shape: Shape, size: tuple[int, int]) -> int | None:
    fits = len(shape) == 3 and shape[2] > 5 and shape[1] in [3 * _cells(size, strides) for strides in _STRIDES]
    return shape[2] - 5 if fits else None


def _match_yolov8(shape: Shape, size: tuple[int, int]) -> int | None:
    fits = len(shape) == 3 and shape[1] > 4 and shape[2] in [_cells(size, strides) for strides in _STRIDES]
    return shape[1] - 4 if fits else None


def _match_end2end(shape: Shape, _size: tuple[int, int]) -> int | None:
    return 0 if len(shape) == 3 and shape[2] == 6 else None


def _match_yolox(shape: Shape, size: tuple[int, int]) -> int | None:
    fits = len(shape) == 3 and shape[2] > 5 and shape[1] in [_cells(size, strides) for strides in _STRIDES]
    return shape[2] - 5 if fits else None


def _yolov5(output: Floats, wanted: PostprocessParams, _size: tuple[int, int]) -> _Candidates:
    rows = output[output[:, 4] >= wanted.confidence]
    rows_reached, scores, classes = _pick(rows[:, 5:] * rows[:, 4:5], wanted)
    return _corners(rows[rows_reached, :4]), scores, classes


def _yolov8(output: Floats, wanted: PostprocessParams, _size: tuple[int, int]) -> _Candidates:
    columns = output[:, output[4:].max(axis=0) >= wanted.confidence]
    rows_reached, scores, classes = _pick(columns[4:].T, wanted)
    return _corners(columns[:4, rows_reached].T), scores, classes


def _end2end(output: Floats, wanted: PostprocessParams, _size: tuple[int, int]) -> _Candidates:
    rows = output[output[:, 4] >= wanted.confidence]
    classes = np.where(np.abs(rows[:, 5]) < 1 << 24, rows[:, 5], -1)  # float32 is exact up to there
    return rows[:, :4], rows[:, 4], classes.astype(np.intp)


def _yolox(output: Floats, wanted: PostprocessParams, size: tuple[int, int]) -> _Candidates:
    cells = np.flatnonzero(output[:, 4] >= wanted.confidence)
    rows = output[cells]
    rows_reached, scores, classes = _pick(rows[:, 5:] * rows[:, 4:5], wanted)
    rows, cells = rows[rows_reached], cells[rows_reached]
    grid, stride = _grid(size, len(output))
    centres = (rows[:, :2] + grid[cells]) * stride[cells]
    sizes = np.exp(rows[:, 2:4]) * stride[cells]
    return _corners(np.concatenate((centres, sizes), axis=1)), scores, classes


def _pick(scores: Floats, wanted: PostprocessParams) -> tuple[npt.NDArray[np.intp], Floats, npt.NDArray[np.intp]]:
    """Row, score and class of each score (n, c) above the threshold. A row with a NaN is left out."""
    reached = scores.max(axis=1) >= wanted.confidence
    if wanted.multi_label:
        rows, classes = np.nonzero((scores >= wanted.confidence) & reached[:, None])
    else:
        rows = np.flatnonzero(reached)
        classes = scores[rows].argmax(axis=1)
    return rows, scores[rows, classes], classes


def _corners(boxes: Floats) -> Floats:
    """cx, cy, w, h to x1, y1, x2, y2."""
    half = boxes[:, 2:] * np.float32(0.5)
    return np.concatenate((boxes[:, :2] - half, boxes[:, :2] + half), axis=1)


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
_LAYOUTS = {
    "yolov5": _Layout("(b, 3n, 5+c)", _match_yolov5, _yolov5, lambda rows: rows[:, 4:]),
    "yolov8": _Layout("(b, 4+c, n)", _match_yolov8, _yolov8, lambda columns: columns[4:]),
    "yolox": _Layout(
        "(b, n, 5+c)", _match_yolox, _yolox, lambda rows: rows[:, 4:], centred=False, rgb=False, scale=1.0
    ),
    "end2end": _Layout("(b, k, 6)", _match_end2end, _end2end, lambda rows: rows[:, 4], nms=False),
}
