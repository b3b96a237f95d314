"""The plan of GPU memory: allocations match the plan, and failures leave nothing."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from detectors.port import DetectorError
from detectors.trt import kernels
from detectors.trt.memory_plan import batch_sizes
from tests.support import stubbed_cuda as cuda
from tests.support.heads import options_of as options_of_head
from tests.trt.parts import host_pictures, on_device, open_trt, opened, options_of

_CLASSIFIER = Path(__file__).resolve().parents[1] / "data" / "heads" / "yolov8-cls.onnx"
_TABLE = kernels.PICTURE.itemsize + kernels.PLACEMENT.itemsize  # bytes of a picture's structs
_COUNTS = 4  # bytes of its number of candidates
_NOT_OURS = {"CUDA and TensorRT themselves", "CUDA graphs", "engine"}  # allocated by driver and TensorRT


def test_lanes_allocate_the_planned_memory(toy: Path, engines: Path) -> None:
    """To the byte, and without growth."""
    with ExitStack() as stack:
        detector = stack.enter_context(closing(open_trt(options_of(toy, engines, lanes=3))))
        before = cuda.device_bytes()
        lanes = [stack.enter_context(closing(detector.lane())) for _ in range(3)]
        planned = sum(size for name, size in detector.needs.rows(3, 4) if name not in _NOT_OURS)
        taken = cuda.device_bytes() - before
        assert taken == planned + 3 * 4 * (_TABLE + _COUNTS)
        for lane in lanes * 20:
            lane.detect(host_pictures(4))
        assert cuda.device_bytes() - before == taken


def test_a_second_model_allocates_the_planned_memory(engines: Path) -> None:
    """With the inputs of parts that wait, and without the CUDA context, which the first model has."""
    options = options_of(_CLASSIFIER, engines, head="classify", fit="stretch", builder_level=0, parts=5)
    with ExitStack() as stack:
        detector = stack.enter_context(closing(open_trt(options)))
        plan = dict(detector.info.memory)
        before = cuda.device_bytes()
        stack.enter_context(closing(detector.cutter(5)))
        assert cuda.device_bytes() - before == plan["parts that wait"]
        stack.enter_context(closing(detector.lane()))
        planned = sum(size for name, size in plan.items() if name not in _NOT_OURS)
        assert plan["decoding and NMS"] == 0
        assert cuda.device_bytes() - before == planned + 4 * _TABLE
    assert "CUDA and TensorRT themselves" not in plan


@pytest.mark.parametrize("name", ["yolov8-obb", "yolov8-seg"])
def test_rows_with_extras_allocate_the_planned_memory(name: str, engines: Path, tmp_path: Path) -> None:
    """Shapes of boxes at an angle, and coefficients of masks; bits of masks lie in host memory."""
    options = options_of_head(name, tmp_path, max_batch=2, builder_level=0, cache=engines, precision="fp32")
    with closing(open_trt(options)) as detector:
        before = cuda.device_bytes()
        with closing(detector.lane()):
            planned = sum(size for name, size in detector.needs.rows(1, 2) if name not in _NOT_OURS)
            assert cuda.device_bytes() - before == planned + 2 * (_TABLE + _COUNTS)


def test_memory_of_other_models_is_left(toy: Path, engines: Path) -> None:
    """It counts against a limit, and the refusal names it."""
    with closing(open_trt(options_of(toy, engines, lanes=4))) as detector:
        one, all_of_it = detector.needs.total(1, 4), detector.needs.total(4, 4)
    with closing(open_trt(options_of(toy, engines, lanes=4, memory_limit=all_of_it, reserved=1))) as detector:
        assert detector.info.lanes == 3
    with pytest.raises(
        DetectorError, match=r"0 MiB are allowed by gpu\.memory_limit_mib beside 600 MiB of other models"
    ):
        open_trt(options_of(toy, engines, memory_limit=one, reserved=600 << 20))


def test_a_lane_has_a_graph_per_size(toy: Path, engines: Path) -> None:
    with opened(toy, engines):
        assert cuda.alive()["executable graph"] == 3 * len(batch_sizes(4))


def test_a_model_that_does_not_fit_leaves_nothing(toy: Path, engines: Path) -> None:
    """G8: even while the error is referenced; the engine is freed before its device."""
    with pytest.raises(
        DetectorError, match=r"needs \d+ MiB of GPU memory with one lane and its smallest batch"
    ) as caught:
        open_trt(options_of(toy, engines, memory_limit=100 << 20))
    assert cuda.alive() == {}
    assert caught.value.__traceback__ is not None


def test_little_memory_reduces_lanes_then_batches(toy: Path, engines: Path) -> None:
    with closing(open_trt(options_of(toy, engines, lanes=4))) as detector:
        one, all_of_it = detector.needs.total(1, 4), detector.needs.total(4, 4)
    limit = (one + all_of_it) // 2
    with closing(open_trt(options_of(toy, engines, lanes=4, memory_limit=limit))) as detector:
        assert 1 <= detector.info.lanes < 4
        assert any("of 4 lanes" in line for line in detector.info.notes)
    with closing(open_trt(options_of(toy, engines, lanes=4, memory_limit=one - 1))) as detector:
        assert detector.info.lanes == 1
        assert detector.info.max_batch < 4
        assert any("batches up to" in line for line in detector.info.notes)


def test_an_engine_without_room_is_an_error_and_stays_stored(
    toy: Path, engines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is good: it is not quarantined and rebuilt, which takes minutes."""
    with opened(toy, engines):
        pass
    files = {path: path.stat().st_ino for path in (engines / "engines").iterdir()}
    monkeypatch.setenv("LOOKOUT_TEST_GPU_MIB", "0")
    with pytest.raises(DetectorError, match="MiB of GPU memory, 0 MiB are free"):
        open_trt(options_of(toy, engines))
    assert {path: path.stat().st_ino for path in (engines / "engines").iterdir()} == files


def test_a_larger_picture_allocates_once(toy: Path, engines: Path) -> None:
    """A picture larger than `gpu.frame_size`; the former buffer is freed."""
    with opened(toy, engines) as (_, lane):
        lane.detect(host_pictures(1))
        before, count = cuda.device_bytes(), cuda.alive()
        for _ in range(3):
            lane.detect(host_pictures(1, ((200, 120),)))
        assert cuda.device_bytes() == before + 3 * (200 * 120 - 100 * 100)
        assert cuda.alive() == count


def test_decoded_pictures_allocate_nothing(toy: Path, engines: Path) -> None:
    from tests.support.kernels import noise_nv12

    with opened(toy, engines) as (_, lane), on_device(noise_nv12((640, 360), bt709=True, full_range=False)) as image:
        before = cuda.alive()
        lane.detect([image] * 4)
        assert cuda.alive() == before
