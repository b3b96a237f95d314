"""A missing TensorRT, library or driver is reported in one line, without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from detectors.factory import availability
from tests.support.daemon import ROOT

pytestmark = pytest.mark.skipif(availability()[0].available, reason="there is a GPU")

# Packages named tensorrt that end or survive their import.
BROKEN = 'raise ImportError("libnvinfer.so.11: cannot open shared object file: No such file or directory")'
LOADS = "__version__ = {version!r}\nclass ILogger: pass\n"


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        (None, "tensorrt is not installed: pip install"),
        (BROKEN, "TensorRT does not load: libnvinfer.so.11: cannot open shared object file"),
        (LOADS.format(version="8.5.3.1"), "TensorRT 8.5.3.1 is too old: 8.6, 10 and 11 are supported"),
        (LOADS.format(version="11.4.0.106"), "no NVIDIA driver that works"),
    ],
)
def test_a_missing_part_is_named(tmp_path: Path, package: str | None, expected: str) -> None:
    if package is not None:
        (tmp_path / "tensorrt.py").write_text(package)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    config = tmp_path / "config.yaml"
    config.write_text(
        f"model: {{path: {ROOT}/models/demo.onnx, backend: trt}}\nsources: [{{id: a, type: synthetic}}]\n"
        "publisher: {endpoint: 'tcp://127.0.0.1:*'}\n"
    )
    command = [sys.executable, "-m", "daemon", "run", "-c", str(config)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1, done.stderr
    assert expected in lines[0]
    assert "model.backend" in lines[0]
