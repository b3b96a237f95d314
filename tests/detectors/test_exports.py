"""Files of many exporters: the boxes that each gives, or the line that refuses it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from detectors.detections import Detections
from detectors.ort.detector import OrtDetector
from detectors.port import DetectorError, HostImage, Options, PostprocessParams
from detectors.semantics import NOTHING_KNOWN, Semantics
from tests.support.exports import FOUND, IMAGENET, SIDE, Export, blocks

_ULTRALYTICS = {"names": "{0: 'red', 1: 'blue'}", "task": "detect", "stride": "32"}
_PLAIN = Semantics(mean=(0, 0, 0), std=(1, 1, 1))
_COLOURS = Semantics(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
_CHOSEN = replace(_PLAIN, box_units="pixels", first_class=0)
_ONE = np.float32(1)
_NAMES = ("red", "blue", *(f"colour {number}" for number in range(2, 80)))
_PATCHES = ((16, 16), (3, 2))


@dataclass(frozen=True)
class Case:
    """A file.

    Attributes:
        write: writes it.
        says: what the refusal says, a pattern; None for a file that is run.
        head, semantics, batch: as a user gives them.
        labels: how many.
    """

    write: Callable[[Path], Path]
    says: str | None = None
    head: str = "auto"
    semantics: Semantics = NOTHING_KNOWN
    batch: int = 2
    labels: int = 2


# --- rows of each cell ------------------------------------------------------------------------------------------------


def _yolov8(path: Path, **metadata: str) -> Path:
    made = Export()
    made.output(_columns(made), "output0", ["batch", 6, made.cells])
    return made.save(path, metadata)


def _columns(made: Export, boxes: str = "") -> str:
    return str(made.op("Transpose", made.join(boxes or made.boxes(made.centred), made.scores), perm=[0, 2, 1]))


def _yolov8_of(path: Path, colours: tuple[tuple[float, ...], tuple[float, ...]], **metadata: str) -> Path:
    made = Export(colours=colours)
    made.output(_columns(made), "output0", ["batch", 6, made.cells])
    return made.save(path, metadata)


def _written(made: Export, boxes: str) -> np.ndarray:
    """The boxes of all cells in another way of writing them, (n, 4)."""
    strides = made.centred[:, 2:3]  # cells are as large as boxes
    kinds = {
        "centres": made.centred,
        "shares": made.centred / SIDE,
        "corners": made.corners,
        "corner and size": np.concatenate((made.corners[:, :2], made.centred[:, 2:]), axis=1),
        "corners, y first": made.corners[:, [1, 0, 3, 2]],
        "centres, y first": made.centred[:, [1, 0, 3, 2]],
        "cells": made.centred / strides,
        "lost": np.full_like(made.centred, 32),
    }
    return np.asarray(kinds[boxes], np.float32)


def _yolov8_boxes(path: Path, boxes: str) -> Path:
    made = Export()
    made.output(_columns(made, made.boxes(_written(made, boxes))), "output0", ["batch", 6, made.cells])
    return made.save(path)


def _yolov8_with(path: Path, column: str) -> Path:
    """A further column that is not a class: an objectness, or the background first or last."""
    made = Export()
    best = made.op("ReduceMax", made.scores, axes=[2], keepdims=1)
    background = made.op("Sub", made.value(_ONE), best)
    scores = {
        "objectness": (best, made.op("Div", made.scores, best)),
        "background first": (background, made.scores),
        "background last": (made.scores, background),
    }[column]
    rows = made.join(made.boxes(made.centred), *scores)
    made.output(made.op("Transpose", rows, perm=[0, 2, 1]), "output0", ["batch", 7, made.cells])
    return made.save(path)


def _yolov5_boxes(path: Path, boxes: str) -> Path:
    """Three rows for each cell, in the order of strides, with boxes in another way."""
    made = Export()
    objectness = made.op("ReduceMax", made.scores, axes=[2], keepdims=1)
    rows = made.join(made.boxes(_written(made, boxes)), objectness, made.op("Div", made.scores, objectness))
    parts, begin = [], 0
    for stride in (8, 16, 32):
        end = begin + (SIDE // stride) ** 2
        parts += [made.slice(rows, 1, begin, end)] * 3
        begin = end
    made.output(made.join(*parts, axis=1), "output", ["batch", 3 * made.cells, 7])
    return made.save(path)


def _yolov8_maps(path: Path) -> Path:
    """With the maps of each stride beside the decoded rows."""
    made = Export()
    made.output(_columns(made), "output0", ["batch", 6, made.cells])
    for stride in (8, 16, 32):
        pooled = made.op("AveragePool", "images", kernel_shape=[stride] * 2, strides=[stride] * 2)
        made.output(pooled, f"map{stride}", ["batch", 3, SIDE // stride, SIDE // stride])
    return made.save(path)


def _two_strides(path: Path, layout: str) -> Path:
    made = Export(strides=(16, 32))
    if layout == "yolov8":
        made.output(_columns(made), "output", ["batch", 6, made.cells])
    else:
        made.output(_anchored(made), "output", ["batch", 3 * made.cells, 7])
    return made.save(path)


def _anchored(made: Export) -> str:
    """Rows of YOLOv5: three for each cell."""
    objectness = made.op("ReduceMax", made.scores, axes=[2], keepdims=1)
    shares = made.op("Div", made.scores, objectness)
    return made.tiled(made.join(made.boxes(made.centred), objectness, shares))


def _yolov5(path: Path, *, grids: bool = False) -> Path:
    made = Export()
    made.output(_anchored(made), "output", ["batch", 3 * made.cells, 7])
    for stride in (8, 16, 32) if grids else ():
        pooled = made.op("AveragePool", "images", kernel_shape=[stride] * 2, strides=[stride] * 2)
        grid = made.op("Reshape", pooled, made.value([0, 3, SIDE // stride, SIDE // stride, 1]))
        made.output(grid, f"grid{stride}", ["batch", 3, SIDE // stride, SIDE // stride, 1])
    return made.save(path)


def _yolov6(path: Path, *, classes: int = 2) -> Path:
    made = Export()
    nothing = made.op("Mul", made.slice(made.scores, 2, 0, 1), made.value(np.float32(0)))
    one = made.op("Add", nothing, made.value(_ONE))
    rows = made.join(made.boxes(made.centred), one, made.scores, *[nothing] * (classes - 2))
    made.output(rows, "outputs", ["batch", made.cells, 5 + classes])
    return made.save(path)


def _yolox(path: Path) -> Path:
    made = Export(scale=255, bgr=True)
    centre, size = made.centred[:, :2], made.centred[:, 2:]
    grid = np.concatenate((centre / size - np.floor(centre / size), np.zeros_like(size)), axis=1)
    grid[0, 0] = -0.5  # of a weak cell: offsets have both signs
    objectness = made.op("ReduceMax", made.scores, axes=[2], keepdims=1)
    shares = made.op("Div", made.scores, objectness)
    rows = made.join(made.boxes(grid.astype(np.float32)), objectness, shares)
    made.output(rows, "output", ["batch", made.cells, 7])
    return made.save(path)


def _transposed(path: Path, boxes: str = "centres", *, classes: int = 2) -> Path:
    made = Export()
    scores = made.slice(made.scores, 2, 0, classes)
    made.output(made.join(made.boxes(_written(made, boxes)), scores), "rows", ["batch", made.cells, 4 + classes])
    return made.save(path)


def _deepstream(path: Path, columns: int, *, anchors: int = 3, classes: int = 2) -> Path:
    made = Export()
    score, label = made.best()
    if classes == 1:
        score, label = made.slice(made.scores, 2, 0, 1), made.op("Mul", label, made.value(np.float32(0)))
    if columns == 6:
        rows = made.join(made.boxes(made.corners), score, label)
    else:
        half = made.op("Sqrt", score)
        rows = made.join(made.boxes(made.centred), half, label, half)
    rows = made.tiled(rows) if anchors == 3 else rows
    made.output(rows, "output", ["batch", anchors * made.cells, columns])
    return made.save(path)


def _without_scores(path: Path) -> Path:
    """As a quantisation with one scale for boxes and scores leaves them."""
    made = Export()
    nothing = made.op("Mul", made.scores, made.value(np.float32(0)))
    rows = made.join(made.boxes(made.centred), nothing)
    made.output(made.op("Transpose", rows, perm=[0, 2, 1]), "output0", ["batch", 6, made.cells])
    return made.save(path)


def _one_picture(path: Path, *, batch: int = 1) -> Path:
    """A batch is fixed in a Reshape."""
    made = Export()
    rows = made.op("Reshape", _columns(made), made.value([batch, 6, made.cells]))
    made.output(rows, "output0", ["batch", 6, made.cells])
    return made.save(path)


def _first_picture(path: Path) -> Path:
    """Later pictures of a batch have the first one's rows."""
    made = Export()
    rows = _columns(made)
    nothing = made.op("Mul", rows, made.value(np.float32(0)))
    made.output(made.op("Add", made.slice(rows, 0, 0, 1), nothing), "output0", ["batch", 6, made.cells])
    return made.save(path)


