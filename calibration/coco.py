"""COCO average precision of a detector over labelled photos."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.matches import Category, Matches
from detectors.detections import Detections, plausible
from detectors.matching import match
from detectors.pictures import read_picture
from detectors.port import Detector, DetectorError, HostImage

Share = tuple[float, float, float, float]
"""Left, top, right and bottom as shares of a picture."""

_MIN_IOU = 0.5  # of a match, for precision and recall
_ALL_AREAS = 0  # COCO's first range of areas
Tell = Callable[[float, float], None]
"""Called with how many pictures are done, and of how many."""


@dataclass(frozen=True)
class Evaluation:
    """COCO's figures.

    Attributes:
        ap: at IoU 0.50 to 0.95.
        ap50, ap75: at one IoU.
        ap_small, ap_medium, ap_large: by area of the object.
        images, boxes: numbers of labelled photos and objects.
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


@dataclass(frozen=True)
class Operation:
    """Precision and recall at one confidence threshold, each box with its best class only.

    Attributes:
        precision: the share of the boxes that are right, at IoU 0.5; 0 where there is no box.
        recall: the share of the objects that are found.
    """

    confidence: float
    precision: float
    recall: float


def require_pycocotools() -> None:
    """Raises:
    DetectorError: it is missing.
    """
    try:
        import pycocotools.cocoeval  # noqa: F401
    except ImportError as error:
        raise DetectorError("pycocotools is not installed: pip install 'lookoutd[calibrate]'") from error


class Truth:
    """Labelled photos, read once.

    Args:
        roi: leaves out objects whose centre lies outside of it; None for all objects.

    Attributes:
        paths: of the photos, in the order of the annotations.
        groups: the clip of each photo, from the annotations' `video_id`; None if any photo lacks one.

    Raises:
        DetectorError: the annotations cannot be read, or pycocotools is missing.
    """

    def __init__(self, images: Path, annotations: Path, roi: Share | None = None) -> None:
        require_pycocotools()
        from pycocotools.coco import COCO

        content = _read(annotations)
        photos = content["images"]
        if not photos:
            raise DetectorError(f"annotations {annotations} name no photo")
        if roi:
            _limit(content, roi, annotations)
        self.paths = [images / str(photo["file_name"]) for photo in photos]
        clips = [photo.get("video_id") for photo in photos]
        self.groups: list[str] | None = None if None in clips or not clips else [str(clip) for clip in clips]
        with _silence():
            self.coco = COCO()
            self.coco.dataset = content
            self.coco.createIndex()
        self._sizes = [(photo.get("width"), photo.get("height")) for photo in photos]
        self.ids: list[int] = [photo["id"] for photo in photos]

    def picture(self, photo: int) -> NDArray[np.uint8]:
        """A photo, (height, width, 3) BGR.

        Raises:
            DetectorError: the file is unreadable, or its size differs from the annotations.
        """
        path, stated = self.paths[photo], self._sizes[photo]
        image = read_picture(path)
        if image is None:
            raise DetectorError(f"photo {path} cannot be read: is --images the right folder?")
        seen = (image.shape[1], image.shape[0])
        if None not in stated and stated != seen:
            raise DetectorError(
                f"photo {path} is {seen[0]}x{seen[1]}, the annotations say {stated[0]}x{stated[1]}: "
                "the annotations belong to other photos"
            )
        return np.asarray(image, np.uint8)

    def categories(self, labels: Sequence[str]) -> list[int]:
        """The category id of each class: by name, or by order if the model has no label names and the counts agree.

        Raises:
            DetectorError: a label is not among the categories.
        """
        known = self.coco.cats
        by_name = {str(category["name"]): number for number, category in known.items()}
        if all(label in by_name for label in labels):
            return [by_name[label] for label in labels]
        if len(labels) == len(known) and all(label.startswith("class_") for label in labels):
            return sorted(known)
        missing = [label for label in labels if label not in by_name]
        raise DetectorError(
            f"the annotations have {len(known)} categories, but not {missing[0]!r}, which is a label of the model: "
            "pass --labels with the names that the annotations use"
        )


def told(numbers: Sequence[int], tell: Tell | None) -> Iterator[int]:
    """The numbers, with a call before each."""
    for done, number in enumerate(numbers):
        if tell is not None:
            tell(done, len(numbers))
        yield number


