"""Regions of a picture: they cover it, and their boxes become one set without doubles, with no object lost."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.view_config import MIN_OVERLAP
from detectors.detections import Detections, Masks, nothing
from detectors.fake.detector import FakeDetector
from detectors.matching import iou_matrix
from detectors.port import DeviceImage, HostImage, Options, Region
from detectors.views import Limits, Tiling, detect, merged, moved
from tests.support.kernels import noise_nv12, region_of

LIMITS = Limits(0.5, 300)
WHOLE = Region(0, 0, 1920, 1080)
SIDES = st.integers(1, 5)
TILINGS = st.builds(Tiling, SIDES, SIDES, st.floats(MIN_OVERLAP, 0.5), st.booleans())
REGIONS = st.builds(Region, st.integers(0, 500), st.integers(0, 500), st.integers(1, 4000), st.integers(1, 3000))


def _found(boxes: Sequence[Sequence[float]], scores: Sequence[float] | None = None, classes: int = 1) -> Detections:
    count = len(boxes)
    return Detections(
        np.array(boxes, np.float32).reshape(-1, 4),
        np.array(scores if scores is not None else np.linspace(0.9, 0.5, count), np.float32),
        (np.arange(count) % classes).astype(np.int32),
    )


# --- regions -----------------------------------------------------------------------------------------------


@given(TILINGS, REGIONS)
def test_tiles_cover_the_region_and_nothing_else(tiling: Tiling, within: Region) -> None:
    regions = tiling.regions(within)
    assert len(regions) == tiling.pictures
    assert (regions[0] == within) or not tiling.whole
    seen = np.zeros((within.height, within.width), np.bool_)
    for left, top, width, height in regions[tiling.whole :]:
        assert width >= 1
        assert height >= 1
        x, y = left - within.left, top - within.top
        assert x >= 0
        assert y >= 0
        assert x + width <= within.width
        assert y + height <= within.height
        seen[y : y + height, x : x + width] = True
    assert seen.all()


@given(st.integers(2, 8), st.floats(MIN_OVERLAP, 0.5), st.integers(100, 8000))
def test_neighbours_share_what_was_asked_for(count: int, overlap: float, side: int) -> None:
    tiles = Tiling(count, 1, overlap, whole=False).regions(Region(0, 0, side, 10))
    assert len({tile.width for tile in tiles}) == 1
    for one, other in pairwise(tiles):
        shared = one.left + one.width - other.left
        assert shared == pytest.approx(overlap * one.width, abs=2 + count)


# --- merging -----------------------------------------------------------------------------------------------


@st.composite
def scenes(draw: st.DrawFn) -> tuple[list[tuple[float, float, float, float]], Tiling, float]:
    """Objects that do not touch each other, a tiling, and how much of an object a detector must see."""
    columns, rows = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    objects = []
    for cell in range(columns * rows):
        if not draw(st.booleans()):
            continue
        width, height = 1920 / columns, 1080 / rows
        left, top = cell % columns * width, cell // columns * height
        x = sorted(draw(st.lists(st.floats(0.02, 0.98), min_size=2, max_size=2)))
        y = sorted(draw(st.lists(st.floats(0.02, 0.98), min_size=2, max_size=2)))
        box = (left + x[0] * width, top + y[0] * height, left + x[1] * width, top + y[1] * height)
        if box[2] - box[0] > 8 and box[3] - box[1] > 8:
            objects.append(box)
    tiling = draw(st.builds(Tiling, st.integers(2, 4), st.integers(1, 4), st.floats(MIN_OVERLAP, 0.4), st.booleans()))
    return objects, tiling, draw(st.floats(3, 30))


def _looked_at(objects: Sequence[Sequence[float]], region: Region, least: float, seed: int) -> Detections:
    """What a good detector finds in a region: the visible part of each object, unless it is too small."""
    chance = np.random.default_rng(seed)
    limit = np.array([region.left, region.top, region.left + region.width, region.top + region.height])
    boxes = []
    for box in objects:
        part = np.array([*np.maximum(box[:2], limit[:2]), *np.minimum(box[2:], limit[2:])])
        if (part[2:] - part[:2]).min() > min(least, 7.0) and (part[2:] > part[:2]).all():
            boxes.append(part - np.tile(limit[:2], 2))
    scores = np.sort(chance.uniform(0.3, 1, len(boxes)))[::-1]
    return _found([row.tolist() for row in boxes], scores.tolist())


@settings(deadline=None)
@given(scenes(), st.integers(0, 9))
def test_each_object_once_wherever_the_borders_are(
    scene: tuple[list[tuple[float, float, float, float]], Tiling, float], seed: int
) -> None:
    """No doubles, none lost, strongest first; the box is the whole object's, also where no tile shows all of it."""
    objects, tiling, least = scene
    regions = tiling.regions(WHOLE)
    found = [_looked_at(objects, region, least, seed + number) for number, region in enumerate(regions)]
    result = merged(found, regions, LIMITS)
    assert len(result) == len(objects)
    assert (np.diff(result.confidence) <= 0).all()
    if objects:
        overlap = iou_matrix(np.array(objects, np.float32), result.xyxy)
        assert sorted(overlap.argmax(axis=1).tolist()) == list(range(len(objects)))
        # A tile may miss a thin slice of an object that is complete nowhere.
        assert overlap.max(axis=1).min() > 0.3
        if tiling.whole:
            assert overlap.max(axis=1).min() > 0.99


