"""Tests and the detector contract of the TensorRT backend without a GPU, over stubs of the driver and of TensorRT, in
child processes that have the stubs from their start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from detectors.factory import availability
from tests.support import stubs

pytestmark = [
    pytest.mark.needs("g++", "nvcuvid"),
    pytest.mark.slow(20),
    pytest.mark.skipif(availability()[0].available, reason="there is a GPU"),
]
# The bindings of the one between are compared with the code in CI as well: test_tensorrt_api.py.
_VERSIONS = [stubs.VERSIONS[0], pytest.param(stubs.VERSIONS[1], marks=pytest.mark.long), stubs.VERSIONS[2]]
_OTHERWISE = ["tests/trt/test_lane.py"]
_CONTRACTS = ["tests/contract/test_detector.py", "tests/contract/test_cutter.py"]


@pytest.mark.long
@pytest.mark.parametrize("version", stubs.VERSIONS)
def test_what_takes_long_over_stand_ins(version: str, tmp_path: Path) -> None:
    """Such as each file of the frameworks' exporters."""
    arguments = ["-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-q", "-m", "long", "tests/trt"]
    done = stubs.run(arguments, stubs.environment(tmp_path, version))
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]


@pytest.mark.parametrize("version", _VERSIONS)
def test_over_stand_ins(version: str, tmp_path: Path) -> None:
    """All tests and the contracts over the oldest TensorRT; over the others, those of the differences."""
    files = [*_CONTRACTS, "tests/trt"] if version == stubs.VERSIONS[0] else _OTHERWISE
    elsewhere = "not [cpu] and not [fake] and not [triton]"
    options = ["-p", "no:xdist", "-p", "no:cacheprovider", "-q", "-rA", "-k", elsewhere]
    arguments = ["-m", "pytest", *options, *files]
    done = stubs.run(arguments, stubs.environment(tmp_path, version))
    message = "\n".join(line for line in done.stdout.splitlines() if not line.startswith("PASSED"))
    assert done.returncode == 0, message[-8000:] + done.stderr[-4000:]
    assert re.search(r"^PASSED", done.stdout, re.M)
    assert not re.search(r"^SKIPPED", done.stdout, re.M)
