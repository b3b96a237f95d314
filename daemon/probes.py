"""What the machine says of this process and its GPUs. The only file of the daemon that knows NVML."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

import psutil

from daemon.messages import GpuMetrics, ProcessMetrics

_LANE_BYTES_PER_S = (0.0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9)  # of PCIe, by generation
_REACHED = 0.8
# NVML's bits; of the others one is idleness, and the rest are somebody's settings.
_THROTTLES = {"power cap": 0x4, "hardware slowdown": 0x8, "heat": 0x20 | 0x40, "power brake": 0x80}


class ProcessProbe:
    """CPU, memory, threads and descriptors of some processes together.

    Args:
        pids: the processes there are now.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._known: dict[int, psutil.Process] = {}
        self._last = ProcessMetrics(cpu_percent=0.0, rss_bytes=0, threads=0, open_files=0)
        self.read()  # the first call only starts the count

    def read(self) -> ProcessMetrics:
        """Since the last call; one caller only. A process that has just ended counts no more.

        Where there is no descriptor left to look with, what was seen last.
        """
        with suppress(OSError):
            self._last = self._look()
        return self._last

    def _look(self) -> ProcessMetrics:
        running = [pid for pid in self._pids() if psutil.pid_exists(pid)]
        self._known = {pid: self._known.get(pid) or psutil.Process(pid) for pid in running}
        cpu, rss, threads, files = 0.0, 0, 0, 0
        for process in self._known.values():
            with suppress(psutil.Error), process.oneshot():
                cpu += process.cpu_percent()
                rss += process.memory_info().rss
                threads += process.num_threads()
                files += process.num_fds()
        return ProcessMetrics(cpu_percent=round(cpu, 1), rss_bytes=rss, threads=threads, open_files=files)


class GpuProbe(Protocol):
    """Attributes:
    reason: why there is nothing to read, None if there is.
    """

    @property
    def reason(self) -> str | None: ...
    def read(self) -> list[GpuMetrics] | None: ...
    def close(self) -> None: ...


class NoGpu:
    """There is none to ask; the reason says why."""

    def __init__(self, reason: str) -> None:
        self.reason: str | None = reason

    def read(self) -> None:
        return None

    def close(self) -> None:
        """Nothing is held."""


class NvmlProbe:
    """Every GPU NVML shows, one value at a time: a card that cannot tell one tells the others."""

    reason: str | None = None

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]

    def read(self) -> list[GpuMetrics]:
        return [self._read(handle) for handle in self._handles]

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _read(self, handle: Any) -> GpuMetrics:
        nvml = self._nvml
        reasons: dict[str, str] = {}

        def ask(name: str, call: Callable[[], Any]) -> Any:
            try:
                return call()
            except nvml.NVMLError as error:
                reasons[name] = str(error)
                return None

        memory = ask("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
        busy = ask("utilisation", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        decoder = ask("decoder_utilisation", lambda: nvml.nvmlDeviceGetDecoderUtilization(handle))
        power = ask("power_w", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        energy = ask("energy_j", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        return GpuMetrics(
            name=str(ask("name", lambda: nvml.nvmlDeviceGetName(handle))),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            process_memory_bytes=ask("process_memory_bytes", lambda: self._own_memory(handle)),
            utilisation=None if busy is None else int(busy.gpu),
            decoder_utilisation=None if decoder is None else int(decoder[0]),
            power_w=None if power is None else power / 1000,
            energy_j=None if energy is None else energy / 1000,
            memory_controller_utilisation=None if busy is None else int(busy.memory),
            clock_mhz=ask("clock_mhz", lambda: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))),
            throttled=ask("throttled", lambda: self._throttled(handle)),
            processes=ask("processes", lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))),
            reasons=reasons,
        )

    def _throttled(self, handle: Any) -> list[str]:
        reasons = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return [name for name, bit in _THROTTLES.items() if reasons & bit]

    def _own_memory(self, handle: Any) -> int:
        """Of this process, bytes; 0 where it has none, or where a container hides its pid from the driver."""
        own = [row for row in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle) if row.pid == os.getpid()]
        return sum(row.usedGpuMemory or 0 for row in own)


def bus_bytes_per_s(index: int) -> float | None:
    """What the bus to a GPU takes, of its nominal rate what transfers reach; None where nobody tells."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - without bindings or a driver there is no bus to speak of
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        generation = pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
        lanes = pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    return float(_LANE_BYTES_PER_S[min(generation, len(_LANE_BYTES_PER_S) - 1)] * lanes * _REACHED)


def driver_version() -> str | None:
    """Of the GPU's driver; None where there is none to ask."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - without bindings or a driver there is none
        return None
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def open_gpu_probe() -> GpuProbe:
    """NVML, or the reason why not."""
    try:
        import pynvml
    except ImportError:
        return NoGpu("NVML's bindings are not installed: pip install 'lookoutd[gpu]'")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NoGpu(f"NVML does not start: {error}")
    return NvmlProbe(pynvml)
