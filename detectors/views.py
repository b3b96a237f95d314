"""Regions of a picture that a model sees one by one, and their boxes made one set without doubles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from time import perf_counter_ns

import msgspec
import numpy as np
import numpy.typing as npt

from detectors.detections import Detections, Masks, nothing
from detectors.port import Image, Lane, Region, StageTimes

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.intp]

_MARGIN = 0.01  # of a tile's side: a box so near to an inner border is taken as cut by it
_MIN_MARGIN = 2.0  # pixels
_SAME = 0.5  # IoU, within what both tiles see, of two boxes of one object
_WITHIN = 0.7  # share of a part's area inside of a complete box


@dataclass(frozen=True)
class Tiling:
    """Division of a region into tiles of equal size.

    Attributes:
        columns, rows: numbers of tiles.
        overlap: share of a tile's width and height that neighbours have in common.
        whole: the region itself is a view as well, for objects that are larger than a tile.
    """

    columns: int
    rows: int
    overlap: float = 0.1
    whole: bool = True

    @property
    def pictures(self) -> int:
        """Pictures that the model sees for one frame."""
        return self.columns * self.rows + self.whole

    def regions(self, within: Region) -> tuple[Region, ...]:
        """The tiles, row by row; before them the region itself, if it is a view."""
        across = _spans(within.left, within.width, self.columns, self.overlap)
        down = _spans(within.top, within.height, self.rows, self.overlap)
        tiles = [Region(left, top, width, height) for top, height in down for left, width in across]
        return (within, *tiles) if self.whole else tuple(tiles)


@dataclass(frozen=True)
class Limits:
    """Limits of the merged boxes.

    Attributes:
        iou: of two boxes of one class from different regions, the weaker is removed if their IoU is higher.
        max_detections: maximum number of boxes; the strongest remain.
    """

    iou: float
    max_detections: int


def detect(
    lane: Lane, images: Sequence[Image], regions: Sequence[Sequence[Region]], max_batch: int, limits: Limits
) -> tuple[list[Detections], StageTimes]:
    """Detect on regions of pictures, in as many batches as needed.

    Args:
        regions: of each picture; none for the whole picture.

    Returns:
        One result for each picture, in its coordinates, and the sum of the times of all batches. Merging counts as
        postprocess.

    Raises:
        DetectorError: the backend failed; the lane is unusable.
    """
    seen: list[Image] = []
    for image, parts in zip(images, regions):
        seen += [image.cropped(part) for part in parts] or [image]
    found: list[Detections] = []
    sums = [0, 0, 0]
    for begin in range(0, len(seen), max_batch):
        rows, times = lane.detect(seen[begin : begin + max_batch])
        found += rows
        sums = [sums[0] + times.preprocess, sums[1] + times.infer, sums[2] + times.postprocess]
    began = perf_counter_ns()
    results = []
    rest = iter(found)
    for parts in regions:
        own = [next(rest) for _ in parts] or [next(rest)]
        results.append(merged(own, parts, limits) if parts else own[0])
    return results, StageTimes(sums[0], sums[1], sums[2] + perf_counter_ns() - began)


def merged(found: Sequence[Detections], regions: Sequence[Region], limits: Limits) -> Detections:
    """The boxes of several regions in coordinates of the whole picture, strongest first, each object once.

    A box that touches an inner border of its region may be a part of an object. It gives way to a box of the same class
    in another region that touches none, if both agree in what both regions see, or if most of it lies inside. Parts
    without such a box are joined. At last, suppression removes doubles between regions. Boxes of one region never
    remove each other: the model has done that. Equal confidences keep the order of regions, so the result is
    deterministic.

    Args:
        found: of each region, in its coordinates; without masks, unless there is one region.
    """
    if len(found) == 1:
        return moved(found[0], regions[0])
    numbers = [number for number, one in enumerate(found) if len(one)]
    left_out, checked = sum(one.left_out for one in found), all(one.checked for one in found)
    if not numbers:
        return msgspec.structs.replace(nothing(), left_out=left_out, checked=checked)
    every = _concatenated([moved(found[number], regions[number]) for number in numbers])
    rows = _Rows.of(every, np.repeat(numbers, [len(found[number]) for number in numbers]), regions)
    objects = _suppressed(_without_parts(rows, may_join=every.obb is None), limits)
    return msgspec.structs.replace(
        every.select(objects.rows),
        xyxy=objects.boxes,
        confidence=objects.confidence,
        left_out=left_out,
        checked=checked,
    )


def moved(found: Detections, region: Region) -> Detections:
    """The boxes of a region in coordinates of the whole picture."""
    left, top = region.left, region.top
    shift = np.array([left, top], np.float32)
    keypoints, obb, masks = found.keypoints, found.obb, found.masks
    if keypoints is not None:
        keypoints = keypoints + np.append(shift, np.float32(0))
    if obb is not None:
        obb = obb + np.append(shift, np.zeros(3, np.float32))
    if masks is not None:
        masks = Masks(masks.bits, masks.width, (masks.origin[0] + left, masks.origin[1] + top), masks.scale)
    return msgspec.structs.replace(
        found, xyxy=found.xyxy + np.tile(shift, 2), keypoints=keypoints, obb=obb, masks=masks
    )


def _spans(begin: int, length: int, count: int, overlap: float) -> list[tuple[int, int]]:
    """Begin and size of each tile along an axis; together they cover it."""
    size = min(length, ceil(length / (count - (count - 1) * overlap)))
    return [(begin + round(number * (length - size) / max(1, count - 1)), size) for number in range(count)]


def _concatenated(found: Sequence[Detections]) -> Detections:
    """The rows of sets that have the same columns, none of them empty."""
    keypoints = [one.keypoints for one in found if one.keypoints is not None]
    obb = [one.obb for one in found if one.obb is not None]
    return Detections(
        np.concatenate([one.xyxy for one in found]),
        np.concatenate([one.confidence for one in found]),
        np.concatenate([one.class_id for one in found]),
        keypoints=np.concatenate(keypoints) if keypoints else None,
        obb=np.concatenate(obb) if obb else None,
    )


@dataclass(frozen=True)
class _Rows:
    """The boxes of all regions in coordinates of the picture.

    Attributes:
        boxes: (n, 4).
        confidence, classes, regions: (n,) of each box.
        limits: (n, 4) corners of the box's region.
        is_part: (n,) the box touches an inner border.
    """

    boxes: Floats
    confidence: Floats
    classes: npt.NDArray[np.int32]
    regions: Indices
    limits: Floats
    is_part: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, every: Detections, numbers: Indices, regions: Sequence[Region]) -> _Rows:
        sides = np.array([(left, top, left + width, top + height) for left, top, width, height in regions], np.float32)
        hull = np.append(sides[:, :2].min(axis=0), sides[:, 2:].max(axis=0))
        size = np.tile(sides[:, 2:] - sides[:, :2], 2)
        margin = np.where(sides == hull, -1, np.maximum(_MIN_MARGIN, _MARGIN * size))
        is_part = (np.abs(every.xyxy - sides[numbers]) <= margin[numbers]).any(axis=1)
        return cls(every.xyxy, every.confidence, every.class_id, numbers, sides[numbers], is_part)

    def agree(self, some: Indices, others: Indices) -> npt.NDArray[np.bool_]:
        """(len(some), len(others)): both boxes are probably of one object, by their IoU in what both regions see."""
        a, b = self.boxes[some][:, None], self.boxes[others][None]
        common = _area(a, b)
        seen = _area(a, self.limits[others][None]) + _area(b, self.limits[some][:, None]) - common
        return np.asarray(self._comparable(some, others) & (common > _SAME * seen), np.bool_)

    def within(self, some: Indices, others: Indices) -> npt.NDArray[np.bool_]:
        """(len(some), len(others)): most of the first box lies in the second."""
        a, b = self.boxes[some][:, None], self.boxes[others][None]
        return np.asarray(self._comparable(some, others) & (_area(a, b) > _WITHIN * _area(a, a)), np.bool_)

    def _comparable(self, some: Indices, others: Indices) -> npt.NDArray[np.bool_]:
        """(len(some), len(others)): the same class, in different regions."""
        same = self.classes[some][:, None] == self.classes[others]
        return np.asarray(same & (self.regions[some][:, None] != self.regions[others]), np.bool_)


@dataclass(frozen=True)
class _Objects:
    """Boxes, each of one or several rows.

    Attributes:
        boxes: (n, 4).
        confidence, classes: (n,).
        regions: (n,) the number of the box's region; for joined parts, a number that no other box has.
        rows: (n,) the row that gives all further columns.
    """

    boxes: Floats
    confidence: Floats
    classes: npt.NDArray[np.int32]
    regions: Indices
    rows: Indices

    def __getitem__(self, keep: Indices) -> _Objects:
        return _Objects(
            self.boxes[keep], self.confidence[keep], self.classes[keep], self.regions[keep], self.rows[keep]
        )


def _without_parts(rows: _Rows, *, may_join: bool) -> _Objects:
    """Complete boxes, and parts of objects that are complete nowhere, joined.

    Args:
        may_join: joined parts get the box around them; otherwise the largest part stands for all.
    """
    parts, complete = np.flatnonzero(rows.is_part), np.flatnonzero(~rows.is_part)
    parts = parts[~(rows.agree(parts, complete) | rows.within(parts, complete)).any(axis=1)]
    groups = _groups(rows, parts)
    first = np.array([group[0] for group in groups], np.intp)
    boxes = [rows.boxes[group] for group in groups]
    largest = np.array([group[int(np.argmax(_area(own, own)))] for group, own in zip(groups, boxes)], np.intp)
    hulls = [np.append(own[:, :2].min(axis=0), own[:, 2:].max(axis=0)) for own in boxes]
    joined = np.array(hulls, np.float32).reshape(-1, 4) if may_join else rows.boxes[largest]
    lone = np.array([len(group) == 1 for group in groups], np.bool_)
    regions = np.where(lone, rows.regions[first], -1 - np.arange(len(groups)))
    return _Objects(
        np.concatenate((rows.boxes[complete], joined)),
        np.append(rows.confidence[complete], rows.confidence[first]),
        np.append(rows.classes[complete], rows.classes[first]),
        np.append(rows.regions[complete], regions),
        np.append(complete, largest),
    )


def _groups(rows: _Rows, parts: Indices) -> list[Indices]:
    """Parts of one object, the strongest first; a group has one part of a region at most."""
    parts = parts[np.argsort(-rows.confidence[parts], kind="stable")]
    agree = rows.agree(parts, parts)
    regions, free = rows.regions[parts], np.ones(len(parts), np.bool_)
    groups = []
    for first in range(len(parts)):
        if not free[first]:
            continue
        group, near = [first], agree[first].copy()
        free[first] = False
        while True:
            candidates = np.flatnonzero(near & free & ~np.isin(regions, regions[group]))
            if len(candidates) == 0:
                break
            group.append(int(candidates[0]))
            free[candidates[0]] = False
            near |= agree[candidates[0]]
        groups.append(parts[group])
    return groups


def _suppressed(objects: _Objects, limits: Limits) -> _Objects:
    """Greedy class-wise suppression between regions, strongest first."""
    objects = objects[np.argsort(-objects.confidence, kind="stable")]
    areas = _area(objects.boxes, objects.boxes)
    rest = np.arange(len(areas))
    kept: list[int] = []
    while len(rest) and len(kept) < limits.max_detections:
        best, rest = rest[0], rest[1:]
        kept.append(int(best))
        common = _area(objects.boxes[best], objects.boxes[rest])
        double = common > limits.iou * (areas[best] + areas[rest] - common)
        double &= objects.classes[rest] == objects.classes[best]
        rest = rest[~(double & (objects.regions[rest] != objects.regions[best]))]
    return objects[np.array(kept, np.intp)]


def _area(a: Floats, b: Floats) -> Floats:
    """Area of the intersections of boxes (..., 4)."""
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    return np.asarray(np.maximum(sides, 0).prod(axis=-1), np.float32)