# --- chosen rows ------------------------------------------------------------------------------------------------------


def _top(
    path: Path,
    metadata: Mapping[str, str] | None = None,
    *,
    boxes: str = "corners",
    shares: bool = False,
    first: int = 0,
    class_first: bool = False,
) -> Path:
    """The ten strongest cells."""
    made = Export()
    chosen, score, label = made.top(made.boxes(_written(made, boxes) / np.float32(SIDE if shares else 1)))
    label = made.op("Add", label, made.value(np.float32(first)))
    rows = made.join(label, score, chosen) if class_first else made.join(chosen, score, label)
    made.output(rows, "output0", ["batch", 10, 6])
    return made.save(path, metadata)


def _nms(path: Path, metadata: Mapping[str, str], *, batch: int | str = 1) -> Path:
    """NMS of one picture, padded; in a batch the first one's."""
    made = Export(batch=batch)
    _, boxes, score, label = made.suppressed(made.boxes(made.corners))
    rows = made.padded(made.join(boxes, score, label, axis=1))
    if batch != 1:
        size = made.slice(made.op("Shape", "images"), 0, 0, 1)
        more = made.op("Sub", size, made.value([1]))
        pads = made.join(made.value([0, 0, 0]), more, made.value([0, 0]), axis=0)
        rows = made.op("Pad", rows, pads, made.value(np.float32(0)))
    made.output(rows, "output0", [batch, 10, 6])
    return made.save(path, metadata)


