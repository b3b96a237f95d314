"""The GPU's kernels without a GPU: compiled for the CPU and compared, and compiled for every architecture."""

from __future__ import annotations

import pytest

from detectors import nvrtc
from detectors.letterbox import InputSpec
from detectors.port import Wanted
from detectors.trt import kernels
from tests.support.kernels import HEADS, CpuRunner, check_bgr, check_nv12, check_postprocess


@pytest.fixture(scope="module")
def runner() -> CpuRunner:
    return CpuRunner()


@pytest.mark.needs("g++")
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    "spec", [InputSpec(320, 320), InputSpec(160, 96), InputSpec(416, 416, centred=False, rgb=False, scale=1.0)]
)
def test_preprocess_is_the_reference(runner: CpuRunner, spec: InputSpec, half: bool) -> None:
    """A mix of sizes in one launch; to a twentieth of a grey level, on noise, or to what FP16 can hold."""
    assert check_bgr(runner, spec, half=half) < (0.15 if half else 0.05)


@pytest.mark.needs("g++")
@pytest.mark.parametrize("bt709", [False, True])
@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_nv12_is_the_same_picture(runner: CpuRunner, bt709: bool, full_range: bool, turns: int) -> None:
    """Turned upright, and within what rounding to 8 bits of luma and chroma costs."""
    assert check_nv12(runner, bt709=bt709, full_range=full_range, turns=turns) < 2.5


@pytest.mark.needs("g++")
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "wanted", [Wanted(0.3, 0.5), Wanted(0.05, 0.65, multi_label=True), Wanted(0.3, 0.5, 7), Wanted(0.95)]
)
def test_postprocess_is_the_reference(runner: CpuRunner, head: str, wanted: Wanted) -> None:
    """The same boxes in the same order, down to the order of equal scores."""
    found = sum(check_postprocess(runner, head, wanted, seed) for seed in range(5))
    assert found > 0 or wanted.confidence > 0.9


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_kernels_compile_for_every_architecture(architecture: str) -> None:
    for source in kernels.SOURCES:
        assert nvrtc.compile_cubin(source, architecture)[:4] == b"\x7fELF"
