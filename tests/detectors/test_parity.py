"""Heads against the post-processing of the frameworks, on files that their own exporters make."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from detectors.detections import Detections
from detectors.letterbox import fit, preprocess
from detectors.ort.detector import OrtDetector
from detectors.port import HostImage, Options, PostprocessParams
from tests.frameworks.expected import MASKED, PICTURES, Expected, load
from tests.frameworks.inputs import Floats
from tests.frameworks.runtime import Session, head_of, named
from tests.support.pictures import picture

pytestmark = pytest.mark.slow  # onnxruntime 1.20 cannot run all of the files
FOLDER = Path(__file__).parents[1] / "data" / "heads"
FILES = sorted(path.stem for path in FOLDER.glob("*.onnx"))
WANTED = PostprocessParams(0.25, 0.45, 300)


@pytest.mark.share(4)
@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", FILES)
def test_a_head_finds_what_its_framework_finds(name: str, every: int) -> None:
    """On the input that the framework computes. Pictures where a result hangs on rounding are left out."""
    expected, session = load(FOLDER / f"{name}.npz"), Session(FOLDER / f"{name}.onnx")
    head = head_of(session, expected)
    compared = 0
    for number in np.flatnonzero(expected.sure)[::every]:
        pixels = picture(int(number))
        height, width = pixels.shape[:2]
        planes = expected.placing.planes(pixels)[None]
        further = [np.array([[width, height]], np.int64)] if head.constants else []
        outputs = named(session, planes, further)
        if head.constants:  # the framework's boxes are of this size; ours are of the input
            scale = [expected.placing.width / width, expected.placing.height / height] * 2
            outputs["boxes"] = outputs["boxes"] * np.array(scale, np.float32)
        found = head.detections(outputs, fit(width, height, head.spec), WANTED)
        _compare(found, expected.of(int(number)), expected, (width, height))
        if found.masks is not None and number < MASKED:
            rows = expected.rows[expected.rows[:, 0] < MASKED][:, 0] == number
            _compare_masks(found.masks.unpacked(), expected.masks[rows])
        compared += len(found)
    assert compared > 100 // every


@pytest.mark.share(4)
@pytest.mark.parametrize("name", FILES)
def test_the_detector_finds_what_the_head_finds(name: str, tmp_path: Path) -> None:
    """The whole path on the CPU: its input is that of the reference but for rounding, its boxes are the head's."""
    expected, session = load(FOLDER / f"{name}.npz"), Session(FOLDER / f"{name}.onnx")
    head, size = head_of(session, expected), (expected.placing.width, expected.placing.height)
    (tmp_path / "labels.txt").write_text("".join(f"class {number}\n" for number in range(head.classes or 5)))
    options = Options(
        FOLDER / f"{name}.onnx",
        head=expected.head,
        semantics=expected.semantics_beside(session.metadata),
        labels=None if session.metadata else str(tmp_path / "labels.txt"),
        wanted=WANTED,
        max_batch=1,
        threads=1,
        input_size=size,
    )
    detector = OrtDetector(options)
    lane = detector.lane()
    assert (detector.info.head, detector.head.spec) == (head.name, head.spec)
    for number in range(0, 60, 10):
        pixels = picture(number)
        planes = lane.preprocess([HostImage(pixels)]).copy()
        assert np.abs(planes[0] - preprocess(pixels, head.spec)).max() < 2 * max(head.spec.scale)
        outputs = named(session, planes, [row[None] for row in head.constants.values()])
        wanted = head.detections(outputs, fit(pixels.shape[1], pixels.shape[0], head.spec), WANTED)
        (found,), _ = lane.detect([HostImage(pixels)])
        np.testing.assert_allclose(found.xyxy, wanted.xyxy, atol=0.01)
        assert found.class_id.tolist() == wanted.class_id.tolist()
    lane.close()
    detector.close()