def _triple(
    path: Path, *, sizes: str = "orig_target_sizes", boxes: str = "corners", shares: bool = False,
    stem: tuple[tuple[int, int], ...] = ((3, 2),),
) -> Path:  # fmt: skip
    """Labels, boxes and scores."""
    colours = IMAGENET if stem == _PATCHES else ((0, 0, 0), (1, 1, 1))
    made = Export(stem=stem, colours=colours)
    corners = made.boxes(_written(made, boxes) / np.float32(SIDE))
    if sizes:
        given = made.further_input(sizes, 7, ["batch", 2])
        fourfold = made.op("Unsqueeze", made.op("Tile", made.cast(given), made.value([1, 2])), made.value([1]))
        corners = made.op("Mul", corners, fourfold)
    elif not shares:
        corners = made.op("Mul", corners, made.value(np.float32(SIDE)))
    chosen, score, label = made.top(corners)
    made.output(made.cast(made.flat(label), 7), "labels", ["batch", 10], 7)
    made.output(chosen, "boxes", ["batch", 10, 4])
    made.output(made.flat(score), "scores", ["batch", 10])
    return made.save(path)


def _logits(
    path: Path,
    *,
    names: tuple[str, str] = ("logits", "pred_boxes"),
    normalised: bool = False,
    softmax: bool = False,
    hidden: bool = False,
    boxes: str = "shares",
    activated: bool = False,
) -> Path:
    """A query for each cell."""
    made = Export(colours=IMAGENET if normalised else ((0, 0, 0), (1, 1, 1)))
    limited = made.op("Clip", made.scores, made.value(np.float32(1e-4)), made.value(np.float32(0.9999)))
    if activated:
        logits = made.scores
    else:
        logits = made.op("Log", made.op("Div", limited, made.op("Sub", made.value(_ONE), limited)))
    if softmax:
        nothing = made.op("Mul", made.slice(made.scores, 2, 0, 1), made.value(np.float32(0)))
        logits = made.join(logits, nothing)
    made.output(logits, names[0], ["batch", made.cells, 3 if softmax else 2])
    rows = made.corners / np.float32(SIDE) if boxes == "corners" else _written(made, boxes)
    made.output(made.boxes(rows), names[1], ["batch", made.cells, 4])
    if hidden:
        made.output(made.boxes(made.corners), "last_hidden_state", ["batch", made.cells, 4])
    return made.save(path)


# --- families that are not run ----------------------------------------------------------------------------------------


def _torchvision(path: Path, *names: str, by_nms: bool) -> Path:
    made = Export(batch=1)
    corners = made.boxes(made.corners)
    _, boxes, score, label = made.suppressed(corners) if by_nms else made.reached(corners)
    names = names or ("boxes", "labels", "scores")
    made.output(boxes, names[0], ["n", 4])
    made.output(made.cast(made.flat(label, 1), 7), names[1], ["n"], 7)
    made.output(made.flat(score, 1), names[2], ["n"])
    return made.save(path)


def _detectron(path: Path) -> Path:
    made = Export(batch=1)
    _, boxes, score, label = made.suppressed(made.boxes(made.corners))
    made.output(boxes, "value", ["n", 4])
    made.output(made.cast(made.flat(label, 1), 7), "value.3", ["n"], 7)
    made.output(made.flat(score, 1), "value.7", ["n"])
    made.output(made.slice(made.op("Shape", "images"), 0, 2, 4), "onnx::Shape_9", [2], 7)
    return made.save(path)


def _mmdeploy(path: Path, *names: str) -> Path:
    names = names or ("dets", "labels")
    made = Export(batch=1)
    _, boxes, score, label = made.suppressed(made.boxes(made.corners))
    rows = made.join(boxes, score, axis=1)
    made.output(made.op("Unsqueeze", rows, made.value([0])), names[0], [1, "n", 5])
    made.output(made.op("Unsqueeze", made.cast(made.flat(label, 1), 7), made.value([0])), names[1], [1, "n"], 7)
    return made.save(path)


def _flat(path: Path, *, class_last: bool) -> Path:
    made = Export(batch=1)
    picture, boxes, score, label = made.suppressed(made.boxes(made.corners))
    last = (score, label) if class_last else (label, score)
    made.output(made.join(picture, boxes, *last, axis=1), "output", ["n", 7])
    return made.save(path)


def _any_rows(path: Path) -> Path:
    made = Export(batch=1)
    _, boxes, score, label = made.reached(made.boxes(made.corners))
    rows = made.op("Unsqueeze", made.join(boxes, score, label, axis=1), made.value([0]))
    made.output(rows, "found", [1, "n", 6])
    return made.save(path)


