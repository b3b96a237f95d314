"""The environment of a process on a machine with a fake GPU and a fake TensorRT."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from detectors.nvrtc import compile_cubin
from detectors.trt.kernels import SOURCES
from tests.support.daemon import ROOT
from tests.support.driver import built

VERSIONS = ("8.6.1", "10.16.1", "11.4.0", "rtx-1.7.1")
KERNELS = ROOT / "build" / "stand-ins" / "kernels"  # compiled once for all, because that takes longer than a test
_CAPABILITY = "8.9"  # of the fake GPU: TensorRT and TensorRT RTX run on it, so that its kernels serve both
_LIMIT_S = 600


def environment(folder: Path, version: str = VERSIONS[0]) -> dict[str, str]:
    """Environment for child processes.

    Args:
        folder: empty; for libraries, modules and engines.
        version: of TensorRT, as tests/support/fake_tensorrt.py has it; a GPU that it runs on goes with it.
    """
    built(folder, "cuda", "nvcuvid")
    share_kernels(folder / "cache")
    is_rtx = version.startswith("rtx-")
    module = "tensorrt_rtx" if is_rtx else "tensorrt"
    (folder / f"{module}.py").write_text("from tests.support.fake_tensorrt import *\n")
    return {
        **os.environ,
        "LOOKOUT_TEST_TENSORRT": version,
        "LOOKOUT_TEST_CAPABILITY": _CAPABILITY,
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
        "CACHE_DIRECTORY": str(folder / "cache"),
    }


def compile_kernels() -> None:
    """All of them, where no other process has done it; processes that begin together would each compile them."""
    KERNELS.mkdir(parents=True, exist_ok=True)
    with (KERNELS.parent / "kernels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for source in SOURCES:
            compile_cubin(source, f"sm_{_CAPABILITY.replace('.', '')}", KERNELS)


def share_kernels(cache: Path) -> None:
    """Let a folder of engines have its kernels from the others'."""
    for path in (KERNELS, cache):
        path.mkdir(parents=True, exist_ok=True)
    (cache / "kernels").symlink_to(KERNELS)


def run(arguments: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a Python program; returns it with its output."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
