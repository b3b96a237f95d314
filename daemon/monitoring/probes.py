"""Probes of the daemon's processes and of GPUs. The only file of the daemon that uses NVML."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from typing import Any, Protocol

import psutil
import structlog

from daemon.clock import Bell, Clock
from daemon.system.gpus import name_visible_gpus, visible_gpus
from daemon.system.stop_token import StopToken
from detectors.factory import gpus
from lookout.messages import GpuMetrics, ProcessMetrics

log = structlog.get_logger(__name__)
_ANSWER_TIMEOUT_S = 0.5

_LANE_BYTES_PER_S = (0.0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9)  # of PCIe, by generation
_BUS_EFFICIENCY = 0.8
# NVML's bits of throttling; the others mean idleness or settings.
_THROTTLES = {"power cap": 0x4, "hardware slowdown": 0x8, "heat": 0x20 | 0x40, "power brake": 0x80}


class ProcessProbe:
    """CPU, memory, threads and descriptors of several processes together.

    Args:
        pids: the current processes.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._known: dict[int, psutil.Process] = {}
        self._last = ProcessMetrics(cpu_percent=0.0, rss_bytes=0, threads=0, open_files=0)
        self.read()  # the first call starts the measurement

    def read(self) -> ProcessMetrics:
        """Figures since the last call; for one caller. A process that has ended is not counted. Without a free
        descriptor the last figures are returned."""
        with suppress(OSError, psutil.Error):
            self._last = self._sample()
        return self._last

    def _sample(self) -> ProcessMetrics:
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
    reason: why there are no figures, None if there are.
    """

    @property
    def reason(self) -> str | None: ...
    def read(self) -> list[GpuMetrics] | None: ...
    def close(self) -> None: ...


class NoGpu:
    """There is no GPU to read; `reason` says why."""

    def __init__(self, reason: str) -> None:
        self.reason: str | None = reason

    def read(self) -> None:
        return None

    def close(self) -> None:
        """Nothing is held."""


class NvmlProbe:
    """The GPUs that this process sees. A figure that a GPU does not give is None; the others are read.

    Args:
        pids: the daemon's processes, whose GPU memory is reported as its own.
        names: of the GPUs, in the driver's order; None for all, in NVML's order.
    """

    reason: str | None = None

    def __init__(
        self,
        nvml: Any,
        pids: Callable[[], Iterable[int]] = lambda: [os.getpid()],
        names: Sequence[str] | None = None,
    ) -> None:
        self._nvml, self._pids = nvml, pids
        self._gpus: Sequence[str | int] = range(int(nvml.nvmlDeviceGetCount())) if names is None else names

    def read(self) -> list[GpuMetrics]:
        return [self._read(gpu) for gpu in self._gpus]

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _read(self, gpu: str | int) -> GpuMetrics:
        nvml = self._nvml
        reasons: dict[str, str] = {}

        def query(name: str, call: Callable[[], Any]) -> Any:
            try:
                return call()
            except nvml.NVMLError as error:
                reasons[name] = str(error)
                return None

        handle = query("name", lambda: _handle_of(nvml, gpu))
        if handle is None:  # for example a GPU that fell off the bus, or without permission
            return _unreadable(gpu, reasons["name"])
        memory = query("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
        busy = query("utilisation", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        decoder = query("decoder_utilisation", lambda: nvml.nvmlDeviceGetDecoderUtilization(handle))
        power = query("power_w", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        energy = query("energy_j", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        return GpuMetrics(
            name=str(query("name", lambda: nvml.nvmlDeviceGetName(handle))),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            process_memory_bytes=query("process_memory_bytes", lambda: self._own_memory(handle)),
            utilisation=None if busy is None else int(busy.gpu),
            decoder_utilisation=None if decoder is None else int(decoder[0]),
            power_w=None if power is None else power / 1000,
            energy_j=None if energy is None else energy / 1000,
            memory_controller_utilisation=None if busy is None else int(busy.memory),
            clock_mhz=query("clock_mhz", lambda: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))),
            throttled=query("throttled", lambda: self._throttled(handle)),
            processes=query("processes", lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))),
            reasons=reasons,
        )

    def _throttled(self, handle: Any) -> list[str]:
        reasons = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return [name for name, bit in _THROTTLES.items() if reasons & bit]

    def _own_memory(self, handle: Any) -> int:
        """GPU memory of the daemon's processes, bytes; 0 if there is none, or if a container hides their pids."""
        pids = set(self._pids())
        own = [row for row in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle) if row.pid in pids]
        return sum(row.usedGpuMemory or 0 for row in own)