def _counted(path: Path, *names: str, reverse: bool = False) -> Path:
    """A count, boxes, scores and classes, padded."""
    made = Export(batch=1)
    corners = made.corners / np.float32(SIDE if reverse else 1)
    _, boxes, score, label = made.suppressed(made.boxes(corners[:, [1, 0, 3, 2]] if reverse else corners))
    found = [made.padded(part) for part in (boxes, score, label)]
    count, *others = names
    length = made.slice(made.op("Shape", score), 0, 0, 1)
    made.output(made.op("Reshape", made.cast(length, 6), made.value([1, 1])), count, [1, 1], 6)
    for part, name, shape in zip(found, others, ([1, 10, 4], [1, 10], [1, 10])):
        made.output(part if len(shape) == 3 else made.flat(part), name, shape)
    return made.save(path)


def _counted_rows(path: Path) -> Path:
    made = Export(batch=1)
    _, boxes, score, label = made.suppressed(made.boxes(made.corners))
    made.output(made.padded(made.join(boxes, score, label, axis=1)), "output", [1, 10, 6])
    made.output(made.slice(made.op("Shape", score), 0, 0, 1), "number", [1], 7)
    return made.save(path)


def _apart_after_nms(path: Path) -> Path:
    """Boxes and scores of all cells, and the places that NMS chooses among them."""
    made = Export(batch=1)
    boxes, scores = made.boxes(made.corners), made.op("Transpose", made.scores, perm=[0, 2, 1])
    limits = [made.value(row) for row in ([100], [0.45], [0.25])]
    made.output(boxes, "boxes", [1, made.cells, 4])
    made.output(scores, "scores", [1, 2, made.cells])
    made.output(made.op("NonMaxSuppression", boxes, scores, *limits), "selected_indices", ["n", 3], 7)
    return made.save(path)


def _uncounted(path: Path, *names: str) -> Path:
    made = Export(batch=1)
    _, boxes, score, label = made.suppressed(made.boxes(made.corners / np.float32(SIDE)))
    found = [made.padded(part) for part in (boxes, label, score)]
    for part, name, shape in zip(found, names, ([1, 10, 4], [1, 10], [1, 10])):
        made.output(part if len(shape) == 3 else made.flat(part), name, shape)
    return made.save(path)


def _seven(path: Path, *, maps: bool) -> Path:
    """Rows of seven columns, padded, the first of which is the picture."""
    made = Export(batch=1)
    picture, boxes, score, label = made.suppressed(made.boxes(made.corners / np.float32(SIDE if maps else 1)))
    parts = (picture, label, score, boxes) if maps else (picture, boxes, score, label)
    rows = made.padded(made.join(*parts, axis=1))
    made.output(made.op("Unsqueeze", rows, made.value([0])) if maps else rows, "detections", [1] * maps + [1, 10, 7])
    return made.save(path)


def _paddle(path: Path, *, scaled: bool) -> Path:
    made = Export(batch=1)
    _, boxes, score, label = made.suppressed(made.boxes(made.corners))
    if scaled:
        factor = made.further_input("scale_factor", 1, [1, 2])
        boxes = made.op("Div", boxes, made.op("Tile", factor, made.value([1, 2])))
    made.output(made.join(label, score, boxes, axis=1), "multiclass_nms3_0.tmp_0", ["n", 6])
    made.output(made.cast(made.slice(made.op("Shape", score), 0, 0, 1), 6), "multiclass_nms3_0.tmp_2", [1], 6)
    return made.save(path)


def _apart(path: Path, *names: str) -> Path:
    made = Export()
    made.output(made.boxes(made.corners), names[0], ["batch", made.cells, 4])
    made.output(made.scores, names[1], ["batch", made.cells, 2])
    return made.save(path)


def _dual(path: Path) -> Path:
    made = Export()
    for name in ("output0", "2080"):
        made.output(_columns(made), name, ["batch", 6, made.cells])
    return made.save(path)


def _nanodet(path: Path) -> Path:
    made = Export(strides=(8, 16, 32), batch=1)
    bins = made.op("Expand", made.slice(made.scores, 2, 0, 1), made.value([1, 1, 32]))
    rows = made.join(made.scores, bins)
    made.output(made.join(rows, made.slice(rows, 1, 0, 1), axis=1), "output", [1, made.cells + 1, 34])
    return made.save(path)


def _picodet(path: Path) -> Path:
    made = Export(batch=1)
    made.output(made.scores, "scores", [1, made.cells, 2])
    bins = made.op("Expand", made.slice(made.scores, 2, 0, 1), made.value([1, 1, 32]))
    made.output(bins, "bboxes", [1, made.cells, 32])
    return made.save(path)


def _yolov4(path: Path) -> Path:
    made = Export(batch=1)
    boxes = made.op("Unsqueeze", made.boxes(made.corners / np.float32(SIDE)), made.value([2]))
    made.output(boxes, "boxes", [1, made.cells, 1, 4])
    made.output(made.scores, "confs", [1, made.cells, 2])
    return made.save(path)


