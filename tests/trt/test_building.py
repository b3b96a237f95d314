"""Builds in child processes: libraries that print, concurrent builds, a full disk."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from detectors.port import DetectorError
from tests.support.daemon import ROOT
from tests.trt.parts import open_trt, options_of

_OPEN = """
import sys
from contextlib import closing
from pathlib import Path
from tests.trt.parts import open_trt, options_of
with closing(open_trt(options_of(Path(sys.argv[1]), Path(sys.argv[2])))) as detector:
    print(detector.manifest.plan_sha256)
"""


def test_printed_output_does_not_disturb_the_builders_events(
    toy: Path, unbuilt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G10: printed past Python to standard output, with and without a final newline."""
    monkeypatch.setenv("LOOKOUT_TEST_NOISE", "1")
    with closing(open_trt(options_of(toy, unbuilt))) as detector:
        assert detector.manifest.precision_mode


def test_a_failed_build_has_tensorrts_reason(toy: Path, unbuilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOKOUT_TEST_NO_BUILD", "1")
    with pytest.raises(DetectorError, match=r"cannot build .*: Could not find any implementation for node Conv_0"):
        open_trt(options_of(toy, unbuilt))


def test_two_processes_build_one_engine(toy: Path, unbuilt: Path) -> None:
    command = [sys.executable, "-c", _OPEN, str(toy), str(unbuilt)]
    started = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    plans = {process.communicate()[0].split()[-1] for process in started}
    assert len(plans) == 1
    assert len([*(unbuilt / "engines").glob("*.plan")]) == 1
    assert [*(unbuilt / "engines").glob("*.bad")] == []


def test_an_unwritable_engine_is_a_one_line_error(toy: Path, unbuilt: Path) -> None:
    """Such as on a full disk; no partial engine is left."""
    with closing(open_trt(options_of(toy, unbuilt))):
        pass
    (plan,) = (unbuilt / "engines").glob("*.plan")
    plan.unlink()
    plan.with_suffix(".plan.new").mkdir()  # makes writing fail
    with pytest.raises(DetectorError, match=r"engine .*toy.* cannot be written: .*; make room, or set model\.cache"):
        open_trt(options_of(toy, unbuilt))
    assert not plan.exists()
    plan.with_suffix(".plan.new").rmdir()
    with closing(open_trt(options_of(toy, unbuilt))) as detector:
        assert detector.manifest.plan_bytes > 0
