"""Heads that kernels decode: the rows, their order and what belongs to them, as the reference has it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from detectors.port import PostprocessParams
from detectors.trt.detector import TrtDetector
from tests.support.heads import differences, options_of, reference_of
from tests.trt.parts import host_pictures

_NAMES = ("rtdetr", "rtdetr-triple", "rtdetr-ultralytics-8.3", "rtdetr-ultralytics", "rfdetr-roboflow")


@pytest.mark.parametrize("name", _NAMES)
def test_kernels_find_what_the_reference_finds(name: str, engines: Path, tmp_path: Path) -> None:
    """In the same raw outputs, and nothing is decoded on the host."""
    wanted = PostprocessParams(0.05, 0.5)
    options = options_of(name, tmp_path, wanted=wanted, max_batch=2, builder_level=0, cache=engines, precision="fp32")
    with closing(TrtDetector(options)) as detector, closing(detector.lane()) as lane:
        assert detector.decoding is not None
        images = host_pictures(4)
        expected = reference_of(detector, lane, images)
        found = [lane.detect([image])[0][0] for image in images]
        assert [differences(*pair) for pair in zip(found, expected)] == [[]] * 4
        assert all(one.checked for one in found)
        assert sum(map(len, found)) > 10
