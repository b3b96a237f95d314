"""Several input sizes: one engine with a profile for each, and lanes whose sizes share their buffers."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from detectors.port import DetectorError
from detectors.trt import kernels
from detectors.trt.memory_plan import batch_sizes
from tests.support import fake_tensorrt as tensorrt
from tests.support import stubbed_cuda as cuda
from tests.trt.parts import host_pictures, open_trt, opened, options_of

_MODEL = Path(__file__).resolve().parents[1] / "data" / "heads" / "yolov8.onnx"
_SIZES = ((256, 160), (96, 192))  # beside the model's own, 128x128
_NOT_OURS = {"CUDA and TensorRT themselves", "CUDA graphs", "engine"}  # allocated by driver and TensorRT


def test_one_engine_has_a_profile_for_each(engines: Path) -> None:
    with opened(_MODEL, engines, further_sizes=_SIZES) as (detector, _):
        assert detector.info.input_size == (128, 128)
        assert detector.info.further_sizes == _SIZES
        profiles = detector.engine.header["profiles"]
        assert [profile["images"] for profile in profiles] == [
            [[1, 3, height, width], [2, 3, height, width], [4, 3, height, width]]
            for width, height in ((128, 128), *_SIZES)
        ]
        assert detector.manifest.recipe["further_sizes"] == [[256, 160], [96, 192]]


def test_lanes_allocate_the_planned_memory(engines: Path) -> None:
    """To the byte: buffers of the largest size, whatever the order of batches."""
    with ExitStack() as stack:
        detector = stack.enter_context(closing(open_trt(options_of(_MODEL, engines, further_sizes=_SIZES, lanes=2))))
        before, graphs = cuda.device_bytes(), 2 * 3 * 3 * len(batch_sizes(4))
        lanes = [stack.enter_context(closing(detector.lane())) for _ in range(2)]
        planned = sum(size for name, size in detector.needs.rows(2, 4) if name not in _NOT_OURS)
        taken = cuda.device_bytes() - before
        assert taken == planned + 2 * 4 * (kernels.PICTURE.itemsize + kernels.PLACEMENT.itemsize + 4)
        assert cuda.alive()["executable graph"] == graphs
        for number, lane in enumerate(lanes * 6):
            lane.at(((128, 128), *_SIZES)[number % 3]).detect(host_pictures(number % 4 + 1))
        assert cuda.device_bytes() - before == taken


def test_less_memory_takes_lanes_of_all_sizes(engines: Path) -> None:
    options = options_of(_MODEL, engines, further_sizes=_SIZES, lanes=3)
    with closing(open_trt(options)) as detector:
        limit = detector.needs.total(2, 4)
    with closing(open_trt(options_of(_MODEL, engines, further_sizes=_SIZES, lanes=3, memory_limit=limit))) as less:
        assert less.info.lanes == 2
        assert less.info.further_sizes == _SIZES


def test_a_size_that_is_not_open_is_refused(engines: Path) -> None:
    with opened(_MODEL, engines, further_sizes=_SIZES) as (_, lane):
        with pytest.raises(DetectorError, match="the model is not open at 64x64"):
            lane.at((64, 64))
        assert lane.at((128, 128)) is lane


@pytest.mark.parametrize(
    ("size", "words"), [((100, 96), "multiples of 32, such as 96x96"), ((96, 90), "such as 96x96")]
)
def test_a_size_that_the_model_does_not_take_is_refused(engines: Path, size: tuple[int, int], words: str) -> None:
    with pytest.raises(DetectorError, match=f"an input_size of {size[0]}x{size[1]} is not possible: .*{words}"):
        open_trt(options_of(_MODEL, engines, further_sizes=(size,)))


def test_a_fixed_input_has_no_further_size(toy: Path, engines: Path) -> None:
    with pytest.raises(
        DetectorError, match="an input_size of 96x96 is not possible: the model's input is fixed at 64x64"
    ):
        open_trt(options_of(toy, engines, further_sizes=((96, 96),)))
    with opened(toy, engines, further_sizes=((64, 64),)) as (detector, _):
        assert detector.info.further_sizes == ()


@pytest.mark.parametrize(
    "name",
    [
        "set_optimization_profile_async",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("create_execution_context", "set_input_shape")),
    ],
)
def test_each_call_of_tensorrt_fails_once(engines: Path, name: str) -> None:
    """One clear line, and nothing is left; then everything works."""

    def live() -> None:
        with opened(_MODEL, engines, further_sizes=((96, 64),), input_size=(64, 64), max_batch=1) as (_, lane):
            lane.at((96, 64)).detect(host_pictures(1))

    live()
    tensorrt.calm()
    live()
    for number in range(1, tensorrt.called[name] + 1):
        tensorrt.calm()
        tensorrt.fail_nth(name, number)
        with pytest.raises(DetectorError) as caught:
            live()
        assert "\n" not in str(caught.value)
        assert cuda.alive() == {}, f"{name} {number}"
    tensorrt.calm()
    live()
