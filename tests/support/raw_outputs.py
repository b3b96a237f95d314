"""Random raw outputs of every head that kernels decode, with equal scores, zeros of both signs,
and values that are not numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from detectors.heads.layout import Head, ModelFacts
from detectors.heads.queries import least_logit
from detectors.heads.recognise import recognise

Floats = npt.NDArray[np.float32]
Outputs = dict[str, npt.NDArray[np.generic]]

# A head, and its kernels.
KERNELS = {
    "yolov5": "yolov5",
    "yolov8": "yolov8",
    "yolox": "yolox",
    "end2end": "end2end",
    "rtdetr": "logits",
    "rfdetr": "logits",
    "detr-shares": "shares",
    "detr-rows": "chosen_shares",
    "detr-decoded": "decoded",
}
_EXTENDED = ("yolov5", "yolov8", "end2end")
_OF_TASKS = {f"{layout}-{task}": f"{layout}_extended" for layout in _EXTENDED for task in ("pose", "segment")}
_OF_TASKS |= {f"{layout}-obb": f"{layout}_turned" for layout in ("yolov8", "end2end")}
TASKS = (*_OF_TASKS,)
KERNELS |= _OF_TASKS | {"deepstream7": "deepstream", "deepstream6": "end2end"}
PLAIN = ("yolov5", "yolov8", "yolox", "end2end", "deepstream7", "deepstream6")
QUERIES = ("rtdetr", "rfdetr", "detr-shares", "detr-rows", "detr-decoded")
_LAYOUTS = {"detr-shares": "detr-rows", **{name: name for name in ("detr-rows", "detr-decoded")}}
_LAYOUTS |= dict.fromkeys(("deepstream6", "deepstream7"), "deepstream")
_CLASSES, _BATCH, _COEFFICIENTS = 5, 3, 6
_POINTS = {"yolov5": (4, 3), "yolov8": (5, 2), "end2end": (3, 3)}  # key points, and values of each


@dataclass(frozen=True)
class Kind:
    """What the outputs are for.

    Attributes:
        name: in KERNELS.
        size, height: of the input, pixels; it is square without a height.
        queries: of a DETR.
    """

    name: str
    size: int = 160
    strides: Sequence[int] = (8, 16, 32)
    queries: int = 120
    height: int = 0

    @property
    def layout(self) -> str:
        return self.name.partition("-")[0]

    @property
    def task(self) -> str:
        return self.name.partition("-")[2]

    @property
    def input(self) -> tuple[int, int]:
        return self.size, self.height or self.size


def random_outputs(rng: np.random.Generator, kind: Kind, batch: int = _BATCH) -> tuple[Outputs, Head]:
    """Raw outputs by name, of a batch, and their head."""
    outputs: Outputs
    metadata: dict[str, str] = {}
    further: tuple[str, ...] = ()
    if kind.name in QUERIES:
        outputs, metadata, further = _queries(rng, kind, batch)
    else:
        outputs = {"out": random_rows(rng, kind, batch)}
        if kind.task:
            metadata = {"task": kind.task, "kpt_shape": str(_POINTS[kind.layout])}
        if kind.task == "segment":
            outputs["protos"] = _eighths(rng, (batch, _COEFFICIENTS, kind.input[1] // 4, kind.input[0] // 4))
    shapes = [(name, array.shape) for name, array in outputs.items()]
    layout = _LAYOUTS.get(kind.name, kind.layout)
    return outputs, recognise(ModelFacts(shapes, kind.input, metadata, further), layout)


def random_rows(rng: np.random.Generator, kind: Kind, batch: int) -> Floats:
    """Rows of YOLO: many overlapping boxes and many equal scores up to 1."""
    head, size = kind.layout, kind.size
    cells = sum((size // stride) * (kind.input[1] // stride) for stride in kind.strides)
    rows = {"yolov5": 3 * cells, "end2end": 300, "deepstream7": 3 * cells}.get(head, cells)
    scores = _scores(rng, (batch, rows, _CLASSES))
    centres = rng.uniform(0, size, (batch, rows, 2)).astype(np.float32)
    sizes = rng.uniform(4, size / 3, (batch, rows, 2)).astype(np.float32)
    sizes[:, 5::20] = 0  # boxes of no area
    if kind.task == "obb":
        sizes[:, 6::20] *= -1
    if kind.task == "segment":  # borders between the pixels of prototypes
        centres[:, ::3], sizes[:, ::3] = centres[:, ::3] // 4 * 4, sizes[:, ::3] // 8 * 8
    objectness = (rng.integers(5, 11, (batch, rows, 1)) / 10).astype(np.float32)
    extras = _extras(rng, kind, (batch, rows))
    if head == "end2end":
        boxes = (centres, sizes) if kind.task == "obb" else (centres, centres + sizes)
        return np.concatenate((_spoilt(_chosen(rng, boxes, scores), rng, 5), extras), axis=2)
    if head.startswith("deepstream"):
        corners = (centres, centres + sizes) if head == "deepstream6" else (centres, sizes)
        chosen = _spoilt(_chosen(rng, corners, scores), rng, 5)
        return chosen if head == "deepstream6" else np.concatenate((chosen, objectness), axis=2)
    if head == "yolox":
        centres, sizes = (centres / size * 4).astype(np.float32), np.log(np.maximum(sizes, 4) / 8).astype(np.float32)
    parts = (centres, sizes, scores) if head == "yolov8" else (centres, sizes, objectness, scores)
    whole = _spoilt(np.concatenate(parts, axis=2, dtype=np.float32), rng, 4 + _CLASSES)
    whole = np.concatenate((whole, extras), axis=2)
    return np.ascontiguousarray(whole.transpose(0, 2, 1)) if head == "yolov8" else whole


def _extras(rng: np.random.Generator, kind: Kind, shape: tuple[int, int]) -> Floats:
    """Key points, angles of several turns, or coefficients of masks, some of which are empty."""
    if kind.task == "pose":
        points, values = _POINTS[kind.layout]
        return _spoilt(rng.uniform(-20, kind.size, (*shape, points * values)).astype(np.float32), rng, points * values)
    if kind.task == "obb":
        angles = rng.choice([0, np.pi / 4, np.pi / 2, -np.pi, 1.3, -0.2], (*shape, 1))
        return _spoilt((angles + rng.choice([0, 0.01, -7], (*shape, 1))).astype(np.float32), rng, 1)
    if kind.task == "segment":
        coefficients = _eighths(rng, (*shape, _COEFFICIENTS))
        coefficients[:, 4::7] = 0
        coefficients[:, 5::7] *= np.arange(_COEFFICIENTS) == 0
        return _spoilt(coefficients, rng, _COEFFICIENTS)
    return np.empty((*shape, 0), np.float32)


def _eighths(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Numbers whose sums do not round, in whatever order they are added."""
    return (rng.integers(-12, 11, shape) / 8).astype(np.float32)


