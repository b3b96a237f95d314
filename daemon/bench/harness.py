"""What benchmarks of the whole daemon share: one recording as many sources, and a window of time in steady state."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

import numpy as np
import psutil

from daemon.app import App
from daemon.bench.listener import MESSAGES
from daemon.clock import SystemClock
from daemon.config import (
    AvConfig,
    BoardConfig,
    Config,
    Decode,
    GpuConfig,
    ModelConfig,
    MonitorConfig,
    PublisherConfig,
    ReconnectConfig,
    check,
)
from daemon.errors import LookoutError
from daemon.messages import Encoding
from daemon.metrics import CAUSES, STAGES, Counts, Rows
from daemon.paths import demo_model
from daemon.probes import GpuProbe, ProcessProbe, open_gpu_probe
from daemon.redact import Url
from detectors.factory import Backend
from detectors.port import Precision

_FIRST_FRAMES = 5  # of every source before the clock starts
_PATIENCE_S = 120.0
_SETTLE_S = 3.0  # decoders are made one after the other, and recordings are late for it
_TICK_S = 0.25
_DEPTH = 8
_RANKS = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}


@dataclass(frozen=True)
class Load:
    """What to run; see `lookout bench streams --help`."""

    clip: Path
    sources: int = 28
    paced: bool = False
    seconds: float = 20.0
    model: Path | None = None
    labels: str | None = None
    backend: Backend = "auto"
    precision: Precision = "auto"
    builder_level: int = 3
    cache: Path | None = None
    lanes: int = 2
    max_batch: int = 32
    decode: Decode = "auto"
    memory_limit: int | None = None
    processes: int | None = None
    mps: Literal["auto", "off"] = "auto"
    encoding: Encoding = "json"


def config_of(load: Load, reconnect: ReconnectConfig | None = None) -> Config:
    """The daemon's configuration; the recording is looped for ever."""
    return check(
        Config(
            model=ModelConfig(
                path=load.model or demo_model(),
                labels=load.labels,
                backend=load.backend,
                max_batch=load.max_batch,
                precision=load.precision,
                builder_level=load.builder_level,
                cache=load.cache,
            ),
            gpu=GpuConfig(memory_limit_mib=load.memory_limit, mps=load.mps),
            capture_processes="auto" if load.processes is None else load.processes,
            sources=[
                AvConfig(
                    id=f"clip-{number}",
                    url=Url(str(load.clip)),
                    pace="realtime" if load.paced else "fast",
                    loop=True,
                    decode=load.decode,
                )
                for number in range(load.sources)
            ],
            lanes=load.lanes,
            reconnect=reconnect or ReconnectConfig(),
            board=BoardConfig(mode="live" if load.paced else "lossless", depth=_DEPTH),
            publisher=PublisherConfig(
                endpoint="tcp://127.0.0.1:*",
                encoding=load.encoding,
                high_water_mark=MESSAGES,
                wait_for_subscriber_s=20,
            ),
            monitor=MonitorConfig(interval_s=60),
        )
    )


@dataclass(frozen=True)
class Usage:
    """What was used in a window.

    Attributes:
        cpu_ms_per_frame: of the daemon's processes, over frames captured.
        cpu_us_by_thread: the same by kind of thread, microseconds; what is not Python's is "others", and capture
            processes are one kind.
        rss_mib, threads, open_files: of the processes together.
        gpu_percent, decoder_percent, power_w: means; None where the card does not tell.
        gpu_bytes: of the GPU's memory, by everybody on it; the most seen.
    """

    cpu_ms_per_frame: float
    cpu_us_by_thread: dict[str, float]
    rss_mib: float
    threads: int
    open_files: int
    gpu_percent: float | None
    decoder_percent: float | None
    power_w: float | None
    gpu_bytes: int | None


@dataclass(frozen=True)
class Window:
    """What happened between two moments.

    Attributes:
        begin, end: UTC ns.
    """

    begin: int
    end: int
    seconds: float
    before: dict[str, Counts]
    after: dict[str, Counts]
    usage: Usage

    def rates(self, ids: Iterable[str]) -> list[float]:
        """Published frames a second, by source."""
        return [(self.after[id].published - self.before[id].published) / self.seconds for id in ids]

    @property
    def captured(self) -> int:
        return sum(self.after[id].captured - self.before[id].captured for id in self.after)

    @property
    def published(self) -> int:
        return sum(self.after[id].published - self.before[id].published for id in self.after)

    @property
    def dropped(self) -> dict[str, int]:
        """By cause."""
        return {
            cause: sum(
                getattr(self.after[id].dropped, cause) - getattr(self.before[id].dropped, cause) for id in self.after
            )
            for cause in CAUSES
        }


