"""`lookout bench churn`: single sources break and come back, over and over, among others that must not notice."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

import numpy as np
import psutil

from daemon.app import App
from daemon.bench.harness import Load, Window, await_first_frames, config_of, ended_well, latencies, probing, watch
from daemon.bench.listener import listening
from daemon.config import LogConfig, ReconnectConfig, SourceConfig
from daemon.errors import LookoutError, SourceError
from daemon.log import logging
from daemon.messages import VideoFormat
from daemon.metrics import Rows
from daemon.probes import GpuProbe
from daemon.sources.decoding import Hardware
from daemon.sources.factory import make_source
from daemon.sources.port import Picture, Reader, Source

_PATIENCE_S = 30.0
_RECONNECT = ReconnectConfig(initial_s=0.02, max_s=0.02, factor=1.0)


@dataclass(frozen=True)
class Marks:
    """What the process has at one moment; gpu_mib of everybody on the GPU."""

    drops: int
    gpu_mib: float | None
    rss_mib: float
    threads: int
    open_files: int


@dataclass(frozen=True)
class Churned:
    """One run.

    Attributes:
        victims: sources that broke, in turns.
        settled, ended: after the first tenth of the drops, and after all.
        quiet_p99_ms, churning_p99_ms: of the sources that did not break, captured to sent: before, and meanwhile.
        quiet_fps, churning_fps: of the slowest of them.
    """

    sources: int
    victims: int
    drops: int
    seconds: float
    settled: Marks
    ended: Marks
    quiet_p99_ms: float
    churning_p99_ms: float
    quiet_fps: float
    churning_fps: float


def churn(load: Load, drops: int, victims: int) -> Churned:
    """Run and measure.

    Raises:
        LookoutError: the daemon fails, or a source does not come back.
        DetectorError: the model cannot be used.
    """
    config = config_of(load, _RECONNECT)
    ids = [source.id for source in config.active]
    breakable: dict[str, _Breakable] = {}
    rows: list[Rows] = []

    def make(source: SourceConfig, hardware: Hardware) -> Source:
        breakable[source.id] = _Breakable(make_source(source, hardware))
        return breakable[source.id]

    with logging(LogConfig(level="error", format="console")), probing() as probe:
        app = App(config, make_source=make, sinks=[rows.append])
        with listening(app.endpoint):
            app.start()
            await_first_frames(app, ids)
            quiet = watch(app, probe, load.seconds)
            churning = _Churning([breakable[id] for id in ids[:victims]], drops, probe)
            churning.start()
            window = _watch_while(app, probe, churning.is_alive)
            churning.join()
            ended_well(app.stop())
    if churning.problem:
        raise LookoutError(churning.problem)
    everything = np.concatenate(rows)
    steady = np.array([id in ids[victims:] for id in app.ledger.sources])
    others = everything[steady[everything["source"]]]
    return Churned(
        sources=len(ids),
        victims=victims,
        drops=drops,
        seconds=round(window.seconds, 2),
        settled=churning.marks[0],
        ended=churning.marks[-1],
        quiet_p99_ms=latencies(others, quiet)[0]["p99"],
        churning_p99_ms=latencies(others, window)[0]["p99"],
        quiet_fps=round(min(quiet.rates(ids[victims:])), 3),
        churning_fps=round(min(window.rates(ids[victims:])), 3),
    )


def _watch_while(app: App, probe: GpuProbe, going: Callable[[], bool]) -> Window:
    """A window as long as something goes on."""
    first = watch(app, probe, 0.25)
    last = first
    while going():
        last = watch(app, probe, 0.25)
    seconds = (last.end - first.begin) / 1e9
    return Window(first.begin, last.end, seconds, first.before, last.after, last.usage)


class _Churning(threading.Thread):
    """Breaks one source after the other, each after it has come back and published."""

    def __init__(self, victims: list[_Breakable], drops: int, probe: GpuProbe) -> None:
        super().__init__(daemon=True)
        self.problem: str | None = None
        self.marks: list[Marks] = []
        self._victims, self._drops, self._probe = victims, drops, probe
        self._random = random.Random(1)  # noqa: S311 - the same order every time

    def run(self) -> None:
        for number in range(self._drops):
            victim = self._victims[number % len(self._victims)]
            if not victim.up.wait(_PATIENCE_S):
                self.problem = f"a source did not come back after {number} drops"
                return
            threading.Event().wait(self._random.random() * 0.04)
            victim.drop()
            if number + 1 in (max(1, self._drops // 10), self._drops):
                self._settle()
                self.marks.append(self._mark(number + 1))

    def _settle(self) -> None:
        """Until all are back."""
        until = monotonic() + _PATIENCE_S
        for victim in self._victims:
            victim.up.wait(max(0.0, until - monotonic()))
        threading.Event().wait(1.0)

    def _mark(self, drops: int) -> Marks:
        process = psutil.Process()
        found = self._probe.read()
        used = found[0].memory_used_bytes if found else None
        return Marks(
            drops=drops,
            gpu_mib=None if used is None else round(used / (1 << 20), 1),
            rss_mib=round(process.memory_info().rss / (1 << 20), 1),
            threads=process.num_threads(),
            open_files=process.num_fds(),
        )


class _Breakable:
    """A source whose connection can be broken from outside, and that connects again.

    Attributes:
        up: set while a connection has given a picture and was not broken since.
    """

    once = False

    def __init__(self, source: Source) -> None:
        self._source = source
        self.live, self.paced, self.clock = source.live, source.paced, source.clock
        self.up, self.broken = threading.Event(), threading.Event()

    def drop(self) -> None:
        self.up.clear()
        self.broken.set()

    def open(self) -> Reader:
        self.broken.clear()
        return _BreakableReader(self, self._source.open())


class _BreakableReader:
    def __init__(self, source: _Breakable, reader: Reader) -> None:
        self._source, self._reader = source, reader
        self.format: VideoFormat = reader.format

    def read(self, late: int = 0) -> Picture | None:
        if self._source.broken.is_set():
            raise SourceError("broken by the benchmark")
        picture = self._reader.read(late)
        self._source.up.set()
        return picture

    def close(self) -> None:
        self._reader.close()