BOXES = st.lists(
    st.tuples(st.floats(0, 900), st.floats(0, 500), st.floats(1, 300), st.floats(1, 300), st.integers(1, 20)),
    max_size=12,
)


def _random(rows: Sequence[tuple[float, float, float, float, int]], region: Region) -> Detections:
    boxes = [
        (min(x, region.width - 1), min(y, region.height - 1), min(x + w, region.width), min(y + h, region.height))
        for x, y, w, h, _ in rows
    ]
    return _found(boxes, sorted((row[4] / 20 for row in rows), reverse=True), classes=2)


@settings(deadline=None)
@given(st.lists(BOXES, min_size=5, max_size=5), st.integers(1, 40))
def test_any_boxes(every: list[list[tuple[float, float, float, float, int]]], most: int) -> None:
    """Whatever a model finds: the same again, strongest first, within the limit, no class that is in none."""
    regions = Tiling(2, 2).regions(WHOLE)
    found = [_random(rows, region) for rows, region in zip(every, regions)]
    limits = Limits(0.5, most)
    one, other = merged(found, regions, limits), merged(found, regions, limits)
    for name in ("xyxy", "confidence", "class_id"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert len(one) <= most
    assert (np.diff(one.confidence) <= 0).all()
    given_classes = {number for each in found for number in each.class_id.tolist()}
    kept = set(one.class_id.tolist())
    assert kept <= given_classes
    if most >= sum(map(len, found)):
        assert kept == given_classes
        for each, region in zip(found, regions):  # each box is there, or one of its class lies on it
            for box, kind in zip(moved(each, region).xyxy, each.class_id):
                same = one.xyxy[one.class_id == kind]
                low, high = np.maximum(same[:, :2], box[:2]), np.minimum(same[:, 2:], box[2:])
                assert (high >= low).all(axis=1).any()


def test_boxes_of_one_region_stay_as_the_model_gave_them() -> None:
    """NMS of the model, or a model without NMS, has decided about them."""
    twice = _found([(100, 100, 200, 200), (101, 101, 200, 200)])
    regions = Tiling(2, 2).regions(WHOLE)
    result = merged([twice, *[nothing()] * 4], regions, LIMITS)
    np.testing.assert_array_equal(result.xyxy, twice.xyxy)


def test_a_part_gives_way_to_the_complete_box_even_if_it_is_stronger() -> None:
    regions = Tiling(2, 1, 0.1, whole=True).regions(WHOLE)
    left = regions[1]
    edge = left.width
    part = _found([(edge - 60, 100, edge, 300)], [0.9])
    complete = _found([(edge - 60, 100, edge + 80, 300)], [0.5])
    result = merged([complete, part, nothing()], regions, LIMITS)
    np.testing.assert_array_equal(result.xyxy, complete.xyxy)
    assert result.confidence.tolist() == [0.5]


def test_boxes_of_other_classes_stay() -> None:
    regions = Tiling(2, 1, whole=True).regions(WHOLE)
    one, other = _found([(10, 10, 90, 90)]), _found([(10, 10, 90, 90), (10, 10, 90, 90)], classes=2)
    result = merged([one, other, nothing()], regions, LIMITS)
    assert sorted(result.class_id.tolist()) == [0, 1]


def test_key_points_and_turned_boxes_move_with_their_box() -> None:
    regions = Tiling(2, 1, 0.1, whole=False).regions(WHOLE)
    box = _found([(300, 100, 400, 300)])
    points = np.array([[[310, 120, 0.5], [390, 290, 1.0]]], np.float32)
    turned = np.array([[350, 200, 80, 30, 0.5]], np.float32)
    found = Detections(box.xyxy, box.confidence, box.class_id, 3, True, keypoints=points, obb=turned)
    result = merged([nothing(), found], regions, LIMITS)
    x = regions[1].left
    assert result.keypoints is not None
    assert result.obb is not None
    np.testing.assert_array_equal(result.keypoints, points + np.array([x, 0, 0], np.float32))
    np.testing.assert_array_equal(result.obb, turned + np.array([x, 0, 0, 0, 0], np.float32))
    assert result.left_out == 3


def test_the_largest_of_turned_parts_stands_for_all() -> None:
    regions = Tiling(2, 1, 0.1, whole=False).regions(WHOLE)
    edge, begin = regions[0].width, regions[1].left
    parts = [[edge - 600.0, 100, edge, 300], [0.0, 100, 200, 300]]
    found = []
    for part in parts:
        one = _found([part])
        found.append(
            Detections(one.xyxy, one.confidence, one.class_id, obb=np.array([[*part[:2], 9, 9, 0.1]], np.float32))
        )
    result = merged(found, regions, LIMITS)
    assert begin < edge
    np.testing.assert_array_equal(result.xyxy, np.array(parts[:1], np.float32))


def test_masks_of_one_region_move_by_their_origin() -> None:
    bits = np.packbits(np.eye(8, dtype=np.uint8)[None], axis=2)
    box = _found([(0, 0, 16, 16)])
    found = Detections(box.xyxy, box.confidence, box.class_id, masks=Masks(bits, 8, (-1.0, 2.0), (2.0, 2.0)))
    result = merged([found], [Region(100, 50, 16, 16)], LIMITS)
    assert result.masks is not None
    assert result.masks.origin == (99.0, 52.0)
    np.testing.assert_array_equal(result.xyxy, [[100, 50, 116, 66]])


# --- detecting ---------------------------------------------------------------------------------------------


def test_pictures_with_and_without_regions_in_full_batches() -> None:
    """Eleven pictures of four frames, in batches of four; times add up."""
    batches: list[float] = []
    with closing(FakeDetector(Options(Path("none"), max_batch=4), 0.5, batches.append)) as detector:
        lane = detector.lane()
        images = [HostImage(np.full((36, 64, 3), grey, np.uint8)) for grey in (0, 255, 0, 255)]
        tiles = Tiling(2, 2).regions(Region(0, 0, 64, 36))
        results, times = detect(lane, images, [(), tiles, (), [*tiles[1:]]], 4, LIMITS)
    assert len(batches) == 3
    assert times.infer == 3 * 500_000_000
    assert [set(found.class_id.tolist()) for found in results] == [{0}, {1}, {0}, {1}]
    np.testing.assert_array_equal(results[0].xyxy, [[16, 9, 48, 27]])


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_a_region_of_a_picture_on_a_device_begins_where_its_planes_do(turns: int) -> None:
    """Any origin and rotation, also a region of a region, compared with planes cut by numpy."""
    whole = noise_nv12((37, 23), bt709=True, full_range=True, turns=turns)
    width, height = whole.size
    luma, chroma, pitch = whole.luma.ctypes.data, whole.chroma.ctypes.data, whole.luma.strides[0]
    image = DeviceImage(luma, chroma, pitch, width, height, turns=turns)
    for left in range(5):
        for top in range(5):
            for region in (Region(left, top, 9, 8), Region(left, top, 8, 7), Region(left, top, width - 6, 1)):
                cut, given = region_of(whole, region), image.cropped(region)
                assert (given.luma, given.chroma) == (cut.luma.ctypes.data, cut.chroma.ctypes.data)
                assert (given.odd_x, given.odd_y) == cut.odd
                assert (given.width, given.height) == cut.size
            twice = image.cropped(Region(1, 2, 20, 14)).cropped(Region(left, top, 7, 6))
            assert twice == image.cropped(Region(1 + left, 2 + top, 7, 6))
