"""What Lookout's libraries know of a model and a machine stays there."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import DEMO_MODEL, ROOT, Lookout, is_state, receive_until

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


@pytest.fixture
def _cores_allowed() -> Iterator[None]:
    soft, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, most))


@pytest.mark.needs("ffmpeg")
@pytest.mark.usefixtures("_cores_allowed")
@pytest.mark.parametrize("processes", [0, 1])
def test_no_core_is_left_that_would_hold_passwords(tmp_path: Path, clip: Path, processes: int) -> None:
    sources = [{"id": "door", "type": "av", "url": str(clip), "loop": True, "decode": "auto"}]
    with Lookout(tmp_path, {"sources": sources, "capture_processes": processes}) as lookout:
        with lookout.subscribe("status", "detections") as subscriber:
            receive_until(subscriber, is_state("door", "up"))
        for process in (lookout.inspect, *lookout.inspect.children(recursive=True)):
            assert resource.prlimit(process.pid, resource.RLIMIT_CORE)[0] == 0
