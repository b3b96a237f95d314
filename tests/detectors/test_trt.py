"""Tests and the detector contract of the TensorRT backend without a GPU, over stubs of the driver and of TensorRT, in
child processes that have the stubs from their start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import stubs
from tests.support.daemon import ROOT
from tests.support.gpu_here import GPU_HERE

pytestmark = [
    pytest.mark.needs("g++", "nvcuvid"),
    pytest.mark.slow(20),
    pytest.mark.skipif(GPU_HERE, reason="there is a GPU"),
]
_PYTEST = [
    "-m",
    "pytest",
    *(word for name in ("xdist", "cacheprovider") for word in ("-p", f"no:{name}")),
]
_OLDEST, *_, _RTX = stubs.VERSIONS
_DETECTOR, _CUTTER = "tests/contract/test_detector.py", "tests/contract/test_cutter.py"
_FAULTS, _KERNELS, _MEMORY, _SWAP = (
    f"tests/trt/test_{name}.py" for name in ("faults", "compiled_kernels", "memory", "swap")
)
_ALL = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/trt").glob("test_*.py")} - {_KERNELS}
# What makes every call of driver and library runs over TensorRT RTX, which has most of them; the rest over the oldest.
# All of it runs over each where there is time. 10 and 11 have no call of their own, and test_tensorrt_api.py compares
# the bindings of all with the code.
_ELSEWHERE = "not [cpu] and not [fake] and not [triton]"
_OF_RTX = [_DETECTOR, _FAULTS, _MEMORY, _SWAP]
_SLOW = f"{_DETECTOR}::test_boxes_at_a_size_are_those_of_a_detector_of_that_size[trt-rtx]"
_ROWS = [
    pytest.param(_OLDEST, [_CUTTER, *sorted(_ALL - {*_OF_RTX})], id="the rest"),
    pytest.param(_RTX, [_KERNELS, *_OF_RTX, "--deselect", _SLOW], id="TensorRT RTX"),
]


@pytest.mark.long
@pytest.mark.parametrize("version", stubs.VERSIONS)
def test_what_takes_long_over_stand_ins(version: str, tmp_path: Path) -> None:
    """Such as each file of the frameworks' exporters; and everything else, with more of the calls that fail."""
    plain = [*_PYTEST, "-q"]
    environment = stubs.environment(tmp_path, version) | {"LOOKOUT_FAULTS": "12"}
    for arguments in (["-m", "long", "tests/trt"], [_DETECTOR, _CUTTER, "tests/trt", "-k", _ELSEWHERE]):
        done = stubs.run([*plain, *arguments], environment)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]


@pytest.mark.parametrize(("version", "files"), _ROWS)
def test_over_stand_ins(version: str, files: list[str], tmp_path: Path) -> None:
    stubs.compile_kernels()
    done = stubs.run([*_PYTEST, "-q", "-rA", "-k", _ELSEWHERE, *files], stubs.environment(tmp_path, version))
    message = "\n".join(line for line in done.stdout.splitlines() if not line.startswith("PASSED"))
    assert done.returncode == 0, message[-8000:] + done.stderr[-4000:]
    assert re.search(r"^PASSED", done.stdout, re.M)
    assert not re.search(r"^SKIPPED", done.stdout, re.M)
