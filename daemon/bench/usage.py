"""Resource usage of the daemon in a window: CPU, I/O, memory, GPU, power."""

from __future__ import annotations

import os
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from time import monotonic, thread_time

import psutil

from daemon.monitoring.probes import GpuProbe, ProcessProbe
from daemon.system.affinity import interrupts
from lookout.messages import GpuMetrics

_SWITCHES = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Sample:
    """State of the GPU at one moment; None where unknown.

    Attributes:
        at_s: since the window began.
    """

    at_s: float
    gpu_percent: float | None
    decoder_percent: float | None
    memory_mib: float | None
    power_w: float | None


@dataclass(frozen=True)
class Usage:
    """Resource usage in a window; GPU figures are None without a GPU or if unknown.

    Attributes:
        cpu_ms_per_frame: of the daemon's processes, without the measuring thread, per captured frame.
        cpu_us_by_thread: the same by kind of thread; native threads are "others", capture processes are one kind.
        bench_cpu_ms_per_frame: of the measuring thread, which runs in one of these processes.
        rss_mib, threads, open_files: sums over the processes.
        context_switches_per_s: sum over their threads.
        io_wait_percent: of the whole machine's CPU time.
        read_mib_per_s: from disks, without the page cache.
        gpu_percent, decoder_percent, memory_controller_percent, clock_mhz: means.
        power_w, peak_power_w: mean and highest sample.
        energy_j: by the card's own counter.
        gpu_bytes: highest used GPU memory, of all processes.
        throttled: reasons for a lowered clock.
        gpu_processes: highest number of processes on the GPU.
        gpu_interrupts_per_s: of all GPUs, on the core with most of them. Their time counts for the threads on that
            core.
    """

    cpu_ms_per_frame: float
    cpu_us_by_thread: dict[str, float]
    bench_cpu_ms_per_frame: float
    rss_mib: float
    threads: int
    open_files: int
    context_switches_per_s: float
    io_wait_percent: float
    read_mib_per_s: float
    gpu_percent: float | None
    decoder_percent: float | None
    memory_controller_percent: float | None
    clock_mhz: float | None
    power_w: float | None
    peak_power_w: float | None
    energy_j: float | None
    gpu_bytes: int | None
    throttled: list[str]
    gpu_processes: int | None
    gpu_interrupts_per_s: float | None = None


class Meter:
    """Measures usage from its construction to `usage`, with calls of `sample` in between.

    Args:
        pids: the daemon's current processes.
        device: number of the GPU.
    """

    def __init__(self, pids: Callable[[], Iterable[int]], probe: GpuProbe, device: int = 0) -> None:
        self._pids, self._probe, self._device = pids, probe, device
        self._processes = ProcessProbe(pids)
        self._began, self._own = monotonic(), thread_time()
        self._cpu, self._switches, self._read = self._cpu_by_thread(), self._context_switches(), self._read_bytes()
        self._machine, self._interrupts = psutil.cpu_times(), interrupts()
        self._gpus: list[GpuMetrics] = []
        self.samples: list[Sample] = []
        self.sample()

    def sample(self) -> None:
        for gpu in (self._probe.read() or [])[self._device : self._device + 1]:
            self._gpus.append(gpu)
            used = gpu.memory_used_bytes
            self.samples.append(
                Sample(
                    round(monotonic() - self._began, 3),
                    gpu.utilisation,
                    gpu.decoder_utilisation,
                    None if used is None else round(used / (1 << 20), 1),
                    gpu.power_w,
                )
            )

    def usage(self, captured: int) -> Usage:
        """Usage since construction, for this many captured frames."""
        self.sample()
        seconds, own = monotonic() - self._began, thread_time() - self._own
        spent, gpus, frames = self._cpu_by_thread(), self._gpus, max(1, captured)
        used = self._processes.read()
        machine, came = psutil.cpu_times(), interrupts() - self._interrupts
        total = sum(machine[:8]) - sum(self._machine[:8])  # guest time is part of other fields
        energies = [gpu.energy_j for gpu in gpus if gpu.energy_j is not None]
        powers = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
        return Usage(
            cpu_ms_per_frame=round(sum(spent[kind] - self._cpu[kind] for kind in spent) * 1000 / frames, 4),
            cpu_us_by_thread={kind: round((spent[kind] - self._cpu[kind]) / frames * 1e6, 1) for kind in sorted(spent)},
            bench_cpu_ms_per_frame=round(own * 1000 / frames, 4),
            rss_mib=round(used.rss_bytes / (1 << 20), 1),
            threads=used.threads,
            open_files=used.open_files,
            context_switches_per_s=round((self._context_switches() - self._switches) / seconds, 1),
            io_wait_percent=round(100 * (machine.iowait - self._machine.iowait) / max(total, 1e-9), 2),
            read_mib_per_s=round((self._read_bytes() - self._read) / seconds / (1 << 20), 3),
            gpu_percent=_mean(gpu.utilisation for gpu in gpus),
            decoder_percent=_mean(gpu.decoder_utilisation for gpu in gpus),
            memory_controller_percent=_mean(gpu.memory_controller_utilisation for gpu in gpus),
            clock_mhz=_mean(gpu.clock_mhz for gpu in gpus),
            power_w=_mean(powers),
            peak_power_w=round(max(powers), 1) if powers else None,
            energy_j=round(energies[-1] - energies[0], 2) if energies else None,
            gpu_bytes=max((gpu.memory_used_bytes for gpu in gpus if gpu.memory_used_bytes is not None), default=None),
            throttled=sorted({reason for gpu in gpus for reason in gpu.throttled or ()}),
            gpu_processes=max((gpu.processes for gpu in gpus if gpu.processes is not None), default=None),
            gpu_interrupts_per_s=round(max(came.values()) / seconds, 1) if came else None,
        )

    def _cpu_by_thread(self) -> defaultdict[str, float]:
        """Seconds by the first word of a thread's name, without the calling thread."""
        names, own = {thread.native_id: thread.name for thread in threading.enumerate()}, threading.get_native_id()
        kinds: defaultdict[str, float] = defaultdict(float)
        for pid in self._pids():
            with suppress(psutil.Error):
                for row in psutil.Process(pid).threads():
                    name = names.get(row.id, "others") if pid == os.getpid() else "processes"
                    kinds[re.split(r"[-_]", name)[0]] += (row.user_time + row.system_time) * (row.id != own)
        return kinds

    def _context_switches(self) -> int:
        """Sum over all threads; psutil counts a process's first thread only."""
        total = 0
        for pid in self._pids():
            for task in Path(f"/proc/{pid}/task").glob("*/status"):
                with suppress(OSError):  # the thread has just ended
                    total += sum(int(count) for count in _SWITCHES.findall(task.read_text()))
        return total

    def _read_bytes(self) -> int:
        total = 0
        for pid in self._pids():
            with suppress(psutil.Error):
                total += psutil.Process(pid).io_counters().read_bytes
        return total


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(mean(known), 1) if known else None
