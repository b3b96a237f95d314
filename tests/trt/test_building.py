"""Engines that are built by a process of their own: libraries that print, another that builds already, a full disk."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from detectors.port import DetectorError
from detectors.trt.detector import TrtDetector
from tests.support.daemon import ROOT
from tests.trt.parts import options_of

_OPEN = """
import sys
from contextlib import closing
from pathlib import Path
from detectors.trt.detector import TrtDetector
from tests.trt.parts import options_of
with closing(TrtDetector(options_of(Path(sys.argv[1]), Path(sys.argv[2])))) as detector:
    print(detector.manifest.plan_sha256)
"""


def test_what_a_library_prints_is_not_what_the_builder_says(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G10: past Python, on its standard output, with and without a line's end."""
    monkeypatch.setenv("LOOKOUT_TEST_NOISE", "1")
    with closing(TrtDetector(options_of(toy, tmp_path))) as detector:
        assert detector.manifest.road


def test_a_build_that_fails_has_tensorrts_reason(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOKOUT_TEST_NO_BUILD", "1")
    with pytest.raises(DetectorError, match=r"cannot build .*: Could not find any implementation for node Conv_0"):
        TrtDetector(options_of(toy, tmp_path))


def test_two_processes_build_one_engine(toy: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _OPEN, str(toy), str(tmp_path)]
    started = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    plans = {process.communicate()[0].split()[-1] for process in started}
    assert len(plans) == 1
    assert len([*(tmp_path / "engines").glob("*.plan")]) == 1
    assert [*(tmp_path / "engines").glob("*.bad")] == []


def test_an_engine_that_cannot_be_written_is_told_in_a_line(toy: Path, tmp_path: Path) -> None:
    """Such as on a full disk; nothing is left that would be taken for one."""
    with closing(TrtDetector(options_of(toy, tmp_path))):
        pass
    (plan,) = (tmp_path / "engines").glob("*.plan")
    plan.unlink()
    plan.with_suffix(".plan.new").mkdir()  # as good as no room: it cannot be written
    with pytest.raises(DetectorError, match=r"engine .*toy.* cannot be written: .*; make room, or set model\.cache"):
        TrtDetector(options_of(toy, tmp_path))
    assert not plan.exists()
    plan.with_suffix(".plan.new").rmdir()
    with closing(TrtDetector(options_of(toy, tmp_path))) as detector:
        assert detector.manifest.plan_bytes > 0
