"""The kernels that decode a head's outputs: their names, and their structs for one head."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from detectors.heads.layout import Head
from detectors.heads.queries import QueryHead, least_logit
from detectors.heads.rows import RowHead
from detectors.port import PostprocessParams
from detectors.trt.kernels import FOLDER, GAUSSIAN_BYTES, LIMITS, SCRATCH, struct

_EXTENDED = ("yolov5", "yolov8", "end2end")
_NAMES: Mapping[str, Mapping[str, str]] = {  # file, head, kernels
    "postprocess": {name: name for name in ("yolov5", "yolov8", "yolox", "end2end")} | {"deepstream": "end2end"},
    "tasks": {f"{layout}-{task}": f"{layout}_extended" for layout in _EXTENDED for task in ("pose", "segment")}
    | {f"{layout}-obb": f"{layout}_turned" for layout in ("yolov8", "end2end")},
    "queries": {"rtdetr": "logits", "rfdetr": "logits", "detr-decoded": "decoded", "detr-rows": "chosen_shares"},
}


class Kernels(NamedTuple):
    """Attributes:
    source: the file.
    name: the kernels are collect_NAME and select_NAME.
    """

    source: Path
    name: str


class Raw(NamedTuple):
    """An output of a model on the device.

    Attributes:
        shape: without the batch.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def kernels_of(head: Head) -> Kernels | None:
    """The kernels of a head; None if the host decodes it."""
    if head.semantics.box_units == "shares" or head.semantics.first_class:
        return None
    if head.name == "detr-rows" and head.classes is not None:
        return Kernels(FOLDER / "queries.cu", "shares")
    if isinstance(head, RowHead) and head.layout == "deepstream" and head.extras:
        return Kernels(FOLDER / "postprocess.cu", "deepstream")
    found = (Kernels(FOLDER / f"{file}.cu", names[head.name]) for file, names in _NAMES.items() if head.name in names)
    return next(found, None)


def limits_of(
    head: Head, wanted: PostprocessParams, rows: int, labels: int, max_candidates: int, capacity: int
) -> npt.NDArray[np.void]:
    """The LIMITS of a head.

    Args:
        rows: of the output.
        labels: number of labels of the model.
        max_candidates: NMS looks at the strongest ones alone.
        capacity: candidates there is room for.
    """
    confidence, suppress = wanted.confidence, not head.name.startswith("end2end")
    if isinstance(head, QueryHead):
        suppress, max_candidates = False, capacity
        if head.has_logits:
            confidence, max_candidates = least_logit(confidence), min(rows, capacity)
    return struct(
        LIMITS,
        confidence=confidence,
        iou=wanted.iou,
        multi_label=wanted.multi_label,
        max_detections=wanted.max_detections,
        suppress=suppress,
        most=max_candidates,
        capacity=capacity,
        labels=labels,
    )


def scratch_of(head: Head, max_detections: int, max_candidates: int, capacity: int) -> dict[str, int]:
    """Bytes of a picture's memory for the kernels of a head, by field of OUTPUT; none if the host decodes it."""
    if not kernels_of(head):
        return {}
    scratch = {name: capacity * size for name, size in SCRATCH.items()}
    if head.task == "obb":
        scratch["shapes"] = max_candidates * GAUSSIAN_BYTES
    if isinstance(head, RowHead) and head.protos:
        scratch["kept"] = max_detections * (4 + head.extras) * 4
    return scratch


def extras_of(head: Head) -> int:
    """Floats that the kernels write for a kept row beside its box."""
    if head.task == "obb":
        return 5
    return 3 * head.points if isinstance(head, RowHead) else 0


def fields_of(head: Head, outputs: Mapping[str, Raw]) -> dict[str, int]:
    """The fields of OUTPUT that describe a model's raw outputs."""
    spec = {"width": head.spec.width, "height": head.spec.height, "classes": head.classes or 1}
    if isinstance(head, QueryHead):
        return spec | _fields_of_queries(head, outputs)
    if not isinstance(head, RowHead):
        raise TypeError(f"no kernels decode {head.name}")
    raw = outputs[head.output]
    fields = spec | {
        "values": raw.pointer,
        "rows": raw.shape[1 if head.layout == "yolov8" else 0],
        "extras": head.extras,
    }
    if head.points:
        fields["values_a_point"] = head.extras // head.points
    if head.protos:
        protos = outputs[head.protos]
        fields |= {"protos": protos.pointer, "proto_height": protos.shape[1], "proto_width": protos.shape[2]}
    return fields


def _fields_of_queries(head: QueryHead, outputs: Mapping[str, Raw]) -> dict[str, int]:
    boxes = outputs[head.boxes]
    if head.layout == "detr-rows":
        return {"values": boxes.pointer, "rows": boxes.shape[0]}
    shared = {"boxes": boxes.pointer, "rows": boxes.shape[0]}
    labels = outputs[head.labels]
    if head.has_logits:
        return shared | {"values": labels.pointer}
    size = labels.dtype.itemsize if labels.dtype.kind == "i" else 0
    return shared | {"values": outputs[head.scores_name].pointer, "labels": labels.pointer, "label_bytes": size}