def _efficientdet(path: Path) -> Path:
    made = Export(batch=1)
    made.output(made.boxes(made.corners), "regression", [1, made.cells, 4])
    made.output(made.scores, "classification", [1, made.cells, 2])
    made.output(made.boxes(made.corners), "anchors", [1, made.cells, 4])
    return made.save(path)


def _rfdetr_masks(path: Path) -> Path:
    made = Export(batch=1)
    made.output(made.boxes(made.centred), "dets", [1, made.cells, 4])
    made.output(made.scores, "labels", [1, made.cells, 2])
    made.output(made.op("AveragePool", "images", kernel_shape=[4, 4], strides=[4, 4]), "masks", [1, 3, 16, 16])
    return made.save(path)


_FAMILIES = r"set model\.head: rtdetr .* rfdetr .* or detr .*; or model\.mean, model\.std and model\.activation"
_WRAPPED = r"wrap the model so that it gives one output \(b, k, 6\)"
_JOINED = r"wrap the model so that it gives one output \(b, 4 \+ c, n\)"

CASES: dict[str, Case] = {
    # Run as they are.
    "YOLOv8": Case(_yolov8),
    "YOLOv8 with its names": Case(lambda path: _yolov8(path, names='{"0": "red", "1": "blue"}')),
    "YOLOv8 with its task in other words": Case(lambda path: _yolov8(path, task="object-detection")),
    "YOLOv8 with the maps beside": Case(_yolov8_maps),
    "YOLOv3-tiny": Case(lambda path: _two_strides(path, "yolov8")),
    "YOLOv5": Case(_yolov5),
    "YOLOv5 with the raw grids beside": Case(lambda path: _yolov5(path, grids=True)),
    "YOLOv5 of two strides": Case(lambda path: _two_strides(path, "yolov5")),
    "YOLOv6, Gold-YOLO": Case(_yolov6),
    "YOLOv6 with as many cells as YOLOv8 has columns": Case(lambda path: _yolov6(path, classes=80), labels=80),
    "YOLOX": Case(_yolox),
    "YOLOv10, YOLO26": Case(lambda path: _top(path, _ULTRALYTICS)),
    "ultralytics with NMS": Case(lambda path: _nms(path, _ULTRALYTICS), batch=1),
    "DeepStream-Yolo, six columns": Case(lambda path: _deepstream(path, 6)),
    "DeepStream-Yolo, six columns, one class": Case(lambda path: _deepstream(path, 6, classes=1), labels=1),
    "DeepStream-Yolo, seven columns": Case(lambda path: _deepstream(path, 7)),
    "DeepStream-Yolo, seven columns, one class": Case(lambda path: _deepstream(path, 7, classes=1), labels=1),
    "RT-DETR, D-FINE, DEIM": Case(_triple),
    "RF-DETR of Roboflow": Case(lambda path: _logits(path, names=("labels", "dets"), normalised=True)),
    "mean and std in the metadata": Case(
        lambda path: _yolov8_of(path, IMAGENET, mean="[0.485, 0.456, 0.406]", std="[0.229, 0.224, 0.225]")
    ),
    "mean and std of 0 to 255": Case(
        lambda path: _yolov8_of(path, IMAGENET, pixel_mean="123.675 116.28 103.53", pixel_std="58.395,57.12,57.375")
    ),
    "mean and std in a mapping": Case(
        lambda path: _yolov8_of(path, IMAGENET, preprocessing=(
            '{"normalize": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}}'))
    ),
    # Run with the keys that decide.
    "rows of six columns": Case(_top, head="end2end"),
    "rows of six columns, classes from 1": Case(
        lambda path: _top(path, first=1), semantics=replace(_CHOSEN, first_class=1)
    ),
    "rows of six columns, as the trial shows them": Case(lambda path: _top(path, shares=True), semantics=_PLAIN),
    "rows of six columns, shares": Case(
        lambda path: _top(path, shares=True), semantics=replace(_CHOSEN, box_units="shares")
    ),
    "DeepStream-Yolo of YOLOv8": Case(lambda path: _deepstream(path, 6, anchors=1), semantics=_PLAIN),
    "DeepStream-Yolo of YOLOv8, named": Case(lambda path: _deepstream(path, 6, anchors=1), head="deepstream"),
    "DEIMv2 S to X": Case(lambda path: _triple(path, stem=_PATCHES), semantics=_COLOURS),
    "LT-DETR": Case(lambda path: _triple(path, sizes=""), semantics=_PLAIN),
    "SSD with shares": Case(
        lambda path: _triple(path, sizes="", shares=True), semantics=replace(_CHOSEN, box_units="shares")
    ),
    "logits of RT-DETR": Case(_logits, head="rtdetr"),
    "logits of RF-DETR": Case(lambda path: _logits(path, normalised=True), head="rfdetr"),
    "logits of DETR": Case(lambda path: _logits(path, normalised=True, softmax=True), head="detr"),
    "logits of DETR by its authors, with hidden states": Case(
        lambda path: _logits(
            path, names=("pred_logits", "pred_boxes"), normalised=True, softmax=True, hidden=True
        ),
        head="detr",
    ),
    "logits of DETR by keys": Case(
        lambda path: _logits(path, normalised=True, softmax=True), semantics=Semantics(activation="softmax")
    ),
    "logits of Deformable DETR by keys": Case(
        lambda path: _logits(path, normalised=True), semantics=replace(_COLOURS, activation="sigmoid")
    ),
    "YOLOv8 with other colours": Case(lambda path: _yolov8_of(path, IMAGENET), semantics=_COLOURS),
    # Refused, with the keys that decide.
    "logits of an unknown family": Case(_logits, _FAMILIES),
    "logits with an activation alone": Case(_logits, _FAMILIES, semantics=Semantics(activation="sigmoid")),
    "DEIMv2 S to X without keys": Case(
        lambda path: _triple(path, stem=_PATCHES), r"set model\.mean and model\.std, .* for DEIMv2 S to X"
    ),
    "labels, boxes and scores alone": Case(
        lambda path: _triple(path, sizes=""),
        r"set model\.mean and model\.std, model\.box_units .* model\.first_class",
    ),
    "rows of an unknown family": Case(_top, r"set model\.head: end2end .* model\.mean, model\.std, model\.box_units"),
    "rows of class, score and box": Case(
        lambda path: _top(path, class_first=True), r"set model\.head: end2end .* model\.first_class"
    ),
    "DeepStream-Yolo of an unknown family": Case(
        lambda path: _deepstream(path, 6, anchors=1), r"DeepStream-Yolo's .* set model\.mean and model\.std"
    ),
    "two means in the metadata": Case(
        lambda path: _yolov8(path, mean="0.5", image_mean="0.4", std="1"), r"two values of mean, .* set model\.mean"
    ),
    "a mean alone": Case(_yolov8, r"model\.mean and model\.std go together", semantics=Semantics(mean=(0, 0, 0))),
    "a mean of two kinds": Case(
        _yolov8, "no colours have a mean of", semantics=Semantics(mean=(0.485, 0.456, 0.406), std=(58, 57, 57))
    ),
    "an activation for scores": Case(
        _yolov8, r"model\.activation is set, and .* yolov8 .* remove it", semantics=Semantics(activation="sigmoid")
    ),
    "classes from 1 that are called from 0": Case(
        lambda path: _top(path, first=1), r"one more than there are labels: set model\.first_class: 1", head="end2end"
    ),
    "classes from 0 that are called from 1": Case(
        _top, r"class 0: set model\.first_class: 0", semantics=replace(_CHOSEN, first_class=1)
    ),
    "shares that are called pixels": Case(
        lambda path: _top(path, shares=True), r"shares of the picture.* set model\.box_units: shares", head="end2end"
    ),
    "pixels that are called shares": Case(
        _top, r"pixels, not shares: set model\.box_units: pixels", semantics=replace(_CHOSEN, box_units="shares")
    ),
    "class, score and box that are called box, score and class": Case(
        lambda path: _top(path, class_first=True), "range from 0 to 1|impossible|fractions", head="end2end"
    ),
    # Refused, with the family and the remedy.
    "YOLOv8 with shares": Case(lambda path: _yolov8_boxes(path, "shares"), "shares of the picture.*boxes in pixels"),
    "YOLOv8 with corners": Case(lambda path: _yolov8_boxes(path, "corners"), "corners, not centre and size: export"),
    "YOLOv8 with corner and size": Case(
        lambda path: _yolov8_boxes(path, "corner and size"), "corner at the top left and the size, .*: export"
    ),
    "YOLOv8 with corners, y first": Case(
        lambda path: _yolov8_boxes(path, "corners, y first"), "corners with y before x: export"
    ),
    "YOLOv8 with centres, y first": Case(
        lambda path: _yolov8_boxes(path, "centres, y first"), "centre and size with y before x: export"
    ),
    "YOLOv8 in units of cells": Case(lambda path: _yolov8_boxes(path, "cells"), "in units of cells, not pixels"),
    "YOLOv5 with corners": Case(lambda path: _yolov5_boxes(path, "corners"), "corners, not centre and size: export"),
    "YOLOv5 with corner and size": Case(
        lambda path: _yolov5_boxes(path, "corner and size"), "corner at the top left and the size, .*: export"
    ),
    "an objectness among the classes": Case(
        lambda path: _yolov8_with(path, "objectness"), "class . has a score above 0.9 .* objectness .*: export",
        labels=3,
    ),
    "a background before the classes": Case(
        lambda path: _yolov8_with(path, "background first"), "class 0 has a score above 0.9 .* background .*: export",
        labels=3,
    ),
    "a background after the classes": Case(
        lambda path: _yolov8_with(path, "background last"), "class 2 has a score above 0.9 .* background .*: export",
        labels=3,
    ),
    "rows of centre and size": Case(
        lambda path: _top(path, boxes="centres"), "boxes .* are impossible.* centre or corner and size", head="end2end"
    ),
    "rows of corner and size": Case(
        lambda path: _top(path, _ULTRALYTICS, boxes="corner and size"), "are impossible.* centre or corner and size"
    ),
    "triples of centre and size": Case(
        lambda path: _triple(path, boxes="centres"), "are impossible.* centre or corner and size"
    ),
    "logits with corners": Case(lambda path: _logits(path, boxes="corners"), "corners, not centre", head="rtdetr"),
    "logits with pixels": Case(lambda path: _logits(path, boxes="centres"), "pixels, not shares", head="rfdetr"),
    "logits that are scores": Case(
        lambda path: _logits(path, activated=True), "logits are all from 0 to 1, .* not logits", head="rtdetr"
    ),
    "a size under another name": Case(
        lambda path: _triple(path, sizes="image_size"), "told the size .*: export it without .*orig_target_sizes"
    ),
    "YOLOv8 of one class transposed": Case(
        lambda path: _transposed(path, classes=1), f"YOLOv8 of one class, transposed: {_JOINED}", labels=1
    ),
    "YOLOv8 transposed, with shares": Case(
        lambda path: _transposed(path, "shares"), "never negative, as shares .* it is another family. Wrap"
    ),
    "YOLOv8 transposed, in units of cells": Case(
        lambda path: _transposed(path, "cells"), "never negative, .* units of cells, .* Wrap", labels=1
    ),
    "YOLOv8 transposed": Case(_transposed, "not those of yolox: .*transposed YOLOv8"),
    "all scores lost": Case(_without_scores, "all scores are exactly 0.*lookout calibrate"),
    "a batch of 1 in a Reshape": Case(_one_picture, r"with one picture, and not with 2: .*Set model\.max_batch: 1"),
    "a batch of 4 in a Reshape": Case(
        lambda path: _one_picture(path, batch=4), "with 4 pictures, and not with 2: .*a Reshape. Export it"
    ),
    "all boxes lost": Case(lambda path: _yolov8_boxes(path, "lost"), "all the same box, as a quantisation"),
    "the first picture for all": Case(_first_picture, r"second picture of a batch .*Set model\.max_batch: 1"),
    "torchvision by NMS": Case(lambda path: _torchvision(path, by_nms=True), f"torchvision's .*{_WRAPPED}", batch=1),
    "torchvision by NonZero": Case(
        lambda path: _torchvision(path, by_nms=False), f"torchvision's .*{_WRAPPED}", batch=1
    ),
    "torchvision by other names": Case(
        lambda path: _torchvision(path, "pred_boxes", "pred_classes", "pred_scores", by_nms=True),
        f"as many rows as it finds in one picture: .*{_WRAPPED}", batch=1,
    ),
    "mmdeploy by other names": Case(
        lambda path: _mmdeploy(path, "boxes", "classes"), f"mmdeploy .*with NMS inside: {_WRAPPED}", batch=1
    ),
    "rows and their number": Case(
        _counted_rows, f"NMS inside, whose rows are counted: {_WRAPPED}.*, without their number", batch=1
    ),
    "boxes, scores and the places of NMS": Case(_apart_after_nms, f"with NMS inside, .*apart: {_WRAPPED}", batch=1),
    "numbers for names": Case(
        lambda path: _counted(path, "815", "816", "817", "818"), f"NMS inside, such as EfficientNMS, .*: {_WRAPPED}",
        batch=1,
    ),
    "a pose model without kpt_shape": Case(
        lambda path: _yolov8(path, **_ULTRALYTICS | {"task": "pose"}), "`kpt_shape` is missing .*: export it with ultra"
    ),
    "a task in other words": Case(
        lambda path: _yolov8(path, task="Semantic Segmentation"), "the model's task is 'Semantic Segmentation'"
    ),
    "Detectron2": Case(_detectron, f"Detectron2.*{_WRAPPED}", batch=1),
    "mmdeploy": Case(_mmdeploy, f"mmdeploy .*with NMS inside: {_WRAPPED}", batch=1),
    "YOLOv7 --end2end --max-wh": Case(lambda path: _flat(path, class_last=False), "YOLOv7 .*with --grid", batch=1),
    "YOLO-NAS, flat": Case(lambda path: _flat(path, class_last=True), "YOLO-NAS .flat format., with NMS", batch=1),
    "as many rows as it finds": Case(_any_rows, f"as many rows as it finds: {_WRAPPED}", batch=1),
    "YOLO-NAS, batch": Case(
        lambda path: _counted(path, "num_predictions", "pred_boxes", "pred_scores", "pred_classes"),
        f"YOLO-NAS .batch format., with NMS inside: {_WRAPPED}", batch=1,
    ),
    "EfficientNMS": Case(
        lambda path: _counted(path, "num_dets", "det_boxes", "det_scores", "det_classes"), f"EfficientNMS.*{_WRAPPED}",
        batch=1,
    ),
    "YOLO-World": Case(
        lambda path: _counted(path, "num_dets", "boxes", "scores", "labels"), f"YOLO-World.*{_WRAPPED}", batch=1
    ),
    "NVIDIA TAO": Case(
        lambda path: _counted(path, "BatchedNMS", "BatchedNMS_1", "BatchedNMS_2", "BatchedNMS_3"),
        f"TAO .*with NMS inside: {_WRAPPED}", batch=1,
    ),
    "TensorFlow's detectors": Case(
        lambda path: _counted(
            path, "num_detections", "detection_boxes", "detection_scores", "detection_classes", reverse=True
        ),
        "TensorFlow's Object Detection API.*y1, x1, y2, x2.*classes from 1", batch=1,
    ),
    "SSD of other names": Case(
        lambda path: _uncounted(path, "bboxes", "labels", "scores"), f"with NMS inside, such as SSD: {_WRAPPED}",
        batch=1,
    ),
    "EfficientDet": Case(lambda path: _seven(path, maps=False), f"EfficientDet .*class from 1.*{_WRAPPED}", batch=1),
    "SSD of OpenVINO": Case(lambda path: _seven(path, maps=True), f"SSD by Caffe and OpenVINO.*{_WRAPPED}", batch=1),
    "PP-YOLOE with scale_factor": Case(
        lambda path: _paddle(path, scaled=True), "scale_factor.*PaddleDetection", batch=1
    ),
    "PP-YOLOE without": Case(
        lambda path: _paddle(path, scaled=False), f"Paddle .*with NMS inside.*{_WRAPPED}", batch=1
    ),
    "YOLO-NAS before NMS": Case(
        lambda path: _apart(path, "graph2_pred_boxes", "graph2_pred_scores"), f"YOLO-NAS.*before NMS: {_JOINED}"
    ),
    "DAMO-YOLO, YOLO-World before NMS": Case(lambda path: _apart(path, "boxes", "scores"), f"before NMS: {_JOINED}"),
    "YOLOv9 with its auxiliary branch": Case(_dual, "YOLOv9 with its auxiliary branch: convert its weights"),
    "NanoDet-Plus": Case(_nanodet, f"NanoDet-Plus.*{_JOINED}", batch=1),
    "PicoDet": Case(_picodet, f"PicoDet.*{_JOINED}", batch=1),
    "YOLOv4": Case(_yolov4, f"YOLOv4 .*{_JOINED}", batch=1),
    "EfficientDet with anchors": Case(_efficientdet, "EfficientDet, with its anchors apart", batch=1),
    "RF-DETR with masks": Case(_rfdetr_masks, "RF-DETR's segmentation", batch=1),
}  # fmt: skip


