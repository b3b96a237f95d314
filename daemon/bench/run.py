"""One benchmark run of the whole daemon, in steady state or from the beginning to the end of recordings.

Files, decoders, lanes and the socket are real; the subscriber is a process of its own. In steady state the window
starts when every source has published frames and throughput and p99 are steady, and ends before the daemon stops.
Until the end, the window has every frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import monotonic, monotonic_ns

import numpy as np

from daemon.bench.harness import WarmUp, Window, counts_by_model, dropped_between, ended_well, probing, warm_up, watch
from daemon.bench.latency import Histogram, Rowset, Second, SourceFigures
from daemon.bench.listener import Stamps, listening
from daemon.bench.load import Load, PhasedSources, config_of
from daemon.bench.recording import write_dropped
from daemon.bench.steady import RowLog
from daemon.bench.usage import Usage
from daemon.build import build
from daemon.config.root import Config, LogConfig
from daemon.control.model_swap import OpenDetector
from daemon.daemon import Daemon
from daemon.errors import LookoutError
from daemon.log import logging
from daemon.monitoring.probes import GpuProbe
from daemon.pipeline.ledger import Counts, Rows
from daemon.progress import Tell
from daemon.seams import Seams
from detectors.factory import open_detector as usual_detector
from detectors.port import ModelInfo
from lookout.messages import Dropped, GpuMetrics


@dataclass(frozen=True)
class StartUp:
    """Seconds of the start.

    Attributes:
        daemon_s: until all objects were built and the model was opened.
        lanes_s: from there until the lanes had run once.
        first_detections_s: from the beginning until every source had published frames.
        parts: steps of opening the model, by name.
    """

    daemon_s: float
    lanes_s: float
    first_detections_s: float
    parts: dict[str, float]


@dataclass(frozen=True)
class ModelFigures:
    """The figures of one of several models, as in `Run`."""

    model: str
    backend: str
    precision: str
    captured: int
    published: int
    fps: float
    dropped_share: float
    dropped: dict[str, int]
    latency_ms: dict[str, float]


@dataclass(frozen=True)
class Run:
    """The figures of one run. Names of fields are keys of the report file. A frame at which several models look counts
    once for each.

    Attributes:
        loop: "open" if frames come when due, "closed" if a source's next frame waits for the one before.
        decoders: number of sources by decoder.
        refusals: number of sources by reason for not using the GPU's decoder.
        asked_fps: sum of the sources' own rates, for each model; None without pace.
        fps: published frames per second.
        received_share: detections received by the subscriber over those published, in the whole run.
        unaccounted: frames captured but neither published nor dropped at the end.
        dropped_share: share of the captured frames.
        source_fps: lowest, median and highest rate of a source.
        latency_ms: mean and percentiles, see `daemon.bench.latency`.
        stages_ms: the same for each stage.
        worst_second_ms: the highest p99 of any second.
        gpu_mib: increase of used GPU memory since before the daemon was built.
        planned_mib: planned GPU memory.
        busy_before: other processes on the GPU before the run; None if unknown.
        joules_per_frame, watts_per_source: from the GPU's whole power; None if unknown.
        steady: whether throughput and p99 were equal in each third of the window; None if not checked.
        crops: looks of the second stage in the whole run: requested, classified, dropped as busy. Empty without one.
        models: several, by name; empty where there is one.
    """

    sources: int
    loop: str
    model: str
    backend: str
    precision: str
    decoders: dict[str, int]
    refusals: dict[str, int]
    start_up: StartUp
    warm_up: WarmUp
    seconds: float
    captured: int
    published: int
    asked_fps: float | None
    fps: float
    received_share: float
    unaccounted: int
    dropped_share: float
    dropped: dict[str, int]
    source_fps: tuple[float, float, float]
    latency_ms: dict[str, float]
    stages_ms: dict[str, dict[str, float]]
    worst_second_ms: float
    histogram: Histogram
    by_source: dict[str, SourceFigures]
    timeline: list[Second]
    gpu_mib: float | None
    planned_mib: float
    memory_plan_mib: dict[str, float]
    busy_before: int | None
    joules_per_frame: float | None
    watts_per_source: float | None
    usage: Usage
    steady: bool | None = None
    crops: dict[str, int] = field(default_factory=dict)
    models: dict[str, ModelFigures] = field(default_factory=dict)

    @property
    def up(self) -> int:
        """Number of sources with published frames."""
        return self.warm_up.up


@dataclass(frozen=True)
class _Played:
    """The raw results of a run.

    Attributes:
        gpu: state before the run; None if unknown.
        plan: GPU memory plan, bytes.
    """

    daemon: Daemon
    window: Window
    rows: Rows
    stamps: Stamps
    start_up: StartUp
    warm_up: WarmUp
    gpu: GpuMetrics | None
    plan: dict[str, int]


def run(
    load: Load,
    *,
    frames_out: Path | None = None,
    open_detector: OpenDetector = usual_detector,
    tell: Tell | None = None,
) -> Run:
    """Run the daemon in this process and measure it.

    Args:
        frames_out: file to record every frame in.
        tell: called now and then with seconds of the measurement.

    Raises:
        LookoutError: the daemon failed, or a recording cannot be played to its end.
        DetectorError: the model cannot be used.
    """
    config = config_of(load)
    ids = tuple(source.id for source in config.active)
    with logging(LogConfig(level="error", format="console")), probing() as probe:
        played = _play(config, ids, load, probe, frames_out, open_detector, tell)
    if frames_out:
        write_dropped(frames_out, played.rows, [(id, name) for id in ids for name in config.model_names])
    return _figures(played, ids, load)


def _play(
    config: Config,
    ids: tuple[str, ...],
    load: Load,
    probe: GpuProbe,
    frames_out: Path | None,
    open_detector: OpenDetector,
    tell: Tell | None,
) -> _Played:
    log = RowLog(paced=load.paced)
    gpus = (probe.read() or [])[load.device : load.device + 1]
    began = monotonic_ns()
    sources = PhasedSources(config, load)
    daemon = build(config, Seams(rows=[log], open_detector=open_detector, make_source=sources, ends_early=True))
    made = monotonic()
    with listening(daemon.endpoint, frames_out) as listener:
        daemon.start()
        started = monotonic()
        warming, measuring = _phases(tell, load)
        warm = WarmUp(0, True, 0.0, 0.0) if load.until_end else warm_up(daemon, ids, log, load.warm_up, warming)
        window = watch(daemon, probe, load.device, None if load.until_end else load.seconds, measuring)
        plan = dict(daemon.parts.memory_plan)
        if load.until_end:
            daemon.wait()
        code = daemon.stop()
        for source, reason in daemon.sources.failures.items():
            raise LookoutError(f"{source}: {reason}")
        ended_well(code)
        stamps = listener.stamps([row for source in config.active for row in config.accounts_of(source).values()])
    rows = np.concatenate([log.all(), daemon.ledger.drain()])
    first_s = started - began / 1e9 + warm.start_s
    if load.until_end:
        window, firsts = _whole(window, daemon, rows), _first_sent(rows, load.looks)
        warm = replace(warm, up=len(firsts))
        first_s = (max(firsts, default=began) - began) / 1e9
    start_up = StartUp(
        daemon_s=round(made - began / 1e9, 3),
        lanes_s=round(started - made, 3),
        first_detections_s=round(first_s, 3),
        parts={
            f"{name}: {step}" if name else step: seconds
            for name, info in daemon.parts.detecting.infos.items()
            for step, seconds in dict(info.startup).items()
        },
    )
    return _Played(daemon, window, rows, stamps, start_up, warm, gpus[0] if gpus else None, plan)


def _phases(tell: Tell | None, load: Load) -> tuple[Tell | None, Tell | None]:
    """Tell of the warm-up, and of the measurement behind it, as of one time."""
    if tell is None or load.until_end:
        return None, tell
    total = load.warm_up + load.seconds
    return lambda done, _: tell(done, total), lambda done, _: tell(load.warm_up + done, total)


def _whole(window: Window, daemon: Daemon, rows: Rows) -> Window:
    """The window from the first captured frame to the last sent one, with every frame."""
    captured = rows["captured_ns"][rows["captured_ns"] > 0]
    if not len(captured):
        return window
    after, models, nothing = daemon.ledger.counts(), counts_by_model(daemon), Counts(0, 0, Dropped())
    return replace(
        window,
        begin=int(captured.min()),
        end=int((rows["captured_ns"] + rows["total"]).max()) + 1,
        before=dict.fromkeys(after, nothing),
        after=after,
        models_before=dict.fromkeys(models, nothing),
        models_after=models,
    )


def _first_sent(rows: Rows, models: int) -> list[int]:
    """The time of each source's first sent frame, monotonic ns.

    Args:
        models: that look at each source.
    """
    published = rows[rows["dropped"] == 0]
    sent, sources = published["captured_ns"] + published["total"], published["source"] // models
    return [int(sent[sources == source].min()) for source in np.unique(sources)]


def _figures(played: _Played, ids: Sequence[str], load: Load) -> Run:
    window, infos = played.window, played.daemon.parts.detecting.infos
    counts = played.daemon.ledger.counts().values()
    rates = window.rates(ids)
    rowset = Rowset(played.rows, window, ids, paced=load.paced, stamps=played.stamps, models=load.looks)
    used, energy = window.usage.gpu_bytes, window.usage.energy_j
    before = played.gpu.memory_used_bytes if played.gpu else None
    asked = load.looks * sum(format.fps or 0.0 for format in window.formats.values()) if load.paced else 0.0
    return Run(
        sources=len(ids),
        loop="open" if load.paced else "closed",
        model=" and ".join(f"{info.name} {info.digest}" for info in infos.values()),
        backend=" and ".join(dict.fromkeys(info.backend for info in infos.values())),
        precision=" and ".join(dict.fromkeys(info.precision for info in infos.values())),
        decoders=window.decoders,
        refusals=window.refusals,
        start_up=played.start_up,
        warm_up=played.warm_up,
        seconds=round(window.seconds, 3),
        captured=window.captured,
        published=window.published,
        asked_fps=round(asked, 2) if asked else None,
        fps=round(window.published / window.seconds, 2),
        received_share=round(len(played.stamps) / max(1, sum(count.published for count in counts)), 6),
        unaccounted=sum(count.in_flight for count in counts),
        dropped_share=round(sum(window.dropped.values()) / max(1, window.captured), 6),
        dropped=window.dropped,
        source_fps=(round(min(rates), 3), round(median(rates), 3), round(max(rates), 3)),
        latency_ms=rowset.latency(),
        stages_ms=rowset.stages(),
        worst_second_ms=round(rowset.worst_second(), 3),
        histogram=rowset.histogram(),
        by_source=rowset.sources(),
        timeline=rowset.timeline(),
        gpu_mib=None if used is None or before is None else round((used - before) / (1 << 20), 1),
        planned_mib=round(sum(played.plan.values()) / (1 << 20), 1),
        memory_plan_mib={name: round(size / (1 << 20), 1) for name, size in played.plan.items()},
        busy_before=played.gpu.processes if played.gpu else None,
        joules_per_frame=None if energy is None else round(energy / max(1, window.published), 5),
        watts_per_source=None if energy is None else round(energy / window.seconds / len(ids), 3),
        usage=window.usage,
        steady=None if load.until_end else rowset.is_steady(),
        crops=_crops(played.daemon),
        models=_models(window, rowset, infos) if len(infos) > 1 else {},
    )


def _models(window: Window, rowset: Rowset, infos: Mapping[str, ModelInfo]) -> dict[str, ModelFigures]:
    found = {}
    for number, (name, info) in enumerate(infos.items()):
        before, after = window.models_before[name], window.models_after[name]
        dropped, captured = dropped_between(before, after), after.captured - before.captured
        found[name] = ModelFigures(
            model=f"{info.name} {info.digest}",
            backend=info.backend,
            precision=info.precision,
            captured=captured,
            published=after.published - before.published,
            fps=round((after.published - before.published) / window.seconds, 2),
            dropped_share=round(sum(dropped.values()) / max(1, captured), 6),
            dropped=dropped,
            latency_ms=rowset.latency_of(number),
        )
    return found


def _crops(daemon: Daemon) -> dict[str, int]:
    rows = daemon.parts.classifiers.metrics().values()
    if not rows:
        return {}
    return {
        "requested": sum(row.requested for row in rows),
        "classified": sum(row.classified for row in rows),
        "busy": sum(row.dropped.busy for row in rows),
    }
