"""Key points, boxes at an angle and masks: from the detector's columns to messages and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import jsonschema
import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from daemon.config.publisher import MaskForm
from daemon.pipeline.drawing import with_boxes
from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.outbox import Result, Served
from daemon.publish.build import boxes_of
from daemon.publish.masks import MaskEncoder
from detectors.detections import Detections, Masks, no_tracks, nothing
from detectors.port import StageTimes
from lookout.messages import Detection, FrameClock, Model, RunLengths

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "schema" / "detections.schema.json").read_text())
LABELS = ("dog", "cat")
SERVED = Served(Model("m", "0" * 12, "fp32", "fake"), LABELS)
FIELDS = ("keypoints", "obb", "mask")
Bits = npt.NDArray[np.bool_]


def _found(count: int, **columns: Any) -> Detections:
    """Boxes, the strongest first."""
    xyxy = np.tile(np.array([[10, 20, 50, 60]], np.float32), (count, 1))
    confidence = np.linspace(0.9, 0.5, count, dtype=np.float32)
    return Detections(xyxy, confidence, np.zeros(count, np.int32), **columns)


def _masks(*bitmaps: Bits, origin: tuple[float, float] = (0, 0), scale: tuple[float, float] = (1, 1)) -> Masks:
    stacked = np.stack(bitmaps)
    return Masks(np.packbits(stacked, axis=2), stacked.shape[2], origin, scale)


def _sent(*found: Detections, form: MaskForm = "polygon", most: int = 100, ledger: Ledger | None = None) -> Any:
    """The detections of each frame, as a reader of JSON gets them, after a check against the schema."""
    info = FrameInfo("cam", "s", 0, None, 0, 1, FrameClock("arrival"), 5, 640, 480)
    results = [Result(info, one, 10, StageTimes(1, 2, 3), SERVED) for one in found]
    frames = json.loads(msgspec.json.encode(list(boxes_of(results, MaskEncoder(form, most, ledger or Ledger())))))
    for frame in frames:
        for row in frame:
            jsonschema.validate(row, {**SCHEMA, "$ref": "#/$defs/Detection"})
            assert msgspec.json.decode(msgspec.json.encode(row), type=Detection)
    return frames


def _rectangle() -> Bits:
    bitmap = np.zeros((13, 21), np.bool_)
    bitmap[2:6, 4:12] = True
    return bitmap


def _ring() -> Bits:
    bitmap = np.zeros((13, 21), np.bool_)
    bitmap[1:12, 1:20] = True
    bitmap[4:9, 5:16] = False
    return bitmap


def test_without_columns_nothing_is_added() -> None:
    (((row,), (tracked,)),) = [_sent(_found(1), _found(1).with_tracks(no_tracks(_found(1))))]
    assert set(row) == set(tracked) == {"label", "class_id", "confidence", "box", "track_id"}


def test_key_points_are_rounded() -> None:
    points = np.array([[[1.23456, 2.98765, 0.123456], [np.nan, 3, 0.5]]], np.float32)
    ((row,),) = _sent(_found(1, keypoints=points))
    assert row["keypoints"] == [[1.23, 2.99, 0.1235], [0, 0, 0]]
    assert set(FIELDS) & set(row) == {"keypoints"}
    assert row["track_id"] is None
    assert "velocity" not in row


def test_boxes_at_an_angle_are_rounded() -> None:
    ((row,),) = _sent(_found(1, obb=np.array([[30.126, 40.5, 20, 10.001, 0.785398]], np.float32)))
    assert row["obb"] == [30.13, 40.5, 20, 10, 0.7854]
    assert set(FIELDS) & set(row) == {"obb"}


def test_tracked_boxes_have_both() -> None:
    found = _found(2, obb=np.zeros((2, 5), np.float32))
    tracks = msgspec.structs.replace(no_tracks(found), id=np.array([7, 0]))
    ((first, second),) = _sent(found.with_tracks(tracks))
    assert (first["track_id"], first["velocity"], first["track_label"]) == (7, [0, 0], "dog")
    assert second["track_id"] is None
    assert "age" not in second
    assert first["obb"] == second["obb"] == [0] * 5


def test_each_frame_has_its_own_rows() -> None:
    """A frame without boxes has no columns, and some frames have no masks."""
    points = np.arange(12, dtype=np.float32).reshape(2, 2, 3) / 100
    frames = _sent(nothing(), _found(2, keypoints=points), _found(1), _found(1, masks=_masks(_rectangle())))
    assert [[sorted(set(FIELDS) & set(row)) for row in frame] for frame in frames] == [
        [],
        [["keypoints"], ["keypoints"]],
        [[]],
        [["mask"]],
    ]
    assert frames[1][1]["keypoints"][0] == [0.06, 0.07, 0.08]


def test_a_polygon_runs_through_the_centres_of_the_outermost_bits() -> None:
    masks = _masks(_rectangle(), _ring(), origin=(-3, 10), scale=(4, 2.5))
    ((rectangle, ring),) = _sent(_found(2, masks=masks))
    left, top, right, bottom = 4.5 * 4 - 3, 2.5 * 2.5 + 10, 11.5 * 4 - 3, 5.5 * 2.5 + 10
    expected = {(x, y) for x in (left, right) for y in (round(top, 1), round(bottom, 1))}
    (outline,) = rectangle["mask"]
    assert {tuple(point) for point in outline} == expected
    (outer,) = ring["mask"]  # the hole is not told
    assert np.min(outer, axis=0).tolist() == [1.5 * 4 - 3, round(1.5 * 2.5 + 10, 1)]
    assert np.max(outer, axis=0).tolist() == [19.5 * 4 - 3, round(11.5 * 2.5 + 10, 1)]


def test_a_mask_in_two_parts_has_two_rings_and_specks_have_none() -> None:
    two = _rectangle()
    two[8:11, 14:20] = True
    two[12, 0] = True
    ((row, empty),) = _sent(_found(2, masks=_masks(two, np.zeros_like(two))))
    assert sorted(len(ring) for ring in row["mask"]) == [4, 4]
    assert empty["mask"] == []


def _decoded(runs: dict[str, Any]) -> Bits:
    """As COCO's tools decode them."""
    height, width = runs["size"]
    bits: list[bool] = []
    for place, count in enumerate(runs["counts"]):
        bits += [place % 2 == 1] * count
    decoded: Bits = np.array(bits, np.bool_).reshape(width, height).T
    return decoded