def measure(
    detector: Detector, truth: Truth, photos: Sequence[int] | None = None, tell: Tell | None = None
) -> tuple[Evaluation, Matches]:
    """Run the detector over labelled photos.

    Args:
        photos: indices of photos in rising order; None for all.
        tell: called before each photo.

    Raises:
        DetectorError: a photo cannot be read, or the labels do not match.
    """
    numbers = list(range(len(truth.paths)) if photos is None else photos)
    categories = truth.categories(detector.info.labels)
    with closing(detector.lane()) as lane:
        found = [lane.detect([HostImage(truth.picture(number))])[0][0] for number in told(numbers, tell)]
    return score(truth, numbers, categories, plausible(found, len(categories))[0])


def score(
    truth: Truth, photos: Sequence[int], categories: Sequence[int], found: Sequence[Detections]
) -> tuple[Evaluation, Matches]:
    """COCO's figures for detections on photos.

    Args:
        categories: the category id of each class.
    """
    from pycocotools.cocoeval import COCOeval

    ids = [truth.ids[number] for number in photos]
    rows = [row for number, one in zip(ids, found) for row in _results(number, one, categories)]
    with _silence():
        results = truth.coco.loadRes(rows) if rows else _nothing()
        scores = COCOeval(truth.coco, results, "bbox")
        scores.params.imgIds = ids
        scores.evaluate()
        scores.accumulate()
        scores.summarize()
    boxes = len(truth.coco.getAnnIds(imgIds=ids))
    # A figure is -1 without ground truth. Axes: IoU, recall, class, area, limit; the last limit is the largest.
    precision = scores.eval["precision"][:, :, :, _ALL_AREAS, -1]
    classes = {
        str(truth.coco.cats[category]["name"]): round(float(values[values > -1].mean()), 4)
        for category, values in zip(scores.params.catIds, precision.transpose(2, 0, 1))
        if (values > -1).any()
    }
    ap, ap50, ap75, small, medium, large = (round(float(value), 4) for value in scores.stats[:6])
    figures = Evaluation(ap, ap50, ap75, small, medium, large, len(photos), boxes, classes)
    return figures, _matches(scores, truth, photos)


def operation(
    truth: Truth, photos: Sequence[int], categories: Sequence[int], found: Sequence[Detections], confidence: float
) -> Operation:
    """Precision and recall at a confidence threshold. Boxes on a crowd are ignored.

    Args:
        found: as `run` detects, each box with its best class.
    """
    hits = boxes = objects = 0
    ids = np.array(categories, np.int32)
    for number, every in zip(photos, found):
        one = every[every.confidence >= confidence]
        rows = truth.coco.loadAnns(truth.coco.getAnnIds(imgIds=[truth.ids[number]]))
        crowd = [row for row in rows if row["iscrowd"]]
        xyxy, classes = _boxes([row for row in rows if not row["iscrowd"]])
        pairs = match(xyxy, classes, one.xyxy, ids[one.class_id], _MIN_IOU)
        spare = np.ones(len(one), np.bool_)
        spare[[pair[1] for pair in pairs]] = False
        hits += len(pairs)
        boxes += len(one) - _on_crowds(one[spare], ids, *_boxes(crowd))
        objects += len(xyxy)
    return Operation(confidence, round(hits / max(1, boxes), 4), round(hits / max(1, objects), 4))


