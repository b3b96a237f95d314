"""The TensorRT backend without a GPU: its tests, and the contract that every detector keeps, over stand-ins for the
driver and for each TensorRT. They are in processes of their own, which have the stand-ins from their beginning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from detectors.factory import availability
from tests.support import stubs
from tests.support.daemon import ROOT

pytestmark = [
    pytest.mark.needs("g++", "nvcuvid"),
    pytest.mark.slow,
    pytest.mark.skipif(availability()[0].available, reason="there is a GPU"),
]
_CONTRACT = "tests/contract/test_detector.py"
_ALL = [_CONTRACT, *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests" / "trt").glob("test_*.py")))]
_OF_EACH_VERSION = [_CONTRACT, "tests/trt/test_lane.py"]
_RUNS = [(stubs.VERSIONS[0], file) for file in _ALL]
_RUNS += [(version, file) for version in stubs.VERSIONS[1:] for file in _OF_EACH_VERSION]


@pytest.mark.parametrize(("version", "file"), _RUNS)
def test_over_stand_ins(version: str, file: str, tmp_path: Path) -> None:
    arguments = ["-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-q", "-rA", file]
    done = stubs.run(arguments, stubs.environment(tmp_path, version))
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert re.search(r"^PASSED", done.stdout, re.M)
    assert not re.search(r"^SKIPPED", done.stdout, re.M)
