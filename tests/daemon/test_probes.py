"""What the daemon knows of its processes and its GPUs."""

from __future__ import annotations

import os
import resource
from types import SimpleNamespace
from typing import Any

from daemon.monitoring.probes import NvmlProbe, ProcessProbe

_GIB = 1 << 30


def test_without_a_descriptor_left_the_last_figures_stand() -> None:
    """The monitor looks into /proc; that it cannot for a while is no reason for the daemon to end."""
    probe = ProcessProbe(lambda: [os.getpid()])
    before = probe.read()
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
    try:
        found = probe.read()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))
    assert found == before
    assert found.rss_bytes > 0


class Nvml:
    """NVML of a machine with GPUs, of which some may not be opened, and none tells its power."""

    NVML_CLOCK_SM = nvmlMemory_v2 = 1  # noqa: N815 - its names

    class NVMLError(Exception):
        """Its only one."""

    def __init__(self, gpus: int, refused: set[int]) -> None:
        self._gpus, self._refused = gpus, refused
        self.running: list[Any] = []

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self._gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index in self._refused:
            raise self.NVMLError("Insufficient Permissions")
        return index

    def nvmlDeviceGetHandleByUUID(self, name: str) -> int:  # noqa: N802
        return self.nvmlDeviceGetHandleByIndex(int(name[-1]))

    def nvmlDeviceGetComputeRunningProcesses(self, _handle: int) -> list[Any]:  # noqa: N802
        return self.running

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlDeviceGetName": "a card",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=3 * _GIB, total=24 * _GIB),
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=40, memory=20),
            "nvmlDeviceGetDecoderUtilization": (30, 0),
            "nvmlDeviceGetClockInfo": 1500,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0,
        }

        def answer(*_args: object, **_more: object) -> Any:
            if name not in answers:
                raise self.NVMLError("Not Supported")
            return answers[name]

        return answer


def test_a_gpu_that_may_not_be_opened_hides_no_other() -> None:
    found = NvmlProbe(Nvml(3, refused={1})).read()
    assert [row.name for row in found] == ["a card", "GPU 1", "a card"]
    assert [row.memory_used_bytes for row in found] == [3 * _GIB, None, 3 * _GIB]
    assert found[1].reasons == {"all": "Insufficient Permissions"}
    assert found[2].power_w is None
    assert found[2].reasons["power_w"] == "Not Supported"


def test_the_memory_of_all_the_daemons_processes_is_its_own() -> None:
    """Lanes are in one process, and decoders in others."""
    nvml = Nvml(1, refused=set())
    nvml.running = [
        SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in ((1, 5), (2, 7), (3, 11), (4, None))
    ]
    (found,) = NvmlProbe(nvml, lambda: [1, 3, 4]).read()
    assert found.process_memory_bytes == 16
    assert found.processes == 4


def test_gpus_that_have_names_are_asked_by_them_in_their_order() -> None:
    """The driver's, not NVML's: whoever sees one of eight is told of that one alone."""
    seen: list[int] = []

    class ProcessMessage(Nvml):
        def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
            seen.append(index)
            return super().nvmlDeviceGetHandleByIndex(index)

    rows = NvmlProbe(ProcessMessage(8, {2}), names=["GPU-5", "GPU-2"]).read()
    assert seen == [5, 2]
    assert [row.name for row in rows] == ["a card", "GPU-2"]
    assert rows[1].reasons == {"all": "Insufficient Permissions"}
