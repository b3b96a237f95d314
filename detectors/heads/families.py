"""Families of detectors that Lookout does not run, recognised by names and shapes of their outputs, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from detectors.heads.candidates import STRIDES, TWO_STRIDES, count_cells
from detectors.heads.layout import ModelFacts, Shape
from detectors.heads.shapes import is_flat, is_nanodet

_ROWS = "one output (b, k, 6) of x1, y1, x2, y2 in pixels, confidence and class from 0"
_PAD = f"wrap the model so that it gives {_ROWS}, padded with zeros to a fixed k"
_WRAP = f"wrap the model so that it gives {_ROWS}"
_JOIN = "wrap the model so that it gives one output (b, 4 + c, n) of cx, cy, w, h in pixels and c scores"
_NORMALISED = f"{_JOIN}, and set model.mean and model.std"


@dataclass(frozen=True)
class Family:
    """A family that Lookout does not run.

    Attributes:
        name: of models and their exporters.
        remedy: what to do.
        fits: whether a model is of the family, by its facts and the shapes of its outputs by their names.
    """

    name: str
    remedy: str
    fits: Callable[[ModelFacts, dict[str, Shape]], bool]


def family_of(facts: ModelFacts) -> str | None:
    """Name and remedy of the family of a model; None if it is of none of these."""
    return _first((*MISTAKEN, *FAMILIES), facts)


def _first(families: Sequence[Family], facts: ModelFacts) -> str | None:
    shapes = {name.lower(): shape for name, shape in facts.outputs}
    found = next((family for family in families if shapes and family.fits(facts, shapes)), None)
    return f"{found.name}: {found.remedy}" if found else None


def _named(*names: str) -> Callable[[ModelFacts, dict[str, Shape]], bool]:
    return lambda _, shapes: all(any(name in output for output in shapes) for name in names)


def _is_torchvision(_: ModelFacts, shapes: dict[str, Shape]) -> bool:
    boxes, labels = shapes.get("boxes"), shapes.get("labels")
    return bool(boxes and labels is not None and "scores" in shapes and len(boxes) == 2 and len(labels) == 1)


def _is_detectron(_: ModelFacts, shapes: dict[str, Shape]) -> bool:
    """Names may be numbers; the last output is the size of the picture."""
    ranks = sorted(len(shape) for shape in shapes.values())
    return ranks == [1, 1, 1, 2] and (2,) in shapes.values()


def _is_mmdeploy(_: ModelFacts, shapes: dict[str, Shape]) -> bool:
    """Boxes with their scores, (b, k, 5), and classes."""
    boxes = [shape for shape in shapes.values() if len(shape) == 3 and shape[2] == 5]
    return len(boxes) == 1 and len(shapes) == 2 and boxes[0][:2] in shapes.values()


def _is_unbatched(_: ModelFacts, shapes: dict[str, Shape]) -> bool:
    """Boxes (n, 4), and a score and a class for each, of one picture."""
    boxes = [shape for shape in shapes.values() if len(shape) == 2 and shape[1] == 4]
    return len(boxes) == 1 and sum(shape == boxes[0][:1] for shape in shapes.values()) > 1


def _has_seven(_: ModelFacts, shapes: dict[str, Shape]) -> bool:
    """One output with rows of seven columns."""
    (shape, *others) = shapes.values()
    return not others and shape[-1:] == (7,) and (len(shape) == 3 or (len(shape) == 4 and shape[:2] == (1, 1)))


def _is_paddle(_: ModelFacts, shapes: dict[str, Shape]) -> bool:
    (shape, *others) = shapes.values()
    return len(shape) == 2 and shape[1] == 6 and len(others) == 1 and len(others[0]) == 1


def _is_efficient_nms(facts: ModelFacts, shapes: dict[str, Shape]) -> bool:
    names = ("num_det", "num_boxes", "count")
    return any(word in name for name in shapes for word in names) and _is_counted(facts, shapes)


def _is_counted(_: ModelFacts, shapes: dict[str, Shape]) -> bool:
    """A count, boxes, scores and classes."""
    boxes = [shape for shape in shapes.values() if len(shape) == 3 and shape[2] == 4]
    return len(boxes) == 1 and len(shapes) > 3 and _has_count(shapes)


def _is_rows_with_count(_: ModelFacts, shapes: dict[str, Shape]) -> bool:
    rows = [shape for shape in shapes.values() if len(shape) == 3 and shape[2] == 6]
    return len(rows) == 1 and len(shapes) == 2 and _has_count(shapes)


def _has_count(shapes: dict[str, Shape]) -> bool:
    """Whether an output is one number for each picture."""
    return any(len(shape) < 3 and shape[1:] in ((), (1,)) for shape in shapes.values())


def _is_chosen(_: ModelFacts, shapes: dict[str, Shape]) -> bool:
    """Boxes (b, k, 4), and a score and a class for each, under other names than Lookout reads."""
    boxes = [shape for shape in shapes.values() if len(shape) == 3 and shape[2] == 4]
    others = [shape for shape in shapes.values() if boxes and shape == boxes[0][:2]]
    is_other = not {"boxes", "labels", "scores"} <= shapes.keys()
    return len(boxes) == 1 and len(others) == 2 and len(shapes) == 3 and is_other


def _is_dual(facts: ModelFacts, shapes: dict[str, Shape]) -> bool:
    decoded = [shape for shape in shapes.values() if len(shape) == 3]
    return len(decoded) == 2 and decoded[0] == decoded[1] and min(decoded[0][1:]) > 4 and not facts.inputs


def _is_picodet(_: ModelFacts, shapes: dict[str, Shape]) -> bool:
    """Scores, and 8 bins for each side."""
    bins = [shape for shape in shapes.values() if len(shape) == 3 and shape[2] == 4 * 8]
    return any(other is not shape and other[1:2] == shape[1:2] for shape in bins for other in shapes.values())


def _is_yolov4(_: ModelFacts, shapes: dict[str, Shape]) -> bool:
    return any(len(shape) == 4 and shape[2:] == (1, 4) for shape in shapes.values()) and len(shapes) == 2


def _is_apart(_: ModelFacts, shapes: dict[str, Shape]) -> bool:
    """Boxes, and scores of all classes for as many rows or columns."""
    rows = [shape for shape in shapes.values() if len(shape) == 3]
    boxes = [shape for shape in rows if shape[2] == 4]
    return any(other is not shape and shape[1] in other[1:] for shape in boxes for other in rows)


def _is_apart_after_nms(facts: ModelFacts, shapes: dict[str, Shape]) -> bool:
    return facts.has_nms and _is_apart(facts, shapes)


def _is_pose(facts: ModelFacts, _: dict[str, Shape]) -> bool:
    return facts.metadata.get("task") == "pose"


def _has_masks(facts: ModelFacts, shapes: dict[str, Shape]) -> bool:
    return {"dets", "labels", "masks"} <= shapes.keys() and not facts.inputs


def _is_transposed(facts: ModelFacts, shapes: dict[str, Shape]) -> bool:
    """One output with a row for each cell, and too few columns for YOLOX."""
    (shape, *others) = shapes.values()
    cells = [count_cells(facts.size, strides) for strides in (*STRIDES, *TWO_STRIDES)]
    return not others and len(shape) == 3 and shape[1] in cells and shape[2] == 4 + 1


def _is_yes_or_no(_: ModelFacts, shapes: dict[str, Shape]) -> bool:
    (shape, *others) = shapes.values()
    return not others and shape[1:] in ((1,), (1, 1, 1))


def _has_further_inputs(facts: ModelFacts, _: dict[str, Shape]) -> bool:
    return bool(facts.inputs)


def _depends_on_picture(_: ModelFacts, shapes: dict[str, Shape]) -> bool:
    return any(0 in shape for shape in shapes.values())


MISTAKEN: Sequence[Family] = (
    Family("YOLOv7 (--end2end --max-wh) or YOLO-NAS (flat format), with NMS inside and rows of all pictures one after "
           "the other", f"export YOLOv7 with --grid and without --end2end, or {_PAD}", is_flat),
    Family("NanoDet-Plus, before its decoding", _NORMALISED, is_nanodet),
)  # fmt: skip
# In order: the first that fits.
FAMILIES: Sequence[Family] = (
    Family("RF-DETR's segmentation", "Lookout runs its detection models: export one of those", _has_masks),
    Family("torchvision's detectors (Faster R-CNN, RetinaNet, FCOS, SSD), which give as many rows as they find in one "
           "picture", f"set model.max_batch: 1 and {_PAD}; torchvision's classes begin at 1", _is_torchvision),
    Family("Detectron2, which gives as many rows as it finds in one picture",
           f"set model.max_batch: 1 and {_PAD}", _is_detectron),
    Family("a detector such as Detectron2's or torchvision's, which gives as many rows as it finds in one picture",
           f"set model.max_batch: 1 and {_PAD}", _is_unbatched),
    Family("mmdeploy (MMDetection, RTMDet), with NMS inside", f"{_PAD}, and set model.mean and model.std",
           _is_mmdeploy),
    Family("Paddle (PP-YOLOE, PicoDet), with NMS inside and rows of class, score, x1, y1, x2, y2", _PAD, _is_paddle),
    Family("TensorFlow's Object Detection API, with NMS inside, boxes as shares in the order y1, x1, y2, x2 and "
           "classes from 1", _WRAP, _named("detection_boxes", "detection_scores")),
    Family("NVIDIA TAO (BatchedNMS), with NMS inside", _WRAP, _named("batchednms")),
    Family("YOLO-NAS (batch format), with NMS inside", _WRAP, _named("num_predictions", "pred_boxes", "pred_scores")),
    Family("EfficientNMS, as YOLO-World, YOLOv7 and YOLOv9 have it, with NMS inside", _WRAP, _is_efficient_nms),
    Family("a detector with NMS inside, such as EfficientNMS, or TensorFlow's with shares and y before x", _WRAP,
           _is_counted),
    Family("a detector with NMS inside, such as SSD", _WRAP, _is_chosen),
    Family("a detector with NMS inside, whose rows are counted", f"{_WRAP}, without their number", _is_rows_with_count),
    Family("a detector with NMS inside, and boxes, scores and classes apart", _PAD, _is_apart_after_nms),
    Family("EfficientDet (picture, y1, x1, y2, x2, score, class from 1), or of SSD by Caffe and OpenVINO (picture, "
           "class, score, corners as shares), with NMS inside", _WRAP, _has_seven),
    Family("YOLOv9 with its auxiliary branch", "convert its weights first, as YOLOv9's tools/reparameterization.ipynb "
           "does, or export one of both outputs", _is_dual),
    Family("PicoDet, before its decoding", _NORMALISED, _is_picodet),
    Family("YOLOv4 of pytorch-YOLOv4, with boxes as shares", _JOIN, _is_yolov4),
    Family("EfficientDet, with its anchors apart", _NORMALISED, _named("regression", "classification")),
    Family("a detector with boxes and scores apart, such as YOLO-NAS, DAMO-YOLO, SSD or RetinaNet, before NMS", _JOIN,
           _is_apart),
    Family("a detector that gives as many rows as it finds", _PAD, _depends_on_picture),
    Family("a pose model whose metadata `kpt_shape` is missing or does not fit",
           "export it with ultralytics, which states it, such as [17, 3]", _is_pose),
    Family("a YOLOv8 of one class, transposed", _JOIN, _is_transposed),
    Family("a classifier with one score, for yes or no", "wrap the model so that it gives (b, 2), 1 - p and p, and set "
           "model.head: classify", _is_yes_or_no),
    Family("a detector that is told the size of the picture, or more", "export it without its further inputs. An "
           "RT-DETR or D-FINE has orig_target_sizes (b, 2), width and height", _has_further_inputs),
)  # fmt: skip
