"""A missing TensorRT, library or driver is reported in one line, without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from detectors.trt.products import PRODUCTS, Name
from tests.support.daemon import ROOT
from tests.support.gpu_here import GPU_HERE

pytestmark = pytest.mark.skipif(GPU_HERE, reason="there is a GPU")

# Packages named tensorrt that end or survive their import.
BROKEN = 'raise ImportError("libnvinfer.so.11: cannot open shared object file: No such file or directory")'
LOADS = "__version__ = {version!r}\nclass ILogger: pass\n"


@pytest.mark.parametrize(
    ("backend", "package", "expected"),
    [
        ("trt", None, "tensorrt is not installed: pip install"),
        ("trt", BROKEN, "TensorRT does not load: libnvinfer.so.11: cannot open shared object file"),
        ("trt", LOADS.format(version="8.5.3.1"), "TensorRT 8.5.3.1 is too old: 8.6, 10 and 11 are supported"),
        ("trt", LOADS.format(version="11.4.0.106"), "no NVIDIA driver that works"),
        ("trt-rtx", LOADS.format(version="1.2.0.44"), "TensorRT RTX 1.2.0.44 is too old: 1.7 is supported"),
    ],
)
def test_a_missing_part_is_named(tmp_path: Path, backend: Name, package: str | None, expected: str) -> None:
    if package is not None:
        (tmp_path / f"{PRODUCTS[backend].module}.py").write_text(package)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    config = tmp_path / "config.yaml"
    config.write_text(
        f"model: {{path: {ROOT}/models/demo.onnx, backend: {backend}}}\nsources: [{{id: a, type: synthetic}}]\n"
        "publisher: {endpoint: 'tcp://127.0.0.1:*'}\n"
    )
    command = [sys.executable, "-m", "daemon", "run", "-c", str(config)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1, done.stderr
    assert expected in lines[0]
    assert "model.backend" in lines[0]
    assert ".;" not in lines[0]