def test_there_are_sixty_exports() -> None:
    assert len(CASES) >= 60


def _options(case: Case, path: Path) -> Options:
    (path / "labels.txt").write_text("".join(f"{name}\n" for name in _NAMES[: case.labels]))
    return Options(
        case.write(path / "export.onnx"), case.head, str(path / "labels.txt"), threads=1, max_batch=case.batch,
        wanted=PostprocessParams(0.5), semantics=case.semantics,
    )  # fmt: skip


def _assert_found(found: Detections, labels: int) -> None:
    expected = FOUND[:labels]
    order = np.argsort(found.class_id, kind="stable")
    assert found.class_id[order].tolist() == [label for label, _ in expected]
    np.testing.assert_allclose(found.xyxy[order], [box for _, box in expected], atol=0.01)
    np.testing.assert_allclose(found.confidence, 1, atol=0.01)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.says is None])
def test_an_export_is_run_rightly(name: str, tmp_path: Path) -> None:
    """In a batch, too, as the second picture after one with nothing in it."""
    case = CASES[name]
    with closing(OrtDetector(_options(case, tmp_path))) as detector, closing(detector.lane()) as lane:
        _assert_found(lane.detect([HostImage(blocks())])[0][0], case.labels)
        if case.batch > 1:
            nothing, second = lane.detect([HostImage(np.zeros((SIDE, SIDE, 3), np.uint8)), HostImage(blocks())])[0]
            assert len(nothing) == 0
            _assert_found(second, case.labels)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.says is not None])
def test_an_export_is_refused_with_its_family_and_the_remedy(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with pytest.raises(DetectorError) as raised:
        OrtDetector(_options(case, tmp_path))
    text = str(raised.value)
    assert "\n" not in text
    assert "is empty" not in text
    assert re.search(case.says or "", text), text


def test_nms_that_may_serve_the_first_picture_alone_gets_one_at_a_time(tmp_path: Path) -> None:
    """The metadata state a batch of 1, or none: then a batch would lose the boxes of all other pictures."""
    for stated in ({"batch": "1"}, {}):
        path = _nms(tmp_path / "export.onnx", {**_ULTRALYTICS, **stated}, batch="batch")
        options = Options(path, threads=1, max_batch=4, wanted=PostprocessParams(0.5))
        with closing(OrtDetector(options)) as detector, closing(detector.lane()) as lane:
            assert detector.info.max_batch == 1
            assert sum("has NMS inside for batches up to 1" in note for note in detector.info.notes) == 1
            _assert_found(lane.detect([HostImage(blocks())])[0][0], 2)
