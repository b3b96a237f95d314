"""COCO average precision of a detector over labelled photos."""

from __future__ import annotations

import contextlib
import io
import json
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2

from detectors.port import Detector, DetectorError, HostImage


@dataclass(frozen=True)
class Evaluation:
    """COCO's figures.

    Attributes:
        ap: at IoU 0.50 to 0.95.
        ap50, ap75: at one IoU.
        ap_small, ap_medium, ap_large: by area of the object.
        images, boxes: how much truth there was.
        classes: AP of each class that has truth, by name.
    """

    ap: float
    ap50: float
    ap75: float
    ap_small: float
    ap_medium: float
    ap_large: float
    images: int
    boxes: int
    classes: dict[str, float] = field(default_factory=dict)


def evaluate(detector: Detector, images: Path, annotations: Path) -> Evaluation:
    """Run the detector over every photo that the annotations name.

    Raises:
        DetectorError: a file is missing or is not what it should be, or the labels do not fit.
    """
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ImportError as error:
        raise DetectorError("pycocotools is not installed: pip install '.[calibrate]'") from error
    content = _read(annotations)
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints its progress
        truth = COCO()
        truth.dataset = content
        truth.createIndex()
        categories = _categories(detector.info.labels, truth.cats)
        found = _detect_all(detector, images, truth.imgs, categories)
        if not found:
            names = {truth.cats[row["category_id"]]["name"] for row in truth.anns.values()}
            return Evaluation(0, 0, 0, 0, 0, 0, len(truth.imgs), len(truth.anns), dict.fromkeys(sorted(names), 0.0))
        scores = COCOeval(truth, truth.loadRes(found), "bbox")
        scores.evaluate()
        scores.accumulate()
        scores.summarize()
    ap, ap50, ap75, small, medium, large = (round(float(value), 4) for value in scores.stats[:6])
    # (IoU, recall, class, area, limit), -1 where there is no truth; all areas, the largest limit.
    precision = scores.eval["precision"][:, :, :, 0, -1]
    classes = {
        str(truth.cats[category]["name"]): round(float(values[values > -1].mean()), 4)
        for category, values in zip(scores.params.catIds, precision.transpose(2, 0, 1))
        if (values > -1).any()
    }
    return Evaluation(ap, ap50, ap75, small, medium, large, len(truth.imgs), len(truth.anns), classes)


def photos_of(images: Path, annotations: Path) -> list[Path]:
    """The photos that annotations name, in their order.

    Raises:
        DetectorError: the annotations cannot be read.
    """
    return [images / str(photo["file_name"]) for photo in _read(annotations)["images"]]


def _detect_all(
    detector: Detector, folder: Path, photos: dict[int, dict[str, Any]], categories: list[int]
) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    with closing(detector.lane()) as lane:
        for number, photo in photos.items():
            image = cv2.imread(str(folder / photo["file_name"]))
            if image is None:
                raise DetectorError(
                    f"photo {folder / photo['file_name']} cannot be read: is --images the right folder?"
                )
            told, seen = (photo.get("width"), photo.get("height")), (image.shape[1], image.shape[0])
            if None not in told and told != seen:
                raise DetectorError(
                    f"photo {folder / photo['file_name']} is {seen[0]}x{seen[1]}, the annotations say "
                    f"{told[0]}x{told[1]}: they are of other photos"
                )
            (found,), _ = lane.detect([HostImage(image)])  # type: ignore[arg-type]
            for box, confidence, class_id in zip(
                found.xyxy.tolist(), found.confidence.tolist(), found.class_id.tolist()
            ):
                x0, y0, x1, y1 = box
                results.append(
                    {
                        "image_id": number,
                        "category_id": categories[class_id],
                        "bbox": [x0, y0, x1 - x0, y1 - y0],
                        "score": confidence,
                    }
                )
    return results


def _categories(labels: tuple[str, ...], known: dict[int, dict[str, Any]]) -> list[int]:
    """The category id of each class: by name, or by order where the model names nothing and the counts agree."""
    by_name = {str(category["name"]): number for number, category in known.items()}
    if all(label in by_name for label in labels):
        return [by_name[label] for label in labels]
    if len(labels) == len(known) and all(label.startswith("class_") for label in labels):
        return sorted(known)
    missing = [label for label in labels if label not in by_name]
    raise DetectorError(
        f"the annotations have {len(known)} categories, and none is named {missing[0]!r} as a label of the model is: "
        "pass --labels with the names that the annotations use"
    )


def _read(annotations: Path) -> dict[str, Any]:
    """The ground truth, with what COCO's own files always have and others leave out."""
    try:
        content: dict[str, Any] = json.loads(annotations.read_text(encoding="utf-8"))
        missing = [key for key in ("images", "annotations", "categories") if key not in content]
    except (OSError, ValueError, TypeError) as error:
        raise DetectorError(f"annotations {annotations} cannot be read as JSON: {error}") from error
    if missing:
        raise DetectorError(f"annotations {annotations} are not COCO's: `{missing[0]}` is missing")
    content.setdefault("info", {})
    for annotation in content["annotations"]:
        annotation.setdefault("iscrowd", 0)
        annotation.setdefault("area", annotation["bbox"][2] * annotation["bbox"][3])
    return content