@pytest.mark.share(4)
@pytest.mark.parametrize("name", FILES)
def test_the_input_is_that_of_the_framework(name: str) -> None:
    """Mean, deviation and fit are those of the framework's own processor, and not set by hand."""
    expected, session = load(FOLDER / f"{name}.npz"), Session(FOLDER / f"{name}.onnx")
    spec, placing = head_of(session, expected).spec, expected.placing
    np.testing.assert_allclose(spec.mean, placing.mean, atol=1e-6)
    np.testing.assert_allclose(spec.std, placing.std, rtol=1e-6)
    assert spec.rgb
    assert spec.fit == ("cover" if placing.geometry == "crop" else placing.geometry)


def _scores(rows: Floats, expected: Expected) -> Floats:
    return np.asarray(rows[:, expected.facts["columns"].index("score")])


def _compare(found: Detections, rows: Floats, expected: Expected, size: tuple[int, int]) -> None:
    columns = expected.facts["columns"]
    if "x1" not in columns:
        count = min(len(found), len(rows))
        assert count == (_scores(rows, expected) >= WANTED.confidence).sum()
        rows = rows[:count]
    assert len(found) == len(rows)
    if not len(rows):
        return
    scores, classes = (rows[:, columns.index(name)] for name in ("score", "class"))
    np.testing.assert_allclose(np.sort(found.confidence), np.sort(scores), atol=1e-3)
    if "x1" not in columns:
        assert found.class_id.tolist() == classes.tolist()
        return
    first = columns.index("x1")
    boxes = np.clip(rows[:, first : first + 4], 0, np.array(size * 2))
    for row in range(len(rows)):
        same = (found.class_id == classes[row]) & (np.abs(found.confidence - scores[row]) < 1e-3)
        off = np.abs(found.xyxy - boxes[row]).max(axis=1)
        own = int(np.where(same, off, np.inf).argmin())
        assert same[own]
        assert off[own] < 0.25 or _iou(found.xyxy[own], boxes[row]) >= 0.99
        if found.keypoints is not None:
            points = rows[row, first + 6 :].reshape(found.keypoints.shape[1], -1)
            np.testing.assert_allclose(found.keypoints[own, :, :2], points[:, :2], atol=0.5)
            if points.shape[1] > 2:
                np.testing.assert_allclose(found.keypoints[own, :, 2], points[:, 2], atol=0.02)
        if found.obb is not None:
            turned = _corners(rows[row, [columns.index(name) for name in ("cx", "cy", "w", "h", "angle")]])
            nearest = [_apart(_corners(box), turned) for box in found.obb[same]]  # hulls of two boxes may be the same
            assert min(nearest) < 0.5


def _apart(one: Floats, other: Floats) -> float:
    """The largest distance of a corner to the other box's nearest one."""
    return float(np.hypot(*(one[:, None] - other[None]).transpose(2, 0, 1)).min(axis=1).max())


def _corners(box: Floats) -> Floats:
    """(4, 2)."""
    x, y, width, height, angle = box
    across = np.array([np.cos(angle), np.sin(angle)]) * width / 2
    down = np.array([-np.sin(angle), np.cos(angle)]) * height / 2
    signs = ((1, 1), (1, -1), (-1, -1), (-1, 1))
    return np.array([np.array([x, y]) + one * across + other * down for one, other in signs], np.float32)


def _iou(one: Floats, other: Floats) -> float:
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    shared = float(np.prod(np.maximum(high - low, 0)))
    areas = float(np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]))
    return shared / max(areas - shared, 1e-9)


def _compare_masks(found: npt.NDArray[np.bool_], wanted: npt.NDArray[np.bool_]) -> None:
    assert found.shape == wanted.shape
    for one, other in zip(found, wanted):
        union = (one | other).sum()
        assert union == 0 or (one & other).sum() / union >= 0.98


def test_all_pictures_are_those_of_the_results() -> None:
    assert all(len(load(FOLDER / f"{name}.npz").sure) == PICTURES for name in FILES)
