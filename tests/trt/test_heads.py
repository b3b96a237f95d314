"""Heads that kernels decode: the rows, their order and what belongs to them, as the reference has it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from detectors.detections import plausible
from detectors.port import PostprocessParams
from detectors.trt.kernels import decoding
from tests.support.events import logged
from tests.support.heads import FOLDER, compared, differences, options_of
from tests.trt.parts import host_pictures, open_trt

_FIRST = ("rtdetr", "rtdetr-triple", "yolo11-pose", "yolov8-obb", "yolov8-seg")
_ON_HOST = ("detr", "mobilenet", "resnet", "yolov8-cls")
_OTHERS = [path.stem for path in sorted(FOLDER.glob("*.onnx")) if path.stem not in (*_FIRST, *_ON_HOST)]


@pytest.mark.parametrize("name", [*_FIRST, *(pytest.param(name, marks=pytest.mark.long) for name in _OTHERS)])
def test_kernels_find_what_the_reference_finds(name: str, engines: Path, tmp_path: Path) -> None:
    """In the same raw outputs, and nothing is decoded on the host. A batch gives the same as each of its pictures."""
    wanted = PostprocessParams(0.05, 0.5)
    options = options_of(name, tmp_path, wanted=wanted, max_batch=2, builder_level=0, cache=engines, precision="fp32")
    with closing(open_trt(options)) as detector, closing(detector.lane()) as lane:
        assert detector.decoding is not None
        images = host_pictures(4)
        pairs = compared(detector, lane, images)
        labels = len(detector.info.labels)
        size = detector.info.max_batch
        batches = [lane.detect(images[begin : begin + size])[0] for begin in range(0, 4, size)]
        together = plausible([one for batch in batches for one in batch], labels)[0]
    assert [differences(*pair) for pair in pairs] == [[]] * 4
    assert [differences(one, alone) for one, (alone, _) in zip(together, pairs)] == [[]] * 4
    assert sum(len(found) for found, _ in pairs) > 0


@pytest.mark.parametrize(("name", "file", "head", "wrong"), [
    ("yolov5u", "postprocess", "yolov8", "yolox"),
    ("rtdetr", "queries", "rtdetr", "chosen_shares"),
    ("yolov8-obb", "tasks", "yolov8-obb", "yolov8_extended"),
])  # fmt: skip
def test_kernels_that_find_other_boxes_are_not_used(
    name: str, file: str, head: str, wrong: str, engines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels of another head stand for a compiler or a GPU that computes something else."""
    options = options_of(name, tmp_path, max_batch=2, builder_level=0, cache=engines, precision="fp32")
    monkeypatch.setitem(decoding._NAMES[file], head, wrong)
    with logged() as logs, closing(open_trt(options)) as detector, closing(detector.lane()) as lane:
        assert detector.decoding is None
        assert any("decoded on the CPU: its kernels find other boxes" in note for note in detector.info.notes)
        pairs = compared(detector, lane, host_pictures(2))
    assert [differences(*pair) for pair in pairs] == [[]] * 2
    assert [line["event"] for line in logs if line["log_level"] == "error"] == [
        "kernels do not decode as the reference does"
    ]
