"""Random raw outputs of every head that kernels decode, with equal scores, zeros of both signs,
and values that are not numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from detectors.heads.layout import Head, ModelFacts
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
PLAIN = ("yolov5", "yolov8", "yolox", "end2end")
QUERIES = ("rtdetr", "rfdetr", "detr-shares", "detr-rows", "detr-decoded")
_CLASSES, _BATCH = 5, 3


@dataclass(frozen=True)
class Kind:
    """What the outputs are for.

    Attributes:
        name: in KERNELS.
        size: of the input, pixels.
        queries: of a DETR.
    """

    name: str
    size: int = 160
    strides: Sequence[int] = (8, 16, 32)
    queries: int = 120


def random_outputs(rng: np.random.Generator, kind: Kind, batch: int = _BATCH) -> tuple[Outputs, Head]:
    """Raw outputs by name, of a batch, and their head."""
    outputs: Outputs
    metadata: dict[str, str] = {}
    further: tuple[str, ...] = ()
    if kind.name in QUERIES:
        outputs, metadata, further = _queries(rng, kind, batch)
    else:
        outputs = {"out": random_rows(rng, kind, batch)}
    shapes = [(name, array.shape) for name, array in outputs.items()]
    layout = "auto" if kind.name in QUERIES else kind.name
    return outputs, recognise(ModelFacts(shapes, (kind.size, kind.size), metadata, further), layout)


def random_rows(rng: np.random.Generator, kind: Kind, batch: int) -> Floats:
    """Rows of YOLO: many overlapping boxes and many equal scores up to 1."""
    head, size = kind.name, kind.size
    cells = sum((size // stride) ** 2 for stride in kind.strides)
    rows = {"yolov5": 3 * cells, "yolov8": cells, "yolox": cells, "end2end": 300}[head]
    scores = _scores(rng, (batch, rows, _CLASSES))
    centres = rng.uniform(0, size, (batch, rows, 2)).astype(np.float32)
    sizes = rng.uniform(4, size / 3, (batch, rows, 2)).astype(np.float32)
    sizes[:, 5::20] = 0  # boxes of no area
    objectness = (rng.integers(5, 11, (batch, rows, 1)) / 10).astype(np.float32)
    if head == "end2end":
        return _spoilt(_chosen(rng, (centres, centres + sizes), scores), rng, 5)
    if head == "yolox":
        centres, sizes = (centres / size * 4).astype(np.float32), np.log(np.maximum(sizes, 4) / 8).astype(np.float32)
    parts = (centres, sizes, scores) if head == "yolov8" else (centres, sizes, objectness, scores)
    whole = _spoilt(np.concatenate(parts, axis=2, dtype=np.float32), rng, 4 + _CLASSES)
    return np.ascontiguousarray(whole.transpose(0, 2, 1)) if head == "yolov8" else whole


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
    """Many equal ones, some a rounding apart, and some that are not finite."""
    logits = (rng.integers(-24, 13, shape) / 4).astype(np.float32)
    near = rng.random(shape) < 0.1
    logits[near] = np.nextafter(logits[near], np.float32(-9))
    logits[logits == 0] *= rng.choice([-1, 1], int((logits == 0).sum()))
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
