"""`lookout bench once`: recordings through the daemon from beginning to end, counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, process_time

import numpy as np

from daemon.app import CUT_SHORT, App
from daemon.check import open_once
from daemon.config import (
    AvConfig,
    BoardConfig,
    Config,
    LogConfig,
    ModelConfig,
    MonitorConfig,
    PublisherConfig,
    check,
)
from daemon.errors import LookoutError
from daemon.log import logging
from daemon.messages import Percentiles
from daemon.metrics import CAUSES, Rows, percentiles
from daemon.paths import demo_model
from daemon.redact import Url
from daemon.sources.decoding import NoHardware

Signals = Callable[[Callable[[], None]], AbstractContextManager[None]]


@dataclass(frozen=True)
class OnceOptions:
    """What to replay and how; see `lookout bench once --help`."""

    clips: tuple[Path, ...]
    model: Path | None = None
    labels: str | None = None
    sources: int | None = None
    paced: bool = False
    seconds: float | None = None
    lanes: int = 1
    max_batch: int = 8
    threads: int = 0
    confidence: float = 0.25
    endpoint: str = "tcp://127.0.0.1:*"
    wait_for_subscriber: float = 0.0


@dataclass(frozen=True)
class Played:
    """One run.

    Attributes:
        seconds: from the first frame captured to the last message sent.
        fps: published frames over those seconds.
        latency_ms: captured to sent; p50, p95, p99, max. None if nothing was published.
        stages_ms: the same for each stage.
        cpu_ms_per_frame: CPU time of the process over captured frames.
    """

    model: str
    backend: str
    mode: str
    sources: int
    captured: int
    published: int
    dropped: int
    dropped_by_cause: dict[str, int]
    seconds: float
    fps: float
    latency_ms: dict[str, float] | None
    stages_ms: dict[str, dict[str, float]] | None
    cpu_ms_per_frame: float


def once(options: OnceOptions, signals: Signals = lambda _: nullcontext()) -> Played:
    """Run and measure.

    Raises:
        LookoutError: a clip cannot be played to its end.
        DetectorError: the model cannot be used.
    """
    config = check(_config(options))
    _check_clips(config)
    rows: list[Rows] = []
    with logging(LogConfig(level="error", format="console")):
        app = App(config, sinks=[rows.append])
        with signals(app.request_stop):
            app.start()
            started, cpu = monotonic(), process_time()
            with _alarm(options.seconds, app.request_stop):
                app.wait()
            code = app.stop()
            ended, cpu = monotonic(), process_time() - cpu
    for source, reason in app.failures.items():
        raise LookoutError(f"{source}: {reason}")
    if code not in (0, CUT_SHORT):
        raise LookoutError("the detector failed: see the log above")
    return _sum_up(app, options, rows, ended - started, cpu)


@contextmanager
def _alarm(seconds: float | None, ring: Callable[[], None]) -> Iterator[None]:
    """Ring after some seconds, unless that is None or what is within ends before."""
    timer = threading.Timer(seconds or 0, ring)
    timer.daemon = True
    if seconds:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _config(options: OnceOptions) -> Config:
    count = options.sources or len(options.clips)
    clips = [options.clips[number % len(options.clips)] for number in range(count)]
    return Config(
        model=ModelConfig(
            path=options.model or demo_model(),
            labels=options.labels,
            max_batch=options.max_batch,
            threads=options.threads,
            confidence=options.confidence,
        ),
        sources=[
            AvConfig(
                id=f"clip-{number}",
                url=Url(str(clip)),
                pace="realtime" if options.paced else "fast",
                loop=options.seconds is not None,
            )
            for number, clip in enumerate(clips)
        ],
        lanes=options.lanes,
        board=BoardConfig(mode="live" if options.paced else "lossless", depth=max(16, 2 * options.max_batch)),
        publisher=PublisherConfig(endpoint=options.endpoint, wait_for_subscriber_s=options.wait_for_subscriber),
        monitor=MonitorConfig(interval_s=5.0),
    )


def _check_clips(config: Config) -> None:
    seen = {str(source.url): source for source in config.sources if isinstance(source, AvConfig)}
    for source in seen.values():
        problem = open_once(source, NoHardware("not needed to look at it")).problem
        if problem:
            raise LookoutError(problem)


def _sum_up(app: App, options: OnceOptions, rows: list[Rows], seconds: float, cpu: float) -> Played:
    counts = app.ledger.counts().values()
    captured, published = sum(count.captured for count in counts), sum(count.published for count in counts)
    causes = {cause: sum(getattr(count.dropped, cause) for count in counts) for cause in CAUSES}
    stages = percentiles(np.concatenate(rows)) if rows else None
    summary = {name: _milliseconds(stage) for name, stage in stages.items()} if stages else None
    return Played(
        model=f"{app.model.name} {app.model.digest}",
        backend=app.model.backend,
        mode="paced" if options.paced else "lossless",
        sources=len(counts),
        captured=captured,
        published=published,
        dropped=sum(causes.values()),
        dropped_by_cause=causes,
        seconds=round(seconds, 3),
        fps=round(published / seconds, 2),
        latency_ms=summary["total"] if summary else None,
        stages_ms=summary,
        cpu_ms_per_frame=round(cpu * 1000 / max(1, captured), 3),
    )


def _milliseconds(stage: Percentiles) -> dict[str, float]:
    values = {"p50": stage.p50, "p95": stage.p95, "p99": stage.p99, "max": stage.max}
    return {name: round(value / 1e6, 3) for name, value in values.items()}
