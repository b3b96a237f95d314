"""`lookout bench streams`: many sources of one recording through the whole daemon, in steady state.

Everything is real: files, decoders, lanes, the socket, and a subscriber in a process of its own. The clock starts when
every source has published its first frames, and stops before the end, so that neither start nor end is in the figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from time import monotonic

import numpy as np

from daemon.app import App
from daemon.bench.apart import Limits, limits_of
from daemon.bench.harness import (
    Load,
    Usage,
    await_first_frames,
    config_of,
    decoders,
    ended_well,
    latencies,
    probing,
    refusals,
    stages,
    watch,
)
from daemon.bench.listener import listening
from daemon.config import LogConfig
from daemon.log import logging
from daemon.metrics import Rows


@dataclass(frozen=True)
class Streams:
    """One run.

    Attributes:
        up: sources of which a frame was published.
        decoders: how many sources each decoder has.
        refusals: why not the GPU's, where that was to be taken if it could, and for how many.
        fps: published frames a second.
        received_share: detections that the subscriber got over those published, of the whole run.
        unaccounted: frames captured and neither published nor dropped, after the end.
        dropped_share: of captured frames.
        source_fps: lowest, median and highest rate of a source.
        latency_ms: captured to sent.
        worst_second_ms: the highest p99 of any second.
        stages_ms: p50 and p99 of each.
        start_s: from the first connect to the first frames of all.
        gpu_mib: of the GPU's memory, more than before the daemon was made.
        planned_mib: what was planned.
        limits: of the decoder and the engine, measured before.
    """

    sources: int
    up: int
    mode: str
    model: str
    backend: str
    decoders: dict[str, int]
    refusals: dict[str, int]
    seconds: float
    captured: int
    published: int
    fps: float
    received_share: float
    unaccounted: int
    dropped_share: float
    dropped: dict[str, int]
    source_fps: tuple[float, float, float]
    latency_ms: dict[str, float]
    worst_second_ms: float
    stages_ms: dict[str, tuple[float, float]]
    start_s: float
    gpu_mib: float | None
    planned_mib: float
    usage: Usage
    limits: Limits | None = None


def streams(load: Load, *, limits: bool = False) -> Streams:
    """Run and measure.

    Args:
        limits: first measure the decoder and the engine, each alone and in a process of its own.

    Raises:
        LookoutError: the daemon fails.
        DetectorError: the model cannot be used.
    """
    alone = limits_of(load) if limits else None
    config = config_of(load)
    ids = [source.id for source in config.active]
    rows: list[Rows] = []
    with logging(LogConfig(level="error", format="console")), probing() as probe:
        found = probe.read()
        before = found[0].memory_used_bytes if found else None
        app = App(config, sinks=[rows.append])
        with listening(app.endpoint) as listener:
            began = monotonic()
            app.start()
            up = await_first_frames(app, ids)
            start_s = monotonic() - began
            window = watch(app, probe, load.seconds)
            decoding, refused, planned = decoders(app), refusals(app), sum(dict(app.memory_plan).values())
            ended_well(app.stop())
            received = listener.received()
    counts = app.ledger.counts().values()
    rates = window.rates(ids)
    everything = np.concatenate(rows) if rows else app.ledger.drain()
    latency, worst = latencies(everything, window)
    used = window.usage.gpu_bytes
    return Streams(
        sources=len(ids),
        up=up,
        mode="paced" if load.paced else "lossless",
        model=f"{app.model.name} {app.model.digest}",
        backend=f"{app.model.backend}, {app.model.precision}",
        decoders=decoding,
        refusals=refused,
        seconds=round(window.seconds, 3),
        captured=window.captured,
        published=window.published,
        fps=round(window.published / window.seconds, 1),
        received_share=round(received / max(1, sum(count.published for count in counts)), 6),
        unaccounted=sum(count.in_flight for count in counts),
        dropped_share=round(sum(window.dropped.values()) / max(1, window.captured), 6),
        dropped=window.dropped,
        source_fps=(round(min(rates), 3), round(median(rates), 3), round(max(rates), 3)),
        latency_ms=latency,
        worst_second_ms=worst,
        stages_ms=stages(everything, window),
        start_s=round(start_s, 2),
        gpu_mib=None if used is None or before is None else round((used - before) / (1 << 20), 1),
        planned_mib=round(planned / (1 << 20), 1),
        usage=window.usage,
        limits=alone,
    )