def test_run_lengths_decode_to_the_mask() -> None:
    random = np.random.default_rng(1).random((13, 21)) > 0.5
    full, empty = np.ones((13, 21), np.bool_), np.zeros((13, 21), np.bool_)
    bitmaps = [_rectangle(), _ring(), random, ~random, full, empty]
    masks = _masks(*bitmaps, origin=(-3.21987, 10), scale=(8 / 3, 2))
    (rows,) = _sent(_found(len(bitmaps), masks=masks), form="rle")
    for bitmap, row in zip(bitmaps, rows):
        assert sum(row["mask"]["counts"]) == bitmap.size
        assert np.array_equal(_decoded(row["mask"]), bitmap)
        assert (row["mask"]["origin"], row["mask"]["scale"]) == ([-3.22, 10], [2.666667, 2])
    assert rows[4]["mask"]["counts"] == [0, full.size]
    assert rows[5]["mask"]["counts"] == [empty.size]


def test_a_scale_of_numpy_s_is_sent() -> None:
    masks = _masks(_rectangle(), origin=(np.float32(1), np.float32(2)), scale=(np.float64(4), np.float32(2)))
    ((row,),) = _sent(_found(1, masks=masks), form="rle")
    assert (row["mask"]["origin"], row["mask"]["scale"]) == ([1, 2], [4, 2])


def test_masks_may_be_off() -> None:
    ledger = Ledger()
    ((row,),) = _sent(_found(1, masks=_masks(_rectangle())), form="off", most=1, ledger=ledger)
    assert "mask" not in row
    assert ledger.masks_left_out == 0


@pytest.mark.parametrize("form", ["polygon", "rle"])
def test_masks_beyond_the_limit_are_counted(form: MaskForm) -> None:
    ledger = Ledger()
    found = _found(5, masks=_masks(*[_rectangle()] * 5))
    frames = _sent(found, found[:2], found, form=form, most=3, ledger=ledger)
    assert [["mask" in row for row in frame] for frame in frames] == [
        [True] * 3 + [False] * 2,
        [True] * 2,
        [True] * 3 + [False] * 2,
    ]
    assert ledger.masks_left_out == 4


def test_both_forms_come_back_from_both_encodings() -> None:
    polygon = Detection("dog", 0, 0.5, (1, 2, 3, 4), mask=[[(1.0, 2.0), (3.0, 4.0), (5.0, 0.5)]])
    runs = Detection("dog", 0, 0.5, (1, 2, 3, 4), mask=RunLengths((2, 2), [1, 3], (0.0, 0.0), (4.0, 4.0)))
    for row in (polygon, runs):
        assert msgspec.json.decode(msgspec.json.encode(row), type=Detection) == row
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=Detection) == row


def _changed(found: Detections) -> Bits:
    """Pixels of a grey picture that drawing changes, beside those of plain boxes."""
    grey = np.full((240, 320, 3), 90, np.uint8)
    plain = Detections(found.xyxy, found.confidence, found.class_id)
    changed: Bits = (with_boxes(grey, found, LABELS) != with_boxes(grey, plain, LABELS)).any(axis=2)
    assert (grey == 90).all()
    return changed


def test_seen_key_points_are_dots() -> None:
    points = np.array([[[100, 150, 0.9], [200, 150, 0.4], [-5, 3, 0.9], [1e30, 3, 0.9], [np.nan, 3, 0.9]]], np.float32)
    rows, columns = np.nonzero(_changed(_found(1, keypoints=points)))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (148, 152, 98, 102)


def test_a_mask_tints_what_it_covers() -> None:
    masks = _masks(_rectangle(), _ring(), origin=(100, 100), scale=(8, 8))
    changed = _changed(_found(2, masks=masks))
    expected = np.zeros((240, 320), np.bool_)
    for bitmap in (_rectangle(), _ring()):
        expected[100:204, 100:268] |= bitmap.repeat(8, axis=0).repeat(8, axis=1)
    assert np.array_equal(changed, expected)
    assert not _changed(_found(0, masks=Masks(np.empty((0, 13, 3), np.uint8), 21, (0, 0), (1, 1)))).any()


def test_a_box_at_an_angle_is_drawn_instead_of_its_hull() -> None:
    obb = np.array([[160, 180, 60, 20, np.pi / 6]], np.float32)
    found = Detections(np.array([[129, 156, 191, 204]], np.float32), np.ones(1, np.float32), np.zeros(1, np.int32))
    changed = _changed(msgspec.structs.replace(found, obb=obb))
    corners = cv2.boxPoints(((160, 180), (60, 20), 30))
    middles = ((corners + np.roll(corners, 1, axis=0)) / 2).round().astype(int).tolist()
    assert all(changed[y - 1 : y + 2, x - 1 : x + 2].any() for x, y in middles)
    assert not changed[175:186, 150:171].any()
    assert changed[204, 130]  # the hull's corner is not drawn
    away = ~changed
    away[150:210, 125:196] = True
    assert away.all()
