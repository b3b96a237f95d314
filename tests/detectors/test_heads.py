"""Heads: recognition by shape, equal boxes from all layouts, NMS by its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from detectors.heads.candidates import nms
from detectors.heads.layout import ModelFacts
from detectors.heads.queries import least_logit, probabilities
from detectors.heads.recognise import recognise
from detectors.letterbox import Fit, InputSpec, cell_size, fit, preprocess, resample
from detectors.matching import iou_matrix
from detectors.onnx_graph import OnnxGraph
from detectors.port import DetectorError, PostprocessParams

SIZE = (96, 96)
CELLS = 12 * 12 + 6 * 6 + 3 * 3


@pytest.mark.parametrize(
    ("shape", "name", "classes"),
    [
        ((1, 3 * CELLS, 85), "yolov5", 80),
        ((1, 84, CELLS), "yolov8", 80),
        ((1, 5, CELLS), "yolov8", 1),
        ((1, CELLS, 85), "yolox", 80),
        ((1, 3 * CELLS, 6), "yolov5", 1),
        ((1, CELLS, 6), "yolox", 1),
        ((1, 84, CELLS + 1), "yolov8", 80),  # one cell more for stride 64
    ],
)
def test_recognised_by_shape(shape: tuple[int, ...], name: str, classes: int | None) -> None:
    head = recognise(ModelFacts([("output0", shape)], SIZE, {}))
    assert (head.name, head.classes) == (name, classes)


@pytest.mark.parametrize(
    ("outputs", "metadata", "message"),
    [
        ([("output0", (1, 1000))], {}, "model.head: classify"),
        ([("a", (1, 84, 77)), ("protos", (1, 32, 16, 16))], {}, "protos"),
        ([("output0", (1, 84, 77))], {}, r"yolov8 \(b, 4\+c, n\)"),
        ([("output0", (1, 56, CELLS))], {"task": "pose"}, "pose"),
    ],
)
def test_an_unknown_head_names_outputs_and_supported_layouts(
    outputs: list[tuple[str, tuple[int, ...]]], metadata: dict[str, str], message: str
) -> None:
    with pytest.raises(DetectorError, match=message):
        recognise(ModelFacts(outputs, SIZE, metadata))


def test_sizes_whose_order_is_not_known_are_refused() -> None:
    """orig_target_sizes are width and height, target_sizes of transformers height and width: in a square no matter."""
    outputs = [("labels", (1, 10)), ("boxes", (1, 10, 4)), ("scores", (1, 10))]
    for name, size, is_known in (
        ("orig_target_sizes", (96, 64), True), ("target_sizes", (96, 96), True), ("target_sizes", (96, 64), False)
    ):  # fmt: skip
        graph = OnnxGraph(stem=((3, 2),))
        facts = ModelFacts(outputs, size, {}, [name], 1, graph)
        if is_known:
            assert recognise(facts).constants[name].tolist() == list(size)
            continue
        with pytest.raises(DetectorError, match=r"told the size of the picture, .*orig_target_sizes"):
            recognise(facts)


def test_an_override_must_exist_and_match() -> None:
    assert recognise(ModelFacts([("o", (1, 84, CELLS))], SIZE, {}), "yolov8").name == "yolov8"
    with pytest.raises(DetectorError, match="not recognised"):
        recognise(ModelFacts([("o", (1, 84, CELLS))], SIZE, {}), "yolov5")
    with pytest.raises(DetectorError, match="supported are auto, rtdetr"):
        recognise(ModelFacts([("o", (1, 84, CELLS))], SIZE, {}), "yolov99")


def _same_box_in_every_layout() -> dict[str, np.ndarray]:
    """One box of class 1 with score 0.72, centre (20, 28), size 16x8, as raw output of each head."""
    row = np.zeros((3 * CELLS, 7), np.float32)
    row[5] = [20, 28, 16, 8, 0.9, 0.1, 0.8]
    column = np.zeros((6, CELLS), np.float32)
    column[:, 9] = [20, 28, 16, 8, 0.1, 0.72]
    grid = np.zeros((CELLS, 7), np.float32)
    grid[3 * 12 + 2] = [20 / 8 - 2, 28 / 8 - 3, np.log(16 / 8), np.log(8 / 8), 0.9, 0.1, 0.8]
    ready = np.zeros((300, 6), np.float32)
    ready[0] = [12, 24, 28, 32, 0.72, 1]
    return {"yolov5": row, "yolov8": column, "yolox": grid, "end2end": ready}


@pytest.mark.parametrize("name", ["yolov5", "yolov8", "yolox", "end2end"])
@pytest.mark.parametrize("multi_label", [False, True])
def test_every_layout_gives_the_same_box(name: str, multi_label: bool) -> None:
    output = _same_box_in_every_layout()[name]
    head = recognise(ModelFacts([("o", (1, *output.shape))], SIZE, {}), name)
    found = head.detections({"o": output}, fit(*SIZE, head.spec), PostprocessParams(0.25, 0.5, 10, multi_label))
    np.testing.assert_allclose(found.xyxy, [[12, 24, 28, 32]], rtol=1e-5)
    np.testing.assert_allclose(found.confidence, [0.72], rtol=1e-5)
    assert found.class_id.tolist() == [1]


def _reference_nms(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, iou: float, limit: int) -> list[int]:
    """NMS by its definition, box by box. Overlaps are in single precision, and so is the limit: numpy 1 would compare
    one element in double precision."""
    kept: list[int] = []
    overlaps = iou_matrix(boxes, boxes)
    for index in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        if len(kept) < limit and all(
            classes[k] != classes[index] or overlaps[k, index] <= np.float32(iou) for k in kept
        ):
            kept.append(index)
    return kept


@given(
    hnp.arrays(np.int16, st.tuples(st.integers(0, 25), st.just(4)), elements=st.integers(0, 12)),
    st.integers(0, 2**31),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    st.integers(1, 30),
)
def test_nms_agrees_with_its_definition(corners: np.ndarray, seed: int, iou: float, limit: int) -> None:
    rng = np.random.default_rng(seed)
    low, size = corners[:, :2].astype(np.float32), corners[:, 2:].astype(np.float32)
    boxes = np.concatenate((low, low + size), axis=1)
    scores = rng.integers(1, 5, len(boxes)).astype(np.float32) / 4  # many ties
    classes = rng.integers(0, 2, len(boxes))
    assert nms(boxes, scores.astype(np.float32), classes, iou, limit).tolist() == _reference_nms(
        boxes, scores, classes, iou, limit
    )


@pytest.mark.parametrize("size", [(1, 1), (640, 360), (360, 640), (1920, 1080), (7680, 4320), (3000, 1)])
@pytest.mark.parametrize("fitting", ["letterbox", "corner"])
def test_letterbox_round_trip(size: tuple[int, int], fitting: Fit) -> None:
    """Corners of the picture map back to its corners; no box lies outside."""
    box = fit(*size, InputSpec(320, 320, fit=fitting))
    assert 0 < box.width <= 320
    assert 0 < box.height <= 320
    assert (box.left, box.top) == ((320 - box.width) // 2, (320 - box.height) // 2) or fitting == "corner"
    inner = np.array([[box.left, box.top, box.left + box.width, box.top + box.height]], np.float32)
    np.testing.assert_allclose(box.to_source(inner), [[0, 0, *size]], rtol=1e-6)
    outside = box.to_source(np.array([[-50, -50, 400, 400]], np.float32))
    np.testing.assert_allclose(outside, [[0, 0, *size]])


def test_resample_keeps_a_constant_and_a_ramp() -> None:
    """Half-pixel centres: a linear ramp stays linear away from the borders."""
    ramp = np.repeat(np.arange(0, 240, 4, dtype=np.uint8)[None, :, None], 30, axis=0).repeat(3, axis=2)
    half = resample(ramp, 30, 15)
    np.testing.assert_allclose(half[0, :, 0], np.arange(30) * 8 + 2)


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 40), st.integers(1, 40), st.data())
def test_no_pixel_is_skipped(width: int, height: int, to_width: int, to_height: int, data: st.DataObject) -> None:
    """Every source pixel affects the result at any scale."""
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    picture = np.zeros((height, width, 3), np.uint8)
    picture[y, x] = 255
    assert resample(picture, to_width, to_height).max() > 0


@pytest.mark.parametrize(("across", "down"), [(2, 2), (3, 3), (4, 4), (6, 6), (3, 2), (1, 5)])
def test_at_whole_ratios_a_pixel_is_the_mean_of_its_area(across: int, down: int) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (4 * down, 5 * across, 3), dtype=np.uint8)
    wanted = picture.reshape(4, down, 5, across, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(resample(picture, 5, 4), wanted, rtol=1e-6)


@pytest.mark.parametrize("cell", [2, 3])
def test_cells_take_the_place_of_pixels(cell: int) -> None:
    """Two pictures become the same: one of blocks of a cell each, and one of a pixel per block."""
    small = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    large = small.repeat(cell, axis=0).repeat(cell, axis=1)
    np.testing.assert_allclose(resample(large, 10, 8), resample(small, 10, 8), rtol=1e-6)


@pytest.mark.parametrize(
    ("source", "target", "size"),
    [(3840, 640, 6), (1920, 640, 3), (1919, 640, 2), (1280, 640, 2), (1279, 640, 1), (300, 640, 1)],
)
def test_a_cell_has_as_many_pixels_as_a_target_pixel_covers_in_whole(source: int, target: int, size: int) -> None:
    assert cell_size(source, target) == size


@given(st.floats(2.0**-20, 1, width=32))
def test_the_least_logit_reaches_the_confidence(confidence: float) -> None:
    """And the one below it does not."""
    least = np.array([least_logit(confidence)], np.float32)
    assert probabilities(least) >= np.float32(confidence)
    assert probabilities(np.nextafter(least, np.float32(-np.inf))) < np.float32(confidence)


def test_queries_of_equal_scores_come_by_their_logits() -> None:
    """Scores of 1, which differ in their logits."""
    logits, boxes = np.array([[19, -9], [-9, 21], [20, -9]], np.float32), np.full((3, 4), 0.5, np.float32)
    facts = ModelFacts([("logits", (1, 3, 2)), ("pred_boxes", (1, 3, 4))], (64, 64), {})
    wanted = PostprocessParams(1.0)
    head = recognise(facts, "rtdetr")
    found = head.detections({"logits": logits, "pred_boxes": boxes}, fit(64, 64, head.spec), wanted)
    assert found.confidence.tolist() == [1, 1, 1]
    assert found.class_id.tolist() == [1, 0, 0]


@pytest.mark.parametrize("layout", ["yolov5", "yolov8", "end2end"])
def test_every_layout_gives_the_same_box_at_an_angle(layout: str) -> None:
    box, angle = [30.0, 20.0, 12.0, 6.0], 0.5
    rows = {"yolov5": [*box, 1.0, 0.9, angle], "yolov8": [*box, 0.9, angle], "end2end": [*box, 0.9, 0, angle]}[layout]
    raw = np.zeros((3 * 84 if layout == "yolov5" else 84, len(rows)), np.float32)
    raw[7] = rows
    raw = raw.T if layout == "yolov8" else raw
    head = recognise(ModelFacts([("out", (1, *raw.shape))], (64, 64), {"task": "obb"}), layout)
    found = head.detections({"out": raw}, fit(64, 64, head.spec), PostprocessParams(0.5))
    assert found.obb is not None
    np.testing.assert_allclose(found.obb, [[*box, angle]], rtol=1e-6)


def test_preprocess_pads_and_orders_channels_by_family() -> None:
    image = np.zeros((32, 64, 3), np.uint8)
    image[..., 0] = 255  # blue
    yolo = preprocess(image, InputSpec(64, 64))
    assert yolo[:, 0, 0] == pytest.approx([114 / 255] * 3)
    assert yolo[:, 32, 32] == pytest.approx([0, 0, 1])
    yolox = preprocess(image, InputSpec(64, 64, fit="corner", rgb=False, scale=(1.0, 1.0, 1.0)))
    assert yolox[:, 0, 0] == pytest.approx([255, 0, 0])
    assert yolox[:, 63, 0] == pytest.approx([114] * 3)