def _handle_of(nvml: Any, gpu: str | int) -> Any:
    return nvml.nvmlDeviceGetHandleByUUID(gpu) if isinstance(gpu, str) else nvml.nvmlDeviceGetHandleByIndex(gpu)


def _unreadable(gpu: str | int, reason: str) -> GpuMetrics:
    """A GPU that cannot be read, with the reason."""
    return GpuMetrics(
        name=gpu if isinstance(gpu, str) else f"GPU {gpu}",
        memory_used_bytes=None,
        memory_total_bytes=None,
        process_memory_bytes=None,
        utilisation=None,
        decoder_utilisation=None,
        power_w=None,
        energy_j=None,
        reasons={"all": reason},
    )


class GpuReader(threading.Thread):
    """Reads a probe in a thread of its own: NVML has no time limit, and may block.

    Args:
        open_probe: may block too.

    Attributes:
        reason: why there are no figures, None if there are.
    """

    def __init__(self, open_probe: Callable[[], GpuProbe], clock: Clock) -> None:
        super().__init__(name="gpu-reader", daemon=True)
        self._open, self._clock = open_probe, clock
        self._ending = StopToken()
        self._request, self._answered = Bell(), threading.Event()
        self._called_ns: int | None = clock.monotonic_ns()  # start of the call in progress
        self._found: list[GpuMetrics] | None = None
        self.reason: str | None = "not read yet"

    def read(self, timeout_s: float = _ANSWER_TIMEOUT_S) -> list[GpuMetrics] | None:
        """The current figures; None, with a `reason`, if they do not come in time. For one caller."""
        if not self.is_alive():
            return None
        if self._called_ns is None:
            self._answered.clear()
            self._called_ns = self._clock.monotonic_ns()
            self._request.ring()
        answered, since = self._clock.wait(self._answered, timeout_s), self._called_ns
        if answered or since is None:
            return self._found
        seconds = (self._clock.monotonic_ns() - since) / 1e9
        if self.reason is None:
            log.warning("NVML does not answer: there are no figures of GPUs until it does")
        self.reason = f"NVML has not answered for {seconds:.1f} s"
        return None

    def stop(self, timeout_s: float) -> None:
        """Close the probe and end, within the time; a thread that blocks in NVML is left behind."""
        self._ending.set()
        self._request.ring()
        if self.ident is not None:
            self.join(timeout_s)

    def run(self) -> None:
        try:
            with closing(self._open()) as probe:
                while not self._ending.is_set:
                    found = probe.read()
                    self._answer(found, probe.reason)
                    self._request.wait(-1)
        except Exception as error:
            log.exception("GPUs cannot be read")
            self._answer(None, f"{type(error).__name__}: {error}")

    def _answer(self, found: list[GpuMetrics] | None, reason: str | None) -> None:
        self._found, self.reason = found, reason
        self._called_ns = None
        self._answered.set()


def bus_bytes_per_s(index: int) -> float | None:
    """Usable bandwidth of the bus to a GPU, bytes a second; None if unknown."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no bindings or no driver
        return None
    try:
        names = visible_gpus()
        handle = _handle_of(pynvml, names[index] if names and index < len(names) else index)
        generation = pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
        lanes = pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    return float(_LANE_BYTES_PER_S[min(generation, len(_LANE_BYTES_PER_S) - 1)] * lanes * _BUS_EFFICIENCY)


def driver_version() -> str | None:
    """Version of the GPU's driver; None without one."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no bindings or no driver
        return None
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def open_gpu_probe(pids: Callable[[], Iterable[int]] = lambda: [os.getpid()]) -> GpuProbe:
    """NVML, or the reason why not. The GPUs are named first, so that NVML reports those that this process sees.

    Args:
        pids: see `NvmlProbe`.
    """
    try:
        import pynvml
    except ImportError:
        return NoGpu("NVML's bindings are not installed: pip install 'lookoutd[gpu]'")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NoGpu(f"NVML does not start: {error}")
    if gpus():
        name_visible_gpus()
    try:
        return NvmlProbe(pynvml, pids, visible_gpus())
    except pynvml.NVMLError as error:
        pynvml.nvmlShutdown()
        return NoGpu(f"NVML does not count the GPUs: {error}")