def _queries(rng: np.random.Generator, kind: Kind, batch: int) -> tuple[Outputs, dict[str, str], tuple[str, ...]]:
    """Outputs, metadata, and names of further inputs."""
    shape = (batch, kind.queries, _CLASSES)
    boxes = rng.uniform(0, 1, (batch, kind.queries, 4)).astype(np.float32)
    boxes[:, 3::50, rng.integers(4)] = np.nan
    boxes[:, 7::50, 2:] = 0
    if kind.name in ("rtdetr", "rfdetr"):
        names = ("logits", "pred_boxes") if kind.name == "rtdetr" else ("labels", "dets")
        return dict(zip(names, (_logits(rng, shape), boxes))), {}, ()
    scores = _scores(rng, shape)
    if kind.name == "detr-shares":
        rows = _spoilt(np.concatenate((boxes, scores), axis=2), rng, 4 + _CLASSES)
        return {"out": rows}, {"description": "RTDETR"}, ()
    chosen = _chosen(rng, (boxes[..., :2], boxes[..., 2:]), scores)
    if kind.name == "detr-rows":
        return {"out": _spoilt(chosen, rng, 5)}, {"head": "RTDETRDecoder"}, ()
    labels = rng.integers(-1, _CLASSES + 1, shape[:2]).astype(np.int64)
    labels[:, 9::40] = 1 << 40
    corners = np.concatenate((boxes[..., :2], boxes[..., :2] + boxes[..., 2:]), axis=2) * np.float32(kind.size)
    return {"labels": labels, "boxes": corners, "scores": chosen[..., 4].copy()}, {}, ("orig_target_sizes",)


def _scores(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    likely = rng.random((*shape[:2], 1)) < 0.1
    scores = (rng.integers(0, 11, shape) / 10 * likely).astype(np.float32)
    scores[scores == 0] *= rng.choice([-1, 1], int((scores == 0).sum()))
    return scores


def _logits(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Many equal ones, some a rounding apart, and some that are not finite. Most queries find nothing."""
    likely = rng.random((*shape[:2], 1)) < 0.2
    logits = (rng.integers(-24, 13, shape) / 4 - np.where(likely, 0, 7)).astype(np.float32)
    near = rng.random(shape) < 0.1
    logits[near] = np.nextafter(logits[near], np.float32(-9))
    logits[logits == 0] *= rng.choice([-1, 1], int((logits == 0).sum()))
    at = rng.random(shape) < 0.02
    least = np.float32(least_logit(0.3))
    logits[at] = rng.choice([least, np.nextafter(least, np.float32(-9))], int(at.sum()))
    odd = rng.random(shape) < 0.02
    logits[odd] = rng.choice([np.nan, np.inf, -np.inf, 40, -200], int(odd.sum()))
    return logits


def _chosen(rng: np.random.Generator, boxes: tuple[Floats, Floats], scores: Floats) -> Floats:
    """Rows of a box, the best score and its class."""
    best = scores.max(axis=2, keepdims=True), scores.argmax(axis=2)[..., None]
    rows = np.concatenate((*boxes, *best), axis=2, dtype=np.float32)
    rows[:, 7::31, 5] = rng.choice([np.nan, np.inf, -1, 1e30], rows[:, 7::31, 5].shape)
    return rows


def _spoilt(rows: Floats, rng: np.random.Generator, columns: int) -> Floats:
    """One value that is not a number in a row of fifty."""
    for picture in rows:
        for row in range(3, len(picture), 50):
            picture[row, rng.integers(columns)] = np.nan
    return rows
