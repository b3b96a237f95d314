"""Every call fails once: one clear line, no leaks, no writes out of bounds; then everything works again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from detectors.port import DetectorError
from tests.support import fake_tensorrt as tensorrt
from tests.support import stubbed_cuda as cuda
from tests.support.kernels import noise_nv12
from tests.trt.parts import SIZES, host_pictures, on_device, opened

_OUT_OF_MEMORY, _LAUNCH_FAILED = 2, 719
_SOME = int(os.environ.get("LOOKOUT_FAULTS", "1"))
# All calls of the backend; test_the_list_is_complete fails if one is missing.
_CALLS = (
    "cuCtxSetCurrent", "cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceGetCount", "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRetain", "cuEventCreate", "cuEventDestroy", "cuEventElapsedTime",
    "cuEventQuery", "cuEventRecord", "cuEventSynchronize", "cuGraphDestroy", "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuInit", "cuLaunchHostFunc", "cuLaunchKernel", "cuMemAlloc",
    "cuMemFree", "cuMemFreeHost", "cuMemGetInfo", "cuMemHostAlloc", "cuMemcpyDtoDAsync", "cuMemcpyDtoHAsync",
    "cuMemcpyHtoDAsync", "cuMemsetD8Async", "cuModuleGetFunction", "cuModuleLoadData", "cuModuleUnload",
    "cuStreamBeginCapture", "cuStreamCreate", "cuStreamDestroy", "cuStreamEndCapture", "cuStreamSynchronize",
    "cuStreamWaitEvent",
)  # fmt: skip
# Captured work is in the executable graph by then.
_QUIET = {"cuGraphDestroy"}
_OF_TENSORRT = ("deserialize", "create_execution_context", "set_input_shape", "set_tensor_address", "execute_async_v3")


def _live(model: Path, folder: Path) -> None:
    """Every phase: open, trial, a lane, batches of all kinds and sizes, a larger picture, snapshots, close."""
    picture = noise_nv12((63, 47), bt709=True, full_range=False)
    with opened(model, folder, lanes=2) as (detector, lane), on_device(picture) as image:
        for count in (1, 3, 4):
            lane.detect(host_pictures(count))
        lane.detect([image, *host_pictures(1, SIZES[3:])])
        lane.fetch(image)()
        lane.detect([detector.sample(33, 21)])
        lane.fetch(image)()


@pytest.fixture(scope="module")
def calls(toy: Path, engines: Path) -> dict[str, int]:
    """How often each call is made, with an engine that is there."""
    _live(toy, engines)
    cuda.calm()
    tensorrt.calm()
    _live(toy, engines)
    return {**cuda.calls(), **tensorrt.called}


def test_the_list_is_complete(calls: dict[str, int]) -> None:
    assert {name for name in calls if name.startswith("cu")} - {"cuGetErrorString"} == set(_CALLS)


@pytest.mark.parametrize("name", _CALLS)
def test_each_call_fails_once(toy: Path, engines: Path, calls: dict[str, int], name: str) -> None:
    """The first and the last; LOOKOUT_FAULTS=12 tries more of those between."""
    count = calls[name]
    for number in sorted({*range(1, min(count, _SOME) + 1), *range(1, count, max(1, count // _SOME)), count}):
        cuda.fail(name, number, _LAUNCH_FAILED if name == "cuLaunchKernel" else _OUT_OF_MEMORY)
        try:
            _live(toy, engines)
            message = None
        except DetectorError as error:
            message = str(error)
            assert message.count("\n") == 0
            assert "CUDA_ERROR_" in message or name in ("cuLaunchHostFunc", "cuMemAlloc")  # logged by TensorRT
            assert cuda.alive() == {}, f"{name} {number}: {message}"  # while the error is still referenced
        came = cuda.calls().get(name, 0) >= number  # idle copy threads vary, and each sets the context
        cuda.calm()
        # TensorRT's own: an unloadable engine is built again; one that cannot be freed is not reported.
        is_its_own = (name, number) == ("cuMemAlloc", 1) or (name == "cuMemFree" and len(tensorrt.failures) == 1)
        assert message is not None or not came or name in _QUIET or is_its_own, f"{name} {number} is not reported"
        if name == "cuMemFree":
            tensorrt.failures.clear()
        assert cuda.alive() == {}, f"{name} {number}: {message}"
        assert cuda.trespasses() == 0, f"{name} {number}: {message}"
        assert tensorrt.failures == []


def test_everything_works_afterwards(toy: Path, engines: Path) -> None:
    _live(toy, engines)


@pytest.mark.parametrize("name", _OF_TENSORRT)
def test_each_call_of_tensorrt_fails_once(toy: Path, engines: Path, calls: dict[str, int], name: str) -> None:
    """An unloadable engine is built again; every other failure is reported."""
    count = calls[name]
    assert count > 0
    for number in range(1, count + 1):
        tensorrt.calm()
        tensorrt.fail_nth(name, number)
        message = None
        try:
            _live(toy, engines)
        except DetectorError as error:
            message = str(error)
            assert message.count("\n") == 0
            assert cuda.alive() == {}, message
        assert (message is None) == (name == "deserialize"), f"{name} {number}"
    tensorrt.calm()
    _live(toy, engines)
