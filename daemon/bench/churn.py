"""`lookout bench churn`: single sources break and come back, over and over, among others that must not notice."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

import numpy as np

from daemon.app import App
from daemon.bench.harness import Window, ended_well, probing, warm_up, watch
from daemon.bench.latency import Rowset
from daemon.bench.listener import listening
from daemon.bench.load import Load, config_of
from daemon.client import Subscriber
from daemon.config import LogConfig, ReconnectConfig, SourceConfig
from daemon.errors import LookoutError, SourceError
from daemon.log import logging
from daemon.messages import Status, VideoFormat
from daemon.metrics import Rows
from daemon.probes import GpuProbe, ProcessProbe
from daemon.sources.decoding import Hardware
from daemon.sources.factory import make_source
from daemon.sources.port import Picture, Reader, Source

_PATIENCE_S = 30.0
_LOOKS = 10  # at what the process has, in a second
_PICTURES = (2, 12)  # of a connection, before it breaks
_RECONNECT = ReconnectConfig(initial_s=0.02, max_s=0.02, factor=1.0)


@dataclass(frozen=True)
class Marks:
    """What the process has at rest, the least of a second; gpu_mib of everybody on the GPU."""

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
        quiet_p99_ms, churning_p99_ms: of the sources that did not break, due to sent: before, and meanwhile.
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
    rows: list[Rows] = []
    with (
        logging(LogConfig(level="error", format="console")),
        probing() as probe,
        tempfile.TemporaryDirectory() as folder,
    ):
        flag = Path(folder) / "break"
        make = partial(_make_breakable, victims=frozenset(ids[:victims]), flag=flag)
        app = App(config, make_source=make, sinks=[rows.append])
        with listening(app.endpoint):
            churning = _Churning(app, flag, drops, probe)
            app.start()
            warm_up(app, ids, load.warm_up)
            quiet = watch(app, probe, load.seconds)
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
        drops=churning.drops,
        seconds=round(window.seconds, 2),
        settled=churning.marks[0],
        ended=churning.marks[-1],
        quiet_p99_ms=_p99(Rowset(others, quiet, app.ledger.sources, paced=True)),
        churning_p99_ms=_p99(Rowset(others, window, app.ledger.sources, paced=True)),
        quiet_fps=round(min(quiet.rates(ids[victims:])), 3),
        churning_fps=round(min(window.rates(ids[victims:])), 3),
    )


def _p99(rowset: Rowset) -> float:
    """Raises LookoutError."""
    latency = rowset.latency()
    if not latency:
        raise LookoutError("no frame of those that do not break was published: give it more --seconds")
    return latency["p99"]


def _watch_while(app: App, probe: GpuProbe, going: Callable[[], bool]) -> Window:
    """A window as long as something goes on."""
    first = watch(app, probe, 0.25)
    last = first
    while going():
        last = watch(app, probe, 0.25)
    seconds = (last.end - first.begin) / 1e9
    return Window(first.begin, last.end, seconds, first.before, last.after, last.usage, last.samples)


class _Churning(threading.Thread):
    """Lets sources break, and counts on the socket how often one was down.

    Attributes:
        drops: so far.
        marks: after a tenth of them, and after all.
        problem: why it ended early.
    """

    def __init__(self, app: App, flag: Path, drops: int, probe: GpuProbe) -> None:
        super().__init__(daemon=True)
        self.problem: str | None = None
        self.marks: list[Marks] = []
        self.drops = 0
        self._app, self._flag, self._wanted, self._probe = app, flag, drops, probe
        self._down: set[str] = set()

    def run(self) -> None:
        with Subscriber(self._app.endpoint, kinds=["status"]) as subscriber:
            for goal in (max(1, self._wanted // 10), self._wanted):
                self._flag.touch()
                self._listen(subscriber, lambda goal=goal: self.drops >= goal)  # type: ignore[misc]
                self._flag.unlink()
                self._listen(subscriber, lambda: not self._down)
                self.marks.append(self._mark())

    def _listen(self, subscriber: Subscriber, done: Callable[[], bool]) -> None:
        last = monotonic()
        while not done() and not self.problem:
            message = subscriber.receive(1.0)
            if isinstance(message, Status):
                last = monotonic()
                if message.state == "down":
                    self.drops += 1
                    self._down.add(message.source)
                elif message.state == "up":
                    self._down.discard(message.source)
            elif monotonic() - last > _PATIENCE_S:
                self.problem = f"nothing broke or came back for {_PATIENCE_S:.0f} s after {self.drops} drops"

    def _mark(self) -> Marks:
        """The least of a second, for a file may be open for a moment."""
        probe, looks = ProcessProbe(lambda: self._app.pids), []
        for _ in range(_LOOKS):
            threading.Event().wait(1.0 / _LOOKS)
            looks.append(probe.read())
        found = self._probe.read()
        memory = found[0].memory_used_bytes if found else None
        return Marks(
            drops=self.drops,
            gpu_mib=None if memory is None else round(memory / (1 << 20), 1),
            rss_mib=round(min(look.rss_bytes for look in looks) / (1 << 20), 1),
            threads=min(look.threads for look in looks),
            open_files=min(look.open_files for look in looks),
        )


def _make_breakable(config: SourceConfig, hardware: Hardware, victims: frozenset[str], flag: Path) -> Source:
    """The source itself, or one that breaks."""
    source = make_source(config, hardware)
    return _Breakable(source, flag, config.id) if config.id in victims else source


class _Breakable:
    """A source each connection of which breaks after some pictures, as long as there is a file that says so."""

    once = goes_on = False

    def __init__(self, source: Source, flag: Path, id: str) -> None:
        self._source, self._flag = source, flag
        self._random = random.Random(id)  # noqa: S311 - the same every time
        self.live, self.paced, self.clock = source.live, source.paced, source.clock

    def open(self) -> Reader:
        return _BreakableReader(self._source.open(), self._flag, self._random.randint(*_PICTURES))


class _BreakableReader:
    def __init__(self, reader: Reader, flag: Path, pictures: int) -> None:
        self._reader, self._flag, self._left = reader, flag, pictures
        self.format: VideoFormat = reader.format

    def read(self, late: int = 0, undecoded: float = 0.0) -> Picture | None:
        self._left -= 1
        if self._left < 0 and self._flag.exists():
            raise SourceError("broken by the benchmark")
        return self._reader.read(late, undecoded)

    def close(self) -> None:
        self._reader.close()
