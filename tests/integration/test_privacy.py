"""What Lookout's libraries know of a model and a machine stays there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon import DEMO_MODEL, ROOT

_DETECTS = f"""
from pathlib import Path
from detectors.factory import open_detector
from detectors.port import Options
open_detector("cpu", Options(Path({str(DEMO_MODEL)!r}))).close()
"""
_QUANTISES = f"""
import calibration.quantize, onnxruntime
onnxruntime.InferenceSession({str(DEMO_MODEL)!r}, providers=["CPUExecutionProvider"])
"""


@pytest.mark.parametrize("program", [_DETECTS, _QUANTISES], ids=["detectors", "calibration"])
def test_onnxruntime_reports_to_nobody(program: str, tmp_path: Path) -> None:
    """By default it gives the machine a number, keeps it in the cache, and sends events under it to its maker."""
    watched = {"CI", "GITHUB_ACTIONS", "ORT_DISABLE_TELEMETRY"}  # where it would keep quiet without us
    environment = {name: value for name, value in os.environ.items() if name not in watched}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, env=environment, timeout=60)
    assert [path.name for path in tmp_path.rglob("*") if "onnxruntime" in str(path).lower()] == []
