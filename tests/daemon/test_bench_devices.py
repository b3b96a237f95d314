"""Benchmarks of another GPU than the first of three: every figure is from that GPU.

The driver is the compiled stub of `test_gpus.py`. The stub of NVML knows the same names but numbers GPUs in another
order, like NVML.
"""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from daemon.bench.commands import bench
from daemon.bench.load import Load
from daemon.bench.repeats import runs_of
from daemon.bench.result import environment_of
from daemon.bench.run import run
from daemon.cli import cli
from tests.daemon.test_gpus import libraries, machine  # noqa: F401 - fixtures

pytestmark = [pytest.mark.needs("g++", "ffmpeg"), pytest.mark.slow]

# GPU n of the driver has n GiB in use and draws n * 100 W. NVML numbers them from the other end.
_PYNVML = """
from types import SimpleNamespace
NVML_CLOCK_SM = nvmlMemory_v2 = 1
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 3
def nvmlDeviceGetHandleByIndex(number): return 3 - number
def nvmlDeviceGetHandleByUUID(name): return int(name[-1])
def nvmlDeviceGetName(gpu): return f"card {gpu}"
def nvmlDeviceGetMemoryInfo(gpu, version=None): return SimpleNamespace(used=gpu << 30, total=24 << 30)
def nvmlDeviceGetUtilizationRates(gpu): return SimpleNamespace(gpu=10 * gpu, memory=gpu)
def nvmlDeviceGetDecoderUtilization(gpu): return gpu, 0
def nvmlDeviceGetPowerUsage(gpu): return 100_000 * gpu
def nvmlDeviceGetTotalEnergyConsumption(gpu): return 1000 * gpu
def nvmlDeviceGetClockInfo(gpu, kind): return 1000 + gpu
def nvmlDeviceGetCurrentClocksThrottleReasons(gpu): return 0
def nvmlDeviceGetComputeRunningProcesses(gpu): return [SimpleNamespace(pid=0, usedGpuMemory=0)] * (gpu - 1)
def nvmlSystemGetDriverVersion(): return "1.0"
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stub of NVML for this process and its children."""
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "pynvml.py").write_text(_PYNVML)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(__import__("sys").modules, "pynvml", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def _load(clip: Path, device: int) -> Load:
    return Load((clip,), 1, seconds=0.5, warm_up=0, backend="cpu", threads=1, lanes=1, max_batch=2, device=device)


@pytest.mark.usefixtures("machine", "told")
@pytest.mark.parametrize(("visible", "device", "gpu"), [(None, 2, 3), ("2,0", 1, 1)])
def test_figures_are_of_the_measured_gpu(
    visible: str | None, device: int, gpu: int, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    found = run(_load(clip, device))
    assert (found.usage.power_w, found.usage.gpu_bytes) == (100 * gpu, gpu << 30)
    assert found.busy_before == gpu - 1
    assert found.gpu_mib == 0  # less what was in use before, on the same one
    assert environment_of(_load(clip, device)).gpu == f"card {gpu}"


@pytest.mark.usefixtures("machine", "told")
def test_a_run_in_a_child_process_uses_the_same_gpu(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    (found,) = runs_of(_load(clip, 1))
    assert found.usage.power_w == 300


def test_every_gpu_benchmark_takes_a_device() -> None:
    """The parts that `run` measures get the same number."""
    commands = [bench.commands["run"], bench.commands["search"], cli.commands["evaluate"]]
    part = bench.commands["part"]
    assert isinstance(part, click.Group)
    commands += [part.commands["decode"], part.commands["engine"]]
    assert all("device" in {option.name for option in command.params} for command in commands)
