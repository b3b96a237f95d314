"""The monitor thread: drains the ledger, publishes and logs metrics, watches for stalls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
import structlog

from daemon.appended_file import AppendedFile
from daemon.config.root import MonitorConfig
from daemon.errors import ConfigError
from daemon.lifecycle import ThreadPart
from daemon.monitoring.account_figures import CountsByModel, Interval
from daemon.monitoring.probes import GpuReader, ProcessProbe
from daemon.pipeline.drop_causes import CAUSES
from daemon.pipeline.ledger import ROW, STAGES, Ledger, Rows, percentiles
from daemon.pipeline.outbox import Outbox, Report
from daemon.publish.publisher import Publisher
from daemon.system import memory, systemd
from daemon.system.runtime import Runtime
from daemon.system.tuning import name_threads
from daemon.system.watchdog import Pulse
from detectors.port import ModelInfo
from lookout.messages import ClassifierMetrics, Metrics, State, topic

log = structlog.get_logger(__name__)
_TICK_S = 1.0
_REPORTS_PER_TRIM = 5
_CLOSE_TIMEOUT_S = 0.2  # time limit for a GPU reader that blocks
FrameStatsListener = Callable[[Rows], None]


class Watched(Protocol):
    """A source's capture, in this or in another process."""

    @property
    def id(self) -> str: ...
    @property
    def state(self) -> State: ...


class Sources(Protocol):
    """All current sources: `daemon.control.sources.SourceManager`."""

    @property
    def captures(self) -> Sequence[Watched]: ...
    def housekeeping(self, stall_after_s: float) -> None:
        """Every second: report sources that have stalled, and replace those that block for much longer."""
        ...


@dataclass(frozen=True)
class MonitoredParts:
    """The parts of a daemon that a monitor reports on.

    Attributes:
        process: covers all processes of the daemon.
        instance: id of the daemon's run.
        classifiers: the accounts of classifiers, by name.
        models: the facts of models, by name.
    """

    ledger: Ledger
    sources: Sources
    publisher: Publisher
    outbox: Outbox
    process: ProcessProbe
    gpu: GpuReader
    instance: str
    classifiers: Callable[[], dict[str, ClassifierMetrics]] = dict
    models: Callable[[], Mapping[str, ModelInfo]] = dict


