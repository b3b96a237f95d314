"""The TensorRT backend without a GPU: its tests, and the contract that every detector keeps, over stand-ins for the
driver and for each TensorRT. They are in processes of their own, which have the stand-ins from their beginning."""

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
_OTHERWISE = ["tests/trt/test_lane.py", "tests/trt/test_comparing.py"]
_CONTRACT = "tests/contract/test_detector.py"


@pytest.mark.parametrize("version", stubs.VERSIONS)
def test_over_stand_ins(version: str, tmp_path: Path) -> None:
    """All of it over the oldest TensorRT, and over the others what they do otherwise."""
    files = [_CONTRACT, *(["tests/trt"] if version == stubs.VERSIONS[0] else _OTHERWISE)]
    options = ["-p", "no:xdist", "-p", "no:cacheprovider", "-q", "-rA", "-k", "not [cpu] and not [fake]"]
    arguments = ["-m", "pytest", *options, *files]
    done = stubs.run(arguments, stubs.environment(tmp_path, version))
    told = "\n".join(line for line in done.stdout.splitlines() if not line.startswith("PASSED"))
    assert done.returncode == 0, told[-8000:] + done.stderr[-4000:]
    assert re.search(r"^PASSED", done.stdout, re.M)
    assert not re.search(r"^SKIPPED", done.stdout, re.M)
