"""COCO AP by the detector that `run` uses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import cv2
import numpy as np
import pytest

from calibration.coco import Operation, Truth, measure, operation, score
from daemon.cli import invoke
from detectors.detections import Detections
from detectors.factory import open_detector
from detectors.port import (
    DetectorError,
    Fetch,
    HostImage,
    Image,
    ModelInfo,
    Options,
    PostprocessParams,
    StageTimes,
    fetched,
)
from tests.support.daemon import DEMO_MODEL
from tests.support.streets import labelled_streets

EXPECTED = {"yolox_nano": 0.3722, "yolov5n": 0.3361, "yolov8n": 0.4490}


@pytest.mark.needs("data")
@pytest.mark.slow
@pytest.mark.parametrize(
    "model", ["yolox_nano", *(pytest.param(name, marks=pytest.mark.long) for name in ("yolov5n", "yolov8n"))]
)
def test_real_models_reach_their_accuracy(model: str, data: Path, tmp_path: Path) -> None:
    """Within 0.005 of independent measurements on the same photos."""
    out = tmp_path / "out.json"
    images = data / "images"
    arguments = ["--model", str(data / "models" / f"{model}.onnx"), "--images", str(images / "val")]
    assert invoke(["evaluate", *arguments, "--annotations", str(images / "val.json"), "--json", str(out)]) == 0
    assert json.loads(out.read_text())["ap"] == pytest.approx(EXPECTED[model], abs=0.005)


@pytest.fixture
def streets(tmp_path: Path) -> tuple[Path, Path]:
    return labelled_streets(tmp_path, 8)


def _evaluate(images: Path, annotations: Path, *more: str) -> int:
    return invoke(
        ["evaluate", "--model", str(DEMO_MODEL), "--images", str(images), "--annotations", str(annotations), *more]
    )


def test_the_demo_model_on_its_streets(streets: tuple[Path, Path], tmp_path: Path) -> None:
    """Category ids are found by name, not by position."""
    assert _evaluate(*streets, "--json", str(tmp_path / "out.json")) == 0
    figures = json.loads((tmp_path / "out.json").read_text())
    assert figures["ap50"] > 0.95
    assert figures["boxes"] == 40


def test_invalid_input_is_refused(
    streets: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images, annotations = streets
    assert _evaluate(images, images / "0.png") == 2
    assert "cannot be read as JSON" in capsys.readouterr().err
    assert _evaluate(images / "elsewhere", annotations) == 2
    assert "is --images the right folder" in capsys.readouterr().err
    content = json.loads(annotations.read_text())
    for category in content["categories"]:
        category["name"] = "zebra"
    (tmp_path / "zebras.json").write_text(json.dumps(content))
    assert _evaluate(images, tmp_path / "zebras.json") == 2
    assert "but not 'person'" in capsys.readouterr().err
    (tmp_path / "list.json").write_text("{}")
    assert _evaluate(images, tmp_path / "list.json") == 2
    assert "`images` is missing" in capsys.readouterr().err


def test_a_part_of_the_photos(streets: tuple[Path, Path]) -> None:
    truth = Truth(*streets)
    with closing(
        open_detector("cpu", Options(DEMO_MODEL, wanted=PostprocessParams(0.001, 0.65), max_batch=1))
    ) as detector:
        whole, matches = measure(detector, truth)
        some, own = measure(detector, truth, [1, 2, 5])
    assert (whole.images, some.images, some.boxes) == (8, 3, 15)
    assert whole.ap == pytest.approx(matches.ap(np.ones(8, np.int64)), abs=1e-4)
    assert matches.part([1, 2, 5]).ap(np.ones(3, np.int64)) == own.ap(np.ones(3, np.int64))


def _truth(folder: Path, *annotations: dict[str, object], **photo: object) -> Truth:
    categories = [{"id": 4, "name": "cat"}, {"id": 9, "name": "dog"}]
    content = {"images": [{"id": 3, "file_name": "a.png", **photo}], "annotations": annotations}
    (folder / "truth.json").write_text(json.dumps({**content, "categories": categories}))
    return Truth(folder, folder / "truth.json")


def _found(*rows: tuple[float, float, float, float, float, int]) -> Detections:
    table = np.array(rows, np.float32).reshape(-1, 6)
    return Detections(table[:, :4], table[:, 4], table[:, 5].astype(np.int32))


def test_precision_and_recall_at_a_confidence(tmp_path: Path) -> None:
    """A box on a crowd is ignored, one of the wrong class counts twice, one below the confidence not at all."""
    truth = _truth(
        tmp_path,
        {"image_id": 3, "category_id": 4, "bbox": [0, 0, 10, 10]},
        {"image_id": 3, "category_id": 9, "bbox": [50, 0, 10, 10]},
        {"image_id": 3, "category_id": 9, "bbox": [100, 0, 10, 10]},
        {"image_id": 3, "category_id": 4, "bbox": [0, 50, 90, 40], "iscrowd": 1},
    )
    found = _found(
        (0, 0, 10, 10, 0.9, 0),
        (50, 0, 60, 10, 0.8, 0),  # a dog labelled as a cat
        (100, 0, 110, 10, 0.2, 1),  # below the confidence
        (20, 60, 30, 70, 0.7, 0),  # in the crowd
        (70, 60, 110, 70, 0.6, 0),  # half in it
        (20, 60, 30, 70, 0.6, 1),  # another class in it
        (150, 0, 160, 10, 0.5, 0),  # no object
    )
    assert operation(truth, [0], [4, 9], [found], 0.25) == Operation(0.25, 0.25, 0.3333)
    assert operation(truth, [0], [4, 9], [_found()], 0.25) == Operation(0.25, 0.0, 0.0)


def test_an_annotation_may_have_the_id_0(tmp_path: Path) -> None:
    """COCOeval reads 0 as no match."""
    truth = _truth(tmp_path, {"id": 0, "image_id": 3, "category_id": 9, "bbox": [50, 0, 10, 10]})
    evaluation, _ = score(truth, [0], [4, 9], [_found((50, 0, 60, 10, 0.9, 1))])
    assert (evaluation.ap, evaluation.classes) == (1.0, {"dog": 1.0})
    assert score(truth, [0], [4, 9], [_found()])[0].ap == 0


def test_clips_come_from_the_annotations(tmp_path: Path) -> None:
    assert _truth(tmp_path).groups is None
    assert _truth(tmp_path, video_id=12).groups == ["12"]
    (tmp_path / "truth.json").write_text('{"images": [], "annotations": [], "categories": []}')
    with pytest.raises(DetectorError, match="name no photo"):
        Truth(tmp_path, tmp_path / "truth.json")


class _FixedDetector:
    """A detector with fixed detections, and its lane."""

    def __init__(self, found: Detections) -> None:
        self._found = found
        self.info = ModelInfo("telling", "0" * 12, "fp32", "fake", "none", (1, 1), ("cat", "dog"), 1)

    def lane(self) -> _FixedDetector:
        return self

    def detect(self, images: Sequence[Image]) -> tuple[list[Detections], StageTimes]:
        return [self._found for _ in images], StageTimes(0, 0, 0)

    def fetch(self, image: Image) -> Fetch:
        return fetched(image)

    def sample(self, width: int, height: int) -> HostImage:
        return HostImage(np.zeros((height, width, 3), np.uint8))

    def close(self) -> None:
        """Holds nothing."""


def test_a_class_without_a_label_is_left_out(tmp_path: Path) -> None:
    """Class 2 of two is ignored, and class -1 is not read as the last class."""
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((40, 80, 3), np.uint8))
    truth = _truth(tmp_path, {"image_id": 3, "category_id": 9, "bbox": [50, 0, 10, 10]})
    boxes = ((0, 0, 9, 9, 0.9, -1), (0, 20, 9, 29, 0.8, 2), (50, 0, 60, 10, 0.7, 1))
    assert measure(_FixedDetector(_found(*boxes)), truth)[0].ap == 1
    wrong = measure(_FixedDetector(_found((0, 0, 9, 9, 0.9, 1), *boxes)), truth)[0]
    assert wrong.ap == pytest.approx(0.5, abs=0.01)