def _boxes(rows: Sequence[dict[str, Any]]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Corners and category ids of annotations."""
    boxes = np.array([row["bbox"] for row in rows], np.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    return boxes, np.array([row["category_id"] for row in rows], np.int32)


def _on_crowds(
    spare: Detections, ids: NDArray[np.int32], crowds: NDArray[np.float32], classes: NDArray[np.int32]
) -> int:
    """Number of boxes of which half the area or more lies on a crowd of their class."""
    low = np.maximum(spare.xyxy[:, None, :2], crowds[None, :, :2])
    high = np.minimum(spare.xyxy[:, None, 2:], crowds[None, :, 2:])
    common = np.clip(high - low, 0, None).prod(axis=2)
    area = (spare.xyxy[:, 2:] - spare.xyxy[:, :2]).prod(axis=1)[:, None]
    same = ids[spare.class_id][:, None] == classes[None]
    return int((same & (area > 0) & (common >= _MIN_IOU * area)).any(axis=1).sum())


def _results(photo: int, found: Detections, categories: Sequence[int]) -> list[dict[str, Any]]:
    """A photo's boxes in COCO's result format."""
    sizes = found.xyxy.copy()
    sizes[:, 2:] -= sizes[:, :2]
    rows = zip(sizes.tolist(), found.confidence.tolist(), found.class_id.tolist())
    return [
        {"image_id": photo, "category_id": categories[number], "bbox": box, "score": sure} for box, sure, number in rows
    ]


def _matches(scores: Any, truth: Truth, photos: Sequence[int]) -> Matches:
    """COCOeval's matches, by category."""
    ids = scores.params.imgIds  # in rising order
    place = {truth.ids[number]: row for row, number in enumerate(photos)}
    stride = len(scores.params.areaRng) * len(ids)
    categories = []
    for begin in range(0, stride * len(scores.params.catIds), stride):
        rows = [row for row in scores.evalImgs[begin : begin + len(ids)] if row is not None]
        if rows:
            categories.append(_category(rows, place))
    names = [truth.groups[number] for number in photos] if truth.groups else list(map(str, photos))
    groups = np.unique(names, return_inverse=True)[1].reshape(-1)
    return Matches(categories, groups, "clips" if truth.groups else "photos")


def _category(rows: Sequence[dict[str, Any]], place: dict[int, int]) -> Category:
    """One category from COCOeval's rows, by falling score; ties in COCOeval's order."""
    truths = np.zeros(len(place), np.int64)
    for row in rows:
        truths[place[row["image_id"]]] = np.count_nonzero(np.asarray(row["gtIgnore"]) == 0)
    scores = np.concatenate([row["dtScores"] for row in rows]).astype(np.float64)
    photo = np.repeat([place[row["image_id"]] for row in rows], [len(row["dtScores"]) for row in rows])
    ignored = np.concatenate([row["dtIgnore"] for row in rows], axis=1).astype(np.bool_)
    tp = np.concatenate([row["dtMatches"] > 0 for row in rows], axis=1) & ~ignored
    order = np.argsort(-scores, kind="mergesort")
    return Category(scores[order], photo[order], tp[:, order], ignored[:, order], truths)


def _nothing() -> Any:
    """Results without a box: loadRes rejects an empty list."""
    from pycocotools.coco import COCO

    results = COCO()
    results.dataset = {"images": [], "annotations": [], "categories": []}
    results.createIndex()
    return results


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Hide the progress that pycocotools prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _limit(content: dict[str, Any], roi: Share, annotations: Path) -> None:
    """Remove objects whose centre lies outside of a region."""
    sizes = {photo["id"]: (photo.get("width"), photo.get("height")) for photo in content["images"]}
    if any(None in size for size in sizes.values()):
        raise DetectorError(f"annotations {annotations} lack width and height of photos, which --roi needs")

    def is_inside(row: dict[str, Any]) -> bool:
        (x, y, w, h), (width, height) = row["bbox"], sizes[row["image_id"]]
        return bool(roi[0] <= (x + w / 2) / width <= roi[2] and roi[1] <= (y + h / 2) / height <= roi[3])

    content["annotations"] = [row for row in content["annotations"] if is_inside(row)]


def _read(annotations: Path) -> dict[str, Any]:
    """The annotations, with defaults for keys that COCO's own files always have."""
    try:
        content: dict[str, Any] = json.loads(annotations.read_text(encoding="utf-8"))
        missing = [key for key in ("images", "annotations", "categories") if key not in content]
    except (OSError, ValueError, TypeError) as error:
        raise DetectorError(f"annotations {annotations} cannot be read as JSON: {error}") from error
    if missing:
        raise DetectorError(f"annotations {annotations} are not in COCO's format: `{missing[0]}` is missing")
    content.setdefault("info", {})
    for number, annotation in enumerate(content["annotations"], start=1):
        annotation["id"] = number  # COCOeval takes 0 for "no match"
        annotation.setdefault("iscrowd", 0)
        annotation.setdefault("area", annotation["bbox"][2] * annotation["bbox"][3])
    return content