def await_first_frames(app: App, ids: Iterable[str]) -> int:
    """Until every source has published some; how many have, if the patience ends before."""
    until = monotonic() + _PATIENCE_S
    ids = list(ids)
    pause = threading.Event()
    while True:
        counts = app.ledger.counts()
        up = sum(counts[id].published >= _FIRST_FRAMES for id in ids)
        if up == len(ids) or monotonic() > until:
            pause.wait(_SETTLE_S)
            return up
        pause.wait(_TICK_S)


def watch(app: App, probe: GpuProbe, seconds: float) -> Window:
    """Let time pass, and say what happened in it. Rows come later, see `latencies`."""
    clock, pause, probed = SystemClock(), threading.Event(), ProcessProbe(lambda: app.pids)
    samples = []
    before, begin, began, threads = app.ledger.counts(), clock.utc_ns(), monotonic(), _cpu_by_thread(app)
    while (left := seconds - (monotonic() - began)) > 0:
        pause.wait(min(left, _TICK_S))
        samples += (probe.read() or [])[:1]
    after, passed, spent = app.ledger.counts(), monotonic() - began, _cpu_by_thread(app)
    used = probed.read()
    captured = sum(after[id].captured - before[id].captured for id in after)
    memory = [gpu.memory_used_bytes for gpu in samples if gpu.memory_used_bytes is not None]
    usage = Usage(
        cpu_ms_per_frame=round(sum(spent[kind] - threads[kind] for kind in spent) * 1000 / max(1, captured), 4),
        cpu_us_by_thread={
            kind: round((spent[kind] - threads[kind]) / max(1, captured) * 1e6, 1) for kind in sorted(spent)
        },
        rss_mib=round(used.rss_bytes / (1 << 20), 1),
        threads=used.threads,
        open_files=used.open_files,
        gpu_percent=_mean(gpu.utilisation for gpu in samples),
        decoder_percent=_mean(gpu.decoder_utilisation for gpu in samples),
        power_w=_mean(gpu.power_w for gpu in samples),
        gpu_bytes=max(memory, default=None),
    )
    return Window(begin, clock.utc_ns(), passed, before, after, usage)


def latencies(rows: Rows, window: Window) -> tuple[dict[str, float], float]:
    """Captured to sent of frames captured in a window, ms, at some ranks; and the highest p99 of any of its seconds."""
    inside = _published_in(rows, window)
    if len(inside) == 0:
        return {}, 0.0
    total = inside["total"] / 1e6
    second = (inside["captured_at"] - window.begin) // 1_000_000_000
    worst = max(float(np.percentile(total[second == number], 99)) for number in np.unique(second))
    return {name: round(float(np.percentile(total, rank)), 3) for name, rank in _RANKS.items()}, round(worst, 3)


def stages(rows: Rows, window: Window) -> dict[str, tuple[float, float]]:
    """p50 and p99 of each stage of frames captured in a window, ms."""
    inside = _published_in(rows, window)
    if len(inside) == 0:
        return {}
    ranks = {stage: np.percentile(inside[stage] / 1e6, (50, 99)) for stage in STAGES}
    return {stage: (round(float(p50), 3), round(float(p99), 3)) for stage, (p50, p99) in ranks.items()}


def decoders(app: App) -> dict[str, int]:
    """How many sources each decoder has."""
    return dict(Counter(format.decoder for format in app.formats.values()))


def refusals(app: App) -> dict[str, int]:
    """Why sources are not decoded on the GPU, and how many."""
    reasons = [format.decoder_reason for format in app.formats.values()]
    return dict(Counter(reason for reason in reasons if reason))


@contextmanager
def probing() -> Iterator[GpuProbe]:
    with closing(open_gpu_probe()) as probe:
        yield probe


def ended_well(code: int) -> None:
    """To be called with the daemon's exit code.

    Raises:
        LookoutError: it failed.
    """
    if code:
        raise LookoutError("the daemon failed: see the log above")


def _published_in(rows: Rows, window: Window) -> Rows:
    """Those of frames that were captured in a window, and published."""
    captured_at = rows["captured_at"]
    inside: Rows = rows[(rows["dropped"] == 0) & (captured_at >= window.begin) & (captured_at < window.end)]
    return inside


def _cpu_by_thread(app: App) -> defaultdict[str, float]:
    """Seconds by the first word of a thread's name."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    kinds: defaultdict[str, float] = defaultdict(float)
    for pid in app.pids:
        for row in psutil.Process(pid).threads():
            name = names.get(row.id, "others") if pid == os.getpid() else "processes"
            kinds[re.split(r"[-_]", name)[0]] += row.user_time + row.system_time
    return kinds


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 1) if known else None
