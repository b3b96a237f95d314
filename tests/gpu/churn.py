"""Repeated disconnections of some sources, which must not affect the others' latency, or memory and threads.

    python -m tests.gpu.churn [CLIP] --sources 20 --victims 5 --drops 1000 [--backend cpu] [--json FILE]

It needs no GPU, but on one it also covers the decoder's resources.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from time import monotonic

import numpy as np

from daemon.bench.harness import Window, ended_well, probing, warm_up, watch
from daemon.bench.latency import Rowset
from daemon.bench.listener import listening
from daemon.bench.load import Load, config_of
from daemon.bench.steady import RowLog
from daemon.build import build
from daemon.commands.report import Table, number
from daemon.commands.report.tables import show, write_json
from daemon.config.root import LogConfig
from daemon.config.sources import ReconnectConfig, SourceConfig
from daemon.daemon import Daemon
from daemon.errors import LookoutError, SourceError
from daemon.log import logging
from daemon.monitoring.probes import GpuProbe, ProcessProbe
from daemon.seams import Seams
from daemon.sources.decode import DecoderPool
from daemon.sources.factory import make_source
from daemon.sources.port import DecodeBudget, Picture, Reader, Skipped, Source
from daemon.sources.synthetic_clip import synthetic_clip
from detectors.port import DetectorError
from lookout.client import Subscriber
from lookout.messages import Status, VideoFormat

_CHURN_TIMEOUT_S = 30.0
_SAMPLES = 10  # of the process's resources, in a second
_PICTURES = (2, 12)  # range of pictures per connection
_RECONNECT = ReconnectConfig(initial_s=0.02, max_s=0.02, factor=1.0)


@dataclass(frozen=True)
class Resources:
    """Resources of the idle process, the minimum of a second; gpu_mib is of all processes."""

    drops: int
    gpu_mib: float | None
    rss_mib: float
    threads: int
    open_files: int


@dataclass(frozen=True)
class Churned:
    """The figures of one run.

    Attributes:
        victims: number of sources that break, one after the other.
        settled, ended: after the first tenth of the drops, and after all.
        quiet_p99_ms, churning_p99_ms: due to sent of the other sources, before and during the drops.
        quiet_fps, churning_fps: of the slowest other source.
    """

    sources: int
    victims: int
    drops: int
    seconds: float
    settled: Resources
    ended: Resources
    quiet_p99_ms: float
    churning_p99_ms: float
    quiet_fps: float
    churning_fps: float


def churn(load: Load, drops: int, victims: int) -> Churned:
    """Run and measure.

    Raises:
        LookoutError: the daemon failed, or a source did not come back.
        DetectorError: the model cannot be used.
    """
    config = config_of(load, _RECONNECT)
    ids = [source.id for source in config.active]
    rows = RowLog(paced=True)
    with (
        logging(LogConfig(level="error", format="console")),
        probing() as probe,
        tempfile.TemporaryDirectory() as folder,
    ):
        flag = Path(folder) / "break"
        make = partial(_make_breakable, victims=frozenset(ids[:victims]), flag=flag)
        app = build(config, Seams(make_source=make, rows=[rows]))
        with listening(app.endpoint):
            churning = _Churning(app, flag, drops, probe, load.device)
            app.start()
            warm_up(app, ids, rows, load.warm_up)
            quiet = watch(app, probe, load.device, load.seconds)
            churning.start()
            window = _watch_while(app, probe, load.device, churning.is_alive)
            churning.join()
            ended_well(app.stop())
    if churning.problem:
        raise LookoutError(churning.problem)
    everything = rows.all()
    steady = np.array([id in ids[victims:] for id in app.ledger.accounts])
    others = everything[steady[everything["source"]]]
    return Churned(
        sources=len(ids),
        victims=victims,
        drops=churning.drops,
        seconds=round(window.seconds, 2),
        settled=churning.resources[0],
        ended=churning.resources[-1],
        quiet_p99_ms=_p99(Rowset(others, quiet, app.ledger.accounts, paced=True)),
        churning_p99_ms=_p99(Rowset(others, window, app.ledger.accounts, paced=True)),
        quiet_fps=round(min(quiet.rates(ids[victims:])), 3),
        churning_fps=round(min(window.rates(ids[victims:])), 3),
    )


def _p99(rowset: Rowset) -> float:
    """The p99; raises LookoutError without frames."""
    latency = rowset.latency()
    if not latency:
        raise LookoutError("the other sources published no frame: use more --seconds")
    return latency["p99"]


def _watch_while(app: Daemon, probe: GpuProbe, device: int, going: Callable[[], bool]) -> Window:
    """A window that lasts while a condition holds."""
    first = last = watch(app, probe, device, 0.25)
    while going():
        last = watch(app, probe, device, 0.25)
    return replace(last, begin=first.begin, before=first.before)


class _Churning(threading.Thread):
    """Breaks sources, and counts status messages of sources that are down.

    Attributes:
        drops: number so far.
        resources: after a tenth of the drops, and after all.
        problem: why it ended early.
    """

    def __init__(self, app: Daemon, flag: Path, drops: int, probe: GpuProbe, device: int) -> None:
        super().__init__(daemon=True)
        self.problem: str | None = None
        self.resources: list[Resources] = []
        self.drops = 0
        self._app, self._flag, self._wanted, self._probe, self._device = app, flag, drops, probe, device
        self._down: set[str] = set()

    def run(self) -> None:
        with Subscriber(self._app.endpoint, kinds=["status"]) as subscriber:
            for goal in (max(1, self._wanted // 10), self._wanted):
                self._flag.touch()
                self._listen(subscriber, lambda goal=goal: self.drops >= goal)  # type: ignore[misc]
                self._flag.unlink()
                self._listen(subscriber, lambda: not self._down)
                self.resources.append(self._sample())

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
            elif monotonic() - last > _CHURN_TIMEOUT_S:
                self.problem = f"nothing broke or came back for {_CHURN_TIMEOUT_S:.0f} s after {self.drops} drops"

    def _sample(self) -> Resources:
        """The minimum of a second: a file may be open for a moment."""
        probe, looks = ProcessProbe(lambda: self._app.parts.pids), []
        for _ in range(_SAMPLES):
            threading.Event().wait(1.0 / _SAMPLES)
            looks.append(probe.read())
        gpus = (self._probe.read() or [])[self._device : self._device + 1]
        memory = gpus[0].memory_used_bytes if gpus else None
        return Resources(
            drops=self.drops,
            gpu_mib=None if memory is None else round(memory / (1 << 20), 1),
            rss_mib=round(min(sample.rss_bytes for sample in looks) / (1 << 20), 1),
            threads=min(sample.threads for sample in looks),
            open_files=min(sample.open_files for sample in looks),
        )


def _make_breakable(config: SourceConfig, hardware: DecoderPool, victims: frozenset[str], flag: Path) -> Source:
    """The source, wrapped if it is a victim."""
    source = make_source(config, hardware)
    return _Breakable(source, flag, config.id) if config.id in victims else source


class _Breakable:
    """A source whose connections break after some pictures, while a flag file exists."""

    plays_once = has_next = False

    def __init__(self, source: Source, flag: Path, id: str) -> None:
        self._source, self._flag = source, flag
        self._random = random.Random(id)
        self.live, self.realtime, self.clock = source.live, source.realtime, source.clock

    def open(self, budget: DecodeBudget | None = None) -> Reader:
        return _BreakableReader(self._source.open(budget), self._flag, self._random.randint(*_PICTURES))


class _BreakableReader:
    def __init__(self, reader: Reader, flag: Path, pictures: int) -> None:
        self._reader, self._flag, self._left = reader, flag, pictures
        self.format: VideoFormat = reader.format

    def read(self) -> Picture | Skipped | None:
        self._left -= 1
        if self._left < 0 and self._flag.exists():
            raise SourceError("broken by the benchmark")
        return self._reader.read()

    def close(self) -> None:
        self._reader.close()


def _table(found: Churned) -> Table:
    rows = [
        (name, number(getattr(found.settled, name)), number(getattr(found.ended, name)))
        for name in ("drops", "gpu_mib", "rss_mib", "threads", "open_files")
    ]
    rows.append(("others' p99, ms: quiet, meanwhile", number(found.quiet_p99_ms), number(found.churning_p99_ms)))
    rows.append(("slowest other's frames/s", number(found.quiet_fps), number(found.churning_fps)))
    title = f"{found.drops} drops of {found.victims} among {found.sources} sources, {found.seconds:.0f} s"
    return Table(title, ("", "before", "after"), rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clip", type=Path, nargs="?")
    parser.add_argument("--sources", type=int, default=20)
    parser.add_argument("--victims", type=int, default=5, help="Sources that break, in turns.")
    parser.add_argument("--drops", type=int, default=1000, help="Connections to break.")
    parser.add_argument("--seconds", type=float, default=6.0, help="Quiet seconds before.")
    parser.add_argument("--warm-up", type=float, default=12.0)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--labels")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.victims >= args.sources:
        parser.error(f"--sources must be more than --victims {args.victims}: the others are what is watched")
    try:
        load = Load(
            (args.clip or synthetic_clip(),), args.sources, paced=True, seconds=args.seconds, warm_up=args.warm_up,
            model=args.model, labels=args.labels, cache=args.cache, backend=args.backend, device=args.device,
        )  # fmt: skip
        found = churn(load, args.drops, args.victims)
        show(_table(found))
        write_json(args.json, found)
    except (LookoutError, DetectorError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    # Capture processes unpickle the source by this module's name.
    sys.exit(import_module("tests.gpu.churn").main())