class Monitor(ThreadPart):
    """Reports metrics, once more at its end, and owns the probes and the file of frames.

    Args:
        listeners: called with the rows of all frames.
        on_report: called with each report.
        on_tick: called every second with the monotonic time, ns.

    Attributes:
        last: the last report.

    Raises:
        ConfigError: the file of frames cannot be written.
    """

    def __init__(
        self,
        config: MonitorConfig,
        subject: MonitoredParts,
        runtime: Runtime,
        listeners: Sequence[FrameStatsListener] = (),
        on_report: Sequence[Callable[[Metrics], None]] = (),
        on_tick: Sequence[Callable[[int], None]] = (),
    ) -> None:
        super().__init__("monitor", runtime)
        self._config, self._subject = config, subject
        self._ledger, self._sources = subject.ledger, subject.sources
        self._on_report, self._on_tick = on_report, on_tick
        frames = config.frames_file
        self._frames = FrameFile(frames, subject.instance, self._ledger.accounts) if frames else None
        self._listeners = (*listeners, self._frames.write) if self._frames else tuple(listeners)
        self._begun = self._since = self._clock.monotonic_ns()
        self._counts: CountsByModel = self._ledger.counts_by_model()
        self._rows: list[Rows] = []
        self._reports = 0
        self.last: Metrics | None = None

    def start(self) -> None:
        """Raises:
        RuntimeError: the system gives no thread.
        """
        self._subject.gpu.start()
        super().start()

    def reconfigure(self, config: MonitorConfig) -> None:
        """Report at another interval, and take sources for stalled after another time."""
        self._config = config

    def work(self, pulse: Pulse) -> None:
        while not self._clock.wait(self.ending, min(_TICK_S, self._config.interval_s)):
            self._tick()
            pulse.beat()
        self._drain()
        self.report()

    def close(self) -> None:
        self._subject.gpu.stop(_CLOSE_TIMEOUT_S)
        if self._frames:
            self._frames.close()

    def _tick(self) -> None:
        self._drain()
        self._sources.housekeeping(self._config.stall_after_s)
        if self._clock.monotonic_ns() - self._since >= self._config.interval_s * 1e9:
            self.report()
        for tick in self._on_tick:
            tick(self._clock.monotonic_ns())

    def report(self) -> Metrics:
        """Publish and log the metrics since the last report."""
        metrics = self.last = self._measure()
        self._ledger.forget_removed()
        self._subject.outbox.report(Report(topic("metrics"), metrics))
        for learn in self._on_report:
            learn(metrics)
        total = metrics.latency["total"] if metrics.latency else None
        up = sum(source.state == "up" for source in metrics.sources.values())
        dropped = sum(getattr(source.dropped, cause) for source in metrics.sources.values() for cause in CAUSES)
        log.info(
            "metrics",
            fps=metrics.fps,
            p50_ms=round(total.p50 / 1e6, 2) if total else None,
            p99_ms=round(total.p99 / 1e6, 2) if total else None,
            up=f"{up}/{len(metrics.sources)}",
            dropped=dropped,
            cpu_percent=metrics.process.cpu_percent,
            rss_mib=metrics.process.rss_bytes >> 20,
        )
        self._reports += 1
        if self._reports % _REPORTS_PER_TRIM == 0:
            memory.trim()
        name_threads()
        systemd.notify(f"STATUS={up} of {len(metrics.sources)} sources up, {metrics.fps} frames/s")
        return metrics

    def _measure(self) -> Metrics:
        now = self._clock.monotonic_ns()
        seconds = max(now - self._since, 1) / 1e9
        before, self._counts = self._counts, self._ledger.counts_by_model()
        rows = np.concatenate(self._rows) if self._rows else np.empty(0, ROW)
        self._since, self._rows = now, []
        states = {capture.id: capture.state for capture in self._sources.captures}
        interval = Interval(seconds, before, self._counts, rows)
        return Metrics(
            instance=self._subject.instance,
            index=0,
            at=self._clock.utc_ns(),
            interval_s=round(seconds, 3),
            uptime_s=round((now - self._begun) / 1e9, 3),
            fps=interval.fps,
            latency=percentiles(rows),
            sources=interval.sources(self._ledger, states),
            process=self._subject.process.read(),
            gpus=self._subject.gpu.read(),
            gpus_reason=self._subject.gpu.reason,
            publisher=self._subject.publisher.metrics(),
            classifiers=self._subject.classifiers(),
            models=interval.models(self._subject.models()),
        )

    def _drain(self) -> None:
        rows = self._ledger.drain()
        if len(rows) == 0:
            return
        self._rows.append(rows)
        for listener in self._listeners:
            listener(rows)
        if log.is_enabled_for(10):
            for line in describe(rows, self._ledger.accounts):
                log.debug("frame", **line)


class FrameFile:
    """frames.jsonl: one line for every frame, published or dropped, appended to earlier runs.

    A full disk loses lines, and is logged once.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: Path, instance: str, accounts: Sequence[str]) -> None:
        self._path, self._instance, self._accounts = path, instance, accounts
        self._encode = msgspec.json.Encoder().encode_lines
        self._lost_lines = 0
        try:
            self._file = AppendedFile(path)
        except OSError as error:
            raise ConfigError(f"monitor.frames_file: {path} cannot be written: {error.strerror}") from error

    def write(self, rows: Rows) -> None:
        text = self._encode([{"instance": self._instance, **line} for line in describe(rows, self._accounts)])
        try:
            file = self._file.current()
            written = file.write(text)
            if written != len(text):  # the disk is full in the middle of a line
                file.truncate(file.seek(file.tell() - written))
                raise OSError(28, "No space left on device")
        except OSError as error:
            if not self._lost_lines:
                log.error("frames_file cannot take more: make room", path=str(self._path), reason=error.strerror)
            self._lost_lines += len(rows)
            return
        if self._lost_lines:
            log.warning("frames_file goes on", path=str(self._path), lines_lost=self._lost_lines)
            self._lost_lines = 0

    def close(self) -> None:
        self._file.close()


def describe(rows: Rows, accounts: Sequence[str]) -> list[dict[str, object]]:
    """Rows as dictionaries: a published frame with its stages in ns, a dropped one with its cause; and its model, where
    there are several."""
    lines: list[dict[str, object]] = []
    for row in rows.tolist():
        account, dropped, seq, captured_at, _, _, *stages = row
        source, _, model = accounts[account].partition("/")
        line: dict[str, object] = {"source": source, "seq": seq, "captured_at": captured_at}
        if model:
            line["model"] = model
        line.update({"dropped": CAUSES[dropped - 1]} if dropped else zip(STAGES, stages))
        lines.append(line)
    return lines
