"""The build process without TensorRT: every outcome is reported in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon import ROOT
from tests.support.gpu_here import GPU_HERE

pytestmark = pytest.mark.skipif(GPU_HERE, reason="there is a GPU")

# Enough of TensorRT to import the file; the test decides how it fails.
PACKAGE = """
import os, sys
__version__ = "8.6.0"
class ILogger: pass
if sys.argv[-1].isdigit() and "{fate}" == "killed":  # the child
    os.kill(os.getpid(), 9)
if sys.argv[-1].isdigit() and "{fate}" == "crash":
    raise RuntimeError("out of everything")
"""
SCRIPT = """
from pathlib import Path
from detectors.port import DetectorError
from detectors.trt.builder import builder
from detectors.trt.engine import Progress
from detectors.trt.recipe import Recipe
recipe = Recipe("ab" * 32, "TensorRT 8.6.0", "NVIDIA H200", "sm_90", "fp16", 16, (320, 320), 3)
try:
    builder(Path("."), 0)(Path("street.onnx"), recipe, Progress())
except DetectorError as error:
    print(error)
"""


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("fate", "expected"),
    [
        ("no GPU", "no NVIDIA driver that works"),
        ("crash", "TensorRT 8.6.0 ended with 1 while building"),
        ("crash", "out of everything"),
        ("killed", "TensorRT 8.6.0 ended with -9 while building"),
    ],
)
def test_a_failed_build_is_one_line(tmp_path: Path, fate: str, expected: str) -> None:
    (tmp_path / "tensorrt.py").write_text(PACKAGE.format(fate=fate))
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    assert expected in done.stdout
