"""The GPU kernels, compiled for the CPU and compared with the reference, and compiled for every architecture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from detectors import nvrtc
from detectors.heads.layout import ModelFacts
from detectors.heads.recognise import recognise
from detectors.letterbox import IMAGENET, InputSpec, fit
from detectors.port import PostprocessParams
from detectors.trt import kernels
from tests.support.kernels import (
    CASES,
    ONES,
    CpuRunner,
    Task,
    check_bgr,
    check_implausible,
    check_nv12,
    check_postprocess,
    check_regions,
    check_shrunk_nv12,
    check_small_nv12,
)


@pytest.fixture(scope="module")
def runner() -> CpuRunner:
    return CpuRunner()


@pytest.mark.share(2)
@pytest.mark.needs("g++")
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    "spec",
    [
        InputSpec(320, 320),
        InputSpec(160, 96),
        InputSpec(416, 416, fit="corner", rgb=False, scale=ONES),
        InputSpec(128, 96, fit="stretch", **IMAGENET),
        InputSpec(96, 112, fit="cover", crop=0.875, **IMAGENET),
    ],
)
def test_preprocess_agrees_with_the_reference(runner: CpuRunner, spec: InputSpec, half: bool) -> None:
    """Several sizes in one launch; within a twentieth of a grey level on noise, or within FP16's resolution."""
    assert check_bgr(runner, spec, half=half) < (0.15 if half else 0.05)


@pytest.mark.needs("g++")
@pytest.mark.parametrize("bt709", [False, True])
@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_nv12_agrees_with_bgr(runner: CpuRunner, bt709: bool, full_range: bool, turns: int) -> None:
    """On rotated noise, so that each sample counts, with odd sizes and a pitch."""
    assert check_nv12(runner, bt709=bt709, full_range=full_range, turns=turns) < 0.05


@pytest.mark.needs("g++")
def test_resized_nv12_agrees_with_bgr(runner: CpuRunner) -> None:
    """Within the rounding to 8 bits."""
    assert check_small_nv12(runner) < 0.5


@pytest.mark.needs("g++")
@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_shrunk_nv12_is_read_from_cells(runner: CpuRunner, turns: int) -> None:
    """Within a twentieth of a grey level on noise."""
    assert check_shrunk_nv12(runner, turns) < 0.05


@pytest.mark.needs("g++")
@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_regions_begin_at_any_pixel(runner: CpuRunner, turns: int) -> None:
    assert check_regions(runner, turns) < 0.05


@pytest.mark.share(3)
@pytest.mark.needs("g++")
@pytest.mark.parametrize(("order", "seed"), [("forwards", 0), ("backwards", 1)])
@pytest.mark.parametrize(("head", "case"), CASES)
def test_postprocess_agrees_with_the_reference(
    runner: CpuRunner,
    head: str,
    case: tuple[PostprocessParams, dict[str, Any]],
    order: str,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Equal boxes in equal order, including ties, for any order of threads."""
    monkeypatch.setenv("LOOKOUT_TEST_ORDER", order)
    wanted, of = case
    assert check_postprocess(runner, head, wanted, seed, **of) > 0


@pytest.mark.needs("g++")
def test_boxes_that_no_picture_has_are_marked(runner: CpuRunner) -> None:
    check_implausible(runner)


@pytest.mark.needs("g++")
def test_the_strongest_of_too_many_are_kept(runner: CpuRunner) -> None:
    """G2: 50,400 candidates, with the objects in the last rows."""
    raw = np.zeros((1, 3 * 8400, 85), np.float32)
    raw[..., 4], raw[..., 5:7] = 1.0, 0.002
    raw[..., :4] = (320, 320, 8, 8)
    raw[0, -50:, 5] = np.linspace(0.5, 0.9, 50)
    raw[0, -50:, 0] = np.arange(50) * 12 + 10
    head = recognise(ModelFacts([("out", raw.shape)], (640, 640), {}), "yolov5")
    wanted = PostprocessParams(0.001, 0.65, 300, multi_label=True)
    task = Task({"out": raw}, head, [fit(640, 640, head.spec)], wanted, labels=80)
    (found,) = runner.postprocess(task)
    assert (found.confidence >= 0.5).sum() == 50
    assert found.left_out == 2 * 3 * 8400 - 8192


_OLDEST, _NEWEST, _MORE = "sm_75", "sm_120", ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100")


def test_kernels_compile_for_the_oldest_and_the_newest_architecture() -> None:
    """All for the oldest one; one of them for the newest."""
    for source, architecture in (*((source, _OLDEST) for source in kernels.SOURCES), (kernels.SOURCES[0], _NEWEST)):
        assert nvrtc.compile_cubin(source, architecture)[:4] == b"\x7fELF"


@pytest.mark.long
@pytest.mark.parametrize("architecture", [*_MORE, _NEWEST])
def test_all_kernels_compile_for_every_architecture(architecture: str) -> None:
    for source in kernels.SOURCES:
        assert nvrtc.compile_cubin(source, architecture)[:4] == b"\x7fELF"
