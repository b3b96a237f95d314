"""`lookout bench streams`: many sources of one recording through the whole daemon, in steady state, once.

Everything is real: files, decoders, lanes, the socket, and a subscriber in a process of its own. The clock starts when
every source has published its first frames and the rate is steady, and stops before the end, so that neither start nor
end is in the figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic

import numpy as np

from daemon.app import App
from daemon.bench.apart import Limits, limits_of
from daemon.bench.harness import Warmth, Window, decoders, ended_well, probing, refusals, warm_up, watch
from daemon.bench.latency import Histogram, Rowset, Second, SourceFigures
from daemon.bench.listener import listening
from daemon.bench.load import Load, config_of
from daemon.bench.recording import write_lost
from daemon.bench.usage import Usage
from daemon.changes import OpenDetector
from daemon.config import Config, LogConfig
from daemon.log import logging
from daemon.metrics import Rows
from daemon.probes import GpuProbe
from detectors.factory import open_detector as usual_detector


@dataclass(frozen=True)
class StartUp:
    """Seconds.

    Attributes:
        daemon_s: until everything was made, the model opened.
        lanes_s: until lanes had run once, after that.
        first_detections_s: from the beginning until every source had published frames.
        parts: of opening the model, by name.
    """

    daemon_s: float
    lanes_s: float
    first_detections_s: float
    parts: dict[str, float]


@dataclass(frozen=True)
class Streams:
    """One run.

    Attributes:
        loop: "open" if frames came when they were due, "closed" if each came when the one before had gone.
        decoders: how many sources each decoder has.
        refusals: why not the GPU's, where that was to be taken if it could, and for how many.
        asked_fps: of the sources at their own pace together; None if they went as fast as they could.
        fps: published frames a second.
        received_share: detections that the subscriber got over those published, of the whole run.
        unaccounted: frames captured and neither published nor dropped, after the end.
        dropped_share: of captured frames.
        source_fps: lowest, median and highest rate of a source.
        latency_ms: see `daemon.bench.latency`; mean and ranks.
        stages_ms: the same of each stage.
        worst_second_ms: the highest p99 of any second.
        gpu_mib: of the GPU's memory, more than before the daemon was made.
        planned_mib: what was planned.
        busy_before: processes that computed on the GPU before; None where nobody tells.
        joules_per_frame, watts_per_stream: of the GPU's whole power; None where it does not tell.
        limits: of the decoder and the engine, measured before.
    """

    sources: int
    loop: str
    model: str
    backend: str
    precision: str
    decoders: dict[str, int]
    refusals: dict[str, int]
    start_up: StartUp
    warmth: Warmth
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
    watts_per_stream: float | None
    usage: Usage
    limits: Limits | None = None

    @property
    def up(self) -> int:
        """Sources of which frames were published."""
        return self.warmth.up


@dataclass(frozen=True)
class _Run:
    """What a run leaves to be reckoned with; while the daemon is up, what only then can be asked.

    Attributes:
        asked_fps: see `Streams`.
        received: messages, by the subscriber.
        memory_before: bytes of the GPU that were in use before; None where nobody tells.
        plan: of the GPU's memory, bytes.
    """

    app: App
    window: Window
    rows: Rows
    start_up: StartUp
    warmth: Warmth
    decoders: dict[str, int]
    refusals: dict[str, int]
    asked_fps: float | None
    received: int
    memory_before: int | None
    busy_before: int | None
    plan: dict[str, int]


def streams(
    load: Load,
    *,
    limits: bool = False,
    frames_out: Path | None = None,
    open_detector: OpenDetector = usual_detector,
) -> Streams:
    """Run and measure.

    Args:
        limits: first measure the decoder and the engine, each alone and in a process of its own.
        frames_out: file to record every frame in.

    Raises:
        LookoutError: the daemon fails.
        DetectorError: the model cannot be used.
    """
    alone = limits_of(load) if limits else None
    config = config_of(load)
    ids = tuple(source.id for source in config.active)
    with logging(LogConfig(level="error", format="console")), probing() as probe:
        run = _run(config, ids, load, probe, frames_out, open_detector)
    if frames_out:
        write_lost(frames_out, run.rows, ids)
    return _figures(run, ids, load, alone)


def _run(
    config: Config,
    ids: tuple[str, ...],
    load: Load,
    probe: GpuProbe,
    frames_out: Path | None,
    open_detector: OpenDetector,
) -> _Run:
    rows: list[Rows] = []
    found = probe.read()
    began = monotonic()
    app = App(config, sinks=[rows.append], open_detector=open_detector)
    made = monotonic()
    with listening(app.endpoint, frames_out) as listener:
        app.start()
        started = monotonic()
        warmth = warm_up(app, ids, load.warm_up)
        start_up = StartUp(
            daemon_s=round(made - began, 3),
            lanes_s=round(started - made, 3),
            first_detections_s=round(started - began + warmth.start_s, 3),
            parts=dict(app.model.startup),
        )
        window = watch(app, probe, load.seconds)
        decoding, refused, plan = decoders(app), refusals(app), dict(app.memory_plan)
        asked = sum(format.fps or 0.0 for format in app.formats.values()) if load.paced else None
        ended_well(app.stop())
        received = listener.received()
    return _Run(
        app=app,
        window=window,
        rows=np.concatenate([*rows, app.ledger.drain()]),
        start_up=start_up,
        warmth=warmth,
        decoders=decoding,
        refusals=refused,
        asked_fps=asked,
        received=received,
        memory_before=found[0].memory_used_bytes if found else None,
        busy_before=found[0].processes if found else None,
        plan=plan,
    )


def _figures(run: _Run, ids: tuple[str, ...], load: Load, alone: Limits | None) -> Streams:
    window, model = run.window, run.app.model
    counts = run.app.ledger.counts().values()
    rates = window.rates(ids)
    kept = Rowset(run.rows, window, ids, paced=load.paced)
    used, before, energy = window.usage.gpu_bytes, run.memory_before, window.usage.energy_j
    return Streams(
        sources=len(ids),
        loop="open" if load.paced else "closed",
        model=f"{model.name} {model.digest}",
        backend=model.backend,
        precision=model.precision,
        decoders=run.decoders,
        refusals=run.refusals,
        start_up=run.start_up,
        warmth=run.warmth,
        seconds=round(window.seconds, 3),
        captured=window.captured,
        published=window.published,
        asked_fps=round(run.asked_fps, 2) if run.asked_fps else None,
        fps=round(window.published / window.seconds, 2),
        received_share=round(run.received / max(1, sum(count.published for count in counts)), 6),
        unaccounted=sum(count.in_flight for count in counts),
        dropped_share=round(sum(window.dropped.values()) / max(1, window.captured), 6),
        dropped=window.dropped,
        source_fps=(round(min(rates), 3), round(median(rates), 3), round(max(rates), 3)),
        latency_ms=kept.latency(),
        stages_ms=kept.stages(),
        worst_second_ms=round(kept.worst_second(), 3),
        histogram=kept.histogram(),
        by_source=kept.sources(),
        timeline=kept.timeline(),
        gpu_mib=None if used is None or before is None else round((used - before) / (1 << 20), 1),
        planned_mib=round(sum(run.plan.values()) / (1 << 20), 1),
        memory_plan_mib={name: round(size / (1 << 20), 1) for name, size in run.plan.items()},
        busy_before=run.busy_before,
        joules_per_frame=None if energy is None else round(energy / max(1, window.published), 5),
        watts_per_stream=None if energy is None else round(energy / window.seconds / len(ids), 3),
        usage=window.usage,
        limits=alone,
    )
